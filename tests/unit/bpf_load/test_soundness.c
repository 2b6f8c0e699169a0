/* The verifier against reality: random programs that it accepts are run with random inputs. At
 * every instruction, what the registers hold must belong to one of the states that the verifier
 * walked there; no access may fault; what was executed may not cost more than was proved; and
 * pruning may not accept more than walking every path does.
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
#include "bpf/load/verify_int.h"
#include "bpf/run/interp.h"
#include "gen.h"

#define PROGRAMS 6000
#define INPUTS 6
#define MAX_SEEN 4096u

struct seen {
	struct reg regs[11];
	uint32_t depth;
	int32_t next; /* of the same instruction */
};

struct world {
	struct test_env t;
	uint8_t ctx[128];
	const void *init[GEN_MAPS];
	struct seen seen[MAX_SEEN];
	uint32_t n_seen;
	int32_t first[GEN_MAX_INSNS];
	const struct ebpf_prog *prog;
	/* of one run */
	uint64_t fp[EBPF_MAX_FRAMES];
	uint64_t cost;
	char wrong[256];
};

static void remember(void *arg, uint32_t pc, unsigned frame, const struct frame *f)
{
	struct world *w = arg;
	struct seen *s;

	if (w->n_seen == MAX_SEEN) {
		return;
	}
	s = &w->seen[w->n_seen];
	memcpy(s->regs, f->regs, sizeof(s->regs));
	s->depth = frame;
	s->next = w->first[pc];
	w->first[pc] = (int32_t)w->n_seen++;
}

static int points_into(const struct world *w, const struct reg *r, uint64_t value)
{
	const struct ebpf_map *m = &w->t.env.maps[r->map];

	/* without an id it is value 0, else it may be any */
	for (uint32_t i = 0; i < (r->id ? m->max_entries : 1); i++) {
		if (scalar_has(&r->v,
			       value - (uint64_t)(uintptr_t)m->data - (uint64_t)i * m->stride)) {
			return 1;
		}
	}
	return 0;
}

static int holds(const struct world *w, const struct reg *r, uint64_t value)
{
	switch (r->type) {
	case REG_NONE:
		return 1;
	case REG_SCALAR:
		return scalar_has(&r->v, value);
	case REG_CTX:
		return value == (uintptr_t)w->ctx;
	case REG_STACK:
		return scalar_has(&r->v, value - w->fp[r->frame]);
	case REG_VALUE:
		return points_into(w, r, value);
	case REG_VALUE_OR_NULL:
		return value == 0 || points_into(w, r, value);
	default:
		return value == (uintptr_t)&w->t.env.maps[r->map];
	}
}

/* What hooks.def says; r1 is the map where there is one. */
static uint32_t helper_cost(const struct world *w, int32_t id, uint64_t r1)
{
	const struct verify_helper *h = verify_helper(id);
	const struct ebpf_map *m;
	uint32_t cost = h->cost;

	for (int i = 0; i < 5; i++) {
		if (h->args[i] == ARG_MAP_VALUE) {
			m = (const struct ebpf_map *)(uintptr_t)r1;
			assert_in_range(m - w->t.env.maps, 0, GEN_MAPS - 1);
			cost += m->value_bytes / 16;
		}
	}
	return cost;
}

static void compare(void *arg, uint32_t pc, unsigned frame, const uint64_t regs[11])
{
	struct world *w = arg;
	const struct ebpf_insn *in = &w->prog->insns[pc];
	int best = -1, culprit = 0;

	w->fp[frame] = regs[10];
	w->cost += 1;
	if (in->code == (EBPF_JMP | EBPF_CALL) && in->src == 0) {
		w->cost += helper_cost(w, in->imm, regs[1]);
	}
	if (w->wrong[0] || w->n_seen == MAX_SEEN) {
		return;
	}
	for (int32_t i = w->first[pc]; i >= 0; i = w->seen[i].next) {
		int k = 0;

		if (w->seen[i].depth != frame) {
			continue;
		}
		while (k < 11 && holds(w, &w->seen[i].regs[k], regs[k])) {
			k++;
		}
		if (k == 11) {
			return;
		}
		if (k > best) {
			best = k;
			culprit = k;
		}
	}
	snprintf(w->wrong, sizeof(w->wrong), "insn %u: no state holds the registers; r%d = 0x%llx",
		 pc, culprit, (unsigned long long)regs[culprit]);
}

static void fill(struct rng *r, void *mem, size_t bytes)
{
	for (size_t i = 0; i + 8 <= bytes; i += 8) {
		uint64_t x = rng_below(r, 3) ? rng_number(r)
					     : (uint32_t)rng_number(r) | rng_number(r) << 32;

		memcpy((char *)mem + i, &x, 8);
	}
}

