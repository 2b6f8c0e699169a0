/* PTX back end: arithmetic and conditions. Where PTX leaves a result open or differs from eBPF (a
 * division by zero, shifts beyond the width), the operands are changed before the operation. */
#include <stdio.h>

#include "bpf/load/jit/ptx/jit_ptx_int.h"

/* The operands of an operation: all of one width. */
struct operands {
	unsigned bits;
	char dst[8], src[24]; /* a register; a register or a number */
	int by_reg;
	int64_t imm;
};

/* Names the operands; those of the 32-bit class are copied to %w0 and %w1. */
static struct operands take(struct ebpf_ptx_jit *j, const struct ebpf_insn *i)
{
	unsigned class = EBPF_CLASS(i->code);
	struct operands o = { .bits = class == EBPF_ALU64 || class == EBPF_JMP ? 64 : 32,
			      .by_reg = EBPF_SRC(i->code) == EBPF_X,
			      .imm = i->imm };

	snprintf(o.src, sizeof(o.src), "%d", i->imm);
	if (o.bits == 64) {
		snprintf(o.dst, sizeof(o.dst), "%%r%u", i->dst);
		if (o.by_reg) {
			snprintf(o.src, sizeof(o.src), "%%r%u", i->src);
		}
		return o;
	}
	snprintf(o.dst, sizeof(o.dst), "%%w0");
	ebpf_ptx_op(j, "cvt.u32.u64 %%w0, %%r%u", i->dst);
	if (o.by_reg) {
		snprintf(o.src, sizeof(o.src), "%%w1");
		ebpf_ptx_op(j, "cvt.u32.u64 %%w1, %%r%u", i->src);
	}
	return o;
}

/* The scratch register k of the width. */
static const char *scratch(const struct operands *o, unsigned k)
{
	static const char *const names[2][4] = { { "%w0", "%w1", "%w2", "%w3" },
						 { "%t0", "%t1", "%t2", "%t3" } };

	return names[o->bits == 64][k];
}

static void shift(struct ebpf_ptx_jit *j, const struct operands *o, const char *op)
{
	unsigned mask = o->bits - 1;

	if (!o->by_reg) {
		ebpf_ptx_op(j, "%s%u %s, %s, %u", op, o->bits, o->dst, o->dst,
			    (unsigned)o->imm & mask);
		return;
	}
	if (o->bits == 64) {
		ebpf_ptx_op(j, "cvt.u32.u64 %%w2, %s", o->src);
	} else {
		ebpf_ptx_op(j, "mov.b32 %%w2, %s", o->src);
	}
	ebpf_ptx_op(j, "and.b32 %%w2, %%w2, %u", mask);
	ebpf_ptx_op(j, "%s%u %s, %s, %%w2", op, o->bits, o->dst, o->dst);
}

/* Divides by a register. The divisors 0 and, if signed, -1 are replaced by 1; then x / 1 is negated
 * for -1 and replaced by 0 for 0, and x % 1 = 0 replaced by x for 0. */
static void divide(struct ebpf_ptx_jit *j, const struct operands *o, int is_mod, int is_signed)
{
	const char *t = scratch(o, 2), *q = scratch(o, 3);
	char type = is_signed ? 's' : 'u';

	ebpf_ptx_op(j, "setp.eq.u%u %%p0, %s, 0", o->bits, o->src);
	ebpf_ptx_op(j, "selp.b%u %s, 1, %s, %%p0", o->bits, t, o->src);
	if (is_signed) {
		ebpf_ptx_op(j, "setp.eq.s%u %%p1, %s, -1", o->bits, o->src);
		ebpf_ptx_op(j, "selp.b%u %s, 1, %s, %%p1", o->bits, t, t);
	}
	ebpf_ptx_op(j, "%s.%c%u %s, %s, %s", is_mod ? "rem" : "div", type, o->bits, q, o->dst, t);
	if (is_mod) {
		ebpf_ptx_op(j, "selp.b%u %s, %s, %s, %%p0", o->bits, o->dst, o->dst, q);
		return;
	}
	if (is_signed) {
		ebpf_ptx_op(j, "@%%p1 neg.s%u %s, %s", o->bits, q, q);
	}
	ebpf_ptx_op(j, "selp.b%u %s, 0, %s, %%p0", o->bits, o->dst, q);
}

static void divide_by_number(struct ebpf_ptx_jit *j, const struct operands *o, int is_mod,
			     int is_signed)
{
	if (o->imm == 0) {
		if (!is_mod) {
			ebpf_ptx_op(j, "mov.b%u %s, 0", o->bits, o->dst);
		}
	} else if (is_signed && o->imm == -1) {
		if (is_mod) {
			ebpf_ptx_op(j, "mov.b%u %s, 0", o->bits, o->dst);
		} else {
			ebpf_ptx_op(j, "neg.s%u %s, %s", o->bits, o->dst, o->dst);
		}
	} else {
		ebpf_ptx_op(j, "%s.%c%u %s, %s, %s", is_mod ? "rem" : "div", is_signed ? 's' : 'u',
			    o->bits, o->dst, o->dst, o->src);
	}
}

