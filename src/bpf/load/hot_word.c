/* Finds hot words by one pass over a program, which follows constants, pointers into values and the
 * keys of look-ups on the stack. What it does not know is unknown, and an unknown address is not
 * reported: the check warns, it refuses nothing. */
#include "bpf/load/hot_word.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/run/insn.h"
#include "bpf/run/map/map_type.h"

enum {
#define GBPF_CONST(name, value, doc) name = value,
#define GBPF_DEVICE_HOOK(id, name, budget, doc) HOOK_##name = id,
#define GBPF_HELPER(id, name, ret, params, ...) HELPER_##name = id,
#include "gbpf/hooks.def"
};

#define STACK_WORDS (EBPF_STACK_BYTES / 4)

enum kind {
	UNKNOWN,
	CONSTANT,
	STACK,	   /* at: offset from the end of the frame */
	MAP,	   /* a handle */
	PLACE,	   /* the same address in a value for all warps, or NULL */
	ELSEWHERE, /* another address in a value, or NULL */
};

struct reg {
	uint8_t kind, map;
	int32_t at;
	uint32_t by; /* the instruction after that which determined the value; 0: none has */
};

/* What is known before an instruction. */
struct state {
	struct reg reg[11];
	/* Of words of the frame that every warp has equal: the instruction after their store. */
	uint32_t constant[STACK_WORDS];
	bool reached;
};

struct pass {
	const struct ebpf_object *o;
	const struct ebpf_prog *prog;
	uint32_t n;	    /* instructions of its main function */
	struct state *at;   /* owned */
	uint8_t *null_test; /* owned; 1: a branch that tests for NULL */
	uint8_t *leads;	    /* owned; 1: the instruction in question can follow */
};

static bool is_jump(const struct ebpf_insn *in)
{
	unsigned class = EBPF_CLASS(in->code), op = EBPF_OP(in->code);

	return (class == EBPF_JMP || class == EBPF_JMP32) && op != EBPF_CALL && op != EBPF_EXIT;
}

static bool is_exit(const struct ebpf_insn *in)
{
	return in->code == (EBPF_JMP | EBPF_EXIT);
}

static bool is_branch(const struct ebpf_insn *in)
{
	return is_jump(in) && EBPF_OP(in->code) != EBPF_JA;
}

/* Returns where a jump goes; n: not into the function. */
static uint32_t target(const struct pass *p, uint32_t pc)
{
	const struct ebpf_insn *in = &p->prog->insns[pc];
	int64_t to = (int64_t)pc + 1 + (in->code == (EBPF_JMP32 | EBPF_JA) ? in->imm : in->off);

	return to >= 0 && to < p->n ? (uint32_t)to : p->n;
}

static uint32_t next(const struct pass *p, uint32_t pc)
{
	return MIN(pc + (p->prog->insns[pc].code == EBPF_LD_IMM64 ? 2 : 1), p->n);
}

/* ---- states ---- */

static void forget_stack(struct state *s)
{
	memset(s->constant, 0, sizeof(s->constant));
}

static void forget(struct state *s)
{
	memset(s->reg, 0, sizeof(s->reg));
	s->reg[10] = (struct reg){ .kind = STACK };
	forget_stack(s);
	s->reached = true;
}

static bool is_same(const struct reg *a, const struct reg *b)
{
	return a->kind == b->kind && a->map == b->map && a->at == b->at && a->by == b->by;
}

/* What paths determined by different instructions may differ between warps. */
static void join(const struct pass *p, uint32_t to, const struct state *s)
{
	struct state *t = to < p->n ? &p->at[to] : NULL;

	if (!t) {
		return;
	}
	if (!t->reached) {
		*t = *s;
		return;
	}
	for (unsigned i = 0; i < 11; i++) {
		if (!is_same(&t->reg[i], &s->reg[i])) {
			t->reg[i] = (struct reg){ 0 };
		}
	}
	for (unsigned i = 0; i < STACK_WORDS; i++) {
		t->constant[i] = t->constant[i] == s->constant[i] ? t->constant[i] : 0;
	}
}

