/* Maps in shared memory: each warp of a block finds its own values, which are 0 when the block
 * begins, whatever the block's shape, next to the kernel's own shared memory, in the form and in
 * its preemptible clone. The engine checks what is read: shared memory begins with poison. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "clone.h"
#include "engine.h"
#include "ptx/probe.h"

#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* texts with names and marks */

enum {
	ENTER = 32,
	EXIT = 33,
	BLOCK_EXIT = 35,
	PROBE = 36,
	FIELD_BLOCK = 3,
	FIELD_WARP = 16,
	BLOCKS = 5
};
enum { DIRTY, RIGHT, WRONG, COUNTED, ENDS, WORDS };

static const char kernel[] =
	".version 8.0\n.target sm_70\n.address_size 64\n.shared .align 4 .u32 fixed;\n"
	".extern .shared .align 16 .b8 dynamic[];\n"
	".visible .entry k(.param .u64 out)\n{\n.reg .b32 %r<12>; .reg .b64 %d<4>;\n"
	"ld.param.u64 %d1, [out];\nmov.u32 %r1, %tid.z;\nmov.u32 %r2, %ntid.y;\n"
	"mov.u32 %r3, %tid.y;\nmad.lo.u32 %r1, %r1, %r2, %r3;\nmov.u32 %r2, %ntid.x;\n"
	"mov.u32 %r3, %tid.x;\nmad.lo.u32 %r1, %r1, %r2, %r3;\nmov.u32 %r3, %ntid.y;\n"
	"mul.lo.u32 %r2, %r2, %r3;\nmov.u32 %r3, %ntid.z;\nmul.lo.u32 %r2, %r2, %r3;\n"
	"mov.u32 %r3, dynamic;\nmad.lo.u32 %r4, %r1, 4, %r3;\nst.shared.u32 [%r4], %r1;\n"
	"st.shared.u32 [fixed], 7;\nbar.sync 0;\nsub.u32 %r5, %r2, %r1;\nsub.u32 %r5, %r5, 1;\n"
	"mad.lo.u32 %r4, %r5, 4, %r3;\nld.shared.u32 %r6, [%r4];\nld.shared.u32 %r7, [fixed];\n"
	"add.u32 %r6, %r6, %r7;\nmov.u32 %r8, %ctaid.x;\nmad.lo.u32 %r8, %r8, %r2, %r1;\n"
	"mul.wide.u32 %d2, %r8, 4;\nadd.s64 %d2, %d1, %d2;\nst.global.u32 [%d2], %r6;\nret;\n}\n";

/* The same results, by a function that uses a static variable. Odd threads leave in front of a
 * second call. %s: version and target, and what limits the block's shape. */
static const char calls[] =
	"%s.address_size 64\n.shared .align 4 .u32 fixed;\n"
	".func (.param .b32 r) plus(.param .b32 a)\n{\n.reg .b32 %%r<3>;\n"
	"ld.param.u32 %%r0, [a];\nst.shared.u32 [fixed], 7;\nld.shared.u32 %%r1, [fixed];\n"
	"add.u32 %%r0, %%r0, %%r1;\nst.param.b32 [r], %%r0;\nret;\n}\n"
	".visible .entry k(.param .u64 out)%s\n{\n"
	".reg .b32 %%r<12>; .reg .b64 %%d<4>; .reg .pred %%p;\nagain:\n"
	"ld.param.u64 %%d1, [out];\nmov.u32 %%r1, %%tid.z;\nmov.u32 %%r2, %%ntid.y;\n"
	"mov.u32 %%r3, %%tid.y;\nmad.lo.u32 %%r1, %%r1, %%r2, %%r3;\nmov.u32 %%r2, %%ntid.x;\n"
	"mov.u32 %%r3, %%tid.x;\nmad.lo.u32 %%r1, %%r1, %%r2, %%r3;\nmov.u32 %%r3, %%ntid.y;\n"
	"mul.lo.u32 %%r2, %%r2, %%r3;\nmov.u32 %%r3, %%ntid.z;\nmul.lo.u32 %%r2, %%r2, %%r3;\n"
	"sub.u32 %%r5, %%r2, %%r1;\nsub.u32 %%r5, %%r5, 1;\n"
	"{ .param .b32 a; .param .b32 r; st.param.b32 [a], %%r5; call (r), plus, (a);\n"
	"ld.param.b32 %%r6, [r]; }\n"
	"mov.u32 %%r8, %%ctaid.x;\nmad.lo.u32 %%r8, %%r8, %%r2, %%r1;\n"
	"mul.wide.u32 %%d2, %%r8, 4;\nadd.s64 %%d2, %%d1, %%d2;\nst.global.u32 [%%d2], %%r6;\n"
	"and.b32 %%r9, %%r1, 1;\nsetp.ne.u32 %%p, %%r9, 0;\n@%%p exit;\n"
	"{ .param .b32 a; .param .b32 r; st.param.b32 [a], %%r5; call (r), plus, (a);\n"
	"ld.param.b32 %%r6, [r]; }\nst.global.u32 [%%d2], %%r6;\nret;\n}\n";

