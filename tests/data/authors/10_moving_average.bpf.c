/* Moving averages of kernels' durations by hash; batch waits if much is in flight for its average. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

struct avg {
	u64 mean;
	u64 dev;
	u32 n;
};

struct {
	__uint(type, GBPF_MAP_LRU_HASH);
	__uint(max_entries, 512);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u64);
	__type(value, struct avg);
} averages SEC(".maps");

SEC("gbpf/retire") int GBPF_PROG(ewma, retire)
{
	u64 key = ctx->kernel, d = ctx->duration_ns;
	struct avg *a, fresh = { .mean = d, .n = 1 };
	u64 diff;

	if (ctx->count > 1) {
		d /= ctx->count;
	}
	a = bpf_map_lookup_elem(&averages, &key);
	if (!a) {
		bpf_map_update_elem(&averages, &key, &fresh, BPF_ANY);
		return 0;
	}
	diff = d > a->mean ? d - a->mean : a->mean - d;
	a->mean = (a->mean * 7 + d) / 8;
	a->dev = (a->dev * 3 + diff) / 4;
	a->n++;
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(use, submit)
{
	u64 key = ctx->kernel;
	struct avg *a = bpf_map_lookup_elem(&averages, &key);

	if (ctx->class_id != GBPF_CLASS_BATCH || !a || a->n < 8) {
		return GBPF_GO;
	}
	return ctx->inflight_ns > 2 * (a->mean + 4 * a->dev) ? GBPF_HOLD : GBPF_GO;
}
