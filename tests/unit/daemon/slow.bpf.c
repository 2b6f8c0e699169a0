/* A policy that takes the verifier some tenths of a second, and gbpfd hardly any time when it runs:
 * loops with many rounds, which a hook call does not enter. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("GPL");

static __always_inline u64 rounds(u64 seed, u32 n)
{
	volatile u64 a = seed, b = ~seed;

	for (u32 i = 0; i < n; i++) {
		a += i ^ b;
		b = a & 1 ? a >> 3 : b + i;
	}
	return b;
}

#define SLOW(name, field)                                                                          \
	SEC("gbpf/" #name)                                                                         \
	int GBPF_PROG(slow_##name, name)                                                           \
	{                                                                                          \
		return ctx->field == 0x7fffffff ? rounds(ctx->field, 48000) & 1 : 0;               \
	}

SLOW(admit, weight)
SLOW(init, gpu)
SLOW(exit, gpu)
