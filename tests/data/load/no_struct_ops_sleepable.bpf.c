/* refuse: programs of type 'struct_ops.s' are not gBPF's */
#include "gbpf/gbpf.bpf.h"

SEC("struct_ops.s/x") int other(void *ctx)
{
	return 0;
}

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
