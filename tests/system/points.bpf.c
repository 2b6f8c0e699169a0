/* For tools/point-test: changes every kind of map all the time, so that each POINT() of the maps is passed, in the programs'
 * processes and in gbpfd. Compiled with two values of VERSION. Checks what it can: a value read back from a hash, queue
 * or stack is one that was written, whole; gbpf_note(0) counts those that are not. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

const volatile u64 version = VERSION;

struct pair {
	u64 a, b; /* b is a ^ SECRET: a torn one shows */
};
#define SECRET 0x5a5a5a5a5a5a5a5aULL

#define MAP(kind, name, n, flags, key_type)                                                                              \
	struct {                                                                                                         \
		__uint(type, GBPF_MAP_##kind);                                                                           \
		__uint(max_entries, n);                                                                                  \
		__uint(map_flags, flags);                                                                                \
		__type(key, key_type);                                                                                   \
		__type(value, struct pair);                                                                              \
	} name SEC(".maps")

struct prefix {
	u32 bits;
	u32 address;
};

MAP(HASH, table, 64, GBPF_F_TENANT, u64);
MAP(LRU_HASH, recent, 8, GBPF_F_TENANT, u64);
MAP(LPM_TRIE, routes, 64, GBPF_F_TENANT, struct prefix);
MAP(HASH, gbpfd_table, 64, GBPF_F_DAEMON, u64);
MAP(LRU_HASH, gbpfd_recent, 8, GBPF_F_DAEMON, u64);

struct {
	__uint(type, GBPF_MAP_QUEUE);
	__uint(max_entries, 8);
	__uint(map_flags, GBPF_F_TENANT);
	__type(value, struct pair);
} queue SEC(".maps");

struct {
	__uint(type, GBPF_MAP_STACK);
	__uint(max_entries, 8);
	__uint(map_flags, GBPF_F_TENANT);
	__type(value, struct pair);
} stack SEC(".maps");

struct {
	__uint(type, GBPF_MAP_RINGBUF);
	__uint(max_entries, 4096);
	__uint(map_flags, GBPF_F_TENANT);
} ring SEC(".maps");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 16);
	__uint(map_flags, GBPF_F_EPOCH);
	__type(key, u32);
	__type(value, u64);
} published SEC(".maps");

static __always_inline void check(const struct pair *p)
{
	if (p->b != (p->a ^ SECRET)) {
		gbpf_note(0, 1);
	}
}

static __always_inline void change(void *table_map, void *recent_map, u64 n)
{
	struct pair p = { n, n ^ SECRET }, *found;
	u64 key = n & 15, many = n & 63;

	found = bpf_map_lookup_elem(table_map, &key);
	if (n & 16) {
		bpf_map_update_elem(table_map, &key, &p, 0);
	} else if (found) {
		bpf_map_delete_elem(table_map, &key);
	}
	bpf_map_update_elem(recent_map, &many, &p, 0);
}

SEC("gbpf/submit")
int GBPF_PROG(points_submit, submit)
{
	u64 n = ctx->now_ns >> 10;
	struct pair p = { n, n ^ SECRET }, out = {};
	struct prefix route = { 16 + (n & 15), n };
	u32 zero = 0, one = 1;
	u64 *a, *b;

	change(&table, &recent, n);
	bpf_map_update_elem(&routes, &route, &p, 0);
	if (n & 2) {
		bpf_map_delete_elem(&routes, &route);
	}
	bpf_map_push_elem(&queue, &p, 0);
	if (bpf_map_pop_elem(&queue, &out) == 0) {
		check(&out);
	}
	bpf_map_push_elem(&stack, &p, 0);
	if (bpf_map_pop_elem(&stack, &out) == 0) {
		check(&out);
	}
	bpf_ringbuf_output(&ring, &p, sizeof(p), 0);
	a = bpf_map_lookup_elem(&published, &zero);
	b = bpf_map_lookup_elem(&published, &one);
	if (a && b && *a != *b) {
		gbpf_note(1, 1); /* two epochs in one call */
	}
	gbpf_note(2, 1);
	if (ctx->class_id == GBPF_CLASS_BATCH && ctx->lc_open) {
		ctx->hold_ns = 2000000;
		return GBPF_HOLD;
	}
	return GBPF_GO;
}

SEC("gbpf/retire")
int GBPF_PROG(points_retire, retire)
{
	gbpf_note(3, version);
	return 0;
}

/* Each version gives other weights, so that a swap sends them to the programs that run. */
SEC("gbpf/admit")
int GBPF_PROG(points_admit, admit)
{
	ctx->weight = 100 + VERSION;
	return GBPF_ADMIT;
}

SEC("gbpf/tick")
int GBPF_PROG(points_tick, tick)
{
	u64 n = ctx->now_ns >> 10;
	u32 zero = 0, one = 1;

	change(&gbpfd_table, &gbpfd_recent, n);
	bpf_map_update_elem(&published, &zero, &n, 0);
	bpf_map_update_elem(&published, &one, &n, 0);
	return 0;
}

SEC("gbpf/init")
int GBPF_PROG(points_init, init)
{
	u64 key = 0;
	struct pair p = { 0, SECRET };

	return bpf_map_update_elem(&gbpfd_table, &key, &p, 0) ? -1 : 0;
}

SEC("gbpf/exit")
int GBPF_PROG(points_exit, exit)
{
	gbpf_note(4, 1);
	return 0;
}
