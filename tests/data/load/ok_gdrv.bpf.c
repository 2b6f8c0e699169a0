/* accept: the tables' own names for hooks; two structs that say the same name. */
#include "gbpf/gbpf.bpf.h"

SEC("struct_ops/on_submit") int GBPF_PROG(go, submit)
{
	return GBPF_HOLD;
}

SEC("struct_ops/queue_create") int GBPF_PROG(create, queue_create)
{
	ctx->class_id = GBPF_CLASS_BATCH;
	return 0;
}

SEC("struct_ops/exit") int GBPF_PROG(end, exit)
{
	return 0;
}

SEC(".struct_ops.link")
struct gdrv_sched_ops sched = { .on_submit = go, .queue_create = create, .name = "tables" };

SEC(".struct_ops")
struct gdrv_mem_ops mem = { .exit = end, .name = "tables", .flags = 0 };

GBPF_LICENSE("GPL");
