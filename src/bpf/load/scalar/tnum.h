/* Tristate numbers record which bits of a 64-bit value are known. A value x belongs to t if (x &
 * ~t.mask) == t.value. Vishwanathan et al., "Sound, Precise, and Fast Abstract Interpretation with
 * Tristate Numbers", CGO 2022. */
#ifndef GBPF_BPF_LOAD_SCALAR_TNUM_H
#define GBPF_BPF_LOAD_SCALAR_TNUM_H

#include <stdint.h>

struct ebpf_tnum {
	uint64_t value; /* value of the known bits; 0 for unknown bits */
	uint64_t mask;	/* 1 for each unknown bit */
};

#define TNUM_UNKNOWN ((struct ebpf_tnum){ 0, UINT64_MAX })
#define TNUM_CONST(v) ((struct ebpf_tnum){ (v), 0 })

/* Returns the smallest tnum that contains every value from min to max. */
struct ebpf_tnum ebpf_tnum_range(uint64_t min, uint64_t max);
struct ebpf_tnum ebpf_tnum_add(struct ebpf_tnum a, struct ebpf_tnum b);
struct ebpf_tnum ebpf_tnum_sub(struct ebpf_tnum a, struct ebpf_tnum b);
struct ebpf_tnum ebpf_tnum_mul(struct ebpf_tnum a, struct ebpf_tnum b);
struct ebpf_tnum ebpf_tnum_and(struct ebpf_tnum a, struct ebpf_tnum b);
struct ebpf_tnum ebpf_tnum_or(struct ebpf_tnum a, struct ebpf_tnum b);
struct ebpf_tnum ebpf_tnum_xor(struct ebpf_tnum a, struct ebpf_tnum b);
struct ebpf_tnum ebpf_tnum_lsh(struct ebpf_tnum a, unsigned n);
struct ebpf_tnum ebpf_tnum_rsh(struct ebpf_tnum a, unsigned n);
/* Arithmetic right shift of the low width (32 or 64) bits. */
struct ebpf_tnum ebpf_tnum_arsh(struct ebpf_tnum a, unsigned n, int width);
/* Returns the low bits, zero-extended. */
struct ebpf_tnum ebpf_tnum_low(struct ebpf_tnum a, unsigned bits);
/* Intersects two tnums. Returns 0 if the intersection is empty. */
int ebpf_tnum_meet(struct ebpf_tnum a, struct ebpf_tnum b, struct ebpf_tnum *out);
/* Returns whether every value of inner belongs to outer. */
int ebpf_tnum_within(struct ebpf_tnum outer, struct ebpf_tnum inner);

#endif