/* Stores a mark of block, warp and program in both maps, and adds up what was there. */
#define ENTER_TEXT                                                                                 \
	".func %s_f0 (.param .b64 env, .param .b64 own0, .param .b64 own2, .param .b64 block, "    \
	".param .b32 warp)\n{\n.reg .b64 %%e, %%a, %%b, %%v, %%w, %%m; .reg .b32 %%i;\n"           \
	"ld.param.b64 %%e, [env];\nld.param.b64 %%a, [own0];\nld.param.b64 %%b, [own2];\n"         \
	"ld.param.b64 %%m, [block];\nld.param.b32 %%i, [warp];\nld.u64 %%v, [%%a];\n"              \
	"ld.u64 %%w, [%%b+16];\nor.b64 %%v, %%v, %%w;\nred.add.u64 [%%e], %%v;\n"                  \
	"shl.b64 %%m, %%m, 8;\ncvt.u64.u32 %%v, %%i;\nadd.s64 %%m, %%m, %%v;\n"                    \
	"add.s64 %%m, %%m, %u;\nst.u64 [%%a], %%m;\nst.u64 [%%b+16], %%m;\nret;\n}\n"

/* Each lane compares. */
#define EXIT_TEXT                                                                                  \
	".func %s_f0 (.param .b64 env, .param .b64 own0, .param .b64 own2, .param .b64 block, "    \
	".param .b32 warp)\n{\n.reg .b64 %%e, %%a, %%b, %%v, %%w, %%m; .reg .b32 %%i; "            \
	".reg .pred %%p;\n"                                                                        \
	"ld.param.b64 %%e, [env];\nld.param.b64 %%a, [own0];\nld.param.b64 %%b, [own2];\n"         \
	"ld.param.b64 %%m, [block];\nld.param.b32 %%i, [warp];\nshl.b64 %%m, %%m, 8;\n"            \
	"cvt.u64.u32 %%v, %%i;\nadd.s64 %%m, %%m, %%v;\nadd.s64 %%m, %%m, %u;\n"                   \
	"ld.u64 %%v, [%%a];\nld.u64 %%w, [%%b+16];\nsetp.eq.s64 %%p, %%v, %%m;\n"                  \
	"setp.eq.and.s64 %%p, %%w, %%m, %%p;\n@%%p bra GOOD;\nred.add.u64 [%%e+16], 1;\nret;\n"    \
	"GOOD:\nred.add.u64 [%%e+8], 1;\nret;\n}\n"

/* The places of maps 0 and 2, of 16 and 32 bytes, of two tools. */
/* Each lane counts a call, as compiled programs add. */
#define PROBE_TEXT                                                                                 \
	".func %s_f0 (.param .b64 env, .param .b64 own0)\n{\n.reg .b64 %%a, %%c;\n"                \
	"ld.param.b64 %%a, [own0];\ncvta.to.shared.u64 %%c, %%a;\n"                                \
	"red.relaxed.cta.shared.add.u64 [%%c+8], 1;\nret;\n}\n"

/* Each lane takes what has been counted. */
#define TAKE_TEXT                                                                                  \
	".func %s_f0 (.param .b64 env, .param .b64 own0)\n{\n.reg .b64 %%e, %%a, %%v;\n"           \
	"ld.param.b64 %%e, [env];\nld.param.b64 %%a, [own0];\n"                                    \
	"atom.exch.b64 %%v, [%%a+8], 0;\nred.add.u64 [%%e+24], %%v;\nret;\n}\n"

