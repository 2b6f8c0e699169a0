/* Unusable: there is no hook of this name. */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/sbmit") int GBPF_PROG(misspelt, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("Apache-2.0");
