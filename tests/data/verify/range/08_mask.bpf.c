/* A mask, then a comparison. Twins: off by one, the unmasked number. */
/* twins: 2 */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 tab[64];

SEC("gbpf/submit") int GBPF_PROG(check, submit)
{
	u64 q = ctx->kernel;
	u32 i = q & 0x7f;

#if TWIN == 0
	if (i >= 16 && i < 80) {
		tab[i - 16]++;
	}
#elif TWIN == 1
	if (i >= 16 && i <= 80) {
		tab[i - 16]++;
	}
#elif TWIN == 2
	if (i >= 16 && i < 80) {
		tab[q - 16]++;
	}
#endif
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
