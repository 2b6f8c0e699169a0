/* Hash tables of every type and scope. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("GPL");

#define TABLE(name, kind, flags)                                                                   \
	struct {                                                                                   \
		__uint(type, GBPF_MAP_##kind);                                                     \
		__uint(max_entries, 256);                                                          \
		__uint(map_flags, flags);                                                          \
		__type(key, u32);                                                                  \
		__type(value, u32);                                                                \
	} name SEC(".maps")

TABLE(all, HASH, 0);
TABLE(each, HASH, GBPF_F_TENANT);
TABLE(own, HASH, GBPF_F_DAEMON);
TABLE(lru_all, LRU_HASH, 0);
TABLE(lru_each, LRU_HASH, GBPF_F_TENANT);
TABLE(lru_own, LRU_HASH, GBPF_F_DAEMON);

SEC("gbpf/submit")
int GBPF_PROG(seeded_submit, submit)
{
	return GBPF_GO;
}