static void move(struct ebpf_ptx_jit *j, const struct operands *o, int extend)
{
	if (extend) {
		ebpf_ptx_op(j, "cvt.s%u.s%d %s, %s", o->bits, extend, o->dst, o->src);
	} else {
		ebpf_ptx_op(j, "mov.b%u %s, %s", o->bits, o->dst, o->src);
	}
}

static void swap32(struct ebpf_ptx_jit *j, const char *reg)
{
	ebpf_ptx_op(j, "prmt.b32 %s, %s, 0, 0x0123", reg, reg);
}

/* Converts byte order; GPUs are little endian. */
static void byte_order(struct ebpf_ptx_jit *j, const struct ebpf_insn *i)
{
	int swap = EBPF_CLASS(i->code) == EBPF_ALU64 || EBPF_SRC(i->code) == EBPF_X;
	unsigned r = i->dst;

	if (i->imm == 64) {
		if (swap) {
			ebpf_ptx_op(j, "mov.b64 {%%w0, %%w1}, %%r%u", r);
			swap32(j, "%w0");
			swap32(j, "%w1");
			ebpf_ptx_op(j, "mov.b64 %%r%u, {%%w1, %%w0}", r);
		}
		return;
	}
	if (!swap) {
		ebpf_ptx_op(j, "and.b64 %%r%u, %%r%u, 0x%x", r, r,
			    i->imm == 16 ? 0xffffu : 0xffffffffu);
		return;
	}
	ebpf_ptx_op(j, "cvt.u32.u64 %%w0, %%r%u", r);
	if (i->imm == 16) {
		ebpf_ptx_op(j, "prmt.b32 %%w0, %%w0, 0, 0x4401");
	} else {
		swap32(j, "%w0");
	}
	ebpf_ptx_op(j, "cvt.u64.u32 %%r%u, %%w0", r);
}

static const char *plain_name(unsigned op)
{
	switch (op) {
	case EBPF_ADD:
		return "add.s";
	case EBPF_SUB:
		return "sub.s";
	case EBPF_MUL:
		return "mul.lo.s";
	case EBPF_OR:
		return "or.b";
	case EBPF_AND:
		return "and.b";
	default:
		return "xor.b";
	}
}

void ebpf_ptx_arithmetic(struct ebpf_ptx_jit *j, const struct ebpf_insn *i)
{
	unsigned op = EBPF_OP(i->code);
	struct operands o;

	if (op == EBPF_END) {
		byte_order(j, i);
		return;
	}
	o = take(j, i);
	switch (op) {
	case EBPF_LSH:
		shift(j, &o, "shl.b");
		break;
	case EBPF_RSH:
		shift(j, &o, "shr.u");
		break;
	case EBPF_ARSH:
		shift(j, &o, "shr.s");
		break;
	case EBPF_DIV:
	case EBPF_MOD:
		(o.by_reg ? divide : divide_by_number)(j, &o, op == EBPF_MOD, i->off == 1);
		break;
	case EBPF_NEG:
		ebpf_ptx_op(j, "neg.s%u %s, %s", o.bits, o.dst, o.dst);
		break;
	case EBPF_MOV:
		move(j, &o, i->off);
		break;
	default:
		ebpf_ptx_op(j, "%s%u %s, %s, %s", plain_name(op), o.bits, o.dst, o.dst, o.src);
	}
	if (o.bits == 32) {
		ebpf_ptx_op(j, "cvt.u64.u32 %%r%u, %%w0", i->dst);
	}
}

void ebpf_ptx_condition(struct ebpf_ptx_jit *j, const struct ebpf_insn *i)
{
	static const char *const names[16] = {
		[EBPF_JEQ >> 4] = "eq.s",  [EBPF_JNE >> 4] = "ne.s",  [EBPF_JGT >> 4] = "gt.u",
		[EBPF_JGE >> 4] = "ge.u",  [EBPF_JLT >> 4] = "lt.u",  [EBPF_JLE >> 4] = "le.u",
		[EBPF_JSGT >> 4] = "gt.s", [EBPF_JSGE >> 4] = "ge.s", [EBPF_JSLT >> 4] = "lt.s",
		[EBPF_JSLE >> 4] = "le.s",
	};
	struct operands o = take(j, i);

	if (EBPF_OP(i->code) == EBPF_JSET) {
		ebpf_ptx_op(j, "and.b%u %s, %s, %s", o.bits, scratch(&o, 2), o.dst, o.src);
		ebpf_ptx_op(j, "setp.ne.s%u %%p0, %s, 0", o.bits, scratch(&o, 2));
	} else {
		ebpf_ptx_op(j, "setp.%s%u %%p0, %s, %s", names[EBPF_OP(i->code) >> 4], o.bits,
			    o.dst, o.src);
	}
}
