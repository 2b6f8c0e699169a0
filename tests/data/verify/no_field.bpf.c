/* refuse: readonly: store: ctx->est_ns may only be read */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(f, submit)
{
	ctx->est_ns = 1;
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
