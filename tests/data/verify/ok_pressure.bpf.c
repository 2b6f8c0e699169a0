/* accept: enough live values that clang spills them, as 64 and as 32 bits. */
#include "gbpf/gbpf.bpf.h"

GBPF_TENANT u64 out[16];

SEC("gbpf/submit") int GBPF_PROG(pressure, submit)
{
	u64 a = ctx->now_ns, b = ctx->kernel, c = ctx->est_ns, d = ctx->bytes, e = ctx->blocks;
	u32 f = ctx->tenant & 15, g = ctx->queue & 15, h = ctx->class_id & 15, i = ctx->weight & 15;
	u32 r = bpf_get_prandom_u32() & 15;
	s32 p = ctx->priority;

	out[f] += a * b + c;
	out[g] += bpf_get_prandom_u32() + d;
	out[h] += e ^ a;
	out[i] ^= b << (p & 31);
	bpf_get_prandom_u32();
	out[r] = a + b + c + d + e + f + g + h + i;
	out[(f + g) & 15] = p * 3;
	return (f + g + h + i + r) & 1 ? GBPF_HOLD : GBPF_GO;
}

GBPF_LICENSE("GPL");
