/* Casts between widths. Twins: the whole number after a check of its low half, the sign. */
/* twins: 3 */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 tab[64];

SEC("gbpf/submit") int GBPF_PROG(check, submit)
{
	u64 q = ctx->bytes;
	u32 w = (u32)q;
	s32 s = (s32)q;

#if TWIN == 0
	if (w && w < 64) {
		tab[w]++;
		tab[(u32)q - 1]++;
	}
	if (s > 3 && s < 64) {
		tab[(u64)s - 3]++;
	}
#elif TWIN == 1
	if (w && w < 64) {
		tab[q]++;
	}
#elif TWIN == 2
	if (s < 64) {
		tab[(u32)s]++;
	}
#elif TWIN == 3
	if (s > 3 && s < 64) {
		tab[(u64)s - 5]++;
	}
#endif
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
