/* The weight of a tenant is for reading. */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(boost, submit)
{
	if (ctx->lc_open) {
		ctx->weight = 1;
	}
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
