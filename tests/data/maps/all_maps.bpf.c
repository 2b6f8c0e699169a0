/* Every type of map, from both sides, for tests/unit/bpf_run/test_map_policy.c: submit answers with
 * what went wrong (0 nothing), and leaves something in each map. */
#include <gbpf/gbpf.bpf.h>

GBPF_STANDARD_MAP(TENANT_CREDITS);
GBPF_STANDARD_MAP(JOB_META);
GBPF_STANDARD_MAP(VSLICE_SET);
GBPF_STANDARD_MAP(MEMPOOL);
GBPF_STANDARD_MAP(IO_BUDGETS);
GBPF_STANDARD_MAP(PLACEMENT);
GBPF_STANDARD_MAP(OBS_CTRL);
GBPF_HISTOGRAM(waits, 3);

#define MAP(map_type, flags, entries, key_type, value_type)                                        \
	struct {                                                                                   \
		__uint(type, map_type);                                                            \
		__uint(map_flags, flags);                                                          \
		__uint(max_entries, entries);                                                      \
		__type(key, key_type);                                                             \
		__type(value, value_type);                                                         \
	}

struct pair {
	u64 a, b;
};
struct address {
	u32 bits;
	u8 byte[4];
};
struct event {
	u64 number, tenant;
};
struct guarded {
	struct bpf_spin_lock lock;
	u32 n;
	u64 sum;
};

MAP(GBPF_MAP_HASH, GBPF_F_TENANT, 16, u64, struct pair) table SEC(".maps");
MAP(GBPF_MAP_LRU_HASH, GBPF_F_TENANT, 8, u32, u64) recent SEC(".maps");
MAP(GBPF_MAP_LPM_TRIE, GBPF_F_TENANT, 8, struct address, u32) routes SEC(".maps");
MAP(GBPF_MAP_THREAD_ARRAY, GBPF_F_TENANT, 4, u32, u64) counts SEC(".maps");
MAP(GBPF_MAP_ARRAY, GBPF_F_TENANT, 4, u32, u64) result SEC(".maps");
MAP(GBPF_MAP_ARRAY, GBPF_F_DAEMON, 1, u32, struct guarded) guarded SEC(".maps");

struct {
	__uint(type, GBPF_MAP_QUEUE);
	__uint(map_flags, GBPF_F_TENANT);
	__uint(max_entries, 4);
	__type(value, struct pair);
} line SEC(".maps");

struct {
	__uint(type, GBPF_MAP_STACK);
	__uint(map_flags, GBPF_F_TENANT);
	__uint(max_entries, 4);
	__type(value, u64);
} pile SEC(".maps");

struct {
	__uint(type, GBPF_MAP_RINGBUF);
	__uint(map_flags, GBPF_F_TENANT);
	__uint(max_entries, 4096);
} events SEC(".maps");

struct {
	__uint(type, GBPF_MAP_RINGBUF);
	__uint(map_flags, GBPF_F_DAEMON);
	__uint(max_entries, 4096);
} news SEC(".maps");

static int check_hash(u64 key)
{
	struct pair v = { key, key + 1 }, *at;

	if (bpf_map_update_elem(&table, &key, &v, BPF_NOEXIST) != 0 ||
	    bpf_map_update_elem(&table, &key, &v, BPF_NOEXIST) != -17) {
		return 1;
	}
	at = bpf_map_lookup_elem(&table, &key);
	if (!at || at->b != key + 1) {
		return 2;
	}
	at->a = 77;
	if (bpf_map_delete_elem(&table, &key) != 0 || bpf_map_lookup_elem(&table, &key)) {
		return 3;
	}
	v.a = 5;
	return bpf_map_update_elem(&table, &key, &v, BPF_ANY) != 0;
}

static int check_lru(void)
{
	for (u32 i = 0; i < 20; i++) {
		u64 v = i, *at;

		if (bpf_map_update_elem(&recent, &i, &v, BPF_ANY) != 0) {
			return 4;
		}
		at = bpf_map_lookup_elem(&recent, &i);
		if (!at || *at != i) {
			return 5;
		}
	}
	return 0;
}

static int check_lpm(void)
{
	struct address net = { 8, { 10 } }, host = { 32, { 10, 1, 2, 3 } };
	u32 v = 8, *at;

	if (bpf_map_update_elem(&routes, &net, &v, BPF_ANY) != 0) {
		return 6;
	}
	at = bpf_map_lookup_elem(&routes, &host);
	if (!at || *at != 8) {
		return 7;
	}
	host.byte[0] = 11;
	return bpf_map_lookup_elem(&routes, &host) ? 8 : 0;
}

