/* Ranges in a switch. Twins: a range too far, fall-through without a check. */
/* twins: 2 */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 tab[64];

SEC("gbpf/submit") int GBPF_PROG(check, submit)
{
	u32 q = ctx->queue;

#if TWIN == 0
	switch (q) {
	case 1 ... 20:
		tab[q]++;
		break;
	case 40 ... 63:
		tab[q - 40]++;
		break;
	default:
		break;
	}
#elif TWIN == 1
	switch (q) {
	case 1 ... 20:
		tab[q]++;
		break;
	case 40 ... 64:
		tab[q]++;
		break;
	default:
		break;
	}
#elif TWIN == 2
	switch (q) {
	case 1 ... 20:
		tab[q]++;
		break;
	default:
		tab[q - 40]++;
		break;
	}
#endif
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
