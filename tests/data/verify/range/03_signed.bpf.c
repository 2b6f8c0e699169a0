/* Signed checks. Twins: without the lower end, off by one at each end. */
/* twins: 3 */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 tab[64];

SEC("gbpf/submit") int GBPF_PROG(check, submit)
{
	s32 i = ctx->priority;

#if TWIN == 0
	if (i > 0 && i < 64) {
		tab[i]++;
	}
	if (i >= -5 && i <= 58) {
		tab[i + 5]++;
	}
#elif TWIN == 1
	if (i < 64) {
		tab[i]++;
	}
#elif TWIN == 2
	if (i >= -6 && i <= 58) {
		tab[i + 5]++;
	}
#elif TWIN == 3
	if (i >= -5 && i <= 59) {
		tab[i + 5]++;
	}
#endif
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
