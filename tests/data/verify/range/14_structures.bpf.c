/* An index of structures, by multiplication. Twins: off by one, a product that wraps. */
/* twins: 2 */
#include "gbpf/gbpf.bpf.h"

struct row {
	u64 sum, n;
	u32 last;
};
GBPF_TENANT struct row rows[12];

SEC("gbpf/submit") int GBPF_PROG(check, submit)
{
	u32 q = ctx->queue;

#if TWIN == 0
	if (q && q <= 12) {
		rows[q - 1].sum += rows[q - 1].n;
	}
#elif TWIN == 1
	if (q && q <= 13) {
		rows[q - 1].sum += rows[q - 1].n;
	}
#elif TWIN == 2
	if (q * 24 < 12 * 24) {
		rows[q].sum++;
	}
#endif
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
