/* refuse: is extern */
#include "gbpf/gbpf.bpf.h"

extern const int jiffies __ksym;

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	const void *volatile address = &jiffies;

	return address ? 1 : 0;
}

GBPF_LICENSE("GPL");
