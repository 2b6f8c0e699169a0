/* refuse: init:  */
#include "gbpf/gbpf.bpf.h"

struct pair {
	u32 a;
	u32 b;
};

static __attribute__((noinline)) int use(u64 *at)
{
	return *at & 1;
}

SEC("gbpf/submit") int GBPF_PROG(f, submit)
{
	u64 local;

	return use(&local);
}

GBPF_LICENSE("GPL");
