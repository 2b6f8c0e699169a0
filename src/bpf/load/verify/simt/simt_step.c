/* The levels behind each instruction: memory, arithmetic, stores and atomics. */
#include "bpf/load/verify/simt/simt_int.h"

/* ---- memory ---- */

uint8_t ebpf_simt_vary(const struct ebpf_simt *s, uint32_t pc)
{
	return pc <= s->last_source ? LEVEL_LANE : LEVEL_BLOCK;
}

/* Returns whether every run has the same address: one frame, one offset. */
static int is_exact(const struct ebpf_simt_place *p)
{
	return p->kinds == SIMT_STACK && p->low == p->high && (p->funcs & (p->funcs - 1)) == 0;
}

static uint8_t stack_level(const struct ebpf_simt *s, uint32_t pc, const struct ebpf_simt_state *st,
			   const struct ebpf_simt_place *p, unsigned bytes)
{
	uint8_t level = LEVEL_BLOCK;
	struct ebpf_simt_set set;

	ebpf_simt_reach(p, bytes, &set);
	for (uint64_t left = p->funcs; left; left &= left - 1) {
		unsigned f = (unsigned)__builtin_ctzll(left);
		const struct ebpf_simt_state *frame =
			f == ebpf_simt_func(s, pc) ? st : &s->funcs[f].seen;
		uint8_t own = ebpf_simt_level(frame, &set);

		level = MAX(level, own);
	}
	return level;
}

uint8_t ebpf_simt_memory(const struct ebpf_simt *s, uint32_t pc, const struct ebpf_simt_state *st,
			 const struct ebpf_simt_place *p, unsigned bytes, uint8_t addr)
{
	uint8_t level = is_exact(p) ? LEVEL_BLOCK : addr, stack;

	if (p->kinds & (SIMT_SHARED | SIMT_OTHER)) {
		level = MAX(level, ebpf_simt_vary(s, pc));
	}
	if (p->kinds & SIMT_CTX) {
		level = MAX(level, p->level == LEVEL_LANE ? ebpf_simt_vary(s, pc) : p->level);
	}
	stack = p->kinds & SIMT_STACK ? stack_level(s, pc, st, p, bytes) : LEVEL_BLOCK;
	return MAX(level, stack);
}

void ebpf_simt_raise_foreign(struct ebpf_simt *s, unsigned k, unsigned f,
			     const struct ebpf_simt_state *levels,
			     const struct ebpf_simt_set *wrote, uint8_t control)
{
	struct ebpf_simt_state add = *levels;

	ebpf_simt_raise_set(&add, wrote, control);
	if (ebpf_simt_join(&s->foreign[k * s->n_funcs + f].levels, &add) |
	    ebpf_simt_join(&s->funcs[f].seen, &add)) {
		ebpf_simt_all_dirty(s);
	}
}

void ebpf_simt_store(struct ebpf_simt *s, uint32_t pc, struct ebpf_simt_state *st,
		     const struct ebpf_simt_place *p, unsigned bytes, uint8_t level, uint8_t addr)
{
	unsigned k = ebpf_simt_func(s, pc);
	struct ebpf_simt_state add = { 0 };
	struct ebpf_simt_set set;

	ebpf_simt_reach(p, bytes, &set);
	ebpf_simt_raise_set(&add, &set, is_exact(p) ? level : MAX(level, addr));
	for (uint64_t left = p->funcs; left; left &= left - 1) {
		unsigned f = (unsigned)__builtin_ctzll(left);

		if (f != k) {
			ebpf_simt_raise_foreign(s, k, f, &add, &set,
						ebpf_simt_local_control(s, pc));
			continue;
		}
		if (is_exact(p)) {
			ebpf_simt_drop(st, &set);
		}
		ebpf_simt_join(st, &add);
	}
}

/* ---- instructions ---- */

static void step_load(struct ebpf_simt *s, uint32_t pc, struct ebpf_simt_state *st)
{
	const struct ebpf_insn *in = &s->v->prog->insns[pc];

	ebpf_simt_set_reg(st, in->dst,
			  ebpf_simt_memory(s, pc, st, ebpf_simt_place(s, pc, 0),
					   ebpf_access_bytes(in), ebpf_simt_reg(st, in->src)));
}

static void step_store(struct ebpf_simt *s, uint32_t pc, struct ebpf_simt_state *st)
{
	const struct ebpf_insn *in = &s->v->prog->insns[pc];
	uint8_t level = EBPF_CLASS(in->code) == EBPF_STX ? ebpf_simt_reg(st, in->src) : LEVEL_BLOCK;

	ebpf_simt_store(s, pc, st, ebpf_simt_place(s, pc, 0), ebpf_access_bytes(in), level,
			ebpf_simt_reg(st, in->dst));
}

/* The result of an atomic differs between lanes that share the memory. */
static void step_atomic(struct ebpf_simt *s, uint32_t pc, struct ebpf_simt_state *st)
{
	const struct ebpf_insn *in = &s->v->prog->insns[pc];
	const struct ebpf_simt_place *p = ebpf_simt_place(s, pc, 0);
	uint8_t addr = ebpf_simt_reg(st, in->dst), value = ebpf_simt_reg(st, in->src);
	uint8_t old = ebpf_simt_memory(s, pc, st, p, ebpf_access_bytes(in), addr);

	if (in->imm == EBPF_CMPXCHG) {
		value = MAX(value, ebpf_simt_reg(st, 0));
	}
	ebpf_simt_store(s, pc, st, p, ebpf_access_bytes(in), MAX(old, value), addr);
	if (in->imm & EBPF_FETCH) {
		ebpf_simt_set_reg(st, in->imm == EBPF_CMPXCHG ? 0 : in->src, old);
	}
}

static void step_alu(const struct ebpf_insn *in, struct ebpf_simt_state *st)
{
	unsigned op = EBPF_OP(in->code);
	int unary = op == EBPF_NEG || op == EBPF_END || EBPF_SRC(in->code) == EBPF_K;
	uint8_t level = unary ? LEVEL_BLOCK : ebpf_simt_reg(st, in->src);

	if (op != EBPF_MOV) {
		level = MAX(level, ebpf_simt_reg(st, in->dst));
	}
	ebpf_simt_set_reg(st, in->dst, level);
}

void ebpf_simt_step(struct ebpf_simt *s, uint32_t pc, struct ebpf_simt_state *st)
{
	const struct ebpf_insn *in = &s->v->prog->insns[pc];

	s->work++;
	switch (EBPF_CLASS(in->code)) {
	case EBPF_ALU:
	case EBPF_ALU64:
		step_alu(in, st);
		break;
	case EBPF_LD:
		ebpf_simt_set_reg(st, in->dst, LEVEL_BLOCK);
		break;
	case EBPF_LDX:
		step_load(s, pc, st);
		break;
	case EBPF_ST:
		step_store(s, pc, st);
		break;
	case EBPF_STX:
		if (EBPF_MODE(in->code) == EBPF_ATOMIC) {
			step_atomic(s, pc, st);
		} else {
			step_store(s, pc, st);
		}
		break;
	default:
		if (EBPF_OP(in->code) == EBPF_CALL) {
			ebpf_simt_call(s, pc, st);
		} else if (EBPF_OP(in->code) == EBPF_EXIT) {
			ebpf_simt_result(s, ebpf_simt_func(s, pc), ebpf_simt_reg(st, 0));
		}
	}
}
