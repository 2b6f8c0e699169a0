/* Weights of tenants are known in gbpfd only. */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(weight, submit)
{
	return gbpf_tenant_weight(ctx->tenant) < 50 ? GBPF_DEFER : GBPF_GO;
}

GBPF_LICENSE("GPL");
