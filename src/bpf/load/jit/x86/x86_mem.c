/* Loads, stores, atomics, and accesses to maps through the environment. */
#include "bpf/load/jit/x86/x86_int.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

void x86_load_mem(struct x86_code *c, const struct ebpf_insn *i, unsigned dst,
		  const struct x86_mem *m)
{
	int sign = EBPF_MODE(i->code) == EBPF_MEMSX;

	switch (EBPF_SIZE(i->code)) {
	case EBPF_B:
		x86_rx(c, 0, sign, sign ? 0x0fbe : 0x0fb6, dst, m, 0);
		break;
	case EBPF_H:
		x86_rx(c, 0, sign, sign ? 0x0fbf : 0x0fb7, dst, m, 0);
		break;
	case EBPF_W:
		x86_rx(c, 0, sign, sign ? 0x63 : 0x8b, dst, m, 0);
		break;
	default:
		x86_rx(c, 0, 1, 0x8b, dst, m, 0);
	}
}

static void store_reg(struct x86_code *c, const struct ebpf_insn *i, const struct x86_mem *m,
		      unsigned src)
{
	switch (EBPF_SIZE(i->code)) {
	case EBPF_B:
		x86_rx(c, 0, 0, 0x88, src, m, 1);
		break;
	case EBPF_H:
		x86_rx(c, 0x66, 0, 0x89, src, m, 0);
		break;
	default:
		x86_rx(c, 0, EBPF_SIZE(i->code) == EBPF_DW, 0x89, src, m, 0);
	}
}

static void store_imm(struct x86_code *c, const struct ebpf_insn *i, const struct x86_mem *m)
{
	switch (EBPF_SIZE(i->code)) {
	case EBPF_B:
		x86_rx(c, 0, 0, 0xc6, 0, m, 0);
		x86_byte(c, (uint8_t)i->imm);
		break;
	case EBPF_H:
		x86_rx(c, 0x66, 0, 0xc7, 0, m, 0);
		x86_byte(c, (uint8_t)i->imm);
		x86_byte(c, (uint8_t)(i->imm >> 8));
		break;
	default:
		x86_rx(c, 0, EBPF_SIZE(i->code) == EBPF_DW, 0xc7, 0, m, 0);
		x86_word32(c, (uint32_t)i->imm);
	}
}

/* Emits and, or, xor that also return the old value. x86 has no such instruction, so the code loops
 * on compare-and-exchange. The old value is in rax (r0); if base or operand is r0, a copy of it is
 * used. */
static void fetch_loop(struct x86_code *c, const struct ebpf_insn *i, int wide, unsigned base,
		       unsigned src)
{
	unsigned op = EBPF_OP(i->imm) == EBPF_AND  ? X86_AND
		      : EBPF_OP(i->imm) == EBPF_OR ? X86_OR
						   : X86_XOR;
	unsigned from = base == RAX ? JIT_SCRATCH : base, operand = src == RAX ? JIT_SCRATCH : src;
	size_t again;

	x86_mov(c, 1, JIT_SCRATCH, RAX);
	x86_rm(c, 0, wide, 0x8b, RAX, from, i->off, 0);
	again = c->pos;
	x86_mov(c, wide, JIT_SCRATCH2, RAX);
	x86_rr(c, wide, op * 8 + 1, operand, JIT_SCRATCH2);
	x86_rm(c, 0xf0, wide, 0x0fb1, JIT_SCRATCH2, from, i->off, 0);
	x86_byte(c, 0x70 | X86_NE);
	x86_byte(c, (uint8_t)(again - (c->pos + 1)));
	x86_mov(c, wide, src, RAX); /* a 32-bit move clears the upper half, also of rax itself */
	if (src != RAX) {
		x86_mov(c, 1, RAX, JIT_SCRATCH);
	}
}

static void atomic(struct x86_code *c, const struct ebpf_insn *i, unsigned dst, unsigned src)
{
	int wide = EBPF_SIZE(i->code) == EBPF_DW;

	switch (i->imm) {
	case EBPF_ADD:
		x86_rm(c, 0xf0, wide, 0x01, src, dst, i->off, 0);
		break;
	case EBPF_OR:
		x86_rm(c, 0xf0, wide, 0x09, src, dst, i->off, 0);
		break;
	case EBPF_AND:
		x86_rm(c, 0xf0, wide, 0x21, src, dst, i->off, 0);
		break;
	case EBPF_XOR:
		x86_rm(c, 0xf0, wide, 0x31, src, dst, i->off, 0);
		break;
	case EBPF_ADD | EBPF_FETCH:
		x86_rm(c, 0xf0, wide, 0x0fc1, src, dst, i->off, 0);
		break;
	case EBPF_XCHG:
		x86_rm(c, 0, wide, 0x87, src, dst, i->off,
		       0); /* xchg with memory is always locked */
		break;
	case EBPF_CMPXCHG:
		x86_rm(c, 0xf0, wide, 0x0fb1, src, dst, i->off, 0);
		if (!wide) {
			x86_mov(c, 0, RAX,
				RAX); /* eax is not written on success, so zero-extend it */
		}
		break;
	default:
		fetch_loop(c, i, wide, dst, src);
	}
}

struct x86_mem x86_mem_of(const struct ebpf_jit_note *note, const struct ebpf_insn *access)
{
	unsigned base = EBPF_CLASS(access->code) == EBPF_LDX ? access->src : access->dst;

	if (note->fused_address) {
		return (struct x86_mem){ x86_reg_of[note->base], x86_reg_of[note->index],
					 note->scale, access->off };
	}
	return (struct x86_mem){ x86_reg_of[base], X86_NO_INDEX, 0, access->off };
}

void x86_memory(struct x86_jit *j, const struct ebpf_insn *i, const struct ebpf_jit_note *note)
{
	struct x86_mem m = x86_mem_of(note, i);
	unsigned dst = x86_reg_of[i->dst], src = x86_reg_of[i->src];

	if (EBPF_CLASS(i->code) == EBPF_LDX) {
		x86_load_mem(&j->code, i, dst, &m);
	} else if (EBPF_CLASS(i->code) == EBPF_ST) {
		store_imm(&j->code, i, &m);
	} else if (EBPF_MODE(i->code) == EBPF_ATOMIC) {
		atomic(&j->code, i, dst, src);
	} else if (note->fuse == FUSE_UPDATE) {
		x86_update(j, i, &m);
	} else {
		store_reg(&j->code, i, &m, src);
	}
}

void x86_ld_imm64(struct x86_jit *j, const struct ebpf_insn *i)
{
	unsigned dst = x86_reg_of[i->dst];
	int32_t at = x86_map_data((uint32_t)i->imm);

	switch (i->src) {
	case EBPF_PSEUDO_FUNC:
		x86_lea_code(&j->code, dst, x86_func_at(j, i)->entry);
		break;
	case EBPF_PSEUDO_MAP:
		x86_lea(&j->code, dst, x86_env_reg(j),
			at - (int32_t)offsetof(struct ebpf_map, data));
		break;
	case EBPF_PSEUDO_MAP_VALUE:
		x86_load64(&j->code, dst, x86_env_reg(j), at);
		if (i[1].imm) {
			x86_alu_ri(&j->code, 1, X86_ADD, dst, i[1].imm);
		}
		break;
	default:
		x86_mov_i(&j->code, dst, (uint32_t)i->imm | (uint64_t)(uint32_t)i[1].imm << 32);
	}
}
