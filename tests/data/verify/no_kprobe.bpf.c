/* refuse: programs of type 'kprobe/do_exit' are not gBPF's */
#include "gbpf/gbpf.bpf.h"

SEC("kprobe/do_exit") int f(void *ctx)
{
	return 0;
}

GBPF_LICENSE("GPL");
