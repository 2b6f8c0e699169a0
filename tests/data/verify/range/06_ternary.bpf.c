/* Conditional values. Twins: the wrong default, the check of another value. */
/* twins: 2 */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 tab[64];

SEC("gbpf/submit") int GBPF_PROG(check, submit)
{
	u32 q = ctx->queue, c = ctx->weight;
	u32 i;

#if TWIN == 0
	i = q > 0 && q < 64 ? q : 0;
	tab[i]++;
#elif TWIN == 1
	i = q > 0 && q < 64 ? q : 64;
	tab[i]++;
#elif TWIN == 2
	i = q > 0 && c < 64 ? q : 0;
	tab[i]++;
#endif
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
