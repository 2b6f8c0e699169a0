/* refuse: map: .bss.tenant: each tenant has its own */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 mine;

SEC("gbpf/tick") int GBPF_PROG(f, tick)
{
	mine = 0;
	return 0;
}

GBPF_LICENSE("GPL");
