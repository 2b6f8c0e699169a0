/* refuse: sched.should_try_steal: this gBPF does not offer that hook yet */
#include "gbpf/gbpf.bpf.h"

SEC("struct_ops/should_try_steal")
int GBPF_PROG(steal, gdev_enter)
{
	return 0;
}

SEC(".struct_ops")
struct gdev_sched_ops sched = {
	.should_try_steal = (void *)steal,
};

GBPF_LICENSE("GPL");
