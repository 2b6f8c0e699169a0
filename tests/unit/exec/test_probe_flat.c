/* Short programs whose branches become predicates do what they do with branches: random programs
 * with forward branches, run both ways by elected and by all lanes, leave the same memory. So do
 * programs whose leading test is made in front of the election. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "engine.h"
#include "ptx/probe.h"

#define HEAD ".version 8.0\n.target sm_90\n.address_size 64\n"
/* Some lanes leave first, so that programs of exits run in two groups. */
#define KERNEL                                                                                     \
	".visible .entry k(.param .u64 b)\n{\n.reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %d<4>;" \
	"\nld.param.u64 %d1, [b];\nmov.u32 %r0, %tid.x;\nsetp.lt.u32 %p1, %r0, 5;\n"               \
	"@%p1 bra L;\nst.global.u32 [%d1], 7;\nL: ret;\n}\n"
enum { BLOCKS = 3, THREADS = 64, SLOT = 64, LABELS = 4, REGISTERS = 5, PROGRAMS = 300 };
enum { ENTER = 32, EXIT = 33, BLOCK_ENTER = 34 };
enum { FIELD_BLOCK = 3, FIELD_THREAD = 13 };

#define BUFFER ((size_t)BLOCKS * THREADS * SLOT + 64)

static uint32_t seed;

static uint32_t below(uint32_t n)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % n;
}

static void statement(struct buf *out, unsigned next_label, bool elected)
{
	static const char *const ops[] = { "add.s64", "xor.b64", "mul.lo.s64", "sub.s64" };
	unsigned a = below(REGISTERS), b = below(REGISTERS), c = below(REGISTERS), p = below(2);
	const char *not = below(2) ? "!" : "";

	switch (below(elected ? 10 : 9)) {
	case 0:
	case 1:
		buf_printf(out, "%s %%r%u, %%r%u, %%r%u;\n", ops[below(4)], a, b, c);
		break;
	case 2:
		buf_printf(out, "@%s%%p%u mov.b64 %%r%u, %u;\n", not, p, a, below(9));
		break;
	case 3:
		buf_printf(out, "setp.gt.u64 %%p%u, %%r%u, %%r%u;\n", p, a, b);
		break;
	case 4:
		buf_printf(out, "@%s%%p%u st.u64 [%%at+%u], %%r%u;\n", not, p, 8 * below(8), a);
		break;
	case 5:
		buf_printf(out, "red.add.u64 [%%at+%u], %%r%u;\n", 8 * below(8), a);
		break;
	case 6:
		buf_printf(out, "@%s%%p%u ret;\n", not, p);
		break;
	case 9:
		buf_printf(out, "bra $L%u;\n", next_label + below(LABELS - next_label));
		break;
	default:
		buf_printf(out, "@%s%%p%u bra $L%u;\n", not, p,
			   next_label + below(LABELS - next_label));
	}
}

/* Programs leave out some blocks at once, in one of three ways. */
static const char *const early[] = { "", "@%p0 ret;\n", "@%p0 bra $OUT;\n",
				     "@!%p0 bra $IN;\nmov.b64 %r3, 1;\nret;\n$IN:\n" };
#define TEST "setp.eq.s64 %p0, %r2, 1;\n"

/* Each lane that runs it has a slot of its own. */
static void program(struct buf *out, bool elected, unsigned way)
{
	buf_clear(out);
	buf_puts(out,
		 ".func g_f0 (.param .b64 env, .param .b64 map0, .param .b64 block, .param "
		 ".b32 thread)\n{\n.reg .b64 %r<5>, %at, %base; .reg .b32 %w; .reg .pred "
		 "%p<2>;\nld.param.b64 %base, [map0];\nld.param.b64 %r0, [block];\n"
		 "ld.param.b32 %w, [thread];\ncvt.u64.u32 %r1, %w;\nand.b64 %r2, %r0, 1;\n" TEST);
	buf_puts(out, early[way]);
	buf_puts(out, "mad.lo.s64 %at, %r0, 64, %r1;\nmad.lo.s64 %at, %at, 64, %base;\n"
		      "and.b64 %r2, %r1, 3;\nmov.b64 %r3, 5;\nsub.s64 %r4, %r2, 1;\n"
		      "setp.gt.u64 %p0, %r2, 1;\nsetp.eq.u64 %p1, %r0, %r2;\n");
	for (unsigned label = 0; label < LABELS; label++) {
		for (unsigned n = 1 + below(3); n > 0; n--) {
			statement(out, label, elected);
		}
		buf_printf(out, "$L%u:\n", label);
	}
	for (unsigned r = 0; r < REGISTERS; r += 2) {
		buf_printf(out, "red.add.u64 [%%at+%u], %%r%u;\n", 8 * r, r);
	}
	buf_puts(out, "$OUT:\nret;\n}\n");
}

