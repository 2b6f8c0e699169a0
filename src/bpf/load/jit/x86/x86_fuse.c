/* Encodes the instructions that jit_fuse.c has fused: an address, a load, a mask or a
 * read-modify-write that is part of another instruction. */
#include "bpf/load/jit/x86/x86_int.h"

/* ---- code ---- */

void x86_update(struct x86_jit *j, const struct ebpf_insn *store, const struct x86_mem *m)
{
	const struct ebpf_insn *change = store - 1;
	enum x86_alu op = x86_simple_op(EBPF_OP(change->code));
	unsigned size = EBPF_SIZE(store->code), wide = size == EBPF_DW, byte = size == EBPF_B;
	int small = change->imm >= -128 && change->imm <= 127;

	if (EBPF_SRC(change->code) == EBPF_X) {
		x86_rx(&j->code, 0, (int)wide, op * 8u + !byte, x86_reg_of[change->src], m,
		       (int)byte);
	} else if (byte || small) {
		x86_rx(&j->code, 0, (int)wide, byte ? 0x80 : 0x83, op, m, 0);
		x86_byte(&j->code, (uint8_t)change->imm);
	} else {
		x86_rx(&j->code, 0, (int)wide, 0x81, op, m, 0);
		x86_word32(&j->code, (uint32_t)change->imm);
	}
}

int x86_operand(struct x86_jit *j, const struct ebpf_insn *i, const struct ebpf_jit_note *note)
{
	struct x86_code *c = &j->code;
	int wide = EBPF_CLASS(i->code) == EBPF_ALU64, small = i->imm >= -128 && i->imm <= 127;
	unsigned dst = x86_reg_of[i->dst], from;
	struct x86_mem m;

	switch (note->fuse) {
	case FUSE_LEA:
		m = (struct x86_mem){ x86_reg_of[note->base], x86_reg_of[note->index], note->scale,
				      0 };
		x86_rx(c, 0, 1, 0x8d, dst, &m, 0);
		return 1;
	case FUSE_EXTEND:
		from = x86_reg_of[i[-1].src];
		if (i->imm == 0xff && from >= RSP && from <= RDI && dst < R8) {
			x86_byte(c, 0x40); /* sil, not dh */
		}
		x86_rr(c, 0, i->imm == 0xff ? 0x0fb6 : 0x0fb7, dst, from);
		return 1;
	case FUSE_OPERAND:
		m = x86_mem_of(note, i - 1);
		if (EBPF_OP(i->code) != EBPF_MUL) {
			x86_rx(c, 0, wide, x86_simple_op(EBPF_OP(i->code)) * 8u + 3, dst, &m, 0);
		} else if (EBPF_SRC(i->code) == EBPF_X) {
			x86_rx(c, 0, wide, 0x0faf, dst, &m, 0);
		} else {
			x86_rx(c, 0, wide, small ? 0x6b : 0x69, dst, &m, 0);
			x86_bytes(c, &i->imm, small ? 1 : 4); /* the machine is little endian */
		}
		return 1;
	default:
		return 0;
	}
}

void x86_compare_memory(struct x86_jit *j, const struct ebpf_insn *jump,
			const struct ebpf_jit_note *note)
{
	const struct ebpf_insn *load = jump - 1;
	struct x86_mem m = x86_mem_of(note, load);
	struct x86_code *c = &j->code;
	int wide = EBPF_SIZE(load->code) == EBPF_DW, byte = EBPF_SIZE(load->code) == EBPF_B,
	    test = EBPF_OP(jump->code) == EBPF_JSET, small = jump->imm >= -128 && jump->imm <= 127;

	if (EBPF_SRC(jump->code) == EBPF_X) {
		int first = jump->dst == load->dst; /* memory is the first operand */
		unsigned other = x86_reg_of[first ? jump->src : jump->dst];

		x86_rx(c, 0, wide, test ? 0x85 : first ? 0x39 : 0x3b, other, &m, 0);
	} else if (byte) {
		x86_rx(c, 0, 0, test ? 0xf6 : 0x80, test ? 0 : X86_CMP, &m, 0);
		x86_byte(c, (uint8_t)jump->imm);
	} else if (test || !small) {
		x86_rx(c, 0, wide, test ? 0xf7 : 0x81, test ? 0 : X86_CMP, &m, 0);
		x86_word32(c, (uint32_t)jump->imm);
	} else {
		x86_rx(c, 0, wide, 0x83, X86_CMP, &m, 0);
		x86_byte(c, (uint8_t)jump->imm);
	}
}
