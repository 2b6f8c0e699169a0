/* The results of instructions: one definition of arithmetic, comparison and byte order as pure
 * inline functions. Both interpreters use them with constant operations, so the switches cost
 * nothing. Division by zero, overflow of signed division and shifts beyond the width are defined by
 * RFC 9669 (section 4.1). */
#ifndef GBPF_BPF_RUN_INTERP_ALU_H
#define GBPF_BPF_RUN_INTERP_ALU_H

#include <stdint.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "bpf/run/insn.h"

/* MOV with off 8, 16 or 32 sign-extends that many low bits. */
static ALWAYS_INLINE uint64_t ebpf_sign_extend(uint64_t v, int bits)
{
	switch (bits) {
	case 8:
		return (uint64_t)(int64_t)(int8_t)v;
	case 16:
		return (uint64_t)(int64_t)(int16_t)v;
	case 32:
		return (uint64_t)(int64_t)(int32_t)v;
	default:
		return v;
	}
}

static ALWAYS_INLINE uint64_t ebpf_div64(uint64_t d, uint64_t s, int is_signed)
{
	if (!s) {
		return 0;
	}
	if (!is_signed) {
		return d / s;
	}
	return s == UINT64_MAX ? 0 - d : (uint64_t)((int64_t)d / (int64_t)s);
}

static ALWAYS_INLINE uint64_t ebpf_mod64(uint64_t d, uint64_t s, int is_signed)
{
	if (!s) {
		return d;
	}
	if (!is_signed) {
		return d % s;
	}
	return s == UINT64_MAX ? 0 : (uint64_t)((int64_t)d % (int64_t)s);
}

static ALWAYS_INLINE uint32_t ebpf_div32(uint32_t d, uint32_t s, int is_signed)
{
	if (!s) {
		return 0;
	}
	if (!is_signed) {
		return d / s;
	}
	return s == UINT32_MAX ? 0 - d : (uint32_t)((int32_t)d / (int32_t)s);
}

static ALWAYS_INLINE uint32_t ebpf_mod32(uint32_t d, uint32_t s, int is_signed)
{
	if (!s) {
		return d;
	}
	if (!is_signed) {
		return d % s;
	}
	return s == UINT32_MAX ? 0 : (uint32_t)((int32_t)d % (int32_t)s);
}

/* All operations except END. off selects signed division and sign-extending moves. */
static ALWAYS_INLINE uint64_t ebpf_alu64(unsigned op, uint64_t d, uint64_t s, int off)
{
	switch (op) {
	case EBPF_ADD:
		return d + s;
	case EBPF_SUB:
		return d - s;
	case EBPF_MUL:
		return d * s;
	case EBPF_DIV:
		return ebpf_div64(d, s, off == 1);
	case EBPF_OR:
		return d | s;
	case EBPF_AND:
		return d & s;
	case EBPF_LSH:
		return d << (s & 63);
	case EBPF_RSH:
		return d >> (s & 63);
	case EBPF_NEG:
		return 0 - d;
	case EBPF_MOD:
		return ebpf_mod64(d, s, off == 1);
	case EBPF_XOR:
		return d ^ s;
	case EBPF_MOV:
		return ebpf_sign_extend(s, off);
	case EBPF_ARSH:
		return (uint64_t)((int64_t)d >> (s & 63));
	default:
		return 0;
	}
}

/* The 32-bit class: the result's upper half is zero. */
static ALWAYS_INLINE uint64_t ebpf_alu32(unsigned op, uint32_t d, uint32_t s, int off)
{
	switch (op) {
	case EBPF_ADD:
		return d + s;
	case EBPF_SUB:
		return d - s;
	case EBPF_MUL:
		return d * s;
	case EBPF_DIV:
		return ebpf_div32(d, s, off == 1);
	case EBPF_OR:
		return d | s;
	case EBPF_AND:
		return d & s;
	case EBPF_LSH:
		return d << (s & 31);
	case EBPF_RSH:
		return d >> (s & 31);
	case EBPF_NEG:
		return 0 - d;
	case EBPF_MOD:
		return ebpf_mod32(d, s, off == 1);
	case EBPF_XOR:
		return d ^ s;
	case EBPF_MOV:
		return (uint32_t)ebpf_sign_extend(s, off);
	case EBPF_ARSH:
		return (uint32_t)((int32_t)d >> (s & 31));
	default:
		return 0;
	}
}

