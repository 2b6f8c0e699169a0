/* Binary search in a sorted table of sizes: the level and the piece that a launch of that size gets. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

struct step {
	u64 blocks;
	u32 piece;
	u32 hold_us;
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, struct step);
} steps SEC(".maps");

SEC("gbpf/submit") int GBPF_PROG(search, submit)
{
	u32 lo = 0, hi = 64;
	struct step *s;

	for (int i = 0; i < 7 && lo < hi; i++) {
		u32 mid = (lo + hi) / 2;

		s = bpf_map_lookup_elem(&steps, &mid);
		if (!s) {
			return GBPF_GO;
		}
		if (s->blocks <= ctx->blocks) {
			lo = mid + 1;
		} else {
			hi = mid;
		}
	}
	if (lo == 0) {
		return GBPF_GO;
	}
	lo--;
	s = bpf_map_lookup_elem(&steps, &lo);
	if (!s || !s->piece) {
		return GBPF_GO;
	}
	ctx->split_blocks = s->piece;
	return GBPF_SPLIT;
}
