/* refuse: helper: gbpf_param reads an argument of the kernel */
#include "gbpf/gbpf.bpf.h"

SEC("gdev/end") int GBPF_PROG(f, gdev_end)
{
	u64 n = gbpf_param(1);

	if (n) {
		bpf_printk("%llu", n);
	}
	return 0;
}

GBPF_LICENSE("GPL");
