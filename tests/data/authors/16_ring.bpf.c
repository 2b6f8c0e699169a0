/* The last 16 durations of each tenant in a ring; the largest of them limits what is in flight. */
#include "gbpf/gbpf.bpf.h"

GBPF_LICENSE("GPL");

#define N 16

GBPF_TENANT u64 last[N];
GBPF_TENANT u32 head, filled;

SEC("gbpf/retire") int GBPF_PROG(push, retire)
{
	u32 h = head;

	if (h >= N) {
		h = 0;
	}
	last[h] = ctx->duration_ns;
	head = h + 1;
	if (filled < N) {
		filled++;
	}
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(limit, submit)
{
	u64 max = 0, min = ~0ULL, sum = 0;
	u32 n = filled, above = 0;

	if (n < 4 || n > N) {
		return GBPF_GO;
	}
	for (u32 i = 0; i < n; i++) {
		u64 d = last[i];

		sum += d;
		if (d > max) {
			max = d;
		}
		if (d < min) {
			min = d;
		}
	}
	for (u32 i = 0; i < n; i++) {
		if (last[i] > sum / n) {
			above++;
		}
	}
	if (above > n / 2 && max > 4 * min && ctx->inflight_ns > max) {
		return GBPF_HOLD;
	}
	return GBPF_GO;
}
