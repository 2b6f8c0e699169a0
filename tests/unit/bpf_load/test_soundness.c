/* Soundness of the verifier: runs random programs that it accepts with random inputs. No access may
 * fault, a run must not cost more than was proved, and verdicts must be in range.
 *
 * Without pruning, the registers and the stack before every instruction must also lie within a
 * single state that the verifier walked there: numbers within their 64-bit and 32-bit ranges and
 * known bits, pointers within the objects of their type, spilled registers with the stored values,
 * and registers with the same id with values that are linked as it says.
 *
 * With pruning, the verifier must not accept a program that walking every path refuses (tested
 * where that is affordable), nor prove a lower cost.
 *
 * The merging walk is compared with runs in the same way, on programs with plain loops.
 *
 * GBPF_SOUNDNESS_PROGRAMS and GBPF_SOUNDNESS_SEED choose another length and start. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../bpf_run/engines.h"
#include "bpf/load/verify/insn_text.h"
#include "bpf/load/verify/verify_int.h"
#include "bpf/run/ctx_bound.h"
#include "bpf/run/interp/interp.h"
#include "bpf/run/map/map_type.h"
#include "gen.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

#ifdef __SANITIZE_ADDRESS__
#define PROGRAMS 1200 /* which take as long as 6000 without it; those run elsewhere */
#else
#define PROGRAMS 6000
#endif
#define INPUTS 6
#define MAX_SEEN 4096u
#define MAX_SLOTS 32768u

struct seen {
	struct ebpf_reg regs[11];
	uint32_t depth, first_slot, n_slots;
	int32_t next; /* of the same instruction */
};

struct seen_slot {
	unsigned number;
	struct ebpf_stack_slot s;
};

struct testbed {
	struct test_env t;
	uint8_t ctx[256];
	const void *init[GEN_MAPS];
	struct seen seen[MAX_SEEN];
	struct seen_slot slots[MAX_SLOTS];
	uint32_t n_seen, n_slots;
	int full; /* not all states were kept */
	int32_t first[GEN_MAX_INSNS];
	const struct ebpf_prog *prog;
	int has_spill, has_offset, has_link, has_place;
	uint64_t entered[64]; /* functions, over all runs of the program */
	/* of one run */
	uint64_t fp[EBPF_MAX_FRAMES];
	uint64_t cost;
	char wrong[256];
};

/* Counts of the observed cases, for the asserted shares. */
struct tally {
	uint64_t programs, accepted, indirect, spills, offsets, places, links, calls[8], entered;
	/* of programs with plain loops */
	uint64_t joins, joined, compared, both, more;
};

/* Returns whether the slot holds a stored number of unknown value, or a stored pointer. */
static int is_worth_keeping(const struct ebpf_stack_slot *s)
{
	return (s->kind[0] == BYTE_SPILL || s->kind[4] == BYTE_SPILL) &&
	       (s->r.type != REG_SCALAR || !ebpf_scalar_is_const(&s->r.v));
}

static void remember(void *arg, uint32_t pc, unsigned frame, const struct ebpf_call_state *f)
{
	struct testbed *w = arg;
	struct seen *s;

	for (unsigned i = 0; i < 10; i++) {
		w->has_link |= f->regs[i].type == REG_SCALAR && f->regs[i].id &&
			       (f->regs[i].add || f->regs[i].link != LINK_WHOLE);
		w->has_offset |=
			ebpf_reg_is_place(&f->regs[i]) && !ebpf_scalar_is_const(&f->regs[i].v);
		w->has_place |= f->regs[i].type == REG_CTX && !ebpf_scalar_is_const(&f->regs[i].v);
	}
	if (w->n_seen == MAX_SEEN || w->n_slots + STACK_SLOTS > MAX_SLOTS) {
		w->full = 1;
		return;
	}
	s = &w->seen[w->n_seen];
	memcpy(s->regs, f->regs, sizeof(s->regs));
	s->depth = frame;
	s->first_slot = w->n_slots;
	for (uint64_t left = f->used; left; left &= left - 1) {
		unsigned k = (unsigned)__builtin_ctzll(left);

		w->has_spill |= is_worth_keeping(&f->slots[k]);
		w->slots[w->n_slots++] = (struct seen_slot){ k, f->slots[k] };
	}
	s->n_slots = w->n_slots - s->first_slot;
	s->next = w->first[pc];
	w->first[pc] = (int32_t)w->n_seen++;
}