struct found {
	bool flat;  /* it has no branches there */
	bool early; /* the site makes the leading test, too */
};

/* Runs the form and copies the memory. */
static struct found run(const struct ptx_probe *from, enum ptx_probe_branches branches,
			uint8_t *ret)
{
	struct engine_launch l = { .grid = { BLOCKS, 1, 1 },
				   .block = { THREADS, 1, 1 },
				   .limit = 1000000 };
	uint64_t at[PTX_PROBE_MAPS_MAX] = { 0 }, buffer;
	struct ptx_probe probe = *from;
	struct ptx_probed form;
	struct ptx_module *m = NULL;
	char message[512] = "";
	struct report r;
	struct engine e;
	uint8_t *memory;
	const char *test;
	struct found found;

	report_init(&r);
	engine_init(&e);
	memory = engine_take(&e, BUFFER, &buffer);
	at[0] = buffer + 64;
	probe.map_at = at;
	probe.text_max = UINT32_MAX;
	probe.branches = branches;
	assert_int_equal(ptx_module_parse(&m, HEAD KERNEL, strlen(HEAD KERNEL), "k", &r), 0);
	if (ptx_probe_rewrite(m, "k", &probe, 1, &form, &r) < 0) {
		fail_msg("%s\n%s", buf_text(&r.message), probe.text);
	}
	if (engine_load(&e, form.text.data, form.text.len, "k", message, sizeof(message)) < 0) {
		fail_msg("%s\n%s", message, buf_text(&form.text));
	}
	l.params = &buffer;
	if (engine_run(&e, &l) != EXEC_DONE) {
		fail_msg("%s\n%s", e.fault.what ? e.fault.what : "hangs", buf_text(&form.text));
	}
	memcpy(ret, memory, BUFFER);
	found.flat = !strstr(buf_text(&form.text), "$probe0_end");
	test = strstr(buf_text(&form.text), TEST);
	found.early = test && strstr(test + 1, TEST);
	engine_finish(&e);
	ptx_probed_finish(&form);
	ptx_module_free(m);
	report_finish(&r);
	return found;
}

static void predicates_do_what_branches_do(void **state)
{
	static const struct {
		uint32_t hook;
		bool lanes;
	} kinds[] = { { ENTER, false },
		      { EXIT, false },
		      { BLOCK_ENTER, false },
		      { ENTER, true },
		      { EXIT, true } };
	static uint8_t with[BUFFER], without[BUFFER];
	unsigned n_flat = 0, n_early = 0;
	struct buf text;

	(void)state;
	buf_init(&text);
	for (unsigned i = 0; i < PROGRAMS; i++) {
		struct ptx_probe probe = { .hook = kinds[i % ARRAY_SIZE(kinds)].hook,
					   .lanes = kinds[i % ARRAY_SIZE(kinds)].lanes,
					   .fields = 1u << FIELD_BLOCK | 1u << FIELD_THREAD,
					   .name = "g" };

		unsigned way = i / ARRAY_SIZE(kinds) % ARRAY_SIZE(early);
		bool first = way && probe.hook != BLOCK_ENTER;
		struct found found;

		seed = i;
		program(&text, !probe.lanes, way);
		probe.text = buf_text(&text);
		found = run(&probe, PTX_PROBE_BRANCHES, with);
		assert_false(found.flat);
		assert_int_equal(found.early, first);
		found = run(&probe, PTX_PROBE_EITHER, without);
		assert_int_equal(found.early, first);
		if (memcmp(with, without, BUFFER) != 0) {
			fail_msg("program %u:\n%s", i, probe.text);
		}
		n_early += found.early;
		found = run(&probe, PTX_PROBE_PREDICATES, without);
		assert_true(!found.flat || !found.early);
		n_flat += found.flat;
		if (memcmp(with, without, BUFFER) != 0) {
			fail_msg("program %u:\n%s", i, probe.text);
		}
	}
	assert_in_range(n_flat, PROGRAMS / 2, PROGRAMS);
	assert_int_equal(n_early, PROGRAMS * 3 / 5);
	buf_finish(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(predicates_do_what_branches_do),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
