/* Data flow over a verified program: kinds of values, and their low bits. It relies on the
 * verifier: a pointer is only moved, spilled, added to and dereferenced within its object. Passes
 * over the program repeat until nothing changes; values only rise in a lattice of low height. */
#include "bpf/load/jit/ptx/jit_ptx_flow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/load/jit/ptx/jit_ptx_flow_int.h"
#include "bpf/run/env.h"
#include "bpf/run/map/map_type.h"

#define WORDS (PTX_FRAME_BYTES / 8)
#define STACK_WORDS (EBPF_STACK_BYTES / 8)
#define NOWHERE UINT32_MAX

struct state {
	struct ebpf_ptx_value regs[11];
	struct ebpf_ptx_value words[WORDS]; /* of the frame: [0] is the highest */
};

struct walk {
	const struct ebpf_jit *plan;
	struct ebpf_ptx_flow *flow;
	unsigned n_words;     /* of a frame: fewer without records */
	int first;	      /* the run that does not know yet which stacks are registers */
	uint32_t *at;	      /* owned: index of the state kept for an instruction, or NOWHERE */
	struct state *states; /* owned: before jump targets and first instructions */
	uint32_t n_states;
	struct state now;
	int reached; /* now is the state of a path */
	int again;   /* a state changed that this pass has used already */
	int last;    /* nothing changes any more: record facts and misuse */
	uint32_t pc;
	uint8_t escapes[JIT_MAX_FUNCS]; /* an instruction needs the address of the stack */
};

/* Joins values into the state kept for an instruction. */
static void join_into(struct walk *w, uint32_t to, const struct state *from)
{
	struct ebpf_ptx_value *kept = (struct ebpf_ptx_value *)&w->states[w->at[to]];
	const struct ebpf_ptx_value *add = (const struct ebpf_ptx_value *)from;

	for (size_t k = 0; k < ARRAY_SIZE(from->regs) + w->n_words; k++) {
		struct ebpf_ptx_value v = ebpf_ptx_join(kept[k], add[k]);

		if (!ebpf_ptx_same(&v, &kept[k])) {
			kept[k] = v;
			w->again |= to <= w->pc;
		}
	}
}

/* ---- the stack ---- */

/* Returns the word of an access to the function's own frame at a known, aligned place, or NULL.
 * Stores the offset in the word. */
static struct ebpf_ptx_value *part_at(struct walk *w, unsigned base, int off, unsigned size,
				      unsigned *ret_part)
{
	int at;

	if (!ebpf_ptx_frame_place(&w->now.regs[base], off, size, size, &at)) {
		return NULL;
	}
	*ret_part = (unsigned)(at + (int)PTX_FRAME_BYTES) % 8;
	return &w->now.words[(unsigned)(-at - 1) / 8];
}

static struct ebpf_ptx_value *word_at(struct walk *w, unsigned base, int off, unsigned size)
{
	unsigned part;

	return part_at(w, base, off, size, &part);
}

/* Returns the bound of the bytes of a word, as a number. */
static uint16_t below_of_part(const struct ebpf_ptx_value *word, unsigned part, unsigned size)
{
	if (size == 8) {
		return word->high == 1 ? word->below : 0;
	}
	return size == 4 ? (part ? word->high : word->below) : 0;
}

/* Stores a number into a part of a word. */
static void store_part(struct ebpf_ptx_value *word, unsigned part, unsigned size, uint16_t below)
{
	struct ebpf_ptx_value v = ebpf_ptx_scalar;

	if (size == 4) {
		v.below = part ? word->below : below;
		v.high = part ? below : word->high;
	}
	*word = v;
}

/* A helper may store numbers into words that are registers. */
static void forget_numbers(struct walk *w)
{
	for (unsigned k = 0; k < w->n_words; k++) {
		struct ebpf_ptx_value *v = &w->now.words[k];

		v->below = v->high = 0;
		if (v->kind == PTX_SCALAR) {
			*v = ebpf_ptx_scalar;
		}
	}
}

