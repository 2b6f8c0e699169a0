/* refuse: relocation: call of gbpf_from_the_future, which is weak and which this gBPF does not have */
#include "gbpf/gbpf.bpf.h"

extern u64 gbpf_from_the_future(u64 a) __ksym __weak;

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return gbpf_from_the_future(ctx->est_ns) & 1;
}

GBPF_LICENSE("GPL");
