/* Soundness of the analysis of uniformity: runs random programs on the lanes of several warps, in
 * the checked interpreter, with contexts that differ exactly where hooks.def says that they may,
 * and with contents of shared maps, random numbers and times that all differ.
 *
 * Instructions that no branch on a varying value decides about are the same for all lanes of a
 * warp, in the same order; registers and bytes of the stack have the same values in them where the
 * analysis says so. Where a branch has separated the lanes, values are compared as long as the
 * lanes have not come to an instruction twice. For all warps of the block the same holds of what is
 * the same for a block.
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
#include "bpf/load/jit/jit.h"
#include "bpf/load/verify/insn_text.h"
#include "bpf/load/verify/simt/simt_int.h"
#include "bpf/run/ctx_bound.h"
#include "bpf/run/interp/interp.h"
#include "gen_lanes.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

#define PROGRAMS 6000
#define WARPS 2u
#define LANES 5u
#define MAX_STEPS 1200u
#define FRAME_BYTES (8 * LANES_SLOTS)

/* What the analysis says of one instruction. */
struct claim {
	uint8_t control;
	uint8_t regs[10];
	uint8_t bytes[FRAME_BYTES]; /* the last ones of the main function's frame */
};

/* One instruction of a run. place: how many instructions with this control or a lower one came
 * before; path: hash of those since the last one of them. */
struct step {
	uint32_t pc, frame;
	uint64_t regs[10];
	uint8_t bytes[FRAME_BYTES];
	uint32_t place[2];
	uint64_t path[2];
	bool again[2]; /* an instruction has occurred twice since then */
};

struct trace {
	struct step steps[MAX_STEPS];
	uint32_t n, n_uniform[2];
};

struct testbed {
	struct test_env t;
	uint8_t ctx[WARPS][LANES][256];
	struct claim claims[LANES_MAX_INSNS];
	uint16_t numbers[LANES_MAX_INSNS]; /* registers that are numbers in every walked state */
	bool analysed, rounds_vary;
	const struct ebpf_prog *prog;
	struct trace traces[WARPS][LANES];
	struct trace *now;
	uint64_t main_frame;
	uint64_t seed;
};

struct tally {
	uint64_t programs, analysed, accepted, compared, compared_apart, uniform, varying;
};

/* ---- claims ---- */

static void remember(void *arg, uint32_t pc, unsigned frame, const struct ebpf_call_state *f)
{
	struct testbed *w = arg;

	for (unsigned i = 0; i < 10; i++) {
		if (f->regs[i].type != REG_SCALAR) {
			w->numbers[pc] &= (uint16_t) ~(1u << i);
		}
	}
}

static void take_claims(void *arg, struct ebpf_simt *s)
{
	struct testbed *w = arg;

	w->analysed = true;
	for (uint32_t i = 0; i < s->n_blocks; i++) {
		const struct ebpf_simt_block *b = &s->blocks[i];
		struct ebpf_simt_state st = b->in;

		w->rounds_vary |= b->again && b->level == LEVEL_LANE;
		for (uint32_t pc = b->first; pc < b->end;
		     pc += s->v->prog->insns[pc].code == EBPF_LD_IMM64 ? 2 : 1) {
			struct claim *c = &w->claims[pc];
			const struct ebpf_insn *in = &s->v->prog->insns[pc];

			c->control = ebpf_simt_control(s, pc);
			for (unsigned k = 0; k < 10; k++) {
				c->regs[k] = ebpf_simt_reg(&st, k);
			}
			for (unsigned k = 0; k < FRAME_BYTES; k++) {
				struct ebpf_simt_set one = { 0 };
				unsigned at = EBPF_STACK_BYTES - FRAME_BYTES + k;

				one.bytes[at / 64] = 1ull << at % 64;
				c->bytes[k] = ebpf_simt_level(&st, &one);
			}
			if (in->code == (EBPF_JMP | EBPF_CALL) && in->src == EBPF_CALL_HELPER &&
			    in->imm == HELPER_bpf_loop) {
				w->rounds_vary |= ebpf_simt_rounds(s, pc, &st) == LEVEL_LANE;
			}
			ebpf_simt_step(s, pc, &st);
		}
	}
}

