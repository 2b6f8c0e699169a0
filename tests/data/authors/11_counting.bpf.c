/* Counting: how many tenants of each class are busy, open and late decides the share of batch work. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

u32 n_busy, n_open, n_late, n_batch;

SEC("gbpf/tick") int GBPF_PROG(count, tick)
{
	u32 busy = 0, open = 0, late = 0, batch = 0;

	for (u32 i = 0; i < ctx->tenants; i++) {
		long class = gbpf_tenant_class(i);
		u64 deadline;

		if (class < 0) {
			continue;
		}
		if (gbpf_tenant_stat(i, GBPF_STAT_INFLIGHT_NS) > 0) {
			busy++;
		}
		if (class == GBPF_CLASS_LATENCY && gbpf_tenant_stat(i, GBPF_STAT_OPEN)) {
			open++;
		}
		deadline = gbpf_tenant_stat(i, GBPF_STAT_DEADLINE_NS);
		if (deadline && deadline < ctx->now_ns) {
			late++;
		}
		if (class == GBPF_CLASS_BATCH) {
			batch++;
		}
	}
	n_busy = busy;
	n_open = open;
	n_late = late;
	n_batch = batch;
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(share, submit)
{
	if (ctx->class_id != GBPF_CLASS_BATCH || !n_open) {
		return GBPF_GO;
	}
	if (n_late > 0 || n_batch > 2 * n_busy) {
		return GBPF_DEFER;
	}
	return GBPF_HOLD;
}
