/* Accesses whose programs run at a site in front of them add to maps what they would add at their
 * own: random kernels with accesses through a few registers leave the same sums in both forms. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "engine.h"
#include "ptx/probe.h"

enum { ACCESS = 38, THREADS = 64, KERNELS = 300 };
enum { FIELD_LANES = 21, FIELD_OP = 28, FIELD_SECTORS, FIELD_STRIDE, FIELD_CONFLICTS };

/* Words of the map: by lanes and sectors, by stride and conflicts, by kind. */
enum { SHAPES = 33 * 33, PATTERNS = 4 * 32, KINDS = 8, WORDS = SHAPES + PATTERNS + KINDS };
#define CHAIN ((size_t)8192) /* words that hold the address of the next but two */
#define DATA ((size_t)16384)
#define BUFFER ((size_t)65536)

/* Each access is counted once, with what its lanes have collected. */
static const char program[] =
	".func g_f0 (.param .b64 env, .param .b64 %s, .param .b32 lanes, .param .b32 op, "
	".param .b32 sectors, .param .b32 stride, .param .b32 conflicts)\n{\n"
	".reg .b64 %%base, %%at; .reg .b32 %%l, %%w, %%v;\nld.param.b64 %%base, [%s];\n"
	"ld.param.b32 %%l, [lanes];\nld.param.b32 %%w, [sectors];\nmad.lo.u32 %%v, %%l, 33, %%w;\n"
	"mad.wide.u32 %%at, %%v, 8, %%base;\nred.add.u64 [%%at], 1;\n"
	"ld.param.b32 %%w, [stride];\nshl.b32 %%w, %%w, 5;\nld.param.b32 %%v, [conflicts];\n"
	"add.u32 %%w, %%w, %%v;\nadd.u32 %%w, %%w, 1089;\nmad.wide.u32 %%at, %%w, 8, %%base;\n"
	"cvt.u64.u32 %%base, %%l;\nred.add.u64 [%%at], %%base;\nld.param.b64 %%base, [%s];\n"
	"ld.param.b32 %%w, [op];\nadd.u32 %%w, %%w, 1217;\nmad.wide.u32 %%at, %%w, 8, %%base;\n"
	"ld.param.b32 %%v, [sectors];\ncvt.u64.u32 %%base, %%v;\nred.add.u64 [%%at], %%base;\n"
	"ret;\n}\n";

static uint32_t seed;
static bool bytes_only; /* in this kernel, so that addresses need no alignment */

static uint32_t below(uint32_t n)
{
	seed = seed * 1664525u + 1013904223u;
	return (seed >> 8) % n;
}

/* ---- kernels ---- */

/* %d1: the data, %d2: of this thread, %d3: in the chain; %r2: in shared memory. %p2 is that of a
 * warp: lanes that a guard has parted may come together again at different sites in both forms. */
static const char head[] =
	".version 8.0\n.target %s\n.address_size 64\n.shared .align 128 .b8 s[16384];\n"
	".visible .entry k(.param .u64 b)\n{\n.reg .pred %%p<4>; .reg .b32 %%r<9>; .reg .b64 "
	"%%d<6>;\nld.param.u64 %%d1, [b];\nmov.u32 %%r0, %%tid.x;\nadd.s64 %%d3, %%d1, 8192;\n"
	"add.s64 %%d1, %%d1, 16384;\nmad.wide.u32 %%d2, %%r0, %u, %%d1;\nmov.u32 %%r7, s;\n"
	"mad.lo.u32 %%r2, %%r0, %u, %%r7;\nsetp.lt.u32 %%p1, %%r0, %u;\n"
	"shr.u32 %%r6, %%r0, 5;\nsetp.eq.u32 %%p2, %%r6, %u;\nmov.u32 %%r6, 0;\n";