/* A store to an unknown place of the stack, or a call that may store there. */
static void forget_words(struct walk *w, int may_store_pointers)
{
	if (!w->first && w->flow->slots[w->plan->notes[w->pc].func]) {
		forget_numbers(w);
		return;
	}
	for (unsigned k = 0; k < w->n_words; k++) {
		struct ebpf_ptx_value *v = &w->now.words[k];

		if (ebpf_ptx_is_ctx(v)) {
			v->kind = may_store_pointers ? PTX_CTX_OR_NOT : v->kind;
		} else if (v->kind != PTX_NONE) {
			*v = ebpf_ptx_any;
		}
	}
}

static void load(struct walk *w, const struct ebpf_insn *i)
{
	unsigned size = ebpf_access_bytes(i);
	const struct ebpf_ptx_value *base = &w->now.regs[i->src];
	unsigned part = 0;
	const struct ebpf_ptx_value *word = part_at(w, i->src, i->off, size, &part);
	struct ebpf_ptx_value v = ebpf_ptx_scalar;

	if (word && size == 8) {
		v = word->kind == PTX_NONE ? ebpf_ptx_any : *word;
		v.below = below_of_part(word, 0, 8);
		v.high = 0;
	} else if (EBPF_MODE(i->code) == EBPF_MEM && size < 8) {
		v.below = size == 1 ? 256 : word ? below_of_part(word, part, size) : 0;
	} else if (size == 8 && base->kind != PTX_CTX && base->kind != PTX_VALUE) {
		v = ebpf_ptx_any;
	}
	w->now.regs[i->dst] = v;
}

static void store(struct walk *w, const struct ebpf_insn *i)
{
	unsigned size = ebpf_access_bytes(i);
	const struct ebpf_ptx_value *base = &w->now.regs[i->dst];
	unsigned part = 0;
	struct ebpf_ptx_value *word = part_at(w, i->dst, i->off, size, &part);
	struct ebpf_ptx_value from =
		EBPF_CLASS(i->code) == EBPF_ST ? ebpf_ptx_constant(i->imm) : w->now.regs[i->src];
	int is_atomic = EBPF_CLASS(i->code) == EBPF_STX && EBPF_MODE(i->code) == EBPF_ATOMIC;
	unsigned result = is_atomic && i->imm == EBPF_CMPXCHG ? 0 : i->src;

	if (!word && base->kind != PTX_VALUE) {
		forget_words(w, 1);
	} else if (word && is_atomic) {
		*word = ebpf_ptx_any;
	} else if (word && size < 8) {
		store_part(word, part, size, from.below);
	} else if (word) {
		*word = from;
		word->high = from.below ? 1 : 0;
	}
	if (is_atomic && (i->imm & EBPF_FETCH)) {
		w->now.regs[result] =
			size == 4 || base->kind == PTX_VALUE ? ebpf_ptx_scalar : ebpf_ptx_any;
	}
}

/* ---- calls ---- */

static void enter(struct walk *w, uint32_t first, const struct ebpf_ptx_value args[5])
{
	struct state s = { 0 };

	memcpy(&s.regs[1], args, 5 * sizeof(*args));
	s.regs[10] = (struct ebpf_ptx_value){ .kind = PTX_FRAME, .bits = 3, .map = JIT_NO_MAP };
	for (unsigned k = 0; k < 5; k++) {
		if (ebpf_ptx_is_frame(&args[k])) { /* the caller's, not the function's own */
			s.regs[1 + k].kind = PTX_ANY;
			s.regs[1 + k].off = 0;
		}
		if (ebpf_ptx_is_ctx(&args[k])) {
			w->flow->takes_ctx[w->plan->notes[first].func] = 1;
		}
	}
	join_into(w, first, &s);
}

/* Returns what bpf_ringbuf_reserve returns: a pointer to the place for records, which it fills with
 * zeros. */
static struct ebpf_ptx_value reserve(struct walk *w, const struct ebpf_ptx_value *handle)
{
	const struct ebpf_jit *plan = w->plan;
	unsigned func = plan->notes[w->pc].func;
	unsigned at = (EBPF_STACK_BYTES + w->flow->record_bytes[func]) / 8;

