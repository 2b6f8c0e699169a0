/* Making and recognizing the few instructions that the patcher writes. Encodings were taken from
 * compiled code: an instruction is built from the bits that ptxas gives to it. */
#include "cubin/cubin_insn_int.h"

#define CONTROL 0x000fc00000000000ull /* no scoreboards, no waiting, stall 0 */
#define PREDICATE_TRUE 0x0000000003800000ull

struct cubin_insn cubin_insn_nop(unsigned stall, unsigned wait)
{
	struct cubin_insn i = { 0x7000 | CUBIN_OP_NOP, CONTROL };

	return cubin_insn_set(cubin_insn_set(i, CUBIN_STALL, 4, stall), CUBIN_WAIT, 6, wait);
}

struct cubin_insn cubin_insn_bra(unsigned arch, int64_t offset)
{
	uint64_t words = (uint64_t)(offset / 4), high = words;
	struct cubin_insn i = { 0x7000 | CUBIN_OP_BRA, CONTROL | PREDICATE_TRUE };

	if (arch >= 90) { /* its low byte apart, the rest from bit 34 on */
		i.lo |= (words & 0xff) << 16;
		high = (uint64_t)((int64_t)words >> 8);
	}
	high &= 0xffffffffffffull;
	i.lo |= high << 34;
	i.hi |= high >> 30;
	return cubin_insn_set(i, CUBIN_STALL, 4, 5);
}

int64_t cubin_insn_target(unsigned arch, struct cubin_insn i, size_t at)
{
	uint64_t v = i.lo >> 34 | (i.hi & 0x3ffff) << 30; /* 48 bits */

	if (arch >= 90) {
		v = v << 8 | (i.lo >> 16 & 0xff);
		v <<= 8;
		return (int64_t)at + CUBIN_INSN_BYTES + ((int64_t)v >> 8) * 4;
	}
	v <<= 16;
	return (int64_t)at + CUBIN_INSN_BYTES + ((int64_t)v >> 16) * 4;
}

struct cubin_insn cubin_insn_displaced(struct cubin_insn first)
{
	first = cubin_insn_set(first, CUBIN_REUSE, 4, 0);
	if (cubin_insn_bits(first, CUBIN_STALL, 4) < 2) {
		first = cubin_insn_set(first, CUBIN_STALL, 4, 2);
	}
	return first;
}

bool cubin_insn_loads_stack(struct cubin_insn i)
{
	unsigned op = cubin_insn_op(i), to = (unsigned)(i.lo >> 16) & 0xff;

	if (cubin_insn_predicate(i) != CUBIN_ALWAYS || to != CUBIN_STACK_REGISTER) {
		return false;
	}
	if (i.lo >> 54 & 0x1f) {
		return false; /* another bank */
	}
	switch (op) {
	case CUBIN_OP_MOV_CONST:
		return true;
	case CUBIN_OP_IMAD_CONST: /* RZ * RZ + c */
		return (i.lo >> 24 & 0xff) == CUBIN_RZ && (i.hi & 0xff) == CUBIN_RZ;
	case CUBIN_OP_LDC:
		return (i.lo >> 24 & 0xff) == CUBIN_RZ;
	default:
		return false;
	}
}

bool cubin_insn_stores(struct cubin_insn i)
{
	unsigned form = cubin_insn_op(i) >> 9; /* which operands are registers, uniform ... */

	if (form != 1 && form != 4) {
		return false;
	}
	switch (cubin_insn_op(i) & 0x1ff) {
	case CUBIN_OP_ST & 0x1ff:
	case CUBIN_OP_STG & 0x1ff:
	case CUBIN_OP_STL & 0x1ff:
	case CUBIN_OP_STS & 0x1ff:
	case CUBIN_OP_RED & 0x1ff:
		return true;
	default:
		return false;
	}
}
