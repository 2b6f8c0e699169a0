/* accept: a map of every kind that needs no program to be of use. */
#include "gbpf/gbpf.bpf.h"

struct event {
	u64 at;
	u32 what;
};

struct prefix {
	u32 bits;
	u8 bytes[8];
};

#define MAP(name, kind, entries, flags, ...)                                                       \
	struct {                                                                                   \
		__uint(type, GBPF_MAP_##kind);                                                     \
		__uint(max_entries, entries);                                                      \
		__uint(map_flags, flags);                                                          \
		__VA_ARGS__                                                                        \
	} name SEC(".maps")

MAP(m_hash, HASH, 100, 0, __type(key, u64); __type(value, struct event););
MAP(m_lru, LRU_HASH, 100, GBPF_F_TENANT, __type(key, u32); __type(value, u64););
MAP(m_thread, THREAD_ARRAY, 4, GBPF_F_TENANT, __type(key, u32); __type(value, u64););
MAP(m_hist, HISTOGRAM, 3, GBPF_F_TENANT, );
MAP(m_sm, SM_ARRAY, 4, GBPF_F_DEVICE, __type(key, u32); __type(value, u64););
MAP(m_warp, WARP_ARRAY, 4, GBPF_F_DEVICE, __type(key, u32); __type(value, struct gbpf_obs_ctrl););
MAP(m_sm_ring, SM_RING, 64, GBPF_F_DEVICE, __type(value, struct event););
MAP(m_scratch, WARP_SCRATCH, 4, GBPF_F_DEVICE, __type(key, u32);
    __type(value, struct gbpf_obs_ctrl););
MAP(m_pinned, LRU_HASH, 100, GBPF_F_DEVICE | GBPF_F_HOST, __type(key, u32); __type(value, u64););
MAP(m_ring, RINGBUF, 65536, GBPF_F_TENANT, __type(value, struct event););
MAP(m_queue, QUEUE, 16, GBPF_F_DAEMON, __type(value, u32););
MAP(m_stack, STACK, 16, GBPF_F_DAEMON, __type(value, u32););
MAP(m_trie, LPM_TRIE, 16, 0, __type(key, struct prefix); __type(value, u32););
MAP(m_epoch, ARRAY, 16, GBPF_F_EPOCH, __uint(key_size, 4); __uint(value_size, 24););

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