/* Sets, or with -1 asks, whether bytes of the frame are equal for all warps. */
static bool stack_bytes(struct state *s, int64_t at, unsigned bytes, int64_t set)
{
	int64_t first = at + (int64_t)EBPF_STACK_BYTES;
	bool all = bytes > 0;

	if (first < 0 || first + bytes > EBPF_STACK_BYTES) {
		return false;
	}
	if (set > 0 && (bytes % 4 || first % 4)) {
		set = 0; /* a part of a word */
	}
	for (int64_t w = first / 4; w <= (first + bytes - 1) / 4 && bytes; w++) {
		if (set >= 0) {
			s->constant[w] = (uint32_t)set;
		}
		all &= s->constant[w] != 0;
	}
	return all;
}

static bool is_of_all(const struct pass *p, const struct reg *r)
{
	const struct ebpf_map_def *m = r->map < p->o->n_maps ? &p->o->maps[r->map] : NULL;

	return m && (m->type == GBPF_MAP_ARRAY || m->type == GBPF_MAP_HASH ||
		     m->type == GBPF_MAP_LRU_HASH);
}

/* ---- instructions ---- */

static void load_64(struct state *s, const struct ebpf_insn *in, uint32_t by)
{
	struct reg *r = &s->reg[in->dst];

	*r = (struct reg){ .map = (uint8_t)in->imm };
	r->kind = in->src == EBPF_PSEUDO_MAP	     ? MAP
		  : in->src == EBPF_PSEUDO_MAP_VALUE ? PLACE
		  : in->src == EBPF_PSEUDO_CONST     ? CONSTANT
						     : UNKNOWN;
	if (r->kind == CONSTANT) {
		r->map = 0;
		r->by = by;
	}
	r->at = r->kind == PLACE ? in[1].imm : 0;
}

static void add(struct reg *r, const struct ebpf_insn *in, const struct reg *more, uint32_t by)
{
	bool known = !more || more->kind == CONSTANT;

	if (r->kind == STACK && !more) {
		r->at += in->imm;
	} else if (r->kind == PLACE || r->kind == ELSEWHERE) {
		r->kind = known ? r->kind : ELSEWHERE;
		r->at = 0;
		r->by = by;
	} else if (r->kind == CONSTANT && known) {
		r->by = by;
	} else {
		*r = (struct reg){ 0 };
	}
}

/* by: the instruction after this one */
static void compute(struct state *s, const struct ebpf_insn *in, uint32_t by)
{
	bool wide = EBPF_CLASS(in->code) == EBPF_ALU64;
	const struct reg *src = EBPF_SRC(in->code) == EBPF_X ? &s->reg[in->src] : NULL;
	const struct reg constant = { .kind = CONSTANT, .by = by };
	struct reg *r = &s->reg[in->dst];

	if (EBPF_OP(in->code) == EBPF_MOV) {
		*r = src && wide && !in->off	     ? *src
		     : !src || src->kind == CONSTANT ? constant
						     : (struct reg){ 0 };
	} else if (wide && EBPF_OP(in->code) == EBPF_ADD) {
		add(r, in, src, by);
	} else if (r->kind == CONSTANT && (!src || src->kind == CONSTANT)) {
		*r = constant;
	} else {
		*r = (struct reg){ 0 };
	}
}

static void store(struct state *s, const struct ebpf_insn *in, uint32_t by)
{
	const struct reg *to = &s->reg[in->dst];
	bool constant = EBPF_CLASS(in->code) == EBPF_ST || s->reg[in->src].kind == CONSTANT;

	if (to->kind == STACK) {
		stack_bytes(s, (int64_t)to->at + in->off, ebpf_access_bytes(in), constant ? by : 0);
	} else if (to->kind == UNKNOWN) {
		forget_stack(s);
	}
}

static void call(const struct pass *p, struct state *s, const struct ebpf_insn *in, uint32_t by)
{
	const struct reg *map = &s->reg[1], *key = &s->reg[2];
	struct reg result = { 0 };
	bool writes = false;

	if (in->src == EBPF_CALL_HELPER && in->imm == HELPER_bpf_map_lookup_elem) {
		if (map->kind == MAP && map->map < p->o->n_maps) {
			bool same = key->kind == STACK &&
				    stack_bytes(s, key->at, p->o->maps[map->map].key_bytes, -1);

			result = (struct reg){ same ? PLACE : ELSEWHERE, map->map, 0, by };
		}
	} else {
		for (unsigned i = 1; i <= 5; i++) {
			writes |= s->reg[i].kind == STACK || s->reg[i].kind == UNKNOWN;
		}
	}
	if (writes) {
		forget_stack(s);
	}
	memset(&s->reg[1], 0, 5 * sizeof(s->reg[1]));
	s->reg[0] = result;
}

