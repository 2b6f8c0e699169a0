/* Hysteresis: batch work stops above one share of busy latency tenants and resumes below another. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

u32 stopped, calm;
u64 held_since, ema[4];

SEC("gbpf/tick") int GBPF_PROG(watch, tick)
{
	u32 open = 0, all = 0, high = 0;

	for (u32 i = 0; i < ctx->tenants; i++) {
		if (gbpf_tenant_class(i) != GBPF_CLASS_LATENCY) {
			continue;
		}
		all++;
		if (gbpf_tenant_stat(i, GBPF_STAT_OPEN)) {
			open++;
		}
	}
	for (int k = 0; k < 4; k++) {
		u64 sample = all ? open * 1000 / all : 0;

		ema[k] += ((s64)(sample - ema[k])) >> (k + 1);
		if (ema[k] > 700) {
			high++;
		}
	}
	if (!stopped && high >= 3) {
		stopped = 1;
		held_since = ctx->now_ns;
	} else if (stopped && (high == 0 || ctx->now_ns - held_since > 500000000)) {
		if (++calm > 5) {
			stopped = 0;
			calm = 0;
		}
	} else {
		calm = 0;
	}
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(stop, submit)
{
	return stopped && ctx->class_id == GBPF_CLASS_BATCH ? GBPF_DEFER : GBPF_GO;
}
