/* Loads, stores and additions of words with lanes in rows, at one address, and scattered, under
 * random guards. Every handler set must match a plain loop and find the first faulting lane. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "engine.h"
#include "soft/server/exec/handlers.h"

#define THREADS 90u /* the last warp is partial */
#define WORDS 256u
#define WARP_WORDS 80u /* separate for each warp, since warps run in any order */
#define ROUNDS 150

static uint64_t seed;

static uint32_t draw(uint32_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)((seed >> 20) % n);
}

/* %s: the access to address %rd5 under %p1, in the words' own space */
static const char frame[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry k(.param .u64 index, .param .u64 guard, .param .u64 io, .param .u64 out)\n"
	"{\n"
	"	.reg .pred %%p<4>;\n	.reg .b32 %%r<12>;\n	.reg .b64 %%rd<24>;\n"
	"	.shared .align 8 .b8 area[2048];\n"
	"	ld.param.u64 %%rd1, [index];\n	ld.param.u64 %%rd2, [guard];\n"
	"	ld.param.u64 %%rd3, [io];\n	ld.param.u64 %%rd4, [out];\n"
	"	mov.u32 %%r1, %%tid.x;\n"
	"	mul.wide.u32 %%rd6, %%r1, 4;\n	mul.wide.u32 %%rd7, %%r1, 8;\n"
	"	add.u64 %%rd8, %%rd1, %%rd6;\n	add.u64 %%rd9, %%rd2, %%rd6;\n"
	"	add.u64 %%rd10, %%rd4, %%rd7;\n"
	"	ld.global.u32 %%r2, [%%rd8];\n	ld.global.u32 %%r3, [%%rd9];\n"
	"	setp.ne.u32 %%p1, %%r3, 0;\n"
	"	mul.wide.s32 %%rd11, %%r2, %u;\n"
	"	mul.lo.u32 %%r4, %%r1, 2654435761;\n	cvt.u64.u32 %%rd12, %%r4;\n"
	"	mov.u32 %%r5, 7;\n	mov.u64 %%rd13, 7;\n"
	"%s\n"
	"	@%%p2 st.global.u64 [%%rd10], %%rd13;\n"
	"	ret;\n}\n";

enum what { LOAD, STORE, ADD, ADD_OLD };
struct shape {
	enum what what;
	unsigned bytes;
	bool shared, generic;
};

static void write_kernel(const struct shape *s, char *text, size_t room)
{
	static const char *const spaces[] = { ".global", ".shared", "", "" };
	const char *space = spaces[s->shared + 2 * s->generic];
	const char *reg = s->bytes == 8 ? "%rd13" : "%r5", *value = s->bytes == 8 ? "%rd12" : "%r4";
	char body[2048], access[256], base[256] = "add.u64 %rd5, %rd3, %rd11;";
	unsigned bits = s->bytes * 8;

	if (s->shared && s->generic) {
		snprintf(base, sizeof(base),
			 "mov.u64 %%rd14, area; cvta.shared.u64 %%rd14, %%rd14; add.u64 %%rd5, "
			 "%%rd14, %%rd11;");
	} else if (s->shared) {
		snprintf(base, sizeof(base),
			 "mov.u64 %%rd14, area; add.u64 %%rd5, %%rd14, %%rd11;");
	}
	if (s->what == LOAD) {
		snprintf(access, sizeof(access), "@%%p1 ld%s.u%u %s, [%%rd5];", space, bits, reg);
	} else if (s->what == STORE) {
		snprintf(access, sizeof(access), "@%%p1 st%s.u%u [%%rd5], %s;", space, bits, value);
	} else if (s->what == ADD) {
		snprintf(access, sizeof(access), "@%%p1 red%s.add.u32 [%%rd5], %s;", space, value);
	} else {
		snprintf(access, sizeof(access), "@%%p1 atom%s.add.u32 %s, [%%rd5], %s;", space,
			 reg, value);
	}
	/* Shared memory is loaded from io and stored back to it. */
	snprintf(body, sizeof(body), "	%s\n	setp.eq.u32 %%p2, 0, 0;\n%s	%s\n%s%s", base,
		 s->shared ? "	mov.u32 %r6, %r1;\nFILL:\n	mul.wide.u32 %rd15, %r6, 8;\n"
			     "	add.u64 %rd16, %rd3, %rd15;\n	ld.global.u64 %rd17, [%rd16];\n"
			     "	mov.u64 %rd18, area;\n	add.u64 %rd18, %rd18, %rd15;\n"
			     "	st.shared.u64 [%rd18], %rd17;\n	add.u32 %r6, %r6, 90;\n"
			     "	setp.lt.u32 %p3, %r6, 256;\n	@%p3 bra FILL;\n	bar.sync "
			     "0;\n"
			   : "",
		 access,
		 s->shared ? "	bar.sync 0;\n	mov.u32 %r6, %r1;\nBACK:\n"
			     "	mul.wide.u32 %rd15, %r6, 8;\n	add.u64 %rd16, %rd3, %rd15;\n"
			     "	mov.u64 %rd18, area;\n	add.u64 %rd18, %rd18, %rd15;\n"
			     "	ld.shared.u64 %rd17, [%rd18];\n	st.global.u64 [%rd16], %rd17;\n"
			     "	add.u32 %r6, %r6, 90;\n	setp.lt.u32 %p3, %r6, 256;\n"
			     "	@%p3 bra BACK;\n"
			   : "",
		 s->bytes == 4 ? "	cvt.u64.u32 %rd13, %r5;\n" : "");
	snprintf(text, room, frame, s->bytes, body);
}

/* Draws each half of a warp separately. */
static void draw_lanes(int32_t *index, uint32_t *guard)
{
	bool whole = draw(3) == 0;
	uint32_t kind = draw(4), at = draw(WARP_WORDS - 33), dense = draw(4);

	for (uint32_t t = 0; t < THREADS; t++) {
		if (t % (whole ? 32 : 16) == 0) {
			kind = draw(4);
			at = draw(WARP_WORDS - 33);
			dense = draw(4);
		}
		index[t] = (int32_t)(kind == 0	 ? at
				     : kind == 1 ? at + t % 32
				     : kind == 2 ? draw(WARP_WORDS)
						 : at + t % 32 + (draw(20) == 0)) +
			   (int32_t)(t / 32 * WARP_WORDS);
		guard[t] = dense == 0 || (dense == 1   ? draw(2)
					  : dense == 2 ? draw(16) == 0
						       : t % 5);
	}
}

struct memory {
	int32_t *index;
	uint32_t *guard;
	uint8_t *io;
	uint64_t *out;
};

static void expect(const struct shape *s, const struct memory *m, uint8_t *io, uint64_t *out)
{
	for (uint32_t t = 0; t < THREADS; t++) {
		uint64_t v = t * 2654435761u & 0xffffffff, old = 0;
		uint8_t *p = io + m->index[t] * (int64_t)s->bytes;

		out[t] = 7;
		if (!m->guard[t]) {
			continue;
		}
		memcpy(&old, p, s->bytes);
		if (s->what == STORE) {
			memcpy(p, &v, s->bytes);
		} else if (s->what != LOAD) {
			v += old;
			memcpy(p, &v, 4);
		}
		if (s->what == LOAD || s->what == ADD_OLD) {
			out[t] = old;
		}
	}
}

static void run_rounds(struct engine *e, const struct shape *s, struct memory *m,
		       const uint64_t params[4])
{
	const struct engine_launch l = {
		.grid = { 1, 1, 1 }, .block = { THREADS, 1, 1 }, .params = params, .limit = 1000000
	};
	uint8_t io[WORDS * 8];
	uint64_t out[THREADS];

	for (int i = 0; i < ROUNDS; i++) {
		enum exec_status status;

		draw_lanes(m->index, m->guard);
		for (uint32_t k = 0; k < WORDS * 8; k++) {
			m->io[k] = io[k] = (uint8_t)draw(256);
		}
		expect(s, m, io, out);
		status = engine_run(e, &l);
		if (status != EXEC_DONE || memcmp(out, m->out, sizeof(out)) != 0 ||
		    memcmp(io, m->io, sizeof(io)) != 0) {
			fail_msg("what %d, %u bytes, shared %d, generic %d, round %d: status %d",
				 s->what, s->bytes, s->shared, s->generic, i, status);
		}
	}
}

/* One or several lanes reach past the words' page. */
static void run_faults(struct engine *e, const struct shape *s, struct memory *m,
		       const uint64_t params[4])
{
	const struct engine_launch l = {
		.grid = { 1, 1, 1 }, .block = { THREADS, 1, 1 }, .params = params, .limit = 1000000
	};

	for (int i = 0; i < ROUNDS && !s->shared; i++) {
		uint32_t wrong = UINT32_MAX, n = 1 + draw(3);

		draw_lanes(m->index, m->guard);
		while (n-- > 0) {
			uint32_t t = draw(THREADS);

			m->guard[t] = 1;
			m->index[t] = 4096 + (int32_t)draw(4096);
			wrong = MIN(wrong, t);
		}
		assert_int_equal(engine_run(e, &l), EXEC_FAULT_ADDRESS);
		assert_int_equal(e->fault.thread, wrong);
		assert_int_equal(e->fault.address,
				 params[2] + (uint64_t)m->index[wrong] * s->bytes);
	}
}

static void one_shape(const struct shape *s)
{
	struct engine *e = malloc(sizeof(*e));
	struct memory m;
	char text[8192], message[512] = "";
	uint64_t params[4];

	assert_non_null(e);
	engine_init(e);
	write_kernel(s, text, sizeof(text));
	if (engine_load(e, text, strlen(text), "words", message, sizeof(message)) < 0) {
		fail_msg("%s\n%s", message, text);
	}
	m.index = engine_take(e, THREADS * 4, &params[0]);
	m.guard = engine_take(e, THREADS * 4, &params[1]);
	m.io = engine_take(e, WORDS * 8, &params[2]);
	m.out = engine_take(e, THREADS * 8, &params[3]);
	run_rounds(e, s, &m, params);
	run_faults(e, s, &m, params);
	engine_finish(e);
	free(e);
}

static void words_are_where_lanes_stand(void **state)
{
	const struct exec_handlers *sets[EXEC_HANDLER_SETS];
	unsigned n = exec_handlers_sets(sets);

	for (unsigned k = 0; k < n; k++) {
		seed = 0x9e3779b97f4a7c15;
		exec_handlers_force(sets[k]);
		for (unsigned i = 0; i < 32; i++) {
			struct shape s = { .what = i & 3,
					   .bytes = i & 4 ? 8 : 4,
					   .shared = i & 8,
					   .generic = i & 16 };

			if (s.bytes == 4 || s.what < ADD) {
				one_shape(&s);
			}
		}
	}
	exec_handlers_force(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_are_where_lanes_stand),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