	if (handle->kind != PTX_HANDLE || handle->map >= plan->n_maps ||
	    plan->maps[handle->map].type != GBPF_MAP_SM_RING) {
		return ebpf_ptx_any; /* refused */
	}
	if (w->first) {
		w->flow->slots[func] = (uint8_t)MAX(w->flow->slots[func], at);
	}
	for (unsigned k = 0; k < plan->maps[handle->map].value_bytes / 8; k++) {
		w->now.words[at - 1 - k] = ebpf_ptx_scalar;
	}
	return (struct ebpf_ptx_value){
		.kind = PTX_FRAME, .bits = 3, .map = handle->map, .off = (int16_t)(-8 * (int)at)
	};
}

static void call(struct walk *w, const struct ebpf_insn *i)
{
	const struct ebpf_jit_note *note = &w->plan->notes[w->pc];
	struct ebpf_ptx_value *r = w->now.regs;
	struct ebpf_ptx_value result = ebpf_ptx_any;

	if (i->src == EBPF_CALL_LOCAL) {
		enter(w, (uint32_t)((int64_t)w->pc + 1 + i->imm), &r[1]);
		forget_words(w, 1);
	} else if (note->callee) {
		struct ebpf_ptx_value args[5] = { ebpf_ptx_scalar, r[3] };

		enter(w, note->callee, args);
		forget_words(w, 1);
	} else {
		if (ebpf_helper_slot(i->imm) == EBPF_SLOT_bpf_map_lookup_elem) {
			result = (struct ebpf_ptx_value){ .kind = PTX_VALUE,
							  .bits = 3,
							  .map = r[1].kind == PTX_HANDLE
									 ? r[1].map
									 : JIT_NO_MAP };
		} else if (ebpf_helper_slot(i->imm) == EBPF_SLOT_bpf_iter_num_next) {
			result = r[1]; /* or NULL */
		}
		if (ebpf_helper_slot(i->imm) != EBPF_SLOT_bpf_map_lookup_elem) {
			forget_words(w, 0);
		}
		if (ebpf_helper_slot(i->imm) == EBPF_SLOT_bpf_ringbuf_reserve) {
			result = reserve(w, &r[1]);
		}
	}
	r[0] = result;
	memset(&r[1], 0, 5 * sizeof(*r));
}

/* ---- the use of the context ---- */

/* Returns the registers that may not be the context here, as a mask. */
static unsigned not_ctx(struct walk *w, const struct ebpf_insn *i)
{
	unsigned reads = ebpf_jit_uses_of(i).reads;
	int slot;

	switch (EBPF_CLASS(i->code)) {
	case EBPF_LDX:
		return w->now.regs[i->src].kind == PTX_CTX ? 0 : reads;
	case EBPF_STX:
		return i->code == (EBPF_STX | EBPF_MEM | EBPF_DW) && word_at(w, i->dst, i->off, 8)
			       ? 0
			       : reads;
	case EBPF_ALU64:
		return (i->code == (EBPF_ALU64 | EBPF_MOV | EBPF_X) && !i->off) ||
				       EBPF_OP(i->code) == EBPF_ADD || EBPF_OP(i->code) == EBPF_SUB
			       ? 0
			       : reads;
	case EBPF_JMP:
		if (EBPF_OP(i->code) != EBPF_CALL) {
			return reads;
		}
		slot = i->src == EBPF_CALL_HELPER ? ebpf_helper_slot(i->imm) : -1;
		if (i->src == EBPF_CALL_LOCAL) {
			return 0;
		}
		return ((1u << ebpf_ptx_arity(slot)) - 1) << 1 &
		       ~(w->plan->notes[w->pc].callee ? 1u << 3 : 0) &
		       ~(slot == EBPF_SLOT_bpf_perf_event_output ? 1u << 1 : 0) &
		       ~(slot == EBPF_SLOT_bpf_trace_printk ? 7u << 3 : 0); /* or left over */
	default:
		return reads;
	}
}

