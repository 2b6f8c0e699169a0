/* Maps of bpftime for programs on GPUs, with the numbers that its examples use, and its output helper. */
#include "gbpf/gbpf.bpf.h"

struct event {
	u64 block, time;
};

struct {
	__uint(type, 1501);
	__uint(max_entries, 64);
	__type(key, u64);
	__type(value, u64);
} m_hash SEC(".maps");

struct {
	__uint(type, 1502);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
} m_thread SEC(".maps");

struct {
	__uint(type, 1503);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
} m_array SEC(".maps");

struct {
	__uint(type, 1504);
	__uint(map_flags, 0x400);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
} m_shared SEC(".maps");

struct {
	__uint(type, 1512);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
} m_thread_host SEC(".maps");

struct {
	__uint(type, 1513);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
} m_array_host SEC(".maps");

struct {
	__uint(type, 1527);
	__uint(max_entries, 100);
	__type(key, u32);
	__type(value, struct event);
} m_events SEC(".maps");

static __always_inline void add(void *map)
{
	u32 key = 0;
	u64 *n = bpf_map_lookup_elem(map, &key);

	if (n) {
		*n += 1;
	}
}

SEC("gdev/exit/*")
int GBPF_PROG(leave, gdev_exit)
{
	u64 x, y, z, key = bpf_get_sm_id();
	struct event e;

	bpf_get_block_idx(&x, &y, &z);
	e.block = x;
	e.time = bpf_get_globaltimer();
	bpf_map_update_elem(&m_hash, &key, &e.time, BPF_ANY);
	add(&m_thread);
	add(&m_array);
	add(&m_shared);
	add(&m_thread_host);
	add(&m_array_host);
	bpf_perf_event_output(ctx, &m_events, 0, &e, sizeof(e));
	return 0;
}

GBPF_LICENSE("GPL");
