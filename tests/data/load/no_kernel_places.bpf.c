/* refuse: map KERNEL_PLACES: it is a standard map and has another shape */
#include "gbpf/gbpf.bpf.h"

GBPF_KERNEL_PLACES(1);

SEC("gdev/line") int GBPF_PROG(line, gdev_line)
{
	return 0;
}

GBPF_LICENSE("GPL");
