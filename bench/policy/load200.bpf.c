/* Two hundred typical instructions of a policy, to measure the time of loading. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

struct account {
	u64 used[8];
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 16);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

u64 limit[16];

#define STEP(n)                                                                                                             \
	if (ctx->est_ns + a->used[n] > limit[n] + (ctx->inflight_ns >> n)) {                                                \
		a->used[n] += ctx->blocks * ctx->threads + n;                                                               \
		hold += a->used[n] & 0xfff;                                                                                 \
	} else if (a->used[n] > ctx->bytes) {                                                                               \
		a->used[n] -= ctx->bytes;                                                                                   \
	}

SEC("gbpf/submit")
int GBPF_PROG(load200, submit)
{
	u32 key = ctx->queue & 15;
	struct account *a = bpf_map_lookup_elem(&accounts, &key);
	u64 hold = 0;

	if (!a || ctx->class_id == GBPF_CLASS_LATENCY) {
		return GBPF_GO;
	}
	STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)
	ctx->hold_ns = hold;
	return hold > 1000 && ctx->lc_open ? GBPF_HOLD : GBPF_GO;
}
