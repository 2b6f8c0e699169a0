/* refuse: function pointers in data are not supported (table) */
#include "gbpf/gbpf.bpf.h"

static __noinline int a(u64 v)
{
	return v & 1;
}

static __noinline int b(u64 v)
{
	return v & 2;
}

int (*table[2])(u64) = { a, b };

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	return table[ctx->queue & 1](ctx->est_ns);
}

GBPF_LICENSE("GPL");
