/* Refused: writes a field of the context that programs may only read. */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(rewrites_class, submit)
{
	ctx->class_id = GBPF_CLASS_LATENCY;
	return GBPF_GO;
}

GBPF_LICENSE("Apache-2.0");
