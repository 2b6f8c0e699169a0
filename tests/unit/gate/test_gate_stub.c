/* The entry stub's PTX, executed access by access together with the model: random orders of blocks
 * and of what leases and host do. After each access the words in memory must be the model's, and a
 * block must leave, run, or come to the access that the model expects.
 *
 * The text is executed as it is, with a store before each access to global memory that says which
 * one follows, and a body.
 *
 * GBPF_LONG: more walks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../exec/engine.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "model.h"
#include "ptx/block_gate.h"

/* What is added to the model's small numbers: tickets and the gate wrap and carry. */
#define TICKETS UINT32_C(0xfffffffe)
#define GATE UINT64_C(0x2fffffffd)
#define THREADS_MAX 64u

/* What a block does next. */
enum next {
	NEXT_NONE,
	GATE_MAX,
	LOAD_READY,
	LOAD_LEASE,
	GATE_LOAD,
	GATE_OR,
	COUNTER_CAS,
	STORE_READY,
	STORE_DONE,
	BODY,
	N_NEXT
};

static const struct {
	const char *text; /* of the access; the first that fits */
	enum next next;
} accesses[] = {
	{ "atom.global.max.u64", GATE_MAX },	       { "atom.global.or.b64", GATE_OR },
	{ "atom.global.cas.b32", COUNTER_CAS },	       { "ld.volatile.global.u64", GATE_LOAD },
	{ "ld.volatile.global.v4.u32", LOAD_LEASE },   { "ld.volatile.global.u32", LOAD_READY },
	{ "st.volatile.global.u32 [%l", STORE_READY }, { "st.volatile.global.u32 [%m", STORE_DONE },
};

struct line {
	uint8_t *host;
	uint64_t address;
};

struct stub_stream {
	uint8_t launch, line, number; /* the key of what runs */
	struct exec_launch exec;
	uint8_t params[PTX_GATE_PAD_A + sizeof(struct ptx_gate_arg)];
	struct exec_block *block[MODEL_BLOCKS];
	bool live[MODEL_BLOCKS], ran[MODEL_BLOCKS];
};

struct walk {
	struct engine *e;
	struct model m;
	struct model_state s;
	struct line line[2];
	uint32_t *leases, *done[2], *marks;
	uint64_t leases_address, done_address[2], marks_address;
	struct stub_stream stream[2];
	uint64_t random, seed;
	unsigned threads;
	const char *differs;
};

static uint64_t n_accesses[N_NEXT], n_left;

static uint32_t pick(struct walk *w, uint32_t n)
{
	w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(w->random >> 33) % n;
}

/* ---- the text ---- */

static void add_line(struct buf *out, const char *line, size_t n)
{
	const char *at = line[0] == '@' ? strchr(line, ' ') + 1 : line;

	for (size_t i = 0; i < ARRAY_SIZE(accesses); i++) {
		if (strncmp(at, accesses[i].text, strlen(accesses[i].text)) == 0) {
			buf_add(out, line, (size_t)(at - line));
			buf_printf(out, "st.volatile.global.u32 [%%mark], %u;\n",
				   (unsigned)accesses[i].next);
			buf_add(out, line, n);
			return;
		}
	}
	if (strncmp(at, "pmevent", 7) == 0) {
		buf_printf(out,
			   "st.volatile.global.u32 [%%mark], %u;\n"
			   "atom.global.add.u32 %%at, [%%mark+4], 1;\n",
			   (unsigned)BODY);
		return;
	}
	if (memmem(line, n, ".global", 7)) {
		fail_msg("unknown access: %.*s", (int)n, line);
	}
	buf_add(out, line, n);
}

static void instrument(struct buf *out, unsigned arch)
{
	static const char begin[] = ".reg .b64 %mark;\n"
				    ".reg .b32 %at, %width;\n"
				    "mov.u32 %at, %ctaid.y;\n"
				    "mov.u32 %width, %nctaid.x;\n"
				    "mul.lo.u32 %at, %at, %width;\n"
				    "mov.u32 %width, %ctaid.x;\n"
				    "add.u32 %at, %at, %width;\n"
				    "ld.param.u64 %mark, [pad];\n"
				    "mad.wide.u32 %mark, %at, 8, %mark;\n";
	struct buf stub;
	bool begun = false;

	buf_init(&stub);
	assert_int_equal(ptx_gate_stub(&stub, arch, PTX_GATE_PAD_A), 0);
	for (const char *at = buf_text(&stub); *at;) {
		size_t n = strcspn(at, "\n") + 1;

		add_line(out, at, n);
		if (!begun && strncmp(at, "{\n", 2) == 0) {
			buf_puts(out, begin);
			begun = true;
		}
		at += n;
	}
	buf_finish(&stub);
}

/* ---- words ---- */

