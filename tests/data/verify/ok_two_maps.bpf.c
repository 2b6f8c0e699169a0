/* accept: several maps of different kinds; each lies where its symbol says, and each is the right
 * one. */
#include "gbpf/gbpf.bpf.h"

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 4);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, u64);
} own SEC(".maps");

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} shared SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(two_maps, submit)
{
	u32 key = 0;
	u64 *mine = bpf_map_lookup_elem(&own, &key), *theirs = bpf_map_lookup_elem(&shared, &key);

	if (mine && theirs) {
		*mine += *theirs; /* the other way round would be refused: local programs only read
				     a global map */
	}
	return GBPF_GO;
}

GBPF_LICENSE("Apache-2.0");
