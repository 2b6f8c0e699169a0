/* Fuses instructions: an address computed for one access becomes its operand; a load used once
 * becomes the operand of its user; a load, change and store of one address become one instruction.
 * Only within a basic block, and only if the registers that are then not written are not read
 * later. */
#include "bpf/load/jit/jit_int.h"

#define R(n) (1u << (n))
#define MAX_PASSES 16

/* ---- liveness of registers ---- */

static unsigned live_before(const struct ebpf_jit *j, uint32_t pc)
{
	const struct ebpf_jit_note *note = &j->notes[pc];
	struct ebpf_jit_uses u = ebpf_jit_uses_of(&j->insns[pc]);

	/* An inlined lookup may read its key from the register that was stored. */
	return (note->live & ~u.writes) | u.reads |
	       (note->key == KEY_IN_REGISTER ? R(note->key_reg) : 0);
}

static unsigned live_after(const struct ebpf_jit *j, uint32_t pc)
{
	const struct ebpf_insn *i = &j->insns[pc];
	unsigned live = R(10), op = EBPF_OP(i->code);
	uint32_t next = pc + 1 + (i->code == EBPF_LD_IMM64);

	if (i->code == (EBPF_JMP | EBPF_EXIT)) {
		return live;
	}
	if (ebpf_jit_is_jump(i)) {
		live |= live_before(j, ebpf_jit_jump_target(i, pc));
		if (op == EBPF_JA) {
			return live;
		}
	}
	return next < j->n ? live | live_before(j, next) : live;
}

/* Computes liveness by backward passes until nothing changes. After too many passes every register
 * counts as live. */
void ebpf_jit_find_live(struct ebpf_jit *j)
{
	int again = 1;

	for (int k = 0; again && k < MAX_PASSES; k++) {
		again = 0;
		for (uint32_t pc = j->n; pc-- > 0;) {
			unsigned live = j->insns[pc].code ? live_after(j, pc) : 0;

			again |= live != j->notes[pc].live;
			j->notes[pc].live = (uint16_t)live;
		}
	}
	for (uint32_t pc = 0; again && pc < j->n; pc++) {
		j->notes[pc].live = 0x7ff;
	}
}

static int dead_after(const struct ebpf_jit *j, uint32_t pc, unsigned reg)
{
	return !(j->notes[pc].live & R(reg));
}

/* ---- classification ---- */

/* Returns whether no jump enters the n instructions from at on, and none of them is joined yet. */
static int together(const struct ebpf_jit *j, uint32_t at, unsigned n)
{
	if (n > j->n - at) {
		return 0;
	}
	for (unsigned k = 0; k < n; k++) {
		const struct ebpf_jit_note *note = &j->notes[at + k];

		if (note->fuse || (note->flags & (JIT_SKIP | JIT_LEA)) ||
		    (k && (note->flags & (JIT_TARGET | JIT_FUNC)))) {
			return 0;
		}
	}
	return 1;
}

static int is_op(const struct ebpf_insn *i, unsigned code)
{
	return i->code == code && !i->off;
}

static int is_copy(const struct ebpf_insn *i)
{
	return is_op(i, EBPF_ALU64 | EBPF_MOV | EBPF_X) && i->dst != i->src;
}

static int is_scale(const struct ebpf_insn *i)
{
	return is_op(i, EBPF_ALU64 | EBPF_LSH | EBPF_K) && i->imm >= 1 && i->imm <= 3;
}

static int is_sum(const struct ebpf_insn *i)
{
	return is_op(i, EBPF_ALU64 | EBPF_ADD | EBPF_X) && i->dst != i->src;
}

static int is_load(const struct ebpf_insn *i)
{
	return EBPF_CLASS(i->code) == EBPF_LDX && EBPF_MODE(i->code) == EBPF_MEM;
}

/* Returns whether the instruction is a load or store, but not an atomic one. */
static int is_access(const struct ebpf_insn *i)
{
	unsigned class = EBPF_CLASS(i->code);

	return class == EBPF_LDX || class == EBPF_ST ||
	       (class == EBPF_STX && EBPF_MODE(i->code) == EBPF_MEM);
}

static unsigned base_of(const struct ebpf_insn *i)
{
	return EBPF_CLASS(i->code) == EBPF_LDX ? i->src : i->dst;
}

/* ---- addresses ---- */

struct address {
	unsigned n;   /* number of instructions that compute it; 0: none */
	unsigned reg; /* register that holds it */
	unsigned base, index, scale;
	int alone; /* worth an instruction by itself */
};

/* Matches [a = b;] a <<= k; followed by c = d; c += a, or a += d, or d += a. */
static struct address scaled(const struct ebpf_jit *j, uint32_t at)
{
	const struct ebpf_insn *i = &j->insns[at];
	unsigned copied = is_copy(i) && together(j, at, 3) && is_scale(i + 1) && i[1].dst == i->dst;
	const struct ebpf_insn *scale = i + copied, *sum = scale + 1;
	unsigned a = scale->dst, n = copied + 1;
	struct address x = { .index = copied ? i->src : a,
			     .scale = (unsigned)scale->imm,
			     .alone = 1 };

