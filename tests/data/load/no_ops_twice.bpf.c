/* refuse: other.on_submit: the hook submit is filled twice, by go and more */
#include "gbpf/gbpf.bpf.h"

SEC("struct_ops/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

SEC("struct_ops/more") int GBPF_PROG(more, submit)
{
	return 0;
}

SEC(".struct_ops") struct gbpf_ops mine = { .submit = go };
SEC(".struct_ops") struct gdrv_sched_ops other = { .on_submit = more };

GBPF_LICENSE("GPL");
