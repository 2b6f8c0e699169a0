/* Refused: a verdict that submit does not have. */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(unknown_verdict, submit)
{
	return ctx->lc_open ? 7 : GBPF_GO;
}

GBPF_LICENSE("Apache-2.0");
