/* Runs a program that reads epoch arrays. It latches the published epoch once, and all its lookups
 * use that copy. Programs of gbpfd see and write the copy of the next epoch. */
#include "bpf/run/policy_image.h"

uint64_t ebpf_policy_run_latched(struct ebpf_policy *p, unsigned hook, void *ctx)
{
	struct ebpf_latch outer = ebpf_latch; /* a signal may run a hook within a hook */
	uint64_t first = load_acquire(p->epoch), verdict;
	uint32_t outlived;

	ebpf_latch = (struct ebpf_latch){ .epoch = 1 + first + p->epoch_ahead };
	compiler_barrier();
	verdict = ebpf_policy_run_now(p, hook, ctx);
	fence_acquire(); /* Orders the reads of the program before the second read of the epoch
			    word. */
	outlived = !p->epoch_ahead && load_acquire(p->epoch) - first >= EBPF_EPOCH_COPIES - 1;
	if (outlived) {
		(void)add_relaxed(&p->outlived, 1u);
	}
	ebpf_latch = (struct ebpf_latch){ outer.epoch, outlived };
	return verdict;
}