static void statement(struct buf *out)
{
	static const char *const bases[][2] = {
		{ "global", "%d1" }, { "global", "%d2" }, { "shared", "%r2" }, { "shared", "s" }
	};
	unsigned base = below(ARRAY_SIZE(bases));
	bool byte = bytes_only || below(4) == 0;
	unsigned offset = below(3) ? 32 * below(8) : below(64);
	const char *type = byte ? "u8" : "u32";

	offset = byte ? offset : offset & ~3u;
	switch (below(12)) {
	case 0:
		buf_puts(out, "add.s64 %d2, %d2, 4;\n");
		break;
	case 1:
		buf_puts(out, "mov.u32 %r2, %r7;\n");
		break;
	case 2:
		buf_puts(out, "ld.global.u64 %d3, [%d3+8];\n");
		break;
	case 3:
		buf_puts(out, "ld.global.u64 %d4, [%d3+16];\n");
		break;
	case 4:
		buf_puts(out, "@%p2 ");
		/* fallthrough */
	case 5:
	case 6:
		buf_printf(out, "st.%s.%s [%s+%u], %%r0;\n", bases[base][0], type, bases[base][1],
			   offset);
		break;
	default:
		buf_printf(out, "ld.%s.%s %%r5, [%s+%u];\n", bases[base][0], type, bases[base][1],
			   offset);
	}
}

/* A run of instructions, one of some lanes, and a loop. */
static void kernel(struct buf *out, const char *target)
{
	static const unsigned strides[] = { 0, 4, 8, 12, 16, 32, 64, 128, 1, 2, 3, 129 };
	unsigned from = bytes_only ? 8 : 0, n_strides = bytes_only ? 4 : 8;

	buf_clear(out);
	buf_printf(out, head, target, strides[from + below(n_strides)],
		   strides[from + below(n_strides)], below(THREADS), below(2));
	for (unsigned n = below(12); n > 0; n--) {
		statement(out);
	}
	buf_puts(out, below(2) ? "bar.sync 0;\n@%p1 bra BEHIND;\n" : "@%p1 bra BEHIND;\n");
	for (unsigned n = below(12); n > 0; n--) {
		statement(out);
	}
	buf_puts(out, "BEHIND:\nLOOP:\n");
	for (unsigned n = 1 + below(12); n > 0; n--) {
		statement(out);
	}
	buf_printf(out, "add.u32 %%r6, %%r6, 1;\nsetp.lt.u32 %%p3, %%r6, %u;\n@%%p3 bra LOOP;\n",
		   1 + below(2));
	buf_puts(out, below(2) ? "@%p2 bra OUT;\n" : "");
	for (unsigned n = below(6); n > 0; n--) {
		statement(out);
	}
	buf_puts(out, "OUT:\nret;\n}\n");
}

/* ---- forms ---- */

/* Runs the form with the map's address given as `param`, and copies the map. Returns the number of
 * sites with code. */
static unsigned run(const struct buf *text, const char *param, uint64_t *ret, uint32_t *ret_sites)
{
	struct engine_launch l = { .grid = { 1, 1, 1 },
				   .block = { THREADS, 1, 1 },
				   .limit = 1000000 };
	char message[512] = "", probe_text[2048];
	uint64_t at[PTX_PROBE_MAPS_MAX] = { 0 }, buffer;
	struct ptx_probe probe = { .hook = ACCESS,
				   .fields = 1u << FIELD_LANES | 1u << FIELD_OP |
					     1u << FIELD_SECTORS | 1u << FIELD_STRIDE |
					     1u << FIELD_CONFLICTS,
				   .name = "g",
				   .text = probe_text,
				   .map_at = at,
				   .text_max = UINT32_MAX };
	struct ptx_module *m = NULL;
	struct ptx_probed form;
	unsigned n_sites = 0;
	struct report r;
	struct engine e;
	uint8_t *memory, *map;

	snprintf(probe_text, sizeof(probe_text), program, param, param, param);
	report_init(&r);
	engine_init(&e);
	memory = engine_take(&e, BUFFER, &buffer);
	for (size_t i = CHAIN; i < DATA; i += 8) {
		uint64_t next = buffer + MIN(i + 24, DATA - 64);

		memcpy(memory + i, &next, 8);
	}
	map = engine_take(&e, WORDS * sizeof(*ret), at);
	assert_int_equal(ptx_module_parse(&m, buf_text(text), text->len, "k", &r), 0);
	if (ptx_probe_rewrite(m, "k", &probe, 1, &form, &r) < 0) {
		fail_msg("%s\n%s", buf_text(&r.message), buf_text(text));
	}
	if (engine_load(&e, form.text.data, form.text.len, "k", message, sizeof(message)) < 0) {
		fail_msg("%s\n%s", message, buf_text(&form.text));
	}
	l.params = &buffer;
	if (engine_run(&e, &l) != EXEC_DONE) {
		fail_msg("%s\n%s", e.fault.what ? e.fault.what : "hangs", buf_text(&form.text));
	}
	memcpy(ret, map, WORDS * 8);
	for (const char *s = buf_text(&form.text); (s = strstr(s, "activemask")); s++) {
		n_sites++;
	}
	*ret_sites = form.sites[0];
	engine_finish(&e);
	ptx_probed_finish(&form);
	ptx_module_free(m);
	report_finish(&r);
	return n_sites;
}