static int points_into(const struct testbed *w, const struct ebpf_reg *r, uint64_t value)
{
	const struct ebpf_map *m = &w->t.env.maps[r->map];

	if (m->type != GBPF_MAP_ARRAY) {
		return value >= 4096; /* where its values lie is its own business */
	}
	/* without an id it is value 0, else it may be any */
	for (uint32_t i = 0; i < (r->id ? m->max_entries : 1); i++) {
		if (ebpf_scalar_has(&r->v, value - (uint64_t)(uintptr_t)m->data -
						   (uint64_t)i * m->stride)) {
			return 1;
		}
	}
	return 0;
}

/* The number of an iterator, which lies in a frame. */
static int holds_number(const struct testbed *w, const struct ebpf_reg *r, uint64_t value)
{
	int32_t number;

	for (unsigned f = 0; f < EBPF_MAX_FRAMES; f++) {
		if (value < w->fp[f] && w->fp[f] - value <= EBPF_STACK_BYTES) {
			memcpy(&number, (const void *)(uintptr_t)value, sizeof(number));
			return ebpf_scalar_has(&r->v, (uint32_t)number) ||
			       ebpf_scalar_has(&r->v, (uint64_t)(int64_t)number);
		}
	}
	return 0;
}

static int holds(const struct testbed *w, const struct ebpf_reg *r, uint64_t value)
{
	switch (r->type) {
	case REG_NONE:
	case REG_GONE:
	case REG_ROUNDS:
		return 1;
	case REG_SCALAR:
		return ebpf_scalar_has(&r->v, value);
	case REG_CTX:
		return ebpf_scalar_has(&r->v, value - (uintptr_t)w->ctx);
	case REG_STACK:
		return ebpf_scalar_has(&r->v, value - w->fp[r->frame]);
	case REG_VALUE:
		return points_into(w, r, value);
	case REG_VALUE_OR_NULL:
		return value == 0 || points_into(w, r, value);
	case REG_RECORD:
	case REG_KEY:
		return value >= 4096;
	case REG_RECORD_OR_NULL:
	case REG_MAP_OR_NULL:
		return value == 0 || value >= 4096;
	case REG_FUNC:
		return value == ((uintptr_t)(w->prog->insns + w->prog->subprog[r->map]) | 1);
	case REG_NUMBER:
		return holds_number(w, r, value);
	case REG_MAP:
		return value == (uintptr_t)&w->t.env.maps[r->map];
	default:
		return value >= 4096;
	}
}

/* Names and the values that they stand for in one state. Of some, only the low half is known. */
struct names {
	uint32_t id[96];
	uint64_t value[96];
	int whole[96];
	unsigned n;
};

static int is_named(struct names *n, uint32_t id, uint64_t value, int whole)
{
	for (unsigned i = 0; i < n->n; i++) {
		if (n->id[i] != id) {
			continue;
		}
		if ((uint32_t)n->value[i] != (uint32_t)value ||
		    (whole && n->whole[i] && n->value[i] != value)) {
			return 0;
		}
		if (whole) {
			n->value[i] = value;
			n->whole[i] = 1;
		}
		return 1;
	}
	if (n->n < ARRAY_SIZE(n->id)) {
		n->id[n->n] = id;
		n->whole[n->n] = whole;
		n->value[n->n++] = value;
	}
	return 1;
}

/* Numbers with one name are linked as the state says; pointers that have not been resolved yet are
 * equal. */
static int one_value(struct names *n, const struct ebpf_reg *r, uint64_t value)
{
	if (r->id == 0 || (r->type != REG_SCALAR && r->type != REG_VALUE_OR_NULL)) {
		return 1;
	}
	switch (r->type == REG_SCALAR ? r->link : LINK_WHOLE) {
	case LINK_WHOLE:
		return is_named(n, r->id, r->type == REG_SCALAR ? value - r->add : value, 1);
	case LINK_ZERO:
		return value >> 32 == 0 && is_named(n, r->id, value - r->add, 0);
	case LINK_SIGN:
		return value + 0x80000000u <= UINT32_MAX && is_named(n, r->id, value - r->add, 0);
	default:
		return (uint32_t)value == 0 && is_named(n, r->id, (value >> 32) - r->add, 0);
	}
}

