/* A closed range. Twins: the upper end, the lower end of an index that is shifted down. */
/* twins: 2 */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 tab[64];

SEC("gbpf/submit") int GBPF_PROG(check, submit)
{
	u64 q = ctx->bytes;

#if TWIN == 0
	if (1 <= q && q <= 63) {
		tab[q - 1]++;
		tab[q]++;
	}
#elif TWIN == 1
	if (1 <= q && q <= 64) {
		tab[q - 1]++;
		tab[q]++;
	}
#elif TWIN == 2
	if (q <= 63) {
		tab[q - 1]++;
	}
#endif
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
