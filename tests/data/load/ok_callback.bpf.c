/* accept: functions that helpers call back, static and global, from two programs. */
#include "gbpf/gbpf.bpf.h"

struct sum {
	u64 n, odd;
};

static long add(u32 i, void *arg)
{
	struct sum *s = arg;

	s->n += i;
	return 0;
}

__noinline long add_odd(u32 i, void *arg)
{
	struct sum *s = arg;

	s->odd += i & 1;
	return 0;
}

SEC("gbpf/dispatch") int GBPF_PROG(rank, dispatch)
{
	struct sum s = { 0, 0 };

	bpf_loop(10, add, &s, 0);
	bpf_loop(7, add_odd, &s, 0);
	return (int)((s.n & 1023) * 10 + (s.odd & 7)); /* 453 */
}

SEC("gbpf/submit") int GBPF_PROG(go, submit)
{
	struct sum s = { 0, 0 };

	bpf_loop(3, add, &s, 0);
	return s.n & 3; /* 3 */
}

GBPF_LICENSE("GPL");
