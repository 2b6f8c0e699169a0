/* accept: initialized data of every kind, as libbpf sees it too. */
#include "gbpf/gbpf.bpf.h"

static const u32 table[4] = { 1, 2, 3, 4 };
const volatile u64 limit = 40;
u64 begun = 5, more[3] = { 7, 8, 9 };
u64 unset[3];
SEC(".data.mine") u64 mine = 6;
SEC(".rodata.mine") const volatile u32 constant = 11;

SEC("gbpf/dispatch") int GBPF_PROG(rank, dispatch)
{
	const char text[] = "a text of more than sixteen bytes";

	return (int)((table[ctx->queue & 3] + limit + begun + more[1] + unset[2] + mine + constant +
		      text[ctx->queue & 31]) &
		     1023);
}

GBPF_LICENSE("GPL");
