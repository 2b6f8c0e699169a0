/* The check of a copy that was changed. Twins: changed too much, a copy of another value. */
/* twins: 2 */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 tab[64];

SEC("gbpf/submit") int GBPF_PROG(check, submit)
{
	u64 q = ctx->bytes, r = ctx->blocks;
	u64 next = q + 1;

#if TWIN == 0
	if (next > 1 && next < 65) {
		tab[q]++;
		tab[next - 2]++;
	}
#elif TWIN == 1
	if (next < 65) {
		tab[q]++;
	}
#elif TWIN == 2
	if (next > 1 && next < 65) {
		tab[r]++;
	}
#endif
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
