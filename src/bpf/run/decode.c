/* Checks that instructions are well formed, and the properties of whole programs that need no
 * execution. */
#include "bpf/run/decode.h"

#include <errno.h>

#include "bpf/run/env.h"

static int alu_ok(const struct ebpf_insn *i)
{
	int is64 = EBPF_CLASS(i->code) == EBPF_ALU64;
	int by_reg = EBPF_SRC(i->code) == EBPF_X;

	switch (EBPF_OP(i->code)) {
	case EBPF_NEG:
		return !by_reg && !i->src && !i->off && !i->imm;
	case EBPF_END:
		return !(is64 && by_reg) && !i->src && !i->off &&
		       (i->imm == 16 || i->imm == 32 || i->imm == 64);
	case EBPF_DIV:
	case EBPF_MOD:
		if (i->off != 0 && i->off != 1) {
			return 0;
		}
		break;
	case EBPF_MOV:
		if (i->off &&
		    !(by_reg && (i->off == 8 || i->off == 16 || (is64 && i->off == 32)))) {
			return 0;
		}
		break;
	case 0xe0:
	case 0xf0:
		return 0;
	default:
		if (i->off) {
			return 0;
		}
	}
	return by_reg ? !i->imm : !i->src;
}

static int jump_ok(const struct ebpf_insn *i)
{
	int is64 = EBPF_CLASS(i->code) == EBPF_JMP;
	int by_reg = EBPF_SRC(i->code) == EBPF_X;

	switch (EBPF_OP(i->code)) {
	case EBPF_JA:
		return !by_reg && !i->dst && !i->src && (is64 ? !i->imm : !i->off);
	case EBPF_CALL:
		return is64 && !by_reg && !i->dst && !i->off && i->src <= EBPF_CALL_LOCAL;
	case EBPF_EXIT:
		return is64 && !by_reg && !i->dst && !i->src && !i->off && !i->imm;
	case 0xe0:
	case 0xf0:
		return 0;
	default:
		return by_reg ? !i->imm : !i->src;
	}
}

static int atomic_ok(const struct ebpf_insn *i)
{
	if (EBPF_SIZE(i->code) != EBPF_W && EBPF_SIZE(i->code) != EBPF_DW) {
		return 0;
	}
	switch (i->imm) {
	case EBPF_ADD:
	case EBPF_OR:
	case EBPF_AND:
	case EBPF_XOR:
	case EBPF_ADD | EBPF_FETCH:
	case EBPF_OR | EBPF_FETCH:
	case EBPF_AND | EBPF_FETCH:
	case EBPF_XOR | EBPF_FETCH:
	case EBPF_XCHG:
	case EBPF_CMPXCHG:
		/* the old value is written to src, so src cannot be the frame pointer */
		return !((i->imm & EBPF_FETCH) && i->src == 10 && i->imm != EBPF_CMPXCHG);
	default:
		return 0;
	}
}

static int memory_ok(const struct ebpf_insn *i)
{
	unsigned mode = EBPF_MODE(i->code);

	switch (EBPF_CLASS(i->code)) {
	case EBPF_LDX:
		return !i->imm &&
		       (mode == EBPF_MEM || (mode == EBPF_MEMSX && EBPF_SIZE(i->code) != EBPF_DW));
	case EBPF_ST:
		return mode == EBPF_MEM && !i->src;
	default:
		return mode == EBPF_ATOMIC ? atomic_ok(i) : mode == EBPF_MEM && !i->imm;
	}
}

int ebpf_insn_writes_dst(const struct ebpf_insn *i)
{
	unsigned class = EBPF_CLASS(i->code);

	return class == EBPF_ALU || class == EBPF_ALU64 || class == EBPF_LDX || class == EBPF_LD;
}

int ebpf_insn_slots(const struct ebpf_insn *insns, uint32_t n, uint32_t pc)
{
	const struct ebpf_insn *i = &insns[pc];

	if (pc >= n || i->dst > 10 || (i->dst == 10 && ebpf_insn_writes_dst(i))) {
		return -EINVAL;
	}
	if (i->code == EBPF_LD_IMM64) {
		const struct ebpf_insn *second = i + 1;

		if (n - pc < 2 || second->code || second->dst || second->src || second->off ||
		    i->off || (i->src > EBPF_PSEUDO_MAP_VALUE && i->src != EBPF_PSEUDO_FUNC)) {
			return -EINVAL;
		}
		return (i->src == EBPF_PSEUDO_MAP || i->src == EBPF_PSEUDO_FUNC) && second->imm
			       ? -EINVAL
			       : 2;
	}
	if (i->src > 10) {
		return -EINVAL;
	}
	switch (EBPF_CLASS(i->code)) {
	case EBPF_ALU:
	case EBPF_ALU64:
		return alu_ok(i) ? 1 : -EINVAL;
	case EBPF_JMP:
	case EBPF_JMP32:
		return jump_ok(i) ? 1 : -EINVAL;
	case EBPF_LDX:
	case EBPF_ST:
	case EBPF_STX:
		return memory_ok(i) ? 1 : -EINVAL;
	default:
		return -EINVAL;
	}
}

