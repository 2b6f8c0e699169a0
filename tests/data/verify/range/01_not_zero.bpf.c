/* A range without 0. Twins: off by one, another register, changed after the check. */
/* twins: 3 */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 tab[64];

SEC("gbpf/submit") int GBPF_PROG(check, submit)
{
	u32 q = ctx->queue, other = ctx->weight;

#if TWIN == 0
	if (q && q < 64) {
		tab[q]++;
	}
#elif TWIN == 1
	if (q && q <= 64) {
		tab[q]++;
	}
#elif TWIN == 2
	if (q && q < 64) {
		tab[other]++;
	}
#elif TWIN == 3
	if (q && q < 64) {
		q *= 2;
		tab[q]++;
	}
#endif
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
