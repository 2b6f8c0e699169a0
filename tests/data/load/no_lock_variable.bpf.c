/* refuse: a lock is a member of a map's value, no variable */
#include "gbpf/gbpf.bpf.h"

struct bpf_spin_lock lock;
u64 sum;

SEC("gbpf/tick") int GBPF_PROG(f, tick)
{
	bpf_spin_lock(&lock);
	sum++;
	bpf_spin_unlock(&lock);
	return 0;
}

GBPF_LICENSE("GPL");