static void judge(struct walk *w, const struct ebpf_insn *i)
{
	unsigned class = EBPF_CLASS(i->code), mask = not_ctx(w, i);
	unsigned of = class == EBPF_LDX			      ? i->src
		      : class == EBPF_ST || class == EBPF_STX ? i->dst
							      : 1;
	const struct ebpf_ptx_value *word =
		class == EBPF_LDX && ebpf_access_bytes(i) < 8
			? word_at(w, i->src, i->off, ebpf_access_bytes(i))
			: NULL;
	unsigned part = 0;
	const struct ebpf_ptx_value *key = part_at(w, 2, 0, 4, &part);

	w->flow->facts[w->pc] =
		(struct ebpf_ptx_fact){ w->now.regs[of], w->now.regs[2], w->now.regs[3],
					key ? below_of_part(key, part, 4) : 0 };
	for (unsigned r = 0; r < 11; r++) {
		if ((mask >> r & 1) && ebpf_ptx_is_ctx(&w->now.regs[r])) {
			w->flow->misuse = MIN(w->flow->misuse, w->pc);
		}
	}
	if (word && ebpf_ptx_is_ctx(word)) {
		w->flow->misuse = MIN(w->flow->misuse, w->pc);
	}
	if (w->first && !ebpf_ptx_stack_use(w->plan, w->pc, w->now.regs, w->flow->slots)) {
		w->escapes[w->plan->notes[w->pc].func] = 1;
	}
}

/* ---- passes ---- */

static void load_number(struct walk *w, const struct ebpf_insn *i)
{
	struct ebpf_ptx_value v = ebpf_ptx_constant(i->imm);

	if (i->src == EBPF_PSEUDO_MAP) {
		v = (struct ebpf_ptx_value){ .kind = PTX_HANDLE, .map = (uint8_t)i->imm };
	} else if (i->src == EBPF_PSEUDO_MAP_VALUE) {
		v = (struct ebpf_ptx_value){ .kind = PTX_VALUE,
					     .bits = 3,
					     .low = (uint8_t)(i[1].imm & 7),
					     .map = (uint8_t)i->imm };
	}
	w->now.regs[i->dst] = v;
}

/* Where a pointer is equal to NULL, it is the number 0. */
static void branch(struct walk *w, const struct ebpf_insn *i)
{
	unsigned op = EBPF_OP(i->code);
	struct ebpf_ptx_value *r = &w->now.regs[i->dst], kept = *r;
	int is_test = (i->code == (EBPF_JMP | EBPF_JEQ | EBPF_K) ||
		       i->code == (EBPF_JMP | EBPF_JNE | EBPF_K)) &&
		      !i->imm && (r->kind == PTX_FRAME || r->kind == PTX_VALUE);

	if (is_test && op == EBPF_JEQ) {
		*r = ebpf_ptx_constant(0);
	}
	join_into(w, ebpf_jit_jump_target(i, w->pc), &w->now);
	*r = is_test && op == EBPF_JNE ? ebpf_ptx_constant(0) : kept;
	w->reached = op != EBPF_JA;
}

static void step(struct walk *w, const struct ebpf_insn *i)
{
	switch (EBPF_CLASS(i->code)) {
	case EBPF_LD:
		load_number(w, i);
		break;
	case EBPF_LDX:
		load(w, i);
		break;
	case EBPF_ST:
	case EBPF_STX:
		store(w, i);
		break;
	case EBPF_ALU:
	case EBPF_ALU64:
		w->now.regs[i->dst] = ebpf_ptx_computed(w->now.regs, i);
		break;
	default:
		if (EBPF_OP(i->code) == EBPF_CALL && EBPF_CLASS(i->code) == EBPF_JMP) {
			call(w, i);
		} else if (i->code == (EBPF_JMP | EBPF_EXIT)) {
			w->reached = 0;
		} else {
			branch(w, i);
		}
	}
}

