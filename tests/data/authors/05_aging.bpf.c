/* Priorities with aging: a queue's priority grows with the time for which its launch has waited. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

const volatile u64 step_ns = 1000000;

SEC("gbpf/dispatch") int GBPF_PROG(rank, dispatch)
{
	s32 prio = 8 - ctx->priority;
	u64 age = ctx->held_ns / step_ns;
	u32 rank;

	if (prio < 0) {
		prio = 0;
	}
	if (prio > 16) {
		prio = 16;
	}
	if (age > 64) {
		age = 64;
	}
	rank = prio * 1000 + age * 500;
	return rank > 1000000 ? 1000000 : rank;
}
