/* Encodings of instructions. */
#include "soft/code/code_insn.h"

#include <string.h>

#define OPCODE 0xfffu
#define OPCODE_MOV UINT64_C(0xa02)
#define OPCODE_EXIT UINT64_C(0x94d)
#define OPCODE_NOP UINT64_C(0x918)
#define OPCODE_BRA UINT64_C(0x947)
#define OPCODE_PMTRIG UINT64_C(0x801)
#define OPCODE_CARRIER UINT64_C(0xfff)
#define ALWAYS UINT64_C(0x7000) /* the guard is the predicate that is true */
#define BRA_SHIFT 34u		/* the distance in units of 4 bytes: 30 bits here, 18 in `high` */
#define BRA_LOW UINT64_C(0xfffffffc00000000)
#define BRA_HIGH UINT64_C(0x3ffff)
#define UNCONDITIONAL UINT64_C(0x3800000) /* operand of EXIT, BRA, PMTRIG: true */

/* Bits 105-125 of an instruction. */
#define CONTROL (UINT64_C(0x1fffff) << 41)
#define STALL UINT64_C(0x000fe40000000000)	 /* waits for nothing, continues after 2 cycles */
#define STALL_LEAVE UINT64_C(0x000fea0000000000) /* after 5 */
#define STALL_NONE UINT64_C(0x000fc00000000000)
#define WAIT_ALL (UINT64_C(0x3f) << 52)

/* A carrier: bits 16-31 are bytes 0 and 1 of the text, 32-34 its length, 38-53 the offset in
 * constant bank 0 (where NVIDIA's instructions have it, too), 54 whether it refers, 55-56 the kind,
 * 64-103 bytes 2 to 6. */
#define C_TEXT 16u
#define C_BYTES 32u
#define C_OFFSET 38u
#define C_REFERS 54u
#define C_KIND 55u

struct soft_insn soft_insn_read(const void *at)
{
	struct soft_insn i;

	memcpy(&i, at, sizeof(i));
	return i;
}

int soft_insn_add(struct buf *code, struct soft_insn i)
{
	return buf_add(code, &i, sizeof(i));
}

bool soft_insn_equal(struct soft_insn a, struct soft_insn b)
{
	return a.low == b.low && (a.high & ~CONTROL) == (b.high & ~CONTROL);
}

struct soft_insn soft_insn_first(void)
{
	return (struct soft_insn){ UINT64_C(0x00000a0000010000) | ALWAYS | OPCODE_MOV,
				   STALL | 0xf00 };
}

struct soft_insn soft_insn_exit(bool guarded)
{
	return (struct soft_insn){ (guarded ? 0 : ALWAYS) | OPCODE_EXIT,
				   STALL_LEAVE | UNCONDITIONAL };
}

struct soft_insn soft_insn_nop(void)
{
	return (struct soft_insn){ ALWAYS | OPCODE_NOP, STALL_NONE };
}

struct soft_insn soft_insn_mark(void)
{
	return (struct soft_insn){ UINT64_C(1) << (32 + SOFT_INSN_EVENT) | ALWAYS | OPCODE_PMTRIG,
				   STALL | UNCONDITIONAL };
}

struct soft_insn soft_insn_branch(int64_t distance)
{
	uint64_t units = (uint64_t)(distance / 4);

	return (struct soft_insn){ units << BRA_SHIFT | ALWAYS | OPCODE_BRA,
				   STALL_NONE | UNCONDITIONAL |
					   (units >> (64 - BRA_SHIFT) & BRA_HIGH) };
}

int64_t soft_insn_distance(struct soft_insn i)
{
	uint64_t units = i.low >> BRA_SHIFT | (i.high & BRA_HIGH) << (64 - BRA_SHIFT);

	return (int64_t)(units << 16) / (1 << 14); /* 48 bits, signed */
}

bool soft_insn_waits(struct soft_insn i)
{
	return (i.high & WAIT_ALL) == WAIT_ALL;
}

enum soft_insn_kind soft_insn_kind(struct soft_insn i)
{
	static const enum soft_insn_kind carriers[] = { SOFT_INSN_TEXT, SOFT_INSN_HASH,
							SOFT_INSN_PARAM, SOFT_INSN_OTHER };
	struct soft_insn whole = { i.low & ~BRA_LOW, i.high & ~BRA_HIGH };

	if (soft_insn_equal(i, soft_insn_first())) {
		return SOFT_INSN_FIRST;
	}
	if (soft_insn_equal(i, soft_insn_exit(true)) || soft_insn_equal(i, soft_insn_exit(false))) {
		return SOFT_INSN_EXIT;
	}
	if (soft_insn_equal(i, soft_insn_nop())) {
		return SOFT_INSN_NOP;
	}
	if (soft_insn_equal(whole, soft_insn_branch(0))) {
		return SOFT_INSN_BRANCH;
	}
	if (soft_insn_equal(i, soft_insn_mark())) {
		return SOFT_INSN_MARK;
	}
	return (i.low & OPCODE) == OPCODE_CARRIER ? carriers[i.low >> C_KIND & 3] : SOFT_INSN_OTHER;
}

struct soft_insn soft_insn_carrier(enum soft_insn_kind kind, const struct soft_carrier *c)
{
	struct soft_insn i = { ALWAYS | OPCODE_CARRIER, STALL };
	uint8_t t[7] = { 0 };

	memcpy(t, c->text, c->bytes);
	i.low |= (uint64_t)(kind - SOFT_INSN_TEXT) << C_KIND | (uint64_t)c->refers << C_REFERS |
		 (uint64_t)c->offset << C_OFFSET | (uint64_t)c->bytes << C_BYTES |
		 (uint64_t)t[0] << C_TEXT | (uint64_t)t[1] << (C_TEXT + 8);
	for (unsigned k = 2; k < sizeof(t); k++) {
		i.high |= (uint64_t)t[k] << (8 * (k - 2));
	}
	return i;
}

bool soft_insn_carried(struct soft_insn i, enum soft_insn_kind kind, struct soft_carrier *ret)
{
	*ret = (struct soft_carrier){ .bytes = i.low >> C_BYTES & 7,
				      .refers = i.low >> C_REFERS & 1,
				      .offset = (uint16_t)(i.low >> C_OFFSET) };
	ret->text[0] = (char)(uint8_t)(i.low >> C_TEXT);
	ret->text[1] = (char)(uint8_t)(i.low >> (C_TEXT + 8));
	for (unsigned k = 2; k < sizeof(ret->text); k++) {
		ret->text[k] = (char)(uint8_t)(i.high >> (8 * (k - 2)));
	}
	return (ret->refers || !ret->offset) && soft_insn_equal(i, soft_insn_carrier(kind, ret));
}