/* A warp that has a mark. */
#define BLOCK_EXIT_TEXT                                                                            \
	".func %s_f0 (.param .b64 env, .param .b64 own0)\n{\n.reg .b64 %%e, %%a, %%v;\n"           \
	"ld.param.b64 %%e, [env];\nld.param.b64 %%a, [own0];\nld.u64 %%v, [%%a];\n"                \
	"min.u64 %%v, %%v, 1;\nred.add.u64 [%%e+32], %%v;\nret;\n}\n"

/* Uses none of the tool's maps. */
#define NONE_TEXT ".func %s_f0 (.param .b64 env)\n{\nret;\n}\n"

enum { TOOL_BYTES = 48, TOOLS = 2 };
static const uint32_t scratch_at[TOOLS][PTX_PROBE_MAPS_MAX] = { { 0, 0, 16 }, { 0, 0, 16 } };

enum { PROGRAMS_MAX = 5 * TOOLS };

struct fixture {
	struct ptx_module *m;
	struct ptx_probe probes[PROGRAMS_MAX];
	char texts[PROGRAMS_MAX][2048], names[PROGRAMS_MAX][8];
	uint32_t n;
	struct ptx_probed form;
	struct report r;
};

/* lanes: in each lane; text: a format of the name and of the tool's mark. */
static void add(struct fixture *t, unsigned tool, uint32_t hook, bool lanes, const char *text,
		uint32_t fields)
{
	uint32_t i = t->n++;
	char name[8];

	snprintf(name, sizeof(name), "p%u", i);
	memcpy(t->names[i], name, sizeof(name));
	snprintf(t->texts[i], sizeof(t->texts[i]), text, name, 1 + 1000 * tool);
	t->probes[i] = (struct ptx_probe){ .hook = hook,
					   .lanes = lanes,
					   .fields = fields,
					   .name = t->names[i],
					   .text = t->texts[i],
					   .scratch_at = scratch_at[tool],
					   .scratch_bytes = TOOL_BYTES };
}

static void parse(struct fixture *t, const char *text)
{
	memset(t, 0, sizeof(*t));
	report_init(&t->r);
	assert_int_equal(ptx_module_parse(&t->m, text, strlen(text), "k", &t->r), 0);
}

static void make(struct fixture *t)
{
	uint32_t fields = 1u << FIELD_BLOCK | 1u << FIELD_WARP;

	parse(t, kernel);
	for (unsigned i = 0; i < TOOLS; i++) {
		add(t, i, ENTER, false, ENTER_TEXT, fields);
		add(t, i, EXIT, true, EXIT_TEXT, fields);
	}
}

static void unmake(struct fixture *t)
{
	ptx_probed_finish(&t->form);
	ptx_module_free(t->m);
	report_finish(&t->r);
}

/* Fills the table of the form, which e has loaded. */
static void bind(struct engine *e, uint64_t env)
{
	uint64_t at;
	uint64_t bytes, table[16];

	for (unsigned i = 0; i < ARRAY_SIZE(table); i++) {
		table[i] = env;
	}
	assert_int_equal(exec_module_global(e->module, PTX_PROBE_TABLE, &at, &bytes), 0);
	assert_true(bytes <= sizeof(table));
	memcpy(e->host + (at - ENGINE_BASE), table, bytes);
}

static void find(UNUSED void *arg, const struct exec_finding *f)
{
	fail_msg("line %u: finding %d", f->line, (int)f->kind);
}

static void play(const struct fixture *t, const struct clone *c, const uint32_t block[3],
		 uint64_t words[WORDS])
{
	uint32_t threads = block[0] * block[1] * block[2], bytes = 4 * threads;
	struct engine_launch l = { .kernel = "k",
				   .grid = { BLOCKS, 1, 1 },
				   .block = { block[0], block[1], block[2] },
				   .shared = ptx_probe_smem(bytes, t->form.warp_bytes, threads),
				   .limit = 100000000 };
	const struct buf *text = c ? &c->text : &t->form.text;
	char message[512] = "";
	uint64_t out, env, *found;
	uint32_t *results;
	struct exec_host host;
	struct engine e;

	engine_init(&e);
	engine_host(&e, &host);
	host.finding = find;
	l.host = &host;
	results = engine_take(&e, BLOCKS * 1024 * 4, &out);
	found = engine_take(&e, WORDS * 8, &env);
	memset(found, 0, WORDS * 8);
	if (engine_load(&e, text->data, text->len, "k", message, sizeof(message)) < 0) {
		fail_msg("%s\n%s", message, buf_text(text));
	}
	bind(&e, env);
	l.params = &out;
	if ((c ? clone_run(&e, clone_entry(c, "k"), &l, CLONE_SPLIT, 3) : engine_run(&e, &l)) !=
	    EXEC_DONE) {
		fail_msg("%s\n%s", e.fault.what ? e.fault.what : "hangs", buf_text(text));
	}
	for (uint32_t i = 0; i < BLOCKS * threads; i++) {
		assert_int_equal(results[i], threads - 1 - i % threads + 7);
	}
	memcpy(words, found, WORDS * 8);
	assert_int_equal(words[DIRTY], 0);
	assert_int_equal(words[WRONG], 0);
	assert_int_equal(words[RIGHT], TOOLS * BLOCKS * threads);
	engine_finish(&e);
}

