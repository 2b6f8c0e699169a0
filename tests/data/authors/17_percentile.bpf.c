/* Percentiles of all tenants' durations from gBPF's histograms: tick sums them and finds p50 and p99. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

GBPF_HISTOGRAM(durations, 1);

u64 total[64];
u32 p50, p99;

SEC("gbpf/retire") int GBPF_PROG(add, retire)
{
	gbpf_hist_add(&durations, 0, ctx->duration_ns / 1000);
	return 0;
}

SEC("gbpf/tick") int GBPF_PROG(percentiles, tick)
{
	u32 zero = 0, a = 0, b = 0;
	u64 n = 0, seen = 0;

	if (ctx->epoch % 64) {
		return 0;
	}
	for (u32 s = 0; s < 64; s++) {
		total[s] = 0;
	}
	for (u32 t = 0; t < ctx->tenants && t < 32; t++) {
		struct gbpf_hist *h = gbpf_tenant_lookup(&durations, t, &zero);

		if (!h) {
			continue;
		}
		for (u32 s = 0; s < 64; s++) {
			total[s] += h->count[s];
			n += h->count[s];
		}
	}
	for (u32 s = 0; s < 64; s++) {
		seen += total[s];
		if (!a && seen * 2 >= n) {
			a = s;
		}
		if (!b && seen * 100 >= n * 99) {
			b = s;
		}
	}
	p50 = a;
	p99 = b;
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(tail, submit)
{
	return ctx->class_id == GBPF_CLASS_BATCH && p99 > p50 + 4 ? GBPF_HOLD : GBPF_GO;
}
