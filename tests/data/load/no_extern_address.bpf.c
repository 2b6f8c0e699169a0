/* refuse: gbpf_from_the_future is extern */
#include "gbpf/gbpf.bpf.h"

extern u64 gbpf_from_the_future(u64 a) __ksym;

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	void *volatile address = gbpf_from_the_future;

	return address ? 1 : 0;
}

GBPF_LICENSE("GPL");