/* The engine runs the lanes of a warp in step, hardware does not: a barrier of the warp stands
 * behind the clearing, and another behind the programs of enter, in front of f's first branch or
 * store. */
static void meets_twice(const char *text)
{
	const char *first = strstr(text, "\tbar.warp.sync "), *second, *enter, *store;

	assert_non_null(first);
	second = strstr(first + 1, "\tbar.warp.sync ");
	enter = strstr(first, "red.add.u64");
	store = strstr(first, "st.shared.u32 [%r4], %r1");
	assert_true(second && enter && store && enter < second && second < store);
	assert_null(strstr(second + 2, "bar.warp.sync"));
}

/* Makes the form and its preemptible clone. */
static void rewrite(struct fixture *t, struct clone *c)
{
	char message[256] = "";

	if (ptx_probe_rewrite(t->m, "k", t->probes, t->n, &t->form, &t->r) < 0) {
		fail_msg("%s", buf_text(&t->r.message));
	}
	assert_true(t->form.needs_shared);
	if (clone_make(c, t->form.text.data, t->form.text.len, message, sizeof(message)) < 0) {
		fail_msg("%s\n%s", message, buf_text(&t->form.text));
	}
	assert_int_equal(clone_entry(c, "k")->why, PROTO_BLOCK_OK);
}

static void blocks_of_all_shapes(UNUSED void **state)
{
	static const uint32_t shapes[][3] = { { 1, 1, 1 },  { 31, 1, 1 }, { 32, 1, 1 },
					      { 33, 1, 1 }, { 96, 1, 1 }, { 7, 5, 3 },
					      { 8, 4, 3 },  { 1, 1, 64 }, { 1024, 1, 1 } };
	uint64_t words[WORDS];
	struct fixture t;
	struct clone c;

	make(&t);
	rewrite(&t, &c);
	assert_int_equal(t.form.warp_bytes, TOOLS * TOOL_BYTES);
	meets_twice(buf_text(&t.form.text));
	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
		play(&t, NULL, shapes[i], words);
		play(&t, &c, shapes[i], words);
	}
	clone_finish(&c);
	unmake(&t);
}

/* Adds programs at all these places, which are called as functions if their text declares memory.
 */
static void add_all(struct fixture *t, bool called)
{
	uint32_t fields = 1u << FIELD_BLOCK | 1u << FIELD_WARP;
	size_t n = 0;

	for (unsigned i = 0; i < TOOLS; i++) {
		add(t, i, ENTER, false, ENTER_TEXT, fields);
		add(t, i, PROBE, true, PROBE_TEXT, 0);
		add(t, i, EXIT, true, EXIT_TEXT, fields);
		add(t, i, EXIT, true, TAKE_TEXT, 0);
		add(t, i, BLOCK_EXIT, false, BLOCK_EXIT_TEXT, 0);
	}
	for (uint32_t i = 0; i < t->n && called; i++) {
		char *at = strchr(t->texts[i], '{') + 1;
		static const char memory[] = "\n.local .align 8 .b8 stack[8];";

		memmove(at + sizeof(memory) - 1, at, strlen(at) + 1);
		memcpy(at, memory, sizeof(memory) - 1);
		n++;
	}
	assert_int_equal(n, called ? t->n : 0);
}