/* ---- runs ---- */

static void explain(const struct testbed *w, const char *what)
{
	struct buf text;

	buf_init(&text);
	for (uint32_t pc = 0; pc < w->prog->n_insns; pc++) {
		buf_printf(&text, "%u: (%u) ", pc, w->claims[pc].control);
		ebpf_insn_text(w->prog->insns, w->prog->n_insns, pc, &text);
		buf_puts(&text, "\n");
		pc += w->prog->insns[pc].code == EBPF_LD_IMM64;
	}
	print_message("program of seed %llu:\n%s", (unsigned long long)w->seed, buf_text(&text));
	buf_finish(&text);
	fail_msg("seed %llu: %s", (unsigned long long)w->seed, what);
}

/* Level i: instructions with a control above it are a part of the way to the next one. */
static void follow(struct trace *t, struct step *s, unsigned i, uint8_t control)
{
	const struct step *last = t->n ? &t->steps[t->n - 1] : NULL;

	s->place[i] = t->n_uniform[i];
	if (control <= i) {
		s->place[i] = ++t->n_uniform[i];
		s->path[i] = 0;
		s->again[i] = false;
		return;
	}
	s->path[i] = ((last ? last->path[i] : 0) + s->pc + 1) * 0x9e3779b97f4a7c15ull;
	s->again[i] = last && last->again[i];
	for (uint32_t k = t->n; k > 0 && t->steps[k - 1].place[i] == s->place[i]; k--) {
		s->again[i] |= t->steps[k - 1].pc == s->pc;
	}
}

static void record(void *arg, uint32_t pc, unsigned frame, const uint64_t regs[11])
{
	struct testbed *w = arg;
	struct trace *t = w->now;
	struct step *s = &t->steps[t->n];

	if (t->n == MAX_STEPS) {
		return;
	}
	if (frame == 0) {
		w->main_frame = regs[10];
	}
	s->pc = pc;
	s->frame = frame;
	memcpy(s->regs, regs, sizeof(s->regs));
	memcpy(s->bytes, (const void *)(uintptr_t)(w->main_frame - FRAME_BYTES), FRAME_BYTES);
	for (unsigned i = 0; i < 2; i++) {
		follow(t, s, i, w->claims[pc].control);
	}
	t->n++;
}

static uint64_t small_number(struct rng *r)
{
	return rng_below(r, 3) ? rng_below(r, 6) : rng_number(r);
}

/* Fills the contexts: a field has as many values as its level allows. */
static void fill_contexts(struct testbed *w, struct rng *r)
{
	uint32_t n;
	const struct ebpf_verify_field *f = ebpf_verify_fields(&n);
	const struct ebpf_verify_hook *h = ebpf_verify_hook(w->prog->hook);

	for (; n > 0; n--, f++) {
		uint64_t value = small_number(r);

		if (f->hook != h->id) {
			continue;
		}
		for (unsigned warp = 0; warp < WARPS; warp++) {
			uint8_t level = ebpf_verify_field_level(f);

			value = level == LEVEL_WARP ? small_number(r) : value;
			for (unsigned lane = 0; lane < LANES; lane++) {
				value = level == LEVEL_LANE ? small_number(r) : value;
				memcpy(w->ctx[warp][lane] + f->offset, &value, f->bytes);
			}
		}
	}
	for (unsigned i = 0; i < WARPS * LANES; i++) {
		ebpf_ctx_bound((unsigned)h->id, w->ctx[i / LANES][i % LANES]);
	}
}

static void fill_map(const struct ebpf_map *m, struct rng *r)
{
	for (uint32_t i = 0; i < m->max_entries * m->stride; i += 8) {
		uint64_t value = small_number(r);

		memcpy(m->data + i, &value, 8);
	}
}

