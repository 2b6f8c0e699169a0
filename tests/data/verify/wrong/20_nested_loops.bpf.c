/* A hundred times a hundred rounds are too dear for a launch. */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(search, submit)
{
	u64 hash = ctx->kernel;

	for (int i = 0; i < 100; i++) {
		for (int k = 0; k < 100; k++) {
			hash = hash * 31 + (hash >> 7) + k;
		}
	}
	return hash & 1 ? GBPF_HOLD : GBPF_GO;
}

GBPF_LICENSE("GPL");
