/* When the loop finds nothing, i is 8. */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 kernels[8], counts[8];

SEC("gbpf/submit") int GBPF_PROG(find, submit)
{
	u32 i;

	for (i = 0; i < 8; i++) {
		if (kernels[i] == ctx->kernel) {
			break;
		}
	}
	counts[i] += 1;
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