const char *ebpf_insn_unsupported(const struct ebpf_insn *i)
{
	unsigned class = EBPF_CLASS(i->code), mode = EBPF_MODE(i->code);

	if (i->code == (EBPF_JMP | EBPF_CALL | EBPF_X)) {
		return "a call through a register (callx)";
	}
	if (class == EBPF_LD && (mode == EBPF_ABS || mode == EBPF_IND)) {
		return "a packet load (LD_ABS, LD_IND)";
	}
	if (i->code == (EBPF_JMP | 0xe0)) {
		return "may_goto";
	}
	if (i->code == (EBPF_ALU64 | EBPF_MOV | EBPF_X) && i->off == 1) {
		return "an address space cast (arena)";
	}
	if (i->code == (EBPF_JMP | EBPF_CALL) && i->src == 2) {
		return "a call of a kernel function (kfunc)";
	}
	if (class == EBPF_STX && mode == EBPF_ATOMIC && i->imm == 0x100) {
		return "a load-acquire";
	}
	if (class == EBPF_STX && mode == EBPF_ATOMIC && i->imm == 0x110) {
		return "a store-release";
	}
	return NULL;
}

#define NOWHERE INT64_MIN

/* Returns the jump target, or the function whose address is loaded; it may lie outside of the
 * program. */
static int64_t target_of(const struct ebpf_insn *i, uint32_t pc)
{
	unsigned class = EBPF_CLASS(i->code), op = EBPF_OP(i->code);

	if (i->code == EBPF_LD_IMM64 && i->src == EBPF_PSEUDO_FUNC) {
		return (int64_t)pc + 1 + i->imm;
	}
	if ((class != EBPF_JMP && class != EBPF_JMP32) || op == EBPF_EXIT) {
		return NOWHERE;
	}
	if (op == EBPF_CALL) {
		return i->src == EBPF_CALL_LOCAL ? (int64_t)pc + 1 + i->imm : NOWHERE;
	}
	return (int64_t)pc + 1 + (class == EBPF_JMP32 && op == EBPF_JA ? i->imm : i->off);
}

static int goes_on(const struct ebpf_insn *i)
{
	unsigned class = EBPF_CLASS(i->code), op = EBPF_OP(i->code);

	return !((class == EBPF_JMP && (op == EBPF_EXIT || op == EBPF_JA)) ||
		 (class == EBPF_JMP32 && op == EBPF_JA));
}

static int operand_ok(const struct ebpf_insn *i, uint32_t n_maps)
{
	if (i->code == EBPF_LD_IMM64) {
		return i->src == EBPF_PSEUDO_CONST || i->src == EBPF_PSEUDO_FUNC ||
		       (i->imm >= 0 && (uint32_t)i->imm < n_maps);
	}
	return i->code != (EBPF_JMP | EBPF_CALL) || i->src == EBPF_CALL_LOCAL ||
	       ebpf_helper_slot(i->imm) >= 0;
}

int ebpf_program_check(const struct ebpf_insn *insns, uint32_t n, uint32_t n_maps, uint32_t *ret_pc)
{
	uint32_t pc = 0, unused;
	int slots = 0;

	ret_pc = ret_pc ? ret_pc : &unused;
	*ret_pc = 0;
	if (!n || n > EBPF_MAX_INSNS) {
		return -EINVAL;
	}
	for (; pc < n; pc += (uint32_t)slots) {
		const struct ebpf_insn *i = &insns[pc];
		int64_t target = target_of(i, pc);

		*ret_pc = pc;
		slots = ebpf_insn_slots(insns, n, pc);
		if (slots < 0 || !operand_ok(i, n_maps) ||
		    (pc + (uint32_t)slots >= n && goes_on(i))) {
			return -EINVAL;
		}
		/* A second half has opcode 0, which no instruction uses. */
		if (target != NOWHERE && (target < 0 || target >= n || insns[target].code == 0)) {
			return -EINVAL;
		}
	}
	return 0;
}

int64_t ebpf_tail_find(const struct ebpf_code *c, uint32_t map, uint32_t index)
{
	uint32_t low = 0, high = c ? c->n_tails : 0;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		const struct ebpf_tail_at *t = &c->tails[mid];

		if (t->map == map && t->index == index) {
			return t->insn;
		}
		if (t->map < map || (t->map == map && t->index < index)) {
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	return -1;
}
