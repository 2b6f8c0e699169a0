/* refuse: constructors are not supported */
#include "gbpf/gbpf.bpf.h"

volatile u64 a;

__attribute__((constructor)) void begin(void)
{
	a = a + 1;
}

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return GBPF_GO;
}

GBPF_LICENSE("GPL");
