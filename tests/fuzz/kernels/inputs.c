/* Inputs of random kernels with many edge values; comparison and digests of results. */
#include <string.h>

#include "tree.h"

static uint32_t draw(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)((z ^ z >> 31) >> 32);
}

static uint32_t word(uint64_t *state)
{
	static const uint32_t edges[] = { 0,	      1,	  2,	      31,
					  32,	      33,	  64,	      255,
					  0x7f,	      0x80,	  0xffff,     0x8000,
					  0x7fffffff, 0x80000000, 0x80000001, 0xffffffff,
					  0xfffffffe, 0x01234567 };

	uint32_t by, v;

	if (draw(state) % 3 == 0) {
		return edges[draw(state) % 18];
	}
	v = draw(state);
	by = draw(state) % 32;
	return v >> by;
}

/* Draws a float; NaN is always the canonical one. */
static uint32_t single(uint64_t *state)
{
	static const uint32_t edges[] = { 0,	      0x80000000, 0x3f800000, 0xbf800000,
					  0x7f800000, 0xff800000, 0x7fffffff, 1,
					  0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff,
					  0x4f000000, 0xcf000000, 0x4effffff, 0x3f000000,
					  0x40200000, 0x5f000000 };
	uint32_t v = draw(state);

	switch (draw(state) % 4) {
	case 0:
		return edges[draw(state) % 18];
	case 1: /* ordinary magnitudes */
		return (v & 0x807fffff) | (120 + draw(state) % 20) << 23;
	case 2: /* multiples of 0.5 */
		return (v & 0x80780000) | (127 + draw(state) % 8) << 23;
	default:
		return (v & 0x7f800000) == 0x7f800000 ? v & 0xff7fffff : v;
	}
}

static uint64_t twice(uint64_t *state)
{
	static const uint64_t edges[] = { 0,
					  UINT64_C(1) << 63,
					  UINT64_C(0x3ff0000000000000),
					  UINT64_C(0x7ff0000000000000),
					  UINT64_C(0xfff0000000000000),
					  UINT64_C(0x7ff8000000000000),
					  1,
					  UINT64_C(0x000fffffffffffff),
					  UINT64_C(0x43e0000000000000),
					  UINT64_C(0xc3e0000000000000),
					  UINT64_C(0x41dfffffffc00000),
					  UINT64_C(0x47efffffe0000000),
					  UINT64_C(0x3fe0000000000000),
					  UINT64_C(0x36a0000000000000) };
	uint64_t high = draw(state), v = high << 32 | draw(state);

	switch (draw(state) % 4) {
	case 0:
		return edges[draw(state) % 14];
	case 1:
		return (v & UINT64_C(0x800fffffffffffff)) | (uint64_t)(1015 + draw(state) % 20)
								    << 52;
	case 2: /* the range of single precision */
		return (v & UINT64_C(0x800fffffffffffff)) | (uint64_t)(870 + draw(state) % 290)
								    << 52;
	default:
		return (v >> 52 & 0x7ff) == 0x7ff ? v & ~(UINT64_C(1) << 52) : v;
	}
}

void kernel_inputs(const struct kernel *k, uint8_t *in)
{
	uint64_t state = k->seed ^ UINT64_C(0x5851f42d4c957f2d);

	for (unsigned l = 0; l < BLOCKS * k->threads; l++, in += IN_BYTES) {
		for (unsigned i = 0; i < 16; i++) {
			uint32_t v = word(&state);

			memcpy(in + 4 * i, &v, 4);
		}
		for (unsigned i = 0; i < N_F; i++) {
			uint32_t v = single(&state);

			memcpy(in + 64 + 4 * i, &v, 4);
		}
		for (unsigned i = 0; i < N_D; i++) {
			uint64_t v = twice(&state);
			uint32_t h = word(&state);

			memcpy(in + 88 + 8 * i, &v, 8);
			memcpy(in + 120 + 2 * i, &h, 2);
		}
	}
}

static const char *place(unsigned at)
{
	return at < 64	  ? "global memory"
	       : at < 128 ? "shared memory"
	       : at < 192 ? "local memory"
	       : at < 256 ? "the block's sums"
	       : at < 288 ? "r"
	       : at < 336 ? "w"
	       : at < 360 ? "f"
	       : at < 392 ? "d"
	       : at < 400 ? "h"
			  : "p";
}

unsigned kernel_compare(const struct kernel *k, const uint8_t *out, const uint8_t *want_out,
			const uint8_t *sums, const uint8_t *want_sums)
{
	unsigned bad = 0;

	for (unsigned i = 0; i < BLOCKS * k->threads * OUT_BYTES; i += 2) {
		if (memcmp(out + i, want_out + i, 2) != 0 && bad++ < 6) {
			fprintf(stderr,
				"seed %llu, lane %u, byte %u (%s): %02x%02x, reference %02x%02x\n",
				(unsigned long long)k->seed, i / OUT_BYTES, i % OUT_BYTES,
				place(i % OUT_BYTES), out[i + 1], out[i], want_out[i + 1],
				want_out[i]);
		}
	}
	for (unsigned i = 0; i < SUMS_BYTES; i += 4) {
		if (memcmp(sums + i, want_sums + i, 4) != 0) {
			fprintf(stderr, "seed %llu, byte %u of the sums\n",
				(unsigned long long)k->seed, i);
			bad++;
		}
	}
	return bad;
}

uint64_t kernel_digest(uint64_t h, const uint8_t *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		h = (h ^ data[i]) * UINT64_C(0x100000001b3);
	}
	return h;
}
