/* Random numbers for tests: equal on every run, with many values at which arithmetic is prone to
 * errors. */
#ifndef GBPF_TESTS_BPF_LOAD_RANDOM_H
#define GBPF_TESTS_BPF_LOAD_RANDOM_H

#include <stdint.h>

struct rng {
	uint64_t state;
};

static inline uint64_t rng_next(struct rng *r)
{
	uint64_t z = (r->state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static inline uint32_t rng_below(struct rng *r, uint32_t n)
{
	return (uint32_t)(rng_next(r) % n);
}

static inline uint64_t rng_number(struct rng *r)
{
	static const uint64_t edges[] = { 0,
					  1,
					  2,
					  7,
					  8,
					  31,
					  32,
					  63,
					  64,
					  127,
					  128,
					  255,
					  256,
					  0x7fff,
					  0x8000,
					  0xffff,
					  0x7fffffff,
					  0x80000000,
					  0xffffffff,
					  0x100000000,
					  0x7fffffffffffffff,
					  0x8000000000000000,
					  0xffffffff80000000,
					  0xffffffff00000000,
					  0xffffffffffffffff,
					  0xfffffffffffffffe,
					  0xffffffffffffff80 };
	uint64_t x = rng_next(r);

	switch (rng_below(r, 6)) {
	case 0:
		return edges[rng_below(r, sizeof(edges) / sizeof(edges[0]))];
	case 1:
		return edges[rng_below(r, sizeof(edges) / sizeof(edges[0]))] + rng_below(r, 5) - 2;
	case 2:
		return x & 0xff;
	case 3:
		return (uint64_t) - (int64_t)(x & 0xffff);
	default:
		return x >> rng_below(r, 64);
	}
}

#endif
