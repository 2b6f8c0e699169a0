/* refuse: go and more are both programs for the hook submit */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

SEC("struct_ops/more") int GBPF_PROG(more, submit)
{
	return 0;
}

SEC(".struct_ops") struct gbpf_ops mine = { .submit = more };

GBPF_LICENSE("GPL");
