/* refuse: sched.enter: go fills the hook gdev_enter already, by its section */
#include "gbpf/gbpf.bpf.h"

SEC("gdev/enter/gemm*")
int GBPF_PROG(go, gdev_enter)
{
	return 0;
}

SEC(".struct_ops")
struct gdev_sched_ops sched = {
	.enter = go,
};

GBPF_LICENSE("GPL");
