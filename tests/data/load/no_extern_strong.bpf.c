/* refuse: gbpf_from_the_future is extern, and gBPF has no helper of that name */
#include "gbpf/gbpf.bpf.h"

extern u64 gbpf_from_the_future(u64 a) __ksym;

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return gbpf_from_the_future(ctx->est_ns) & 1;
}

GBPF_LICENSE("GPL");