/* Returns whether the iterator yields only the numbers in its state, and not more of them. */
static int iterator_holds(const struct ebpf_reg *r, const uint8_t *mem)
{
	int32_t current, end;
	int64_t left;

	memcpy(&current, mem, 4);
	memcpy(&end, mem + 4, 4);
	left = (int64_t)end - current - 1;
	if (left <= 0) {
		return 1;
	}
	return !r->map && (uint64_t)left <= r->v.umax && current + 1 >= r->v.s32min &&
	       end - 1 <= r->v.s32max;
}

/* The eight bytes of a slot of the running frame. */
static int slot_holds(const struct testbed *w, const struct seen_slot *s, uint64_t fp,
		      struct names *names)
{
	const uint8_t *mem = (const uint8_t *)(uintptr_t)(fp - 8 * (s->number + 1));
	unsigned first = 8, n = 0;
	uint64_t value = 0;

	for (unsigned i = 0; i < 8; i++) {
		if ((s->s.kind[i] == BYTE_ZERO && mem[i]) ||
		    (s->s.kind[i] >= BYTE_TEXT && s->s.kind[i] != BYTE_TEXT + mem[i])) {
			return 0;
		}
		if (s->s.kind[i] == BYTE_SPILL) {
			first = MIN(first, i);
			n++;
		}
	}
	if (s->s.kind[0] == BYTE_ITER) {
		return iterator_holds(&s->s.r, mem);
	}
	if (!n) {
		return 1;
	}
	memcpy(&value, mem + first, n);
	return holds(w, &s->s.r, value) && one_value(names, &s->s.r, value);
}

enum { ALL_HOLD = 12, SLOTS_WRONG = 11 };

/* Returns ALL_HOLD, or the failing part: a register or the stack. */
static int state_holds(const struct testbed *w, const struct seen *s, const uint64_t regs[11])
{
	struct names names = { .n = 0 };

	for (int k = 0; k < 11; k++) {
		if (!holds(w, &s->regs[k], regs[k]) || !one_value(&names, &s->regs[k], regs[k])) {
			return k;
		}
	}
	for (uint32_t i = 0; i < s->n_slots; i++) {
		if (!slot_holds(w, &w->slots[s->first_slot + i], regs[10], &names)) {
			return SLOTS_WRONG;
		}
	}
	return ALL_HOLD;
}

/* Returns the cost from hooks.def: keys, values and memory cost one per 16 whole bytes. */
static uint32_t helper_cost(const struct testbed *w, int32_t id, const uint64_t regs[11])
{
	const struct ebpf_verify_helper *h = ebpf_verify_helper(id);
	const struct ebpf_map *m = NULL;
	uint32_t cost = h->cost;

	for (int i = 0; i < 5; i++) {
		switch (h->args[i]) {
		case ARG_CONST_MAP:
			m = (const struct ebpf_map *)(uintptr_t)regs[i + 1];
			assert_in_range(m - w->t.env.maps, 0, GEN_MAPS - 1);
			break;
		case ARG_MAP_KEY:
			cost += m->key_bytes / 16;
			break;
		case ARG_MAP_VALUE:
		case ARG_MAP_OUT:
			cost += m->value_bytes / 16;
			break;
		case ARG_MEM:
			cost += (uint32_t)(regs[i + 2] / 16);
			break;
		default:
			break;
		}
	}
	return cost;
}

static void compare(void *arg, uint32_t pc, unsigned frame, const uint64_t regs[11])
{
	struct testbed *w = arg;
	const struct ebpf_insn *in = &w->prog->insns[pc];
	int best = -1;

	w->fp[frame] = regs[10];
	w->cost += 1;
	for (uint32_t k = 1; k < w->prog->n_subprogs; k++) {
		w->entered[k] += w->prog->subprog[k] == pc;
	}
	if (in->code == (EBPF_JMP | EBPF_CALL) && in->src == 0) {
		w->cost += helper_cost(w, in->imm, regs);
	}
	if (w->wrong[0] || w->full || !w->n_seen) {
		return;
	}
	for (int32_t i = w->first[pc]; i >= 0; i = w->seen[i].next) {
		int k = w->seen[i].depth == frame ? state_holds(w, &w->seen[i], regs) : -1;

		if (k == ALL_HOLD) {
			return;
		}
		best = MAX(best, k);
	}
	if (best == SLOTS_WRONG) {
		snprintf(w->wrong, sizeof(w->wrong), "insn %u: no state holds the stack", pc);
	} else {
		snprintf(w->wrong, sizeof(w->wrong),
			 "insn %u: no state holds the registers; r%d = 0x%llx", pc, best,
			 best < 0 ? 0 : (unsigned long long)regs[best]);
	}
}

