/* The neighbour of a checked index. Twins: the neighbour beyond the end, before the beginning. */
/* twins: 2 */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 tab[64];

SEC("gbpf/submit") int GBPF_PROG(check, submit)
{
	u32 q = ctx->queue;

#if TWIN == 0
	if (q > 0 && q < 63) {
		tab[q + 1] += tab[q - 1];
	}
#elif TWIN == 1
	if (q > 0 && q < 64) {
		tab[q + 1] += tab[q - 1];
	}
#elif TWIN == 2
	if (q < 63) {
		tab[q + 1] += tab[q - 1];
	}
#endif
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
