/* refuse: map TENANT_CREDITS: it is a standard map and has another shape */
#include "gbpf/gbpf.bpf.h"

GBPF_STANDARD_MAP(JOB_META);
GBPF_EPOCH_ARRAY(TENANT_CREDITS, u64, GBPF_TENANTS);

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
