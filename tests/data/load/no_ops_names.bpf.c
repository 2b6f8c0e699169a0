/* refuse: other.name: another struct of programs says something else */
#include "gbpf/gbpf.bpf.h"

SEC("struct_ops/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

SEC("struct_ops/more") int GBPF_PROG(more, tick)
{
	return 0;
}

SEC(".struct_ops") struct gbpf_ops mine = { .submit = go, .name = "one" };
SEC(".struct_ops") struct gdrv_sched_ops other = { .tick = more, .name = "two" };

GBPF_LICENSE("GPL");
