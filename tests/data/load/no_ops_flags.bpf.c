/* refuse: mine.flags: no flags are known in this version */
#include "gbpf/gbpf.bpf.h"

SEC("struct_ops/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

SEC("struct_ops/more") int GBPF_PROG(more, tick)
{
	return 0;
}

SEC(".struct_ops") struct gbpf_ops mine = { .submit = go, .tick = more, .flags = 2 };

GBPF_LICENSE("GPL");
