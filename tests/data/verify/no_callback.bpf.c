/* refuse: the address of a function (callback) */
#include "gbpf/gbpf.bpf.h"

static long (*const call_back)(u64 n, void *fn, void *arg, u64 flags) = (void *)181;

static __attribute__((noinline)) long each(u64 i, void *arg)
{
	return i & 1;
}

SEC("gbpf/submit") int GBPF_PROG(f, submit)
{
	return call_back(4, each, 0, 0) & 1;
}

GBPF_LICENSE("GPL");
