/* refuse: strange is extern */
#include "gbpf/gbpf.bpf.h"

extern int strange(int);

SEC("gbpf/submit") int GBPF_PROG(f, submit)
{
	return strange(1) & 1;
}

GBPF_LICENSE("GPL");