static void print_differences(const uint64_t *a, const uint64_t *b)
{
	for (unsigned i = 0; i < WORDS; i++) {
		if (a[i] != b[i]) {
			printf("word %u: %" PRIu64 " apart, %" PRIu64 " merged\n", i, a[i], b[i]);
		}
	}
}

static void sums_are_those_of_each_site(void **state)
{
	static const char *const targets[] = { "sm_75", "sm_90" };
	static uint64_t apart[WORDS], merged[WORDS];
	unsigned n_apart = 0, n_merged = 0;
	uint32_t sites[2];
	struct buf text;

	(void)state;
	buf_init(&text);
	for (unsigned i = 0; i < KERNELS; i++) {
		seed = i;
		bytes_only = i % 4 == 3;
		kernel(&text, targets[i % 2]);
		n_apart += run(&text, "map0", apart, &sites[0]);
		n_merged += run(&text, "sum0", merged, &sites[1]);
		assert_int_equal(sites[0], sites[1]);
		if (memcmp(apart, merged, sizeof(apart)) != 0) {
			print_differences(apart, merged);
			puts(buf_text(&text));
			fail_msg("kernel %u", i);
		}
	}
	assert_true(n_merged < n_apart * 9 / 10);
	buf_finish(&text);
}

/* A program of one site runs there, although another program's calls could be one. */
static void a_program_of_one_site_keeps_it(void **state)
{
	static const char kernel_text[] =
		".version 8.0\n.target sm_90\n.address_size 64\n"
		".visible .entry k(.param .u64 b)\n{\n.reg .b64 %d<2>; .reg .b32 %r<2>;\n"
		"ld.param.u64 %d1, [b];\nld.global.u32 %r1, [%d1];\n"
		"ld.global.u32 %r1, [%d1+32];\nld.global.u32 %r1, [%d1+64];\nret;\n}\n";
	char all[2048], one[2048], *name;
	struct ptx_probe probes[2] = {
		{ .hook = ACCESS, .name = "g", .text = all },
		{ .hook = ACCESS, .name = "h", .text = one, .sites = "#2" }
	};
	struct ptx_module *m = NULL;
	struct ptx_probed form;
	struct report r;

	(void)state;
	snprintf(all, sizeof(all), program, "sum0", "sum0", "sum0");
	snprintf(one, sizeof(one), program, "sum0", "sum0", "sum0");
	name = strstr(one, "g_f0");
	assert_non_null(name);
	name[0] = 'h';
	for (unsigned i = 0; i < 2; i++) {
		probes[i].fields = 1u << FIELD_LANES | 1u << FIELD_OP | 1u << FIELD_SECTORS |
				   1u << FIELD_STRIDE | 1u << FIELD_CONFLICTS;
	}
	report_init(&r);
	assert_int_equal(ptx_module_parse(&m, kernel_text, strlen(kernel_text), "k", &r), 0);
	assert_int_equal(ptx_probe_rewrite(m, "k", probes, 2, &form, &r), 0);
	assert_int_equal(form.sites[0], 3);
	assert_int_equal(form.sites[1], 1);
	ptx_probed_finish(&form);
	ptx_module_free(m);
	report_finish(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_are_those_of_each_site),
		cmocka_unit_test(a_program_of_one_site_keeps_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