	if (!is_scale(scale) || !together(j, at, n + 1)) {
		return x;
	}
	if (is_copy(sum) && sum->dst != a && sum->src != a && together(j, at, n + 2) &&
	    is_sum(sum + 1) && sum[1].dst == sum->dst && sum[1].src == a &&
	    dead_after(j, at + n + 1, a)) {
		x.reg = sum->dst;
		x.base = sum->src;
		x.n = n + 2;
	} else if (is_sum(sum) && sum->dst == a) {
		x.reg = a;
		x.base = sum->src;
		x.n = n + 1;
	} else if (is_sum(sum) && sum->src == a && dead_after(j, at + n, a)) {
		x.reg = x.base = sum->dst;
		x.n = n + 1;
	}
	return x;
}

/* Matches [c = d;] c += a. */
static struct address summed(const struct ebpf_jit *j, uint32_t at)
{
	const struct ebpf_insn *i = &j->insns[at];
	struct address x = { 0 };

	if (is_copy(i) && together(j, at, 2) && is_sum(i + 1) && i[1].dst == i->dst) {
		x = (struct address){ 2, i->dst, i->src, i[1].src, 0, 1 };
	} else if (is_sum(i)) {
		x = (struct address){ 1, i->dst, i->dst, i->src, 0, 0 };
	}
	return x;
}

/* ---- fusion ---- */

static void take(struct ebpf_jit *j, uint32_t at, uint32_t last, unsigned fuse,
		 const struct address *x)
{
	struct ebpf_jit_note *note = &j->notes[last];

	for (; at < last; at++) {
		j->notes[at].flags |= JIT_SKIP;
	}
	note->fuse = (uint8_t)fuse;
	if (x->n) {
		note->fused_address = 1;
		note->base = (uint8_t)x->base;
		note->index = (uint8_t)x->index;
		note->scale = (uint8_t)x->scale;
	}
}

static int is_simple(unsigned op)
{
	return op == EBPF_ADD || op == EBPF_SUB || op == EBPF_AND || op == EBPF_OR ||
	       op == EBPF_XOR;
}

/* Fuses t = *p; t op= v; *p = t, if t is not read afterwards. */
static int fuse_update(struct ebpf_jit *j, uint32_t at, uint32_t p, const struct address *x)
{
	const struct ebpf_insn *load = &j->insns[p], *change = load + 1, *store = load + 2;
	unsigned t = load->dst, size = EBPF_SIZE(load->code), class = EBPF_CLASS(change->code),
		 by_reg = EBPF_SRC(change->code) == EBPF_X;

	if (!together(j, at, p - at + 3) || size == EBPF_H || t == load->src ||
	    store->code != (EBPF_STX | EBPF_MEM | size) || store->src != t ||
	    store->dst != load->src || store->off != load->off || !dead_after(j, p + 2, t) ||
	    (x->n && !dead_after(j, p + 2, x->reg))) {
		return 0;
	}
	if ((class != EBPF_ALU64 && (class != EBPF_ALU || size == EBPF_DW)) || change->dst != t ||
	    change->off || !is_simple(EBPF_OP(change->code)) ||
	    (by_reg && (change->src == t || (x->n && change->src == x->reg)))) {
		return 0;
	}
	take(j, at, p + 2, FUSE_UPDATE, x);
	return 1;
}

/* Returns whether the load is as wide as the operand of the arithmetic or jump. */
static int same_width(const struct ebpf_insn *load, int wide)
{
	return EBPF_SIZE(load->code) == (wide ? EBPF_DW : EBPF_W);
}

/* Fuses t = *p; v op= t, or t = *p; t *= constant. */
static int fuse_operand(struct ebpf_jit *j, uint32_t at, uint32_t p, const struct address *x)
{
	const struct ebpf_insn *load = &j->insns[p], *i = load + 1;
	unsigned t = load->dst, op = EBPF_OP(i->code);
	int wide = EBPF_CLASS(i->code) == EBPF_ALU64;

	if (!together(j, at, p - at + 2) || (!wide && EBPF_CLASS(i->code) != EBPF_ALU) || i->off ||
	    !same_width(load, wide) || (!is_simple(op) && op != EBPF_MUL)) {
		return 0;
	}
	if (EBPF_SRC(i->code) == EBPF_K ? op != EBPF_MUL || i->dst != t
					: i->src != t || i->dst == t || !dead_after(j, p + 1, t)) {
		return 0;
	}
	take(j, at, p + 1, FUSE_OPERAND, x);
	return 1;
}

static int is_unsigned(unsigned op)
{
	return op == EBPF_JEQ || op == EBPF_JNE || op == EBPF_JGT || op == EBPF_JGE ||
	       op == EBPF_JLT || op == EBPF_JLE || op == EBPF_JSET;
}

/* Fuses t = *p; if t op v. A narrow load zero-extends, so an unsigned comparison with a constant of
 * at most its width needs only the loaded bits. */
