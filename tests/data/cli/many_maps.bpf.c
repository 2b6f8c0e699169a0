/* A map of each kind that a scenario can look into. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

struct pair {
	u32 a, b;
};

struct seen {
	u64 n;
	s32 last;
	u32 spare; /* without it there would be unwritten padding */
	char name[8];
	struct pair pair;
};

struct {
	__uint(type, GBPF_MAP_HASH);
	__uint(max_entries, 8);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, struct pair);
	__type(value, struct seen);
} table SEC(".maps");

struct {
	__uint(type, GBPF_MAP_QUEUE);
	__uint(max_entries, 4);
	__uint(map_flags, GBPF_F_TENANT);
	__type(value, u64);
} line SEC(".maps");

struct {
	__uint(type, GBPF_MAP_RINGBUF);
	__uint(max_entries, 4096);
	__uint(map_flags, GBPF_F_TENANT);
	__type(value, struct seen);
} ring SEC(".maps");

struct {
	__uint(type, GBPF_MAP_THREAD_ARRAY);
	__uint(max_entries, 2);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} sums SEC(".maps");

const volatile u64 limit = 3;
u64 total, clocks[4];
GBPF_TENANT u64 mine;

SEC("gbpf/submit")
int GBPF_PROG(many_submit, submit)
{
	struct pair key = { ctx->queue, ctx->kind };
	struct seen s = { .n = ctx->bytes, .last = ctx->priority, .name = "p", .pair = key };
	u64 n = ctx->bytes, *sum;
	u32 one = 1;

	bpf_map_update_elem(&table, &key, &s, BPF_ANY);
	bpf_map_push_elem(&line, &n, 0);
	bpf_ringbuf_output(&ring, &s, sizeof(s), 0);
	sum = bpf_map_lookup_elem(&sums, &one);
	if (sum) {
		*sum += n;
	}
	mine = bpf_ktime_get_ns();
	gbpf_note(2, 1);
	if (ctx->inflight > limit) {
		ctx->hold_ns = 1000000;
		return GBPF_HOLD;
	}
	return GBPF_GO;
}

SEC("gbpf/tick")
int GBPF_PROG(many_tick, tick)
{
	total += ctx->active;
	clocks[ctx->epoch & 3] = ctx->now_ns;
	return 0;
}

SEC("gbpf/admit")
int GBPF_PROG(many_admit, admit)
{
	ctx->weight = 7;
	return ctx->uid ? GBPF_REJECT : GBPF_ADMIT;
}
