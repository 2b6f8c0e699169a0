/* Comparisons written the other way round, and exclusions at a bound. Twins: exclusion of a number inside the range. */
/* twins: 3 */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 tab[64];

SEC("gbpf/submit") int GBPF_PROG(check, submit)
{
	u32 q = ctx->queue;

#if TWIN == 0
	if (64 > q && 0 != q) {
		tab[q]++;
	}
	if (q <= 64 && q != 64) {
		tab[q]++;
	}
	if (q <= 64 && q != 0) {
		tab[q - 1]++;
	}
#elif TWIN == 1
	if (64 >= q && 0 != q) {
		tab[q]++;
	}
#elif TWIN == 2
	if (q <= 64 && q != 63) {
		tab[q]++;
	}
#elif TWIN == 3
	if (q <= 64 && q != 1) {
		tab[q - 1]++;
	}
#endif
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