static uint32_t *word(struct walk *w, unsigned line, uint32_t offset)
{
	return (uint32_t *)(void *)(w->line[line].host + offset);
}

static uint64_t gate_word(const struct model_line *l)
{
	return (GATE + l->gate) | (l->closed ? PTX_GATE_CLOSED : 0);
}

static void store_words(struct walk *w)
{
	for (unsigned i = 0; i < 2; i++) {
		const struct model_line *l = &w->s.line[i];
		uint64_t gate = gate_word(l);

		*word(w, i, 0) = TICKETS + (uint32_t)l->counter;
		*word(w, i, PTX_BLOCK_READY) = TICKETS + (uint32_t)l->ready;
		memcpy(word(w, i, PTX_GATE_WORD), &gate, sizeof(gate));
		*w->done[i] = l->done;
	}
	memset(w->leases, 0, 4 * sizeof(*w->leases));
	w->leases[pick(w, 4)] =
		w->s.lease ? (uint32_t)(clock_wall_ns() >> PTX_LEASE_SHIFT) + 10000 : 0;
}

static void compare_words(struct walk *w)
{
	for (unsigned i = 0; i < 2; i++) {
		const struct model_line *l = &w->s.line[i];
		uint64_t gate = gate_word(l);

		if (memcmp(word(w, i, PTX_GATE_WORD), &gate, sizeof(gate)) != 0) {
			w->differs = "the gate";
		} else if (*word(w, i, 0) != TICKETS + (uint32_t)l->counter) {
			w->differs = "the counter";
		} else if (*word(w, i, PTX_BLOCK_READY) != TICKETS + (uint32_t)l->ready) {
			w->differs = "the progress word";
		} else if (*w->done[i] != l->done) {
			w->differs = "the number";
		}
	}
}

/* ---- blocks ---- */

static enum next next_of(const struct walk *w, unsigned stream, unsigned block)
{
	return w->stream[stream].live[block]
		       ? (enum next)w->marks[2 * (MODEL_BLOCKS * stream + block)]
		       : NEXT_NONE;
}

/* Makes the access that the block has come to, if any, and runs it up to the next one. */
static void advance(struct walk *w, unsigned stream, unsigned block)
{
	struct stub_stream *x = &w->stream[stream];
	uint32_t *mark = &w->marks[2 * (MODEL_BLOCKS * stream + block)];
	enum exec_status status = EXEC_BUDGET;
	uint64_t used;

	n_accesses[*mark]++;
	*mark = NEXT_NONE;
	while (status == EXEC_BUDGET && *mark == NEXT_NONE) {
		status = exec_block_run(x->block[block], 1, &used, &w->e->fault);
		assert_true(used <= 1);
	}
	if (*mark == BODY) {
		x->ran[block] = true;
		while (status == EXEC_BUDGET) {
			status = exec_block_run(x->block[block], UINT64_MAX, &used, &w->e->fault);
		}
		if (mark[1] != w->threads) {
			w->differs = "the threads of a block";
		}
	}
	if (status != EXEC_BUDGET) {
		assert_int_equal(status, EXEC_DONE);
		x->live[block] = false;
		n_left += !x->ran[block];
	}
}

static void end_stream(struct walk *w, unsigned stream)
{
	struct stub_stream *x = &w->stream[stream];

	for (unsigned i = 0; i < MODEL_BLOCKS; i++) {
		if (x->live[i]) {
			w->differs = "a block that should have left or run";
		}
		exec_block_destroy(x->block[i]);
		x->block[i] = NULL;
		x->live[i] = x->ran[i] = false;
	}
	x->launch = MODEL_NONE;
}

static void begin_stream(struct walk *w, unsigned stream)
{
	const struct model_stream *from = &w->s.stream[stream];
	const struct model_plan *p = &w->m.scenario->launch[from->launch];
	struct stub_stream *x = &w->stream[stream];
	int first = model_first(&w->m, from->launch);
	uint64_t marks = w->marks_address + stream * MODEL_BLOCKS * 8;
	struct ptx_gate_arg arg = {
		.leases = w->leases_address,
		.gate = w->line[from->line].address + PTX_GATE_WORD,
		.done = w->done_address[from->line],
		.first = TICKETS + (uint32_t)first,
		.end = TICKETS + (uint32_t)model_first(&w->m, from->launch + 1u),
		.number = from->number,
		.groups = from->groups,
		.base = GATE + from->base,
		.from = from->from,
		.wave = p->wave,
		.ask = from->ask,
	};

	memcpy(x->params, &marks, sizeof(marks));
	memcpy(x->params + PTX_GATE_PAD_A, &arg, sizeof(arg));
	x->exec = (struct exec_launch){ .function =
						exec_module_function(w->e->module, PTX_GATE_ENTRY),
					.grid = { p->blocks, 1, 1 },
					.block = { w->threads, 1, 1 },
					.params = x->params,
					.space = &w->e->space,
					.sm_count = 4 };
	if (p->blocks == 4 && pick(w, 2)) {
		x->exec.grid[0] = x->exec.grid[1] = 2;
	}
	memset(&w->marks[2 * MODEL_BLOCKS * stream], 0, 8 * MODEL_BLOCKS);
	for (unsigned i = 0; i < p->blocks; i++) {
		x->block[i] = exec_block_create(&x->exec);
		assert_non_null(x->block[i]);
		exec_block_reset(x->block[i], i, 0);
		x->live[i] = true;
		advance(w, stream, i);
	}
}