static void step(const struct pass *p, struct state *s, const struct ebpf_insn *in)
{
	uint32_t by = (uint32_t)(in - p->prog->insns) + 1;
	unsigned class = EBPF_CLASS(in->code);

	if (in->code == EBPF_LD_IMM64) {
		load_64(s, in, by);
	} else if (class == EBPF_ALU || class == EBPF_ALU64) {
		compute(s, in, by);
	} else if (class == EBPF_STX && EBPF_MODE(in->code) == EBPF_ATOMIC) {
		if (s->reg[in->dst].kind == STACK || s->reg[in->dst].kind == UNKNOWN) {
			forget_stack(s);
		}
		s->reg[in->imm == EBPF_CMPXCHG ? 0 : in->src] = (struct reg){ 0 };
	} else if (class == EBPF_ST || class == EBPF_STX) {
		store(s, in, by);
	} else if (class == EBPF_LDX) {
		s->reg[in->dst] = (struct reg){ 0 };
	} else if (in->code == (EBPF_JMP | EBPF_CALL)) {
		call(p, s, in, by);
	}
}

/* Returns the map if all warps that come to the instruction update one word of it, or -1. */
static int hot_map(const struct pass *p, const struct state *s, const struct ebpf_insn *in)
{
	const struct reg *r = &s->reg[in->dst];

	if (EBPF_CLASS(in->code) == EBPF_STX && EBPF_MODE(in->code) == EBPF_ATOMIC) {
		return r->kind == PLACE && is_of_all(p, r) ? r->map : -1;
	}
	if (in->code == (EBPF_JMP | EBPF_CALL) && in->src == EBPF_CALL_HELPER &&
	    in->imm == HELPER_gbpf_atomic_add) {
		r = &s->reg[1];
		return r->kind == MAP && s->reg[2].kind == CONSTANT && is_of_all(p, r) ? r->map
										       : -1;
	}
	return -1;
}

/* ---- branches that leave warps out ---- */

/* Returns true if a look-up in the map finds nothing only beyond its end. */
static bool is_array(const struct pass *p, uint8_t map)
{
	return map < p->o->n_maps && ebpf_map_type_has(p->o->maps[map].type, EBPF_MAP_INDEXED);
}

/* Returns true for a test for NULL that has the same result for all warps. */
static bool tests_null(const struct pass *p, const struct state *s, const struct ebpf_insn *in)
{
	const struct reg *r = &s->reg[in->dst];
	unsigned op = EBPF_OP(in->code);

	return (op == EBPF_JEQ || op == EBPF_JNE) && EBPF_SRC(in->code) == EBPF_K && !in->imm &&
	       (r->kind == PLACE || (r->kind == ELSEWHERE && is_array(p, r->map)));
}

/* Sets p->leads for the instructions behind which pc can follow, forward: without a further pass
 * through a loop. */
static void find_leads(struct pass *p, uint32_t pc, bool forward)
{
	bool changed = true;

	memset(p->leads, 0, p->n + 1);
	p->leads[pc] = 1;
	while (changed) {
		changed = false;
		for (uint32_t i = p->n; i-- > 0;) {
			const struct ebpf_insn *in = &p->prog->insns[i];
			bool goes = EBPF_OP(in->code) != EBPF_JA || !is_jump(in);
			uint32_t to = is_jump(in) ? target(p, i) : p->n;
			bool leads = !is_exit(in) && ((goes && p->leads[next(p, i)]) ||
						      ((to > i || !forward) && p->leads[to]));

			if (leads && !p->leads[i]) {
				p->leads[i] = 1;
				changed = true;
			}
		}
	}
}

/* Returns true if one side of a branch before pc leads to it and the other does not. */
static bool is_left_out(const struct pass *p, uint32_t pc)
{
	for (uint32_t i = 0; i < pc; i = next(p, i)) {
		if (is_branch(&p->prog->insns[i]) && p->at[i].reached && !p->null_test[i] &&
		    p->leads[i] && p->leads[next(p, i)] != p->leads[target(p, i)]) {
			return true;
		}
	}
	return false;
}

