/* The keyed hash functions of hash tables.
 *
 * Tables of gbpfd's own (GBPF_F_DAEMON) use SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast
 * short-input PRF", 2012): the seed is secret, and not even a tenant that observes which keys are
 * refused can choose keys of one bucket. The usual last block, which holds the length, is left out:
 * all keys of a map have the same length.
 *
 * The seeds of the other tables lie in memory that tenants read, so no function is safe from a
 * tenant there. Programs in the launch path use these tables, so the function is a fast one: two
 * multiplications by secret factors. It protects from keys that were chosen without the seed. */
#ifndef GBPF_BPF_RUN_MAP_MAP_SEED_H
#define GBPF_BPF_RUN_MAP_MAP_SEED_H

#include <stdint.h>

#include "base/compiler.h"
#include "bpf/run/map/map.h"

static ALWAYS_INLINE uint64_t ebpf_sip_turn(uint64_t v, unsigned bits)
{
	return v << bits | v >> (64 - bits);
}

/* A round is two halves; only the second one and d depend on the word that was added to d. */
static ALWAYS_INLINE void ebpf_sip_half(struct ebpf_seed *s)
{
	s->a += s->b;
	s->b = ebpf_sip_turn(s->b, 13) ^ s->a;
	s->a = ebpf_sip_turn(s->a, 32);
}

static ALWAYS_INLINE void ebpf_sip_rest(struct ebpf_seed *s)
{
	s->c += s->d;
	s->d = ebpf_sip_turn(s->d, 16) ^ s->c;
	s->a += s->d;
	s->d = ebpf_sip_turn(s->d, 21) ^ s->a;
	s->c += s->b;
	s->b = ebpf_sip_turn(s->b, 17) ^ s->c;
	s->c = ebpf_sip_turn(s->c, 32);
}

static inline struct ebpf_seed ebpf_seed_of(const uint64_t seed[2])
{
	struct ebpf_seed s = { seed[0] ^ UINT64_C(0x736f6d6570736575),
			       seed[1] ^ UINT64_C(0x646f72616e646f6d),
			       seed[0] ^ UINT64_C(0x6c7967656e657261),
			       seed[1] ^ UINT64_C(0x7465646279746573) };

	ebpf_sip_half(&s);
	return s;
}

/* Returns the hash of n words, n > 0. */
static ALWAYS_INLINE uint64_t ebpf_sip(const struct ebpf_seed *begin, const uint64_t *words,
				       uint32_t n)
{
	struct ebpf_seed s = *begin;

	s.d ^= words[0];
	ebpf_sip_rest(&s);
	s.a ^= words[0];
	for (uint32_t i = 1; i < n; i++) {
		s.d ^= words[i];
		ebpf_sip_half(&s);
		ebpf_sip_rest(&s);
		s.a ^= words[i];
	}
	s.c ^= 0xff;
	ebpf_sip_half(&s);
	ebpf_sip_rest(&s);
	ebpf_sip_half(&s);
	ebpf_sip_rest(&s);
	ebpf_sip_half(&s);
	ebpf_sip_rest(&s);
	return s.a ^ s.b ^ s.c ^ s.d;
}

static ALWAYS_INLINE uint64_t ebpf_mix_step(uint64_t v, uint64_t factor)
{
	u128 r = (u128)v * (factor | 1);

	return (uint64_t)r ^ (uint64_t)(r >> 64);
}

/* Returns the fast hash of n words, n > 0. */
static ALWAYS_INLINE uint64_t ebpf_mix(const struct ebpf_seed *s, const uint64_t *words, uint32_t n)
{
	uint64_t h = ebpf_mix_step(words[0] ^ s->a, s->b);

	for (uint32_t i = 1; i < n; i++) {
		h = ebpf_mix_step(h ^ words[i] ^ s->a, s->b);
	}
	return ebpf_mix_step(h ^ s->c, s->d);
}

#endif
