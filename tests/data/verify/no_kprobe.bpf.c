/* refuse: programs of type 'kprobe' are not gBPF's */
#include "gbpf/gbpf.bpf.h"

SEC("kprobe/do_exit") int f(void *ctx)
{
	return 0;
}

GBPF_LICENSE("GPL");
