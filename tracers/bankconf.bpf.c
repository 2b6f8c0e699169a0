/* bankconf: which accesses to shared memory conflict. Shared memory has 32 banks of 4 bytes; lanes that access
 * different words of one bank are served one after the other. Counts, for each place, the additional rounds, and the
 * accesses by their ways: the most lanes with different words in one bank. */
#include <gbpf/gbpf.bpf.h>

#include "sites.h"

struct site {
	u64 count, conflicts, ways2, ways4, ways8, ways16, ways32;
};

PLACE_MAP(struct site)

SEC("gdev/access/*/shared")
int GBPF_PROG(access, gdev_access)
{
	struct site *s = site_of(ctx->place);
	u32 n = ctx->conflicts;

	if (!s) {
		return 0;
	}
	ADD(s->count, 1);
	if (!n) {
		return 0;
	}
	ADD(s->conflicts, n);
	ADD(*(n < 2 ? &s->ways2 : n < 4 ? &s->ways4 : n < 8 ? &s->ways8 : n < 16 ? &s->ways16 : &s->ways32), 1);
	return 0;
}

GBPF_LICENSE("MIT");