static void fill(struct rng *r, void *mem, size_t bytes)
{
	for (size_t i = 0; i + 8 <= bytes; i += 8) {
		uint64_t x = rng_below(r, 3) ? rng_number(r)
					     : (uint32_t)rng_number(r) | rng_number(r) << 32;

		memcpy((char *)mem + i, &x, 8);
	}
}

static void explain(const struct testbed *w, uint64_t seed, const char *what)
{
	struct buf text;

	buf_init(&text);
	for (uint32_t pc = 0; pc < w->prog->n_insns; pc++) {
		buf_printf(&text, "%u: ", pc);
		ebpf_insn_text(w->prog->insns, w->prog->n_insns, pc, &text);
		buf_puts(&text, "\n");
		pc += w->prog->insns[pc].code == EBPF_LD_IMM64;
	}
	print_message("program of seed %llu, hook %d:\n%s", (unsigned long long)seed, w->prog->hook,
		      buf_text(&text));
	buf_finish(&text);
	fail_msg("seed %llu: %s", (unsigned long long)seed, what);
}

/* Fills the values of arrays with random bytes; other maps keep what programs have stored. */
static void fill_maps(struct testbed *w, struct rng *r)
{
	for (unsigned i = 0; i < GEN_MAPS; i++) {
		const struct ebpf_map *m = &w->t.env.maps[i];

		if (m->type == GBPF_MAP_ARRAY && !(m->flags & GBPF_F_RDONLY)) {
			fill(r, m->data, (size_t)m->stride * m->max_entries);
		}
	}
}

/* The image's table of tail calls, which the loader makes from the program's. */
static uint32_t tail_table(const struct ebpf_prog *p, struct ebpf_tail_at *at)
{
	for (uint32_t i = 0; i < p->n_tails; i++) {
		at[i] = (struct ebpf_tail_at){ p->tails[i].map, p->tails[i].index,
					       p->subprog[p->tails[i].subprog] };
	}
	return p->n_tails;
}

static void run_inputs(struct testbed *w, struct rng *r, uint64_t seed, uint64_t proved)
{
	struct ebpf_memory region = { (uintptr_t)w->ctx, sizeof(w->ctx), 1 };
	struct ebpf_tail_at tails[2];
	struct ebpf_checked_run run = {
		.regions = &region,
		.n_regions = 1,
		.r1 = (uintptr_t)w->ctx,
		.fuel = 2000000,
		.observe = compare,
		.observe_arg = w,
		.env = &w->t.env,
		.tails = tails,
		.n_tails = tail_table(w->prog, tails),
	};

	for (int i = 0; i < INPUTS; i++) {
		uint64_t r0 = 0;
		uint32_t pc = 0;
		char text[320];
		int err;

		fill(r, w->ctx, sizeof(w->ctx));
		ebpf_ctx_bound((unsigned)w->prog->hook, w->ctx);
		fill_maps(w, r);
		memset(w->fp, 0, sizeof(w->fp));
		w->cost = 0;
		w->wrong[0] = 0;
		err = ebpf_interp_checked(w->prog->insns, w->prog->n_insns, &run, &r0, &pc);
		if (err) {
			snprintf(text, sizeof(text), "insn %u fails: %s", pc, strerror(-err));
			explain(w, seed, text);
		}
		if (w->wrong[0]) {
			explain(w, seed, w->wrong);
		}
		if (w->cost > proved) {
			snprintf(text, sizeof(text), "it cost %llu, proved was %llu",
				 (unsigned long long)w->cost, (unsigned long long)proved);
			explain(w, seed, text);
		}
		if (w->prog->hook == 3 ? r0 > 3 : r0 != 0) {
			explain(w, seed, "a verdict out of range");
		}
	}
}

static void make_testbed(struct testbed *w)
{
	test_env_init(&w->t);
	for (unsigned i = 0; i < GEN_MAPS; i++) {
		const struct gen_map *m = &gen_maps[i];
		char name[8];

		snprintf(name, sizeof(name), "m%u", i);
		assert_int_equal(
			test_env_add(&w->t, name, m->value_bytes, m->entries, m->flags, m->is_data),
			0);
		w->t.defs[i].type = m->type;
		w->t.defs[i].key_bytes = m->key_bytes;
		if (ebpf_map_check(&w->t.defs[i])) { /* this build has no such maps */
			w->t.defs[i].type = GBPF_MAP_ARRAY;
			w->t.defs[i].key_bytes = 4;
			w->t.defs[i].value_bytes = MAX(m->value_bytes, 8u);
		}
	}
	assert_int_equal(test_env_bind(&w->t), 0);
	w->init[2] = w->t.env.maps[2].data;
}

