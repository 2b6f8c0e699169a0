/* Fields of the context have names; they are not an array. */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(sum, submit)
{
	u64 *all = (u64 *)ctx;

	return all[ctx->kind & 7] & 1 ? GBPF_HOLD : GBPF_GO;
}

GBPF_LICENSE("GPL");