static void functions_and_lanes_that_leave(UNUSED void **state)
{
	static const struct {
		const char *target, *limit;
		uint32_t block[3];
	} rows[] = {
		{ ".version 5.0\n.target sm_50\n", "", { 33, 1, 1 } },
		{ ".version 6.0\n.target sm_60\n", "\n.maxntid 128, 1, 1", { 96, 1, 1 } },
		{ ".version 7.0\n.target sm_70\n", "\n.reqntid 7, 5, 3", { 7, 5, 3 } },
		{ ".version 8.0\n.target sm_90\n", "\n.reqntid 65", { 65, 1, 1 } },
	};

	for (size_t i = 0; i < 2 * ARRAY_SIZE(rows); i++) {
		const uint32_t *block = rows[i / 2].block;
		uint64_t words[WORDS], threads = (uint64_t)block[0] * block[1] * block[2];
		struct fixture t;
		struct clone c;
		char text[4096];

		snprintf(text, sizeof(text), calls, rows[i / 2].target, rows[i / 2].limit);
		parse(&t, text);
		add_all(&t, i % 2);
		rewrite(&t, &c);
		assert_int_equal(t.form.warp_bytes, TOOLS * TOOL_BYTES);
		for (int k = 0; k < 2; k++) {
			play(&t, k ? &c : NULL, block, words);
			assert_int_equal(words[COUNTED],
					 TOOLS * BLOCKS * (threads + (threads + 1) / 2));
			assert_int_equal(words[ENDS], TOOLS * BLOCKS);
		}
		clone_finish(&c);
		unmake(&t);
	}
}

/* A tool takes bytes only where its programs use them. */
static void tools_that_use_none(UNUSED void **state)
{
	struct fixture t;

	parse(&t, kernel);
	add(&t, 0, ENTER, false, NONE_TEXT, 0);
	add(&t, 1, EXIT, true, TAKE_TEXT, 0);
	add(&t, 1, EXIT, true, NONE_TEXT, 0);
	t.probes[0].scratch_bytes = t.probes[1].scratch_bytes = PTX_PROBE_SCRATCH_MAX;
	assert_int_equal(ptx_probe_rewrite(t.m, "k", t.probes, t.n, &t.form, &t.r), 0);
	assert_int_equal(t.form.warp_bytes, PTX_PROBE_SCRATCH_MAX);
	unmake(&t);
}

static void sizes_of_launches(UNUSED void **state)
{
	assert_int_equal(ptx_probe_smem(0, 0, 64), 16);
	assert_int_equal(ptx_probe_smem(1, 48, 1), 16 + 48 + 16);
	assert_int_equal(ptx_probe_smem(16, 48, 33), 16 + 96 + 16);
	assert_int_equal(ptx_probe_smem(0, 16, UINT64_MAX), 32 * 16 + 16);
	assert_int_equal(ptx_probe_smem(UINT32_MAX - 3, 48, 32), UINT32_MAX - 3);
}

static void refuse(struct fixture *t, int err, const char *why)
{
	assert_int_equal(ptx_probe_rewrite(t->m, "k", t->probes, t->n, &t->form, &t->r), err);
	assert_non_null(strstr(buf_text(&t->r.message), why));
	unmake(t);
}

static void no_place(UNUSED void **state)
{
	struct fixture t;

	make(&t);
	t.probes[1].scratch_at = NULL;
	refuse(&t, -EINVAL, "no place in shared memory");
	make(&t);
	t.probes[2].scratch_bytes = PTX_PROBE_SCRATCH_MAX - TOOL_BYTES;
	t.probes[2].scratch_bytes += 16;
	refuse(&t, -E2BIG, "have 4112 bytes of WARP_SCRATCH for a warp, more than 4096");
}

/* A kernel would see the size, and could use what is not its own. */
static void kernels_that_read_their_size(UNUSED void **state)
{
	static const char *const sizes[] = { "dynamic", "total", "aggr" };
	struct fixture t;
	char text[512];

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		make(&t);
		ptx_module_free(t.m);
		snprintf(text, sizeof(text),
			 ".version 8.1\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n"
			 ".reg .b32 %%r<2>;\nmov.u32 %%r1, %%%s_smem_size;\nret;\n}\n",
			 sizes[i]);
		assert_int_equal(ptx_module_parse(&t.m, text, strlen(text), "k", &t.r), 0);
		refuse(&t, -ENOTSUP, "reads its size of shared memory");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_of_all_shapes),
		cmocka_unit_test(functions_and_lanes_that_leave),
		cmocka_unit_test(tools_that_use_none),
		cmocka_unit_test(sizes_of_launches),
		cmocka_unit_test(no_place),
		cmocka_unit_test(kernels_that_read_their_size),
	};

	exec_check_enable(true);
	return cmocka_run_group_tests_name("ptx/probe: maps in shared memory", tests, NULL, NULL);
}
