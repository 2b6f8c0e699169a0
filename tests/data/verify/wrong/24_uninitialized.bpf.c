/* A variable has a value on some paths only. */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(choose, submit)
{
	volatile u32 verdict;

	if (ctx->lc_open) {
		verdict = GBPF_HOLD;
	}
	return verdict & 1;
}

GBPF_LICENSE("GPL");
