/* Refused: an index that may lie outside the array. */
#include "gbpf/gbpf.bpf.h"

static u64 table[8] GBPF_TENANT;

SEC("gbpf/submit") int GBPF_PROG(unchecked_index, submit)
{
	table[ctx->queue] += 1;
	return GBPF_GO;
}

GBPF_LICENSE("Apache-2.0");
