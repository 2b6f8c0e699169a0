/* Encodes x86-64 instructions. */
#include "bpf/load/jit/x86/x86_emit.h"

#include <string.h>

void x86_bytes(struct x86_code *c, const void *bytes, unsigned n)
{
	if (c->out && c->pos <= c->cap && n <= c->cap - c->pos) {
		memcpy(c->out + c->pos, bytes, n);
	}
	c->pos += n;
}

void x86_byte(struct x86_code *c, unsigned byte)
{
	uint8_t b = (uint8_t)byte;

	x86_bytes(c, &b, 1);
}

void x86_word32(struct x86_code *c, uint32_t word)
{
	uint8_t b[4] = { (uint8_t)word, (uint8_t)(word >> 8), (uint8_t)(word >> 16),
			 (uint8_t)(word >> 24) };

	x86_bytes(c, b, 4);
}

static void rex_index(struct x86_code *c, int wide, unsigned reg, unsigned index, unsigned rm,
		      int force)
{
	unsigned b = 0x40u | (wide ? 8u : 0) | (reg >> 3) << 2 | (index >> 3) << 1 | rm >> 3;

	if (b != 0x40 || force) {
		x86_byte(c, b);
	}
}

static void rex(struct x86_code *c, int wide, unsigned reg, unsigned rm, int force)
{
	rex_index(c, wide, reg, 0, rm, force);
}

static void opcode(struct x86_code *c, unsigned op)
{
	if (op > 0xff) {
		x86_byte(c, op >> 8);
	}
	x86_byte(c, op & 0xff);
}

void x86_rr(struct x86_code *c, int wide, unsigned op, unsigned reg, unsigned rm)
{
	rex(c, wide, reg, rm, 0);
	opcode(c, op);
	x86_byte(c, 0xc0u | (reg & 7) << 3 | (rm & 7));
}

/* Emits ModRM and SIB. An index, or base rsp or r12, requires a SIB byte; base rbp or r13 requires
 * a displacement. */
static void memory(struct x86_code *c, unsigned reg, const struct x86_mem *m)
{
	int indexed = m->index != X86_NO_INDEX;
	unsigned base = m->base & 7, mod = m->disp == 0 && base != RBP	       ? 0
					   : m->disp >= -128 && m->disp <= 127 ? 1
									       : 2;

	x86_byte(c, mod << 6 | (reg & 7) << 3 | (indexed ? RSP : base));
	if (indexed) {
		x86_byte(c, (unsigned)m->scale << 6 | (m->index & 7u) << 3 | base);
	} else if (base == RSP) {
		x86_byte(c, 0x24);
	}
	if (mod == 1) {
		x86_byte(c, (uint8_t)m->disp);
	} else if (mod == 2) {
		x86_word32(c, (uint32_t)m->disp);
	}
}

void x86_rx(struct x86_code *c, unsigned prefix, int wide, unsigned op, unsigned reg,
	    const struct x86_mem *m, int byte_reg)
{
	if (prefix) {
		x86_byte(c, prefix);
	}
	/* without REX, registers 4-7 are ah, ch, dh, bh */
	rex_index(c, wide, reg, m->index == X86_NO_INDEX ? 0 : m->index, m->base,
		  byte_reg && reg >= RSP);
	opcode(c, op);
	memory(c, reg, m);
}

void x86_rm(struct x86_code *c, unsigned prefix, int wide, unsigned op, unsigned reg, unsigned base,
	    int32_t disp, int byte_reg)
{
	x86_rx(c, prefix, wide, op, reg, &(struct x86_mem){ (uint8_t)base, X86_NO_INDEX, 0, disp },
	       byte_reg);
}

void x86_alu_ri(struct x86_code *c, int wide, enum x86_alu op, unsigned rm, int32_t imm)
{
	if (imm >= -128 && imm <= 127) {
		x86_rr(c, wide, 0x83, op, rm);
		x86_byte(c, (uint8_t)imm);
	} else {
		x86_rr(c, wide, 0x81, op, rm);
		x86_word32(c, (uint32_t)imm);
	}
}

void x86_shift_i(struct x86_code *c, int wide, enum x86_shift op, unsigned rm, unsigned count)
{
	x86_rr(c, wide, 0xc1, op, rm);
	x86_byte(c, count);
}

void x86_mov_i(struct x86_code *c, unsigned reg, uint64_t value)
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

void x86_mov(struct x86_code *c, int wide, unsigned dst, unsigned src)
{
	x86_rr(c, wide, 0x89, src, dst);
}

void x86_load64(struct x86_code *c, unsigned reg, unsigned base, int32_t disp)
{
	x86_rm(c, 0, 1, 0x8b, reg, base, disp, 0);
}

void x86_lea(struct x86_code *c, unsigned reg, unsigned base, int32_t disp)
{
	x86_rm(c, 0, 1, 0x8d, reg, base, disp, 0);
}

void x86_lea_code(struct x86_code *c, unsigned reg, uint32_t pos)
{
	rex(c, 1, reg, 0, 0);
	x86_byte(c, 0x8d);
	x86_byte(c, (reg & 7) << 3 | RBP); /* relative to rip */
	x86_word32(c, pos - (uint32_t)(c->pos + 4));
}

void x86_nop(struct x86_code *c, unsigned n)
{
	/* the recommended forms in the manual (NOP), up to eight bytes */
	static const uint8_t forms[8][8] = {
		{ 0x90 },
		{ 0x66, 0x90 },
		{ 0x0f, 0x1f, 0x00 },
		{ 0x0f, 0x1f, 0x40, 0x00 },
		{ 0x0f, 0x1f, 0x44, 0x00, 0x00 },
		{ 0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00 },
		{ 0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00 },
		{ 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00 },
	};

	while (n) {
		unsigned k = n < 8 ? n : 8;

		x86_bytes(c, forms[k - 1], k);
		n -= k;
	}
}

void x86_push(struct x86_code *c, unsigned reg)
{
	rex(c, 0, 0, reg, 0);
	x86_byte(c, 0x50u | (reg & 7));
}

void x86_pop(struct x86_code *c, unsigned reg)
{
	rex(c, 0, 0, reg, 0);
	x86_byte(c, 0x58u | (reg & 7));
}

size_t x86_skip(struct x86_code *c, int cond)
{
	x86_byte(c, cond < 0 ? 0xeb : 0x70u | (unsigned)cond);
	x86_byte(c, 0);
	return c->pos;
}

void x86_land(struct x86_code *c, size_t skip)
{
	if (c->out && skip <= c->cap) {
		c->out[skip - 1] = (uint8_t)(c->pos - skip);
	}
}

size_t x86_skip_far(struct x86_code *c, int cond)
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

void x86_land_far(struct x86_code *c, size_t skip)
{
	struct x86_code at = { c->out, c->cap, skip - 4 };

	x86_word32(&at, (uint32_t)(c->pos - skip));
}