static int fuse_compare(struct ebpf_jit *j, uint32_t at, uint32_t p, const struct address *x)
{
	const struct ebpf_insn *load = &j->insns[p], *i = load + 1;
	unsigned t = load->dst, size = EBPF_SIZE(load->code), op = EBPF_OP(i->code);
	int narrow = is_unsigned(op) && ((size == EBPF_W && i->imm >= 0) ||
					 (size == EBPF_B && i->imm >= 0 && i->imm <= 255));

	if (!together(j, at, p - at + 2) || !ebpf_jit_is_jump(i) || op == EBPF_JA ||
	    !dead_after(j, p + 1, t)) {
		return 0;
	}
	if (EBPF_SRC(i->code) == EBPF_K
		    ? i->dst != t || (!narrow && !same_width(load, EBPF_CLASS(i->code) == EBPF_JMP))
		    : (i->dst == t) == (i->src == t) ||
			      !same_width(load, EBPF_CLASS(i->code) == EBPF_JMP)) {
		return 0;
	}
	take(j, at, p + 1, FUSE_COMPARE, x);
	return 1;
}

/* Fuses the access that uses the address computed by the instructions from at on (or the plain
 * access at at). Returns the number of fused instructions, or 0. */
static unsigned fuse_with(struct ebpf_jit *j, uint32_t at, const struct address *x)
{
	uint32_t p = at + x->n;
	const struct ebpf_insn *i = &j->insns[p];
	int ours = p < j->n && together(j, at, x->n + 1) && is_access(i) &&
		   (!x->n || base_of(i) == x->reg);

	if (ours && is_load(i)) {
		int gone = !x->n || i->dst == x->reg || dead_after(j, p, x->reg);

		if (fuse_update(j, at, p, x)) {
			return x->n + 3;
		}
		if (gone && (fuse_operand(j, at, p, x) || fuse_compare(j, at, p, x))) {
			return x->n + 2;
		}
	}
	if (ours && x->n &&
	    (EBPF_CLASS(i->code) == EBPF_LDX
		     ? i->dst == x->reg || dead_after(j, p, x->reg)
		     : dead_after(j, p, x->reg) &&
			       !(EBPF_CLASS(i->code) == EBPF_STX && i->src == x->reg))) {
		take(j, at, p, FUSE_NONE, x);
		return x->n + 1;
	}
	if (x->n && x->alone) {
		take(j, at, p - 1, FUSE_LEA, x);
		return x->n;
	}
	return 0;
}

/* Fuses a move with the next instruction: the addition of a constant, or a mask of whole bytes. */
static unsigned fuse_move(struct ebpf_jit *j, uint32_t at)
{
	const struct ebpf_insn *i = &j->insns[at], *next = i + 1;
	unsigned class = EBPF_CLASS(i->code);

	if ((class != EBPF_ALU && class != EBPF_ALU64) || !is_op(i, class | EBPF_MOV | EBPF_X) ||
	    !together(j, at, 2) || next->dst != i->dst) {
		return 0;
	}
	if (is_op(next, class | EBPF_ADD | EBPF_K)) {
		j->notes[at].flags |= JIT_LEA;
		j->notes[at + 1].flags |= JIT_SKIP;
		return 2;
	}
	if ((is_op(next, EBPF_ALU64 | EBPF_AND | EBPF_K) ||
	     is_op(next, EBPF_ALU | EBPF_AND | EBPF_K)) &&
	    (next->imm == 0xff || next->imm == 0xffff)) {
		j->notes[at].flags |= JIT_SKIP;
		j->notes[at + 1].fuse = FUSE_EXTEND;
		return 2;
	}
	return 0;
}

/* Exchanges the targets of `if c goto out; goto top`, which clang emits at the end of a loop, so
 * that each round has one taken jump. */
static void turn_round(struct ebpf_jit *j, uint32_t pc)
{
	const struct ebpf_insn *i = &j->insns[pc];
	uint32_t next = pc + 1;

	if (ebpf_jit_is_jump(i) && EBPF_OP(i->code) != EBPF_JA && i->off > 0 && next < j->n &&
	    j->insns[next].code == (EBPF_JMP | EBPF_JA) && j->insns[next].off < -1 &&
	    !(j->notes[next].flags & (JIT_TARGET | JIT_FUNC))) {
		j->notes[pc].swapped = j->notes[next].swapped = 1;
	}
}

void ebpf_jit_fuse(struct ebpf_jit *j)
{
	ebpf_jit_find_live(j);
	for (uint32_t pc = 0; pc < j->n; pc++) {
		turn_round(j, pc);
	}
	for (uint32_t pc = 0; pc < j->n;) {
		struct address x = scaled(j, pc);
		unsigned n = x.n ? fuse_with(j, pc, &x) : 0;

		if (!n) {
			x = summed(j, pc);
			n = fuse_with(j, pc, &x);
		}
		if (!n) {
			n = fuse_move(j, pc);
		}
		pc += n ? n : 1;
	}
}
