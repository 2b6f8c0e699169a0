/* refuse: mine: struct sched_ext_ops is no struct of programs that gBPF knows */
#include "gbpf/gbpf.bpf.h"

struct sched_ext_ops {
	int (*submit)(struct gbpf_submit_ctx *ctx);
};

SEC("struct_ops/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

SEC("struct_ops/more") int GBPF_PROG(more, tick)
{
	return 0;
}

SEC(".struct_ops.link") struct sched_ext_ops mine = { .submit = go };

GBPF_LICENSE("GPL");
