/* min and max as macros. Twins: min too large, the other value. */
/* twins: 2 */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 tab[64];

SEC("gbpf/submit") int GBPF_PROG(check, submit)
{
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
	u64 q = ctx->bytes, i;
	s32 p = ctx->priority, k;

	k = max(min(p, 31), -32) + 32;
#if TWIN == 0
	i = min(q, 63);
	tab[i]++;
	tab[k]++;
#elif TWIN == 1
	i = min(q, 64);
	tab[i]++;
	tab[k]++;
#elif TWIN == 2
	i = min(q, 63);
	tab[i + k]++;
#endif
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
