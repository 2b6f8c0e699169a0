/* Tristate numbers: which bits of a 64-bit value are known. A value x belongs to t when (x &
 * ~t.mask) == t.value. Vishwanathan et al., "Sound, Precise, and Fast Abstract Interpretation with
 * Tristate Numbers", CGO 2022. */
#ifndef GBPF_BPF_LOAD_SCALAR_TNUM_H
#define GBPF_BPF_LOAD_SCALAR_TNUM_H

#include <stdint.h>

struct tnum {
	uint64_t value; /* of the known bits; 0 where unknown */
	uint64_t mask;	/* 1: unknown */
};

#define TNUM_UNKNOWN ((struct tnum){ 0, UINT64_MAX })
#define TNUM_CONST(v) ((struct tnum){ (v), 0 })

/* The smallest tnum that holds every value from min to max. */
struct tnum tnum_range(uint64_t min, uint64_t max);
struct tnum tnum_add(struct tnum a, struct tnum b);
struct tnum tnum_sub(struct tnum a, struct tnum b);
struct tnum tnum_mul(struct tnum a, struct tnum b);
struct tnum tnum_and(struct tnum a, struct tnum b);
struct tnum tnum_or(struct tnum a, struct tnum b);
struct tnum tnum_xor(struct tnum a, struct tnum b);
struct tnum tnum_lsh(struct tnum a, unsigned n);
struct tnum tnum_rsh(struct tnum a, unsigned n);
/* Arithmetic shift of the low width (32 or 64) bits. */
struct tnum tnum_arsh(struct tnum a, unsigned n, int width);
/* The low bits, zero-extended. */
struct tnum tnum_low(struct tnum a, unsigned bits);
/* What both say; 0 when they contradict each other. */
int tnum_meet(struct tnum a, struct tnum b, struct tnum *out);
/* Every value of inner belongs to outer. */
int tnum_within(struct tnum outer, struct tnum inner);

#endif