static void explain(const struct world *w, uint64_t seed, const char *what)
{
	struct buf text;

	buf_init(&text);
	for (uint32_t pc = 0; pc < w->prog->n_insns; pc++) {
		buf_printf(&text, "%u: ", pc);
		ebpf_insn_text(&w->prog->insns[pc], pc, &text);
		buf_puts(&text, "\n");
		pc += w->prog->insns[pc].code == EBPF_LD_IMM64;
	}
	print_message("program of seed %llu, hook %d:\n%s", (unsigned long long)seed, w->prog->hook,
		      buf_text(&text));
	buf_finish(&text);
	fail_msg("seed %llu: %s", (unsigned long long)seed, what);
}

static void run_inputs(struct world *w, struct rng *r, uint64_t seed, uint64_t proved)
{
	struct ebpf_memory region = { (uintptr_t)w->ctx, sizeof(w->ctx), 1 };
	struct ebpf_checked_run run = {
		.regions = &region,
		.n_regions = 1,
		.r1 = (uintptr_t)w->ctx,
		.fuel = 1000000,
		.observe = compare,
		.observe_arg = w,
		.env = &w->t.env,
	};
	uint8_t constants[64];

	memcpy(constants, w->t.env.maps[2].data, gen_maps[2][0]);
	for (int i = 0; i < INPUTS; i++) {
		uint64_t r0 = 0;
		uint32_t pc = 0;
		char text[320];
		int err;

		fill(r, w->ctx, sizeof(w->ctx));
		for (int k = 0; k < EBPF_REGIONS; k++) {
			fill(r, w->t.mem[k], w->t.bytes[k]);
		}
		memcpy(w->t.env.maps[2].data, constants, gen_maps[2][0]);
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

static void make_world(struct world *w)
{
	test_env_init(&w->t);
	for (unsigned i = 0; i < GEN_MAPS; i++) {
		char name[8];

		snprintf(name, sizeof(name), "m%u", i);
		assert_int_equal(test_env_add(&w->t, name, gen_maps[i][0], gen_maps[i][1],
					      gen_maps[i][2], gen_maps[i][3]),
				 0);
	}
	assert_int_equal(test_env_bind(&w->t), 0);
	w->init[2] = w->t.env.maps[2].data;
}

/* Whether it was accepted. */
static int one_program(struct world *w, uint64_t seed)
{
	struct ebpf_verify_stats pruned, whole;
	static struct ebpf_prog prog;
	static struct gen g;
	struct rng r = { seed * 0x9e3779b97f4a7c15ull + 1 };
	int a, b;

	gen_program(&g, &r, &prog);
	prog.init = seed & 1 ? w->init : NULL;
	w->prog = &prog;
	w->n_seen = 0;
	memset(w->first, 0xff, sizeof(w->first));
	fill(&r, w->t.env.maps[2].data, gen_maps[2][0]);
	a = ebpf_verify_observed(&prog, w->t.defs, GEN_MAPS, 0, NULL, NULL, &pruned, NULL);
	b = ebpf_verify_observed(&prog, w->t.defs, GEN_MAPS, EBPF_VERIFY_NO_PRUNE, remember, w,
				 &whole, NULL);
	if ((a == 0) != (b == 0) && b != -E2BIG) {
		explain(w, seed, "pruning changes the verdict");
	}
	if (a == 0 && b == 0) {
		if (pruned.cost < whole.cost) {
			explain(w, seed, "pruning lowers the cost");
		}
		run_inputs(w, &r, seed, whole.cost);
	}
	return a == 0;
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

static void accepted_programs_are_safe(void **state)
{
	uint64_t n = setting("GBPF_SOUNDNESS_PROGRAMS", PROGRAMS),
		 seed = setting("GBPF_SOUNDNESS_SEED", 1);
	struct world *w = calloc(1, sizeof(*w));
	uint64_t accepted = 0;

	assert_non_null(w);
	make_world(w);
	for (uint64_t i = 0; i < n; i++) {
		accepted += (uint64_t)one_program(w, seed + i);
	}
	test_env_finish(&w->t);
	free(w);
	print_message("%llu of %llu programs accepted\n", (unsigned long long)accepted,
		      (unsigned long long)n);
	assert_true(accepted * 5 >= n); /* otherwise the test says little */
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(accepted_programs_are_safe) };

	return cmocka_run_group_tests_name("verifier soundness", tests, NULL, NULL);
}