static int check_lists(u64 n)
{
	struct pair v = { n, n }, got = {};
	u64 w = n, top = 0;

	if (bpf_map_push_elem(&line, &v, BPF_EXIST) != 0 || bpf_map_peek_elem(&line, &got) != 0) {
		return 9;
	}
	if (bpf_map_push_elem(&pile, &w, 0) != 0 || bpf_map_pop_elem(&pile, &top) != 0 ||
	    top != n) {
		return 10;
	}
	return bpf_map_pop_elem(&pile, &top) == -2 && top == 0 ? 0 : 11;
}

static int check_ring(u64 n, u32 tenant)
{
	struct event e = { n, tenant }, *r = bpf_ringbuf_reserve(&events, sizeof(*r), 0);

	if (!r) {
		return 12;
	}
	r->number = n;
	r->tenant = tenant;
	bpf_ringbuf_submit(r, 0);
	r = bpf_ringbuf_reserve(&events, sizeof(*r), 0);
	if (!r) {
		return 13;
	}
	bpf_ringbuf_discard(r, 0);
	return bpf_ringbuf_output(&events, &e, sizeof(e), 0) != 0;
}

static long add_one(void *map, const u64 *key, struct pair *v, u64 *sum)
{
	*sum += v->a;
	return 0;
}

static long add_index(u32 i, u64 *sum)
{
	*sum += i;
	return 0;
}

static int check_loops(void)
{
	u64 sum = 0;
	int i;

	if (bpf_loop(10, add_index, &sum, 0) != 10 || sum != 45) {
		return 14;
	}
	bpf_for(i, 0, 5)
	{
		sum += i;
	}
	if (sum != 55) {
		return 15;
	}
	sum = 0;
	if (bpf_for_each_map_elem(&table, add_one, &sum, 0) < 1 || sum < 5) {
		return 16;
	}
	return 0;
}

SEC("gbpf/submit")
int GBPF_PROG(all_submit, submit)
{
	u32 zero = 0, one = 1, tenant = ctx->tenant;
	struct gbpf_tenant_credits *credits = bpf_map_lookup_elem(&TENANT_CREDITS, &tenant);
	u64 *count = bpf_map_lookup_elem(&counts, &zero),
	    *out = bpf_map_lookup_elem(&result, &zero);
	u64 *seen = bpf_map_lookup_elem(&result, &one);
	int wrong;

	if (!count || !out || !credits || !seen) {
		return GBPF_HOLD;
	}
	*count += 1;
	*seen = credits->tokens_ns;
	wrong = check_hash(ctx->kernel);
	wrong = wrong ? wrong : check_lru();
	wrong = wrong ? wrong : check_lpm();
	wrong = wrong ? wrong : check_lists(ctx->kernel);
	wrong = wrong ? wrong : check_ring(ctx->kernel, ctx->tenant);
	wrong = wrong ? wrong : check_loops();
	wrong = wrong ? wrong : gbpf_hist_add(&waits, 1, ctx->held_ns) != 0 ? 17 : 0;
	*out = wrong;
	return GBPF_GO;
}

SEC("gbpf/tick")
int GBPF_PROG(all_tick, tick)
{
	u32 zero = 0, io = 17;
	u64 key = 42;
	struct guarded *g = bpf_map_lookup_elem(&guarded, &zero);
	struct pair *p = gbpf_tenant_lookup(&table, 1, &key);
	struct event e = { ctx->epoch, p ? p->b : 0 };
	struct gbpf_io_budgets budget = { 25, 0, 4096 };
	u32 t;

	bpf_for(t, 0, 4)
	{
		struct gbpf_tenant_credits *credits = bpf_map_lookup_elem(&TENANT_CREDITS, &t);

		if (credits) {
			credits->tokens_ns = 1000 * ctx->epoch + t;
			credits->weight = gbpf_thread_sum(&counts, t, 0);
		}
	}
	bpf_map_update_elem(&IO_BUDGETS, &io, &budget, BPF_ANY);
	if (g) {
		bpf_spin_lock(&g->lock);
		g->n++;
		g->sum += ctx->epoch;
		bpf_spin_unlock(&g->lock);
	}
	bpf_ringbuf_output(&news, &e, sizeof(e), 0);
	return 0;
}

GBPF_LICENSE("Apache-2.0");
