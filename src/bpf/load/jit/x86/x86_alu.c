/* Arithmetic except division. The results equal those of bpf/run/interp/alu.h for every operand. */
#include "bpf/load/jit/x86/x86_int.h"

static void shift_by_reg(struct x86_code *c, int wide, enum x86_shift op, unsigned dst,
			 unsigned src)
{
	unsigned target = dst == RCX ? JIT_SCRATCH : dst;

	/* The count must be in cl, which is r4; x86 masks it as eBPF does. */
	if (src != RCX || dst == RCX) {
		x86_mov(c, 1, JIT_SCRATCH, RCX);
	}
	if (src != RCX) {
		x86_mov(c, 0, RCX, src);
	}
	x86_rr(c, wide, 0xd3, op, target);
	if (dst == RCX) {
		x86_mov(c, wide, RCX, JIT_SCRATCH);
	} else if (src != RCX) {
		x86_mov(c, 1, RCX, JIT_SCRATCH);
	}
}

/* Emits a byte order conversion of the low bits and clears the rest. The machine is little endian.
 */
static void byte_order(struct x86_code *c, const struct ebpf_insn *i, unsigned dst)
{
	int swap = EBPF_CLASS(i->code) == EBPF_ALU64 || EBPF_SRC(i->code) == EBPF_X;

	switch (i->imm) {
	case 16:
		if (swap) {
			x86_byte(c, 0x66);
			x86_shift_i(c, 0, X86_ROR, dst, 8);
		}
		x86_rr(c, 0, 0x0fb7, dst, dst);
		break;
	case 32:
		if (swap) {
			x86_bytes(c, (uint8_t[]){ 0x41 }, dst >> 3);
			x86_byte(c, 0x0f);
			x86_byte(c, 0xc8 | (dst & 7));
		} else {
			x86_mov(c, 0, dst, dst);
		}
		break;
	default:
		if (swap) {
			x86_byte(c, 0x48 | dst >> 3);
			x86_byte(c, 0x0f);
			x86_byte(c, 0xc8 | (dst & 7));
		}
	}
}

static void sign_extend(struct x86_code *c, int wide, unsigned dst, unsigned src, int bits)
{
	if (bits == 32) {
		x86_rr(c, 1, 0x63, dst, src);
	} else if (bits == 16) {
		x86_rr(c, wide, 0x0fbf, dst, src);
	} else {
		/* movsx from an 8-bit register: 4-7 need a REX byte to select sil, dil, bpl */
		if (!wide && src >= RSP && src <= RDI && dst < R8) {
			x86_byte(c, 0x40);
		}
		x86_rr(c, wide, 0x0fbe, dst, src);
	}
}

static void move(struct x86_code *c, const struct ebpf_insn *i, int wide, unsigned dst,
		 unsigned src)
{
	if (EBPF_SRC(i->code) == EBPF_K) {
		x86_mov_i(c, dst, wide ? (uint64_t)(int64_t)i->imm : (uint32_t)i->imm);
	} else if (i->off) {
		sign_extend(c, wide, dst, src, i->off);
	} else if (dst != src || !wide) {
		x86_mov(c, wide, dst, src);
	}
}

static void multiply(struct x86_code *c, const struct ebpf_insn *i, int wide, unsigned dst,
		     unsigned src)
{
	if (EBPF_SRC(i->code) == EBPF_X) {
		x86_rr(c, wide, 0x0faf, dst, src);
	} else if (i->imm >= -128 && i->imm <= 127) {
		x86_rr(c, wide, 0x6b, dst, dst);
		x86_byte(c, (uint8_t)i->imm);
	} else {
		x86_rr(c, wide, 0x69, dst, dst);
		x86_word32(c, (uint32_t)i->imm);
	}
}

static void shift(struct x86_code *c, const struct ebpf_insn *i, int wide, unsigned dst,
		  unsigned src)
{
	unsigned op = EBPF_OP(i->code), count = (uint32_t)i->imm & (wide ? 63 : 31);
	enum x86_shift x = op == EBPF_LSH ? X86_SHL : op == EBPF_RSH ? X86_SHR : X86_SAR;

	if (EBPF_SRC(i->code) == EBPF_X) {
		shift_by_reg(c, wide, x, dst, src);
	} else if (count) {
		x86_shift_i(c, wide, x, dst, count);
	} else {
		x86_zero_extend(c, wide, dst);
	}
}

enum x86_alu x86_simple_op(unsigned op)
{
	switch (op) {
	case EBPF_ADD:
		return X86_ADD;
	case EBPF_SUB:
		return X86_SUB;
	case EBPF_OR:
		return X86_OR;
	case EBPF_AND:
		return X86_AND;
	default:
		return X86_XOR;
	}
}

void x86_arithmetic(struct x86_jit *j, const struct ebpf_insn *i, const struct ebpf_jit_note *note)
{
	struct x86_code *c = &j->code;
	int wide = EBPF_CLASS(i->code) == EBPF_ALU64, by_reg = EBPF_SRC(i->code) == EBPF_X;
	unsigned dst = x86_reg_of[i->dst], src = x86_reg_of[i->src], op = EBPF_OP(i->code);

	if (note->fuse && x86_operand(j, i, note)) {
		return;
	}
	switch (op) {
	case EBPF_MOV:
		if (note->flags & JIT_LEA) {
			x86_rm(c, 0, wide, 0x8d, dst, src, i[1].imm, 0);
		} else {
			move(c, i, wide, dst, src);
		}
		break;
	case EBPF_MUL:
		multiply(c, i, wide, dst, src);
		break;
	case EBPF_DIV:
	case EBPF_MOD:
		x86_division(c, i);
		break;
	case EBPF_LSH:
	case EBPF_RSH:
	case EBPF_ARSH:
		shift(c, i, wide, dst, src);
		break;
	case EBPF_NEG:
		x86_rr(c, wide, 0xf7, 3, dst);
		break;
	case EBPF_END:
		byte_order(c, i, dst);
		break;
	default:
		if (by_reg) {
			x86_rr(c, wide, x86_simple_op(op) * 8u + 1, src, dst);
		} else {
			x86_alu_ri(c, wide, x86_simple_op(op), dst, i->imm);
		}
	}
}
