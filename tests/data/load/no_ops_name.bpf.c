/* refuse: mine.name: letters, digits, underscores, dots and dollars are allowed */
#include "gbpf/gbpf.bpf.h"

SEC("struct_ops/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

SEC("struct_ops/more") int GBPF_PROG(more, tick)
{
	return 0;
}

SEC(".struct_ops") struct gbpf_ops mine = { .submit = go, .tick = more, .name = "a b" };

GBPF_LICENSE("GPL");