static void run_lane(struct testbed *w, struct rng *r, unsigned warp, unsigned lane)
{
	struct ebpf_memory region = { (uintptr_t)w->ctx[warp][lane], sizeof(w->ctx[0][0]), 0 };
	struct ebpf_checked_run run = {
		.regions = &region,
		.n_regions = 1,
		.r1 = (uintptr_t)w->ctx[warp][lane],
		.fuel = MAX_STEPS,
		.observe = record,
		.observe_arg = w,
		.env = &w->t.env,
	};
	uint64_t r0 = 0;
	uint32_t pc = 0;

	fill_map(&w->t.env.maps[LANES_SHARED], r);
	fill_map(&w->t.env.maps[LANES_DATA], r);
	w->t.env.random_state = rng_next(r) | 1;
	w->now = &w->traces[warp][lane];
	w->now->n = w->now->n_uniform[0] = w->now->n_uniform[1] = 0;
	if (ebpf_interp_checked(w->prog->insns, w->prog->n_insns, &run, &r0, &pc)) {
		explain(w, "it fails");
	}
}

/* ---- comparisons ---- */

/* Returns whether two runs are at the same place, as far as lanes of a warp (level 1) or threads of
 * a block (0) can be. Frames of functions differ by the way to them. */
static bool same_place(const struct step *a, const struct step *b, unsigned level)
{
	return a->pc == b->pc && a->place[level] == b->place[level] &&
	       (a->path[level] == b->path[level] ||
		(!a->again[level] && !b->again[level] && a->frame == 0));
}

static void compare_values(struct testbed *w, const struct step *a, const struct step *b,
			   unsigned level, struct tally *t)
{
	const struct claim *c = &w->claims[a->pc];
	char what[160];

	for (unsigned i = 0; i < 10; i++) {
		if (!(w->numbers[a->pc] >> i & 1)) {
			continue;
		}
		t->uniform += c->regs[i] <= level;
		t->varying += c->regs[i] > level;
		if (c->regs[i] <= level && a->regs[i] != b->regs[i]) {
			snprintf(what, sizeof(what), "insn %u: r%u is 0x%llx and 0x%llx, level %u",
				 a->pc, i, (unsigned long long)a->regs[i],
				 (unsigned long long)b->regs[i], level);
			explain(w, what);
		}
	}
	/* before the frame is initialized, its bytes are those of an earlier run */
	for (unsigned i = 0; a->frame == 0 && a->pc > LANES_SLOTS && i < FRAME_BYTES; i++) {
		if (c->bytes[i] <= level && a->bytes[i] != b->bytes[i]) {
			snprintf(what, sizeof(what), "insn %u: byte %d is %u and %u, level %u",
				 a->pc, (int)i - (int)FRAME_BYTES, a->bytes[i], b->bytes[i], level);
			explain(w, what);
		}
	}
}

/* Compares the runs of two threads of the same warp (level 1) or block (0). */
static void compare(struct testbed *w, const struct trace *a, const struct trace *b, unsigned level,
		    struct tally *t)
{
	uint32_t k = 0, first = 0;

	if (a->n_uniform[level] != b->n_uniform[level]) {
		explain(w, "another number of instructions that all come to");
	}
	for (uint32_t i = 0; i < a->n; i++) {
		const struct step *s = &a->steps[i];

		for (; first < b->n && b->steps[first].place[level] < s->place[level]; first++) {
		}
		for (k = first; k < b->n && b->steps[k].place[level] == s->place[level]; k++) {
			if (w->claims[s->pc].control <= level && k == first &&
			    b->steps[k].pc != s->pc) {
				explain(w, "threads are at different places");
			}
			if (same_place(s, &b->steps[k], level)) {
				t->compared++;
				t->compared_apart += w->claims[s->pc].control > level;
				compare_values(w, s, &b->steps[k], level, t);
				break;
			}
		}
	}
}