static void pass(struct walk *w)
{
	const struct ebpf_jit *plan = w->plan;

	w->reached = 0;
	for (w->pc = 0; w->pc < plan->n; w->pc++) {
		const struct ebpf_insn *i = &plan->insns[w->pc];

		if (w->at[w->pc] != NOWHERE) {
			if (w->reached) {
				join_into(w, w->pc, &w->now);
			}
			w->now = w->states[w->at[w->pc]];
			w->reached = w->now.regs[10].kind != PTX_NONE;
		}
		if (w->reached) {
			if (w->last) {
				judge(w, i);
			}
			step(w, i);
		}
		w->pc += i->code == EBPF_LD_IMM64;
	}
}

/* Makes room for a record in each function that reserves one. Returns whether there is any. */
static int find_records(const struct ebpf_jit *plan, struct ebpf_ptx_flow *flow)
{
	uint16_t most = 0;
	int found = 0;

	for (unsigned k = 0; k < plan->n_maps; k++) {
		if (plan->maps[k].type == GBPF_MAP_SM_RING) {
			most = (uint16_t)MAX(most,
					     MIN(plan->maps[k].value_bytes, PTX_RECORD_BYTES));
		}
	}
	for (uint32_t pc = 0; pc < plan->n; pc++) {
		const struct ebpf_insn *i = &plan->insns[pc];

		if (i->code == (EBPF_JMP | EBPF_CALL) && i->src == EBPF_CALL_HELPER &&
		    ebpf_helper_slot(i->imm) == EBPF_SLOT_bpf_ringbuf_reserve) {
			flow->record_bytes[plan->notes[pc].func] = most;
			found = 1;
		}
		pc += i->code == EBPF_LD_IMM64;
	}
	return found;
}

static int prepare(struct walk *w)
{
	const struct ebpf_jit *plan = w->plan;
	uint32_t n = 0;

	w->at = calloc(plan->n, sizeof(*w->at));
	w->flow->facts = calloc(plan->n, sizeof(*w->flow->facts));
	if (!w->at || !w->flow->facts) {
		return -ENOMEM;
	}
	w->n_words = find_records(plan, w->flow) ? WORDS : STACK_WORDS;
	for (uint32_t pc = 0; pc < plan->n; pc++) {
		w->at[pc] = plan->notes[pc].flags & (JIT_TARGET | JIT_FUNC) ? n++ : NOWHERE;
	}
	w->n_states = n;
	w->states = calloc(n, sizeof(*w->states));
	return w->states ? 0 : -ENOMEM;
}

static void solve(struct walk *w, int has_ctx)
{
	struct ebpf_ptx_value args[5] = { ebpf_ptx_any };

	args[0].kind = has_ctx ? PTX_CTX : PTX_ANY;
	args[0].set = has_ctx ? 1 : 0; /* offset 0 */
	memset(w->states, 0, w->n_states * sizeof(*w->states));
	w->flow->misuse = NOWHERE;
	w->last = 0;
	w->pc = 0;
	enter(w, 0, args);
	do {
		w->again = 0;
		pass(w);
	} while (w->again);
	w->last = 1;
	pass(w);
}

int ebpf_ptx_flow_init(struct ebpf_ptx_flow *flow, const struct ebpf_jit *plan, int has_ctx)
{
	struct walk w = { .plan = plan, .flow = flow, .first = 1 };
	int err;

	*flow = (struct ebpf_ptx_flow){ .misuse = NOWHERE };
	err = prepare(&w);
	if (!err) {
		solve(&w, has_ctx);
		for (unsigned k = 0; k < plan->n_funcs; k++) {
			flow->slots[k] = w.escapes[k] ? 0 : flow->slots[k];
		}
		/* again, as words in registers survive calls and stores through pointers */
		w.first = 0;
		solve(&w, has_ctx);
	}
	free(w.at);
	free(w.states);
	return err;
}

void ebpf_ptx_flow_finish(struct ebpf_ptx_flow *flow)
{
	free(flow->facts);
	flow->facts = NULL;
}