/* Conditions; the 32-bit class passes zero-extended and sign-extended low halves. */
static ALWAYS_INLINE int ebpf_taken(unsigned op, uint64_t d, uint64_t s, int64_t sd, int64_t ss)
{
	switch (op) {
	case EBPF_JEQ:
		return d == s;
	case EBPF_JNE:
		return d != s;
	case EBPF_JGT:
		return d > s;
	case EBPF_JGE:
		return d >= s;
	case EBPF_JLT:
		return d < s;
	case EBPF_JLE:
		return d <= s;
	case EBPF_JSET:
		return (d & s) != 0;
	case EBPF_JSGT:
		return sd > ss;
	case EBPF_JSGE:
		return sd >= ss;
	case EBPF_JSLT:
		return sd < ss;
	case EBPF_JSLE:
		return sd <= ss;
	default:
		return 0;
	}
}

static ALWAYS_INLINE int ebpf_taken64(unsigned op, uint64_t d, uint64_t s)
{
	return ebpf_taken(op, d, s, (int64_t)d, (int64_t)s);
}

static ALWAYS_INLINE int ebpf_taken32(unsigned op, uint32_t d, uint32_t s)
{
	return ebpf_taken(op, d, s, (int32_t)d, (int32_t)s);
}

static ALWAYS_INLINE uint64_t ebpf_swap(uint64_t v, int bits)
{
	switch (bits) {
	case 16:
		return __builtin_bswap16((uint16_t)v);
	case 32:
		return __builtin_bswap32((uint32_t)v);
	default:
		return __builtin_bswap64(v);
	}
}

static ALWAYS_INLINE uint64_t ebpf_truncate(uint64_t v, int bits)
{
	return bits == 16 ? (uint16_t)v : bits == 32 ? (uint32_t)v : v;
}

/* Converts byte order. ALU: source K is little, X big endian; ALU64: always swaps. */
static ALWAYS_INLINE uint64_t ebpf_end(uint8_t code, uint64_t d, int bits)
{
	int swap = EBPF_CLASS(code) == EBPF_ALU64;

	if (EBPF_CLASS(code) == EBPF_ALU) {
		int to_big = EBPF_SRC(code) == EBPF_X;

		swap = to_big == (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
	}
	return swap ? ebpf_swap(d, bits) : ebpf_truncate(d, bits);
}

/* Atomics, sequentially consistent; return what was in memory before. expected is r0, for CMPXCHG.
 */
#define EBPF_ATOMIC_FUNCTION(name, type)                                                           \
	static ALWAYS_INLINE type name(type *p, int32_t op, type s, type expected)                 \
	{                                                                                          \
		switch (op & ~EBPF_FETCH) {                                                        \
		case EBPF_ADD:                                                                     \
			return add_seqcst(p, s);                                                   \
		case EBPF_OR:                                                                      \
			return or_seqcst(p, s);                                                    \
		case EBPF_AND:                                                                     \
			return and_seqcst(p, s);                                                   \
		case EBPF_XOR:                                                                     \
			return xor_seqcst(p, s);                                                   \
		case EBPF_XCHG & ~EBPF_FETCH:                                                      \
			return xchg_seqcst(p, s);                                                  \
		default:                                                                           \
			(void)cas_seqcst(p, &expected, s);                                         \
			return expected;                                                           \
		}                                                                                  \
	}
EBPF_ATOMIC_FUNCTION(ebpf_atomic64, uint64_t)
EBPF_ATOMIC_FUNCTION(ebpf_atomic32, uint32_t)

#endif
