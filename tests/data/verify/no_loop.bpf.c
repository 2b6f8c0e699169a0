/* refuse: budget: the loop at line */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(f, submit)
{
	u64 n = ctx->blocks;
	u64 x = ctx->now_ns;

	while (n--) {
		x = x * 31 + bpf_get_prandom_u32();
	}
	return x & 1;
}

GBPF_LICENSE("GPL");