/* blocks 0: a program with plain loops. */
static void make_program(struct testbed *w, uint64_t seed, struct rng *r, unsigned blocks,
			 unsigned branches)
{
	static struct ebpf_prog prog;
	static struct gen g;

	*r = (struct rng){ seed * 0x9e3779b97f4a7c15ull + 1 };
	if (blocks) {
		gen_program(&g, r, &prog, blocks, branches);
	} else {
		gen_loops(&g, r, &prog);
	}
	prog.init = seed & 1 ? w->init : NULL;
	w->prog = &prog;
	w->n_seen = w->n_slots = 0;
	w->full = w->has_spill = w->has_offset = w->has_link = w->has_place = 0;
	memset(w->entered, 0, sizeof(w->entered));
	memset(w->first, 0xff, sizeof(w->first));
	fill(r, w->t.env.maps[2].data, gen_maps[2].value_bytes);
}

static void count(struct tally *t, const struct testbed *w, int accepted)
{
	t->programs++;
	if (!accepted) {
		return;
	}
	t->accepted++;
	t->spills += (uint64_t)w->has_spill;
	t->offsets += (uint64_t)w->has_offset;
	t->places += (uint64_t)w->has_place;
	t->links += (uint64_t)w->has_link;
	t->indirect += w->has_spill || w->has_offset;
	t->calls[0] += w->prog->n_subprogs > 1;
	for (uint32_t k = 1; k < w->prog->n_subprogs; k++) {
		t->entered += w->entered[k];
	}
	for (uint32_t i = 0; i < w->prog->n_insns; i++) {
		const struct ebpf_insn *in = &w->prog->insns[i];

		if (in->code == (EBPF_JMP | EBPF_CALL) && in->src == 0) {
			t->calls[1] += in->imm == 181 || in->imm == 164;
			t->calls[2] += in->imm == 1011;
			t->calls[3] += in->imm == 131;
			t->calls[4] += in->imm == 12;
			t->calls[5] += in->imm == 87 || in->imm == 88 || in->imm == 89;
			t->calls[6] += in->imm == 2 || in->imm == 3;
		}
	}
}

static void one_contained(struct testbed *w, uint64_t seed, struct tally *t)
{
	struct ebpf_verify_stats whole;
	struct rng r;
	int err;

	make_program(w, seed, &r, 10, 6);
	err = ebpf_verify_observed(w->prog, w->t.defs, GEN_MAPS, EBPF_VERIFY_NO_PRUNE, remember, w,
				   &whole, NULL);
	if (err == 0) {
		run_inputs(w, &r, seed, whole.cost);
	}
	count(t, w, err == 0);
}

/* Returns whether the program has loops by convergence. Without pruning, these meet and join other
 * states, so either result may be less precise. */
static int converges(const struct ebpf_prog *p)
{
	for (uint32_t pc = 0; pc < p->n_insns; pc++) {
		const struct ebpf_insn *in = &p->insns[pc];

		if (in->code == (EBPF_JMP | EBPF_CALL) && in->src == EBPF_CALL_HELPER &&
		    (in->imm == HELPER_bpf_iter_num_next || in->imm == HELPER_bpf_loop ||
		     in->imm == HELPER_bpf_for_each_map_elem)) {
			return 1;
		}
	}
	return 0;
}

static void one_pruned(struct testbed *w, uint64_t seed, struct tally *t)
{
	struct ebpf_verify_stats pruned, whole;
	struct rng r;
	int a, b, exact;

	make_program(w, seed, &r, 14, 9);
	a = ebpf_verify_observed(w->prog, w->t.defs, GEN_MAPS, 0, remember, w, &pruned, NULL);
	b = ebpf_verify(w->prog, w->t.defs, GEN_MAPS, EBPF_VERIFY_NO_PRUNE, &whole, NULL);
	exact = !converges(w->prog);
	if (exact && (a == 0) != (b == 0) && b != -E2BIG) {
		explain(w, seed, "pruning changes the verdict");
	}
	if (a == 0) {
		if (exact && b == 0 && pruned.cost < whole.cost) {
			explain(w, seed, "pruning lowers the cost");
		}
		w->n_seen = 0; /* pruned paths were not walked, so the states are not all there */
		run_inputs(w, &r, seed, b == 0 ? MIN(whole.cost, pruned.cost) : pruned.cost);
	}
	count(t, w, a == 0);
}

