/* refuse: one thread of a block or launch runs begin, so it has no programs of lanes */
#include "gbpf/gbpf.bpf.h"

SEC("gdev.lane/begin") int GBPF_PROG(f, gdev_begin)
{
	return 0;
}

GBPF_LICENSE("GPL");
