/* Nine functions call each other in a row. */
#include "gbpf/gbpf.bpf.h"

static __attribute__((noinline)) u64 f9(u64 a)
{
	volatile u64 room[8] = { a };

	return a * 3 + room[a & 7];
}

static __attribute__((noinline)) u64 f8(u64 a)
{
	volatile u64 room[8] = { a };

	return f9(a + 8) + room[a & 7];
}

static __attribute__((noinline)) u64 f7(u64 a)
{
	volatile u64 room[8] = { a };

	return f8(a + 7) + room[a & 7];
}

static __attribute__((noinline)) u64 f6(u64 a)
{
	volatile u64 room[8] = { a };

	return f7(a + 6) + room[a & 7];
}

static __attribute__((noinline)) u64 f5(u64 a)
{
	volatile u64 room[8] = { a };

	return f6(a + 5) + room[a & 7];
}

static __attribute__((noinline)) u64 f4(u64 a)
{
	volatile u64 room[8] = { a };

	return f5(a + 4) + room[a & 7];
}

static __attribute__((noinline)) u64 f3(u64 a)
{
	volatile u64 room[8] = { a };

	return f4(a + 3) + room[a & 7];
}

static __attribute__((noinline)) u64 f2(u64 a)
{
	volatile u64 room[8] = { a };

	return f3(a + 2) + room[a & 7];
}

static __attribute__((noinline)) u64 f1(u64 a)
{
	volatile u64 room[8] = { a };

	return f2(a + 1) + room[a & 7];
}

SEC("gbpf/submit") int GBPF_PROG(deep, submit)
{
	return f1(ctx->kernel) & 1;
}

GBPF_LICENSE("GPL");
