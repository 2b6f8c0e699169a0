/* refuse: budget: */
/* 35 000 updates of 64 KiB copy 2.3 GB: at least 50 ms of gbpfd's loop in every tick (4 MiB of
 * values, cached), against the 1 ms that a million plain instructions take. An update therefore
 * costs by its value's size too. */
#include "gbpf/gbpf.bpf.h"

struct big {
	u8 bytes[65536];
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, struct big);
} values SEC(".maps");

SEC("gbpf/tick")
int tick(struct gbpf_tick_ctx *ctx)
{
	u32 zero = 0;
	struct big *from = bpf_map_lookup_elem(&values, &zero);

	if (!from) {
		return 0;
	}
	for (u32 i = 0; i < 35000; i++) {
		u32 key = i & 63;

		bpf_map_update_elem(&values, &key, from, 0);
	}
	return 0;
}
