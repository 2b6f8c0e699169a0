/* refuse: stack: calls nest deeper than 8 frames */
#include "gbpf/gbpf.bpf.h"

#define F(name, next)                                                                              \
	static __attribute__((noinline)) u64 name(u64 x)                                           \
	{                                                                                          \
		return next(x + bpf_get_prandom_u32()) * 3;                                        \
	}
static __attribute__((noinline)) u64 f9(u64 x)
{
	return x + bpf_get_prandom_u32();
}
F(f8, f9)
F(f7, f8)
F(f6, f7)
F(f5, f6)
F(f4, f5)
F(f3, f4)
F(f2, f3)
F(f1, f2)

SEC("gbpf/submit") int GBPF_PROG(f, submit)
{
	return f1(ctx->now_ns) & 1;
}

GBPF_LICENSE("GPL");