static void run_program(struct testbed *w, struct rng *r, struct tally *t)
{
	fill_contexts(w, r);
	fill_map(&w->t.env.maps[LANES_CONSTANT], r);
	for (unsigned i = 0; i < WARPS * LANES; i++) {
		unsigned warp = i / LANES, lane = i % LANES;

		run_lane(w, r, warp, lane);
		if (lane) {
			compare(w, &w->traces[warp][0], &w->traces[warp][lane], 1, t);
		}
		if (warp) {
			compare(w, &w->traces[0][0], &w->traces[warp][lane], 0, t);
		}
	}
}

/* What is accepted can be compiled. */
static void compile(struct testbed *w)
{
	static uint8_t text[1 << 18];
	const struct ebpf_code code = { .insns = w->prog->insns, .n = w->prog->n_insns };
	const struct ebpf_jit_options o = { .device_hook = w->prog->hook, .device_lane = 1 };
	size_t len = 0;

	if (ebpf_jit_compile_with(&ebpf_target_ptx, &o, &code, w->t.env.maps, LANES_MAPS, text,
				  sizeof(text), &len) < 0) {
		explain(w, "accepted, but not compiled");
	}
}

static void one_program(struct testbed *w, uint64_t seed, struct tally *t)
{
	static struct ebpf_prog prog;
	static struct gen_lanes g;
	struct rng r = { seed * 0x9e3779b97f4a7c15ull + 1 };
	int err;

	gen_lanes(&g, &r, &prog);
	w->prog = &prog;
	w->seed = seed;
	w->analysed = w->rounds_vary = false;
	memset(w->numbers, 0xff, sizeof(w->numbers));
	memset(w->claims, 0, sizeof(w->claims));
	err = ebpf_verify_levels(&prog, w->t.defs, LANES_MAPS, EBPF_VERIFY_NO_PRUNE, remember,
				 take_claims, w);
	t->programs++;
	t->analysed += w->analysed && !w->rounds_vary;
	t->accepted += err == 0;
	if (err == 0) {
		compile(w);
	}
	for (unsigned i = 0; w->analysed && !w->rounds_vary && i < 3; i++) {
		run_program(w, &r, t);
	}
}

static void make_testbed(struct testbed *w)
{
	test_env_init(&w->t);
	assert_int_equal(test_env_add(&w->t, ".rodata", 32, 1, GBPF_F_RDONLY, 1), 0);
	assert_int_equal(test_env_add(&w->t, "shared", 8, 4, GBPF_F_DEVICE, 0), 0);
	assert_int_equal(test_env_add(&w->t, ".bss.device", 32, 1, GBPF_F_DEVICE, 1), 0);
	assert_int_equal(test_env_bind(&w->t), 0);
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

static void what_is_uniform_is_equal_for_all_lanes(void **state)
{
	uint64_t n = setting("GBPF_SOUNDNESS_PROGRAMS", PROGRAMS),
		 seed = setting("GBPF_SOUNDNESS_SEED", 1);
	struct testbed *w = calloc(1, sizeof(*w));
	struct tally t = { 0 };

	assert_non_null(w);
	make_testbed(w);
	for (uint64_t i = 0; i < n; i++) {
		one_program(w, seed + i, &t);
	}
	test_env_finish(&w->t);
	free(w);
	print_message("%llu of %llu programs analysed, %llu accepted; %llu places compared, %llu "
		      "of them behind a branch that varies; %llu uniform numbers, %llu varying\n",
		      (unsigned long long)t.analysed, (unsigned long long)t.programs,
		      (unsigned long long)t.accepted, (unsigned long long)t.compared,
		      (unsigned long long)t.compared_apart, (unsigned long long)t.uniform,
		      (unsigned long long)t.varying);
	/* otherwise the test says little */
	assert_true(t.analysed * 3 >= t.programs);
	assert_true(t.accepted * 10 >= t.programs);
	assert_true(t.compared_apart * 10 >= t.compared);
	assert_true(t.uniform * 3 >= t.varying && t.varying * 10 >= t.uniform);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_uniform_is_equal_for_all_lanes),
	};

	return cmocka_run_group_tests_name("uniformity", tests, NULL, NULL);
}
