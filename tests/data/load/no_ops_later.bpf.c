/* refuse: mem.region_add: this gBPF does not offer that hook yet */
#include "gbpf/gbpf.bpf.h"

SEC("struct_ops/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

SEC("struct_ops/more") int GBPF_PROG(more, tick)
{
	return 0;
}

SEC(".struct_ops") struct gbpf_ops mine = { .submit = go, .tick = more };
SEC(".struct_ops") struct gdrv_mem_ops mem = { .region_add = (void *)more };

GBPF_LICENSE("GPL");
