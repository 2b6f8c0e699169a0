/* The four tenants with the most traffic, kept sorted by insertion while a plain loop passes. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

struct entry {
	u64 bytes;
	u32 tenant;
};

struct entry top[4];

SEC("gbpf/tick") int GBPF_PROG(rank, tick)
{
	struct entry best[4] = {};

	for (u32 i = 0; i < ctx->tenants; i++) {
		struct entry e = { gbpf_tenant_stat(i, GBPF_STAT_BYTES), i };

		for (int k = 0; k < 4; k++) {
			if (e.bytes > best[k].bytes) {
				struct entry t = best[k];

				best[k] = e;
				e = t;
			}
		}
	}
	for (int k = 0; k < 4; k++) {
		top[k] = best[k];
	}
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(slow, submit)
{
	for (int k = 0; k < 4; k++) {
		if (top[k].tenant == ctx->tenant && top[k].bytes && ctx->kind == GBPF_KIND_COPY) {
			ctx->hold_ns = 400000 >> k;
			return ctx->asked ? GBPF_GO : GBPF_HOLD;
		}
	}
	return GBPF_GO;
}