/* Begins and ends launches as the model has. */
static void follow_streams(struct walk *w)
{
	for (unsigned i = 0; i < 2; i++) {
		const struct model_stream *from = &w->s.stream[i];
		struct stub_stream *x = &w->stream[i];

		if (x->launch == from->launch && x->line == from->line &&
		    x->number == from->number) {
			continue;
		}
		if (x->launch != MODEL_NONE) {
			end_stream(w, i);
		}
		if (from->launch != MODEL_NONE && !w->m.scenario->launch[from->launch].clone) {
			x->launch = from->launch;
			x->line = from->line;
			x->number = from->number;
			begin_stream(w, i);
		}
	}
}

/* ---- a walk ---- */

/* Returns the model's step for the access that the block has come to. */
static unsigned step_of(const struct walk *w, unsigned stream, unsigned block)
{
	static const struct {
		enum model_at at;
		unsigned access;
	} expected[N_NEXT] = {
		[GATE_MAX] = { AT_RAISE, 2 },	 [LOAD_READY] = { AT_ASK, 1 },
		[LOAD_LEASE] = { AT_ASK, 0 },	 [GATE_LOAD] = { AT_LOOK, 0 },
		[GATE_OR] = { AT_CLOSE, 0 },	 [COUNTER_CAS] = { AT_COUNTER, 0 },
		[STORE_READY] = { AT_READY, 0 }, [STORE_DONE] = { AT_DONE, 0 },
	};
	const struct model_block *b = &w->s.stream[stream].block[block];
	enum next next = next_of(w, stream, block);
	unsigned access = expected[next].access;

	if (next == GATE_MAX && b->at == AT_RAISE) {
		access = 0;
	} else if (b->at != expected[next].at && !(next == GATE_MAX && b->at == AT_ASK)) {
		return MODEL_STEPS;
	}
	return stream << 4 | block << 2 | access;
}

/* The model does not count loads whose result changes nothing. */
static bool is_load(enum next next)
{
	return next == LOAD_READY || next == LOAD_LEASE;
}

static void step_block(struct walk *w, unsigned stream, unsigned block)
{
	struct model_state before = w->s;
	uint8_t launch = w->stream[stream].launch;
	bool ran = w->s.launch[launch].begun >> block & 1;
	unsigned step = step_of(w, stream, block);
	bool made = step < MODEL_STEPS && model_step(&w->m, &w->s, step);

	if (!made && !is_load(next_of(w, stream, block))) {
		w->differs = "the next access";
		return;
	}
	advance(w, stream, block);
	if (!made) {
		w->s = before;
	}
	while (!w->differs && is_load(next_of(w, stream, block))) {
		struct model_state s = w->s;

		step = step_of(w, stream, block);
		if (step < MODEL_STEPS && w->s.stream[stream].launch == launch &&
		    model_step(&w->m, &s, step)) {
			break; /* it counts */
		}
		advance(w, stream, block);
	}
	compare_words(w);
	if ((w->s.launch[launch].begun >> block & 1) != (ran || w->stream[stream].ran[block])) {
		w->differs = "whether a block runs";
	}
	follow_streams(w);
}

static void step_anything(struct walk *w)
{
	unsigned which = pick(w, MODEL_STEPS + 8), stream = which >> 4 & 1, block = which >> 2 & 3;

	if (which >= MODEL_STEPS) {
		which = MODEL_STEP_LEASE + 1 + which % MODEL_HOST_CHOICES;
	}
	if (which < 32 && w->stream[stream].launch != MODEL_NONE) {
		if (w->stream[stream].live[block]) {
			step_block(w, stream, block);
			return;
		}
		if (w->s.stream[stream].block[block].at != AT_BODY) {
			return;
		}
	}
	if (which == MODEL_STEP_LEASE && pick(w, 4)) {
		return;
	}
	w->m.stands = false;
	if (model_step(&w->m, &w->s, which)) {
		store_words(w);
		follow_streams(w);
	}
}

static struct model_plan any_launch(struct walk *w)
{
	struct model_plan p = { .blocks = (uint8_t)(1 + pick(w, MODEL_BLOCKS)), .cluster = 1 };

	p.wave = (uint8_t)pick(w, p.blocks + 1u);
	p.clone = pick(w, 4) == 0;
	return p;
}

