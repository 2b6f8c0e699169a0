/* A program for the kernel, not for a GPU. */
#include "gbpf/gbpf.bpf.h"

SEC("kprobe/do_sys_open") int probe(void *regs)
{
	return 0;
}

GBPF_LICENSE("GPL");
