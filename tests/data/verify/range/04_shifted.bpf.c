/* One comparison of a difference. Twins: the wrong constant, the comparison signed. */
/* twins: 3 */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 tab[64];

SEC("gbpf/submit") int GBPF_PROG(check, submit)
{
	u32 q = ctx->queue;

#if TWIN == 0
	if (q - 10 < 20u) {
		tab[q]++;
		tab[q + 34]++;
	}
#elif TWIN == 1
	if (q - 10 < 55u) {
		tab[q]++;
	}
#elif TWIN == 2
	if (q - 10 < 20u) {
		tab[q + 35]++;
	}
#elif TWIN == 3
	if ((s32)(q - 10) < 20) {
		tab[q]++;
	}
#endif
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