/* Returns what differs, or NULL. */
static const char *walk(struct engine *e, struct walk *w, uint64_t seed, enum model_fault fault)
{
	struct model_scenario sc = { .name = "random", .rises = 4 };

	w->random = seed * UINT64_C(0x9e3779b97f4a7c15);
	w->e = e;
	w->threads = pick(w, 4) ? 1 : 33 + pick(w, THREADS_MAX - 33);
	w->differs = NULL;
	sc.launch[0] = any_launch(w);
	if (pick(w, 2)) {
		sc.launch[1] = any_launch(w);
		sc.reuse = pick(w, 4) == 0;
		sc.late = pick(w, 2);
	}
	sc.takes = sc.reuse ? 0 : (uint8_t)pick(w, 2);
	sc.ask = (uint8_t)pick(w, 3);
	w->m = (struct model){ .scenario = &sc, .fault = fault };
	model_begin(&w->m, &w->s);
	w->stream[0].launch = w->stream[1].launch = MODEL_NONE;
	store_words(w);
	for (unsigned i = 0; i < 20000 && w->s.host.phase != HOST_ENDED; i++) {
		step_anything(w);
		if (w->differs || w->m.violation) {
			break;
		}
	}
	if (!w->differs && w->s.host.phase != HOST_ENDED) {
		w->differs = w->m.violation ? w->m.violation : "it does not end";
	}
	for (unsigned i = 0; i < 2; i++) {
		const char *differs = w->differs;

		end_stream(w, i);
		w->differs = differs;
	}
	return w->differs;
}

static void set_up(struct engine *e, struct walk *w, unsigned arch)
{
	struct buf text;
	char message[512] = "";

	memset(w, 0, sizeof(*w));
	engine_init(e);
	buf_init(&text);
	instrument(&text, arch);
	if (engine_load(e, buf_text(&text), text.len, "stub", message, sizeof(message)) < 0) {
		fail_msg("%s\n%s", message, buf_text(&text));
	}
	buf_finish(&text);
	for (unsigned i = 0; i < 2; i++) {
		w->line[i].host =
			engine_take(e, PTX_GATE_WORD + sizeof(uint64_t), &w->line[i].address);
		w->done[i] = engine_take(e, sizeof(uint32_t), &w->done_address[i]);
	}
	w->leases = engine_take(e, 4 * sizeof(uint32_t), &w->leases_address);
	w->marks = engine_take(e, 2 * MODEL_BLOCKS * 8, &w->marks_address);
}

static void walks(unsigned arch)
{
	unsigned n = getenv("GBPF_LONG") ? 1000000 : 20000;
	struct engine e;
	struct walk w;

	set_up(&e, &w, arch);
	for (unsigned seed = 1; seed <= n; seed++) {
		const char *differs = walk(&e, &w, seed, FAULT_NONE);

		if (differs) {
			fail_msg("walk %u: %s", seed, differs);
		}
	}
	engine_finish(&e);
}

static void the_stub_does_what_the_model_does(void **state)
{
	walks(80);
	for (unsigned i = GATE_MAX; i < N_NEXT - 1; i++) {
		print_message("access %u: %llu times\n", i, (unsigned long long)n_accesses[i]);
		assert_true(n_accesses[i] > 100);
	}
	assert_true(n_left > 1000);
}

static void so_does_the_stub_with_clusters(void **state)
{
	walks(90);
}

/* If a rule in the model is another one than in the text, the two differ. */
static void another_rule_is_noticed(void **state)
{
	static const enum model_fault faults[] = {
		FAULT_CLOSED_LEAVES, FAULT_NO_CLOSE,	     FAULT_CLOSER_RUNS,
		FAULT_BOUND_MOVES,   FAULT_OR_FOR_MAX,	     FAULT_NO_READY,
		FAULT_COUNTER_STAYS, FAULT_FIRST_PUBLISHES,  FAULT_DONE_FIRST,
		FAULT_PUBLISH_TAKEN, FAULT_ASK_IGNORES_GATE,
	};
	struct engine e;
	struct walk w;

	set_up(&e, &w, 80);
	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		const char *differs = NULL;
		unsigned seed = 0;

		while (!differs && seed < 30000) {
			differs = walk(&e, &w, ++seed, faults[i]);
		}
		if (!differs) {
			fail_msg("not noticed: %s", model_fault_names[faults[i]]);
		}
		print_message("%s: %s, in walk %u\n", model_fault_names[faults[i]],
			      differs ? differs : "", seed);
	}
	engine_finish(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_stub_does_what_the_model_does),
		cmocka_unit_test(so_does_the_stub_with_clusters),
		cmocka_unit_test(another_rule_is_noticed),
	};

	return cmocka_run_group_tests_name("the gate's stub", tests, NULL, NULL);
}
