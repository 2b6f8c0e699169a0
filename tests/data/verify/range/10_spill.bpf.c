/* An index that is kept in memory between check and use, as when registers run out. Twins: changed meanwhile, off by one. */
/* twins: 2 */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 tab[64];

SEC("gbpf/submit") int GBPF_PROG(check, submit)
{
	volatile u64 kept = ctx->bytes;
	volatile u32 low;
	u64 q = kept;

#if TWIN == 0
	if (q && q < 64) {
		kept = q;
		low = (u32)q;
		bpf_ktime_get_ns();
		tab[kept]++;
		tab[low - 1]++;
	}
#elif TWIN == 1
	if (q && q < 64) {
		kept = q;
		low = (u32)q;
		kept += bpf_ktime_get_ns();
		tab[kept]++;
	}
#elif TWIN == 2
	if (q && q < 64) {
		kept = q;
		low = (u32)q;
		bpf_ktime_get_ns();
		tab[low + 1]++;
	}
#endif
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
