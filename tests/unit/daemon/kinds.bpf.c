/* One map of every type. Only init runs; the test acts as the tenant. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("GPL");

struct name {
	u32 group;
	char text[12];
};

struct event {
	u64 at;
	u32 what;
	char who[8];
	u32 pad;
};

struct prefix {
	u32 bits;
	u8 address[4];
};

#define MAP(kind, entries, flags, k, v)                                                       \
	__uint(type, GBPF_MAP_##kind);                                                              \
	__uint(max_entries, entries);                                                               \
	__uint(map_flags, flags);                                                                   \
	__type(key, k);                                                                             \
	__type(value, v)

struct {
	MAP(HASH, 64, GBPF_F_TENANT, struct name, struct event);
} names SEC(".maps");

struct {
	MAP(HASH, 100000, 0, u64, u64);
} big SEC(".maps");

struct {
	MAP(LRU_HASH, 8, 0, u32, u64);
} lru SEC(".maps");

struct {
	MAP(LPM_TRIE, 8, 0, struct prefix, u32);
} routes SEC(".maps");

struct {
	MAP(THREAD_ARRAY, 2, GBPF_F_TENANT, u32, u64);
} counts SEC(".maps");

struct {
	__uint(type, GBPF_MAP_HISTOGRAM);
	__uint(max_entries, 2);
	__uint(map_flags, GBPF_F_TENANT);
} sizes SEC(".maps");

struct {
	__uint(type, GBPF_MAP_QUEUE);
	__uint(max_entries, 4);
	__type(value, u32);
} queue SEC(".maps");

struct {
	__uint(type, GBPF_MAP_STACK);
	__uint(max_entries, 4);
	__type(value, u32);
} stack SEC(".maps");

struct {
	__uint(type, GBPF_MAP_RINGBUF);
	__uint(max_entries, 4096);
	__uint(map_flags, GBPF_F_TENANT);
	__type(value, struct event);
} events SEC(".maps");

struct {
	__uint(type, GBPF_MAP_RINGBUF);
	__uint(max_entries, 4096);
	__uint(map_flags, GBPF_F_DAEMON);
	__type(value, struct event);
} told SEC(".maps");

struct {
	MAP(ARRAY, 4, GBPF_F_EPOCH, u32, u64);
} credits SEC(".maps");

struct shape {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u32);
} first SEC(".maps"), second SEC(".maps");

struct {
	__uint(type, GBPF_MAP_ARRAY_OF_MAPS);
	__uint(max_entries, 3);
	__type(key, u32);
	__array(values, struct shape);
} both SEC(".maps") = { .values = { [0] = &first, [2] = &second } };

SEC("?gbpf/submit")
int GBPF_PROG(chosen, submit)
{
	return GBPF_GO;
}

struct {
	__uint(type, GBPF_MAP_PROG_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__array(values, int(struct gbpf_submit_ctx *));
} programs SEC(".maps") = { .values = { [1] = &chosen } };

SEC("gbpf/init")
int GBPF_PROG(kinds_init, init)
{
	u32 key = 3;
	u64 v = 77;
	struct event e = { .at = ctx->version, .who = "init" };

	bpf_map_update_elem(&credits, &key, &v, BPF_ANY);
	bpf_ringbuf_output(&told, &e, sizeof(e), 0);
	return 0;
}

SEC("gbpf/exit")
int GBPF_PROG(kinds_exit, exit)
{
	struct event e = { .at = ctx->version, .what = ctx->reason, .who = "exit" };

	bpf_ringbuf_output(&told, &e, sizeof(e), 0);
	return 0;
}

SEC("gbpf/submit")
int GBPF_PROG(kinds_submit, submit)
{
	bpf_tail_call(ctx, &programs, 1);
	return GBPF_GO;
}
