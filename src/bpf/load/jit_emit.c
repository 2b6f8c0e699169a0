/* Byte by byte, x86-64 instructions. */
#include "bpf/load/jit_emit.h"

#include <string.h>

void x86_bytes(struct code *c, const void *bytes, unsigned n)
{
	if (c->out && c->pos <= c->cap && n <= c->cap - c->pos) {
		memcpy(c->out + c->pos, bytes, n);
	}
	c->pos += n;
}

void x86_byte(struct code *c, unsigned byte)
{
	uint8_t b = (uint8_t)byte;

	x86_bytes(c, &b, 1);
}

void x86_word32(struct code *c, uint32_t word)
{
	uint8_t b[4] = { (uint8_t)word, (uint8_t)(word >> 8), (uint8_t)(word >> 16),
			 (uint8_t)(word >> 24) };

	x86_bytes(c, b, 4);
}

static void rex(struct code *c, int wide, unsigned reg, unsigned rm, int force)
{
	unsigned b = 0x40u | (wide ? 8u : 0) | (reg >> 3) << 2 | rm >> 3;

	if (b != 0x40 || force) {
		x86_byte(c, b);
	}
}

static void opcode(struct code *c, unsigned op)
{
	if (op > 0xff) {
		x86_byte(c, op >> 8);
	}
	x86_byte(c, op & 0xff);
}

void x86_rr(struct code *c, int wide, unsigned op, unsigned reg, unsigned rm)
{
	rex(c, wide, reg, rm, 0);
	opcode(c, op);
	x86_byte(c, 0xc0u | (reg & 7) << 3 | (rm & 7));
}

/* ModRM (and SIB) of base + disp: rsp and r12 need a SIB byte, rbp and r13 a displacement. */
static void memory(struct code *c, unsigned reg, unsigned base, int32_t disp)
{
	unsigned mod = disp == 0 && (base & 7) != RBP ? 0 : disp >= -128 && disp <= 127 ? 1 : 2;

	x86_byte(c, mod << 6 | (reg & 7) << 3 | (base & 7));
	if ((base & 7) == RSP) {
		x86_byte(c, 0x24);
	}
	if (mod == 1) {
		x86_byte(c, (uint8_t)disp);
	} else if (mod == 2) {
		x86_word32(c, (uint32_t)disp);
	}
}

void x86_rm(struct code *c, unsigned prefix, int wide, unsigned op, unsigned reg, unsigned base,
	    int32_t disp, int byte_reg)
{
	if (prefix) {
		x86_byte(c, prefix);
	}
	rex(c, wide, reg, base, byte_reg && reg >= RSP); /* without REX 4-7 are ah, ch, dh, bh */
	opcode(c, op);
	memory(c, reg, base, disp);
}

void x86_alu_ri(struct code *c, int wide, enum x86_alu op, unsigned rm, int32_t imm)
{
	if (imm >= -128 && imm <= 127) {
		x86_rr(c, wide, 0x83, op, rm);
		x86_byte(c, (uint8_t)imm);
	} else {
		x86_rr(c, wide, 0x81, op, rm);
		x86_word32(c, (uint32_t)imm);
	}
}

void x86_shift_i(struct code *c, int wide, enum x86_shift op, unsigned rm, unsigned count)
{
	x86_rr(c, wide, 0xc1, op, rm);
	x86_byte(c, count);
}

void x86_mov_i(struct code *c, unsigned reg, uint64_t value)
{
	if (!value) {
		x86_rr(c, 0, 0x31, reg, reg);
	} else if (value <= UINT32_MAX) {
		rex(c, 0, 0, reg, 0);
		x86_byte(c, 0xb8u | (reg & 7));
		x86_word32(c, (uint32_t)value);
	} else if ((int64_t)value == (int32_t)value) {
		x86_rr(c, 1, 0xc7, 0, reg);
		x86_word32(c, (uint32_t)value);
	} else {
		rex(c, 1, 0, reg, 0);
		x86_byte(c, 0xb8u | (reg & 7));
		x86_word32(c, (uint32_t)value);
		x86_word32(c, (uint32_t)(value >> 32));
	}
}

void x86_mov(struct code *c, int wide, unsigned dst, unsigned src)
{
	x86_rr(c, wide, 0x89, src, dst);
}

void x86_load64(struct code *c, unsigned reg, unsigned base, int32_t disp)
{
	x86_rm(c, 0, 1, 0x8b, reg, base, disp, 0);
}

void x86_lea(struct code *c, unsigned reg, unsigned base, int32_t disp)
{
	x86_rm(c, 0, 1, 0x8d, reg, base, disp, 0);
}

void x86_lea_code(struct code *c, unsigned reg, uint32_t pos)
{
	rex(c, 1, reg, 0, 0);
	x86_byte(c, 0x8d);
	x86_byte(c, (reg & 7) << 3 | RBP); /* relative to rip */
	x86_word32(c, pos - (uint32_t)(c->pos + 4));
}

void x86_push(struct code *c, unsigned reg)
{
	rex(c, 0, 0, reg, 0);
	x86_byte(c, 0x50u | (reg & 7));
}

void x86_pop(struct code *c, unsigned reg)
{
	rex(c, 0, 0, reg, 0);
	x86_byte(c, 0x58u | (reg & 7));
}

size_t x86_skip(struct code *c, int cond)
{
	x86_byte(c, cond < 0 ? 0xeb : 0x70u | (unsigned)cond);
	x86_byte(c, 0);
	return c->pos;
}

void x86_land(struct code *c, size_t skip)
{
	if (c->out && skip <= c->cap) {
		c->out[skip - 1] = (uint8_t)(c->pos - skip);
	}
}

size_t x86_skip_far(struct code *c, int cond)
{
	if (cond < 0) {
		x86_byte(c, 0xe9);
	} else {
		x86_byte(c, 0x0f);
		x86_byte(c, 0x80u | (unsigned)cond);
	}
	x86_word32(c, 0);
	return c->pos;
}

void x86_land_far(struct code *c, size_t skip)
{
	struct code at = { c->out, c->cap, skip - 4 };

	x86_word32(&at, (uint32_t)(c->pos - skip));
}
