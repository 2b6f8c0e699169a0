/* refuse: more is a program of the hook retire, but takes a struct gbpf_tick_ctx */
#include "gbpf/gbpf.bpf.h"

SEC("struct_ops/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

SEC("struct_ops/more") int GBPF_PROG(more, tick)
{
	return 0;
}

SEC(".struct_ops") struct gbpf_ops mine = { .submit = go, .retire = (void *)more };

GBPF_LICENSE("GPL");
