/* refuse: function pointers in data are not supported (call_back) */
#include "gbpf/gbpf.bpf.h"

static __noinline long each(u32 i, void *arg)
{
	return i & 1;
}

long (*call_back)(u32 i, void *arg) = each;

SEC("gbpf/submit") int GBPF_PROG(f, submit)
{
	return bpf_loop(4, call_back, 0, 0) & 1;
}

GBPF_LICENSE("GPL");