/* Programs whose plain loops keep minima and counts, walked by merging. Almost none of those that
 * it accepts may be refused otherwise. There are some, because a path that no run takes is walked
 * until a single value shows that. */
static void one_merged(struct testbed *w, uint64_t seed, struct tally *t)
{
	struct ebpf_verify_stats merged = { 0 };
	struct rng r;
	int a;

	make_program(w, seed, &r, 0, 0);
	a = ebpf_verify_observed(w->prog, w->t.defs, GEN_MAPS, EBPF_VERIFY_MERGE, remember, w,
				 &merged, NULL);
	if (seed % 16 == 0) {
		t->both += a == 0;
		t->more += a == 0 && ebpf_verify(w->prog, w->t.defs, GEN_MAPS, 0, NULL, NULL) != 0;
	}
	if (a == 0) {
		run_inputs(w, &r, seed, merged.cost);
		t->joins += merged.joins;
		t->joined += merged.joins > 4;
		t->compared += !w->full;
	}
	count(t, w, a == 0);
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

static void print_tally(const struct tally *t)
{
	print_message(
		"%llu of %llu programs accepted; of those with variable offsets %llu, of the "
		"context %llu, links %llu, spills %llu, either %llu, functions %llu; calls: "
		"callbacks %llu, iterators "
		"%llu, "
		"records %llu, tail calls %llu, queues %llu, updates and deletes %llu; functions "
		"entered %llu times\n",
		(unsigned long long)t->accepted, (unsigned long long)t->programs,
		(unsigned long long)t->offsets, (unsigned long long)t->places,
		(unsigned long long)t->links, (unsigned long long)t->spills,
		(unsigned long long)t->indirect, (unsigned long long)t->calls[0],
		(unsigned long long)t->calls[1], (unsigned long long)t->calls[2],
		(unsigned long long)t->calls[3], (unsigned long long)t->calls[4],
		(unsigned long long)t->calls[5], (unsigned long long)t->calls[6],
		(unsigned long long)t->entered);
}

static void check_tally(const struct tally *t)
{
	print_tally(t);
	/* otherwise the test says little */
	assert_true(t->accepted * 5 >= t->programs);
	assert_true(t->indirect * 2 >= t->accepted);
	assert_true(t->places && (t->programs < 1500 || t->places * 20 >= t->accepted));
	assert_true(t->links * 4 >= t->accepted);
	assert_true(t->entered >= t->programs / 2);
}

static void check_loops(const struct tally *t)
{
	print_tally(t);
	print_message("loops: %llu programs with more than 4 joins, %llu joins; every state "
		      "compared in %llu; %llu of %llu are refused without merging\n",
		      (unsigned long long)t->joined, (unsigned long long)t->joins,
		      (unsigned long long)t->compared, (unsigned long long)t->more,
		      (unsigned long long)t->both);
	assert_true(t->accepted * 4 >= t->programs);
	assert_true(t->indirect * 2 >= t->accepted);
	assert_true(t->joined * 4 >= t->accepted * 3);
	assert_true(t->compared * 10 >= t->accepted * 9);
	assert_true(t->more * 500 <= t->both);
}

static void many_programs(void (*one)(struct testbed *w, uint64_t seed, struct tally *t),
			  void (*check)(const struct tally *t))
{
	uint64_t n = setting("GBPF_SOUNDNESS_PROGRAMS", PROGRAMS),
		 seed = setting("GBPF_SOUNDNESS_SEED", 1);
	struct testbed *w = calloc(1, sizeof(*w));
	struct tally t = { 0 };

	assert_non_null(w);
	make_testbed(w);
	for (uint64_t i = 0; i < n; i++) {
		one(w, seed + i, &t);
	}
	test_env_finish(&w->t);
	free(w);
	check(&t);
}

static void runs_stay_inside_the_states(void **state)
{
	many_programs(one_contained, check_tally);
}

static void pruning_accepts_nothing_more(void **state)
{
	many_programs(one_pruned, check_tally);
}

static void merged_loops_contain_every_run(void **state)
{
	many_programs(one_merged, check_loops);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(merged_loops_contain_every_run),
		cmocka_unit_test(runs_stay_inside_the_states),
		cmocka_unit_test(pruning_accepts_nothing_more),
	};

	return cmocka_run_group_tests_name("verifier soundness", tests, NULL, NULL);
}
