/* Programs inside kernels as members of structs. */
#include "gbpf/gbpf.bpf.h"

GBPF_DEVICE u64 seen[3];

SEC("struct_ops/enter")
int GBPF_PROG(on_enter, gdev_enter)
{
	__sync_fetch_and_add(&seen[0], gbpf_arg(8, 4));
	return 0;
}

SEC("struct_ops/exit")
int GBPF_PROG(on_exit, gdev_exit)
{
	__sync_fetch_and_add(&seen[1], 1);
	return 0;
}

SEC("struct_ops/access")
int GBPF_PROG(on_access, gdev_access)
{
	__sync_fetch_and_add(&seen[2], ctx->lanes);
	return 0;
}

SEC(".struct_ops")
struct gdev_sched_ops sched = {
	.enter = on_enter,
	.exit = on_exit,
	.name = "ops",
};

SEC(".struct_ops")
struct gdev_mem_ops memory = {
	.access = on_access,
};

GBPF_LICENSE("GPL");
