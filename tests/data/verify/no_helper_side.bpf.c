/* refuse: helper: gbpf_tenant_class is not available in submit */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(f, submit)
{
	return gbpf_tenant_class(0) == GBPF_CLASS_BATCH;
}

GBPF_LICENSE("GPL");