/* Returns true if a branch before the instruction leaves some warps out. */
static bool is_guarded(struct pass *p, uint32_t pc)
{
	/* A branch in a loop leads to all of it by a further pass; code that a jump into a loop
	 * skips is reached by one only. */
	for (int forward = 0; forward < 2; forward++) {
		find_leads(p, pc, forward);
		if (is_left_out(p, pc)) {
			return true;
		}
	}
	return false;
}

/* ---- programs ---- */

/* Loops begin with nothing known. */
static void mark_heads(const struct pass *p)
{
	forget(&p->at[0]);
	for (uint32_t i = 0; i < p->n; i = next(p, i)) {
		uint32_t to = is_jump(&p->prog->insns[i]) ? target(p, i) : p->n;

		if (to <= i) {
			forget(&p->at[to]);
		}
	}
}

static const struct ebpf_line *line_of(const struct ebpf_prog *prog, uint32_t pc)
{
	const struct ebpf_line *best = NULL;

	for (uint32_t i = 0; i < prog->n_lines && prog->lines[i].insn <= pc; i++) {
		best = &prog->lines[i];
	}
	return best && best->line ? best : NULL;
}

static unsigned scan(struct pass *p, struct ebpf_hot_word *ret, unsigned max)
{
	uint64_t found = 0; /* bits of maps */
	unsigned n = 0;

	mark_heads(p);
	for (uint32_t i = 0; i < p->n && n < max; i = next(p, i)) {
		const struct ebpf_insn *in = &p->prog->insns[i];
		struct state s = p->at[i];
		int map;

		if (!s.reached) {
			continue;
		}
		map = hot_map(p, &s, in);
		if (map >= 0 && map < 64 && !(found >> map & 1) && !is_guarded(p, i)) {
			found |= UINT64_C(1) << map;
			ret[n++] = (struct ebpf_hot_word){ p->prog, line_of(p->prog, i),
							   (uint32_t)map };
		}
		p->null_test[i] = is_branch(in) && tests_null(p, &s, in);
		step(p, &s, in);
		if (is_jump(in)) {
			join(p, target(p, i), &s);
		}
		if (!is_exit(in) && (!is_jump(in) || is_branch(in))) {
			join(p, next(p, i), &s);
		}
	}
	return n;
}

/* Programs of these hooks run once for each block or launch. */
static bool is_seldom(int hook)
{
	return hook == HOOK_gdev_block_enter || hook == HOOK_gdev_block_exit ||
	       hook == HOOK_gdev_begin || hook == HOOK_gdev_end;
}

static unsigned find(const struct ebpf_object *o, const struct ebpf_prog *prog,
		     struct ebpf_hot_word *ret, unsigned max)
{
	struct pass p = { .o = o,
			  .prog = prog,
			  .n = prog->n_subprogs > 1 ? prog->subprog[1] : prog->n_insns };
	unsigned n = 0;

	if (prog->hook < (int)EBPF_FIRST_DEVICE_HOOK || is_seldom(prog->hook) || !p.n) {
		return 0;
	}
	p.at = calloc(p.n, sizeof(*p.at));
	p.null_test = calloc(p.n, 1);
	p.leads = calloc(p.n + 1u, 1);
	if (p.at && p.null_test && p.leads) {
		n = scan(&p, ret, max);
	}
	free(p.at);
	free(p.null_test);
	free(p.leads);
	return n;
}

unsigned ebpf_hot_words(const struct ebpf_object *o, struct ebpf_hot_word *ret, unsigned max)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < o->n_progs; i++) {
		n += find(o, &o->progs[i], ret + n, max - n);
	}
	return n;
}

void ebpf_hot_word_text(const struct ebpf_object *o, const struct ebpf_hot_word *w, struct buf *out)
{
	const struct ebpf_map_def *m = &o->maps[w->map];

	buf_printf(out,
		   "program %s: every warp adds to the same word of %s'%s', where the warps of a "
		   "kernel wait for each other; use a map of type SM_ARRAY%s",
		   w->prog->name, m->is_data ? "the global variables " : "map ", m->name,
		   w->prog->hook == HOOK_gdev_access ? ", or WARP_ARRAY with GBPF_F_DEFER"
						     : " or WARP_ARRAY");
}
