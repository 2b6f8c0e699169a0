/* Contracts of exec.h: information about modules and kernels, budgets, faults, and blocks on
 * several threads. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "engine.h"

#define HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"

static int load(struct engine *e, const char *text)
{
	char message[512] = "";
	int err;

	engine_init(e);
	err = engine_load(e, text, strlen(text), "t", message, sizeof(message));
	if (err < 0) {
		print_error("%s\n", message);
	}
	return err;
}

static void kernels_describe_themselves(void **state)
{
	struct engine e;
	const struct exec_function_info *i;
	const struct exec_function *f;
	uint64_t address, bytes;

	assert_int_equal(
		load(&e,
		     HEAD ".global .align 8 .u64 g[3];\n.const .u32 c[2] = {1, 2};\n"
			  ".shared .align 4 .b8 used[100], unused[5000];\n.func helper() { ret; }\n"
			  ".visible .entry first(.param .u32 a, .param .u64 b, .param .align 4 .b8 "
			  "s[6])\n"
			  ".maxntid 8, 4, 2\n{\n.reg .b32 %r<3>; .reg .b64 %w; .local .b8 l[40];\n"
			  "ld.param.u32 %r0, [a]; ld.param.u64 %w, [b]; st.shared.u32 [used], %r0; "
			  "ret;\n}\n"
			  ".entry second() { ret; }\n"),
		0);
	assert_int_equal(exec_module_functions(e.module), 2);
	assert_null(exec_module_function(e.module, "helper"));
	assert_null(exec_module_function(e.module, "nothing"));
	assert_null(exec_module_function_at(e.module, 2));
	f = exec_module_function_at(e.module, 0);
	assert_ptr_equal(f, exec_module_function(e.module, "first"));
	i = exec_function_info(f);
	assert_string_equal(i->name, "first");
	assert_int_equal(i->n_params, 3);
	assert_int_equal(i->params[1].offset, 8);
	assert_int_equal(i->params[2].offset, 16);
	assert_int_equal(i->params[2].bytes, 6);
	assert_int_equal(i->param_bytes, 22);
	assert_int_equal(i->shared_bytes, 100);
	assert_int_equal(i->local_bytes, 40);
	assert_int_equal(i->const_bytes, 8);
	assert_int_equal(i->registers, 3);
	assert_int_equal(i->max_threads, 64);
	assert_int_equal(exec_module_global(e.module, "g", &address, &bytes), 0);
	assert_int_equal(bytes, 24);
	assert_int_equal(address % 8, 0);
	assert_int_equal(exec_module_global(e.module, "used", &address, &bytes), -ENOENT);
	assert_int_equal(exec_module_global_bytes(e.module) >= 32, 1);
	engine_finish(&e);
}

static void budgets_are_kept(void **state)
{
	struct engine e;
	struct exec_fault fault;
	struct exec_launch l = { .grid = { 1, 1, 1 }, .block = { 64, 1, 1 } };
	struct exec_block *b;
	uint64_t used, total = 0;
	enum exec_status s;

	assert_int_equal(
		load(&e,
		     HEAD ".entry k()\n{\n.reg .b32 %r; .reg .pred %p;\nmov.u32 %r, 1000;\n"
			  "$l: sub.u32 %r, %r, 1; setp.ne.u32 %p, %r, 0; @%p bra $l; ret;\n}\n"),
		0);
	l.function = exec_module_function(e.module, "k");
	l.space = &e.space;
	b = exec_block_create(&l);
	assert_non_null(b);
	assert_int_equal(exec_block_run(b, 0, &used, &fault), EXEC_BUDGET);
	assert_int_equal(used, 0);
	for (unsigned budget = 1; (s = exec_block_run(b, budget, &used, &fault)) == EXEC_BUDGET;
	     budget++) {
		assert_int_equal(used, budget);
		total += used;
	}
	assert_int_equal(s, EXEC_DONE);
	assert_int_equal(total + used, 2 * (1 + 3 * 1000 + 1));
	/* A completed block stays completed, and can be used again after a reset. */
	assert_int_equal(exec_block_run(b, 10, &used, &fault), EXEC_DONE);
	assert_int_equal(used, 0);
	exec_block_reset(b, 0, 3);
	assert_int_equal(exec_block_run(b, UINT64_MAX, &used, &fault), EXEC_DONE);
	assert_int_equal(used, 2 * (1 + 3 * 1000 + 1));
	exec_block_destroy(b);
	engine_finish(&e);
}

/* A call that copies much, and a long text, take one turn each: other work runs in between. */
static void one_long_operation_is_a_turn(void **state)
{
	static const char *const texts[] = {
		HEAD ".func (.param .b8 r[30000]) f(.param .b8 a[30000]) { ret; }\n"
		     ".entry k()\n{\n.reg .b32 %r; .reg .pred %p; .param .b8 x[30000], y[30000];\n"
		     "mov.u32 %r, 20;\n$l: call (y), f, (x);\n"
		     "sub.u32 %r, %r, 1; setp.ne.u32 %p, %r, 0; @%p bra $l; ret;\n}\n",
		HEAD ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
		     ".global .align 1 .b8 f[12] = {37, 57, 57, 57, 99, 37, 57, 57, 57, 99};\n"
		     ".entry k()\n{\n.reg .b64 %q; .reg .b32 %r, %i; .reg .pred %p;\n"
		     ".local .align 8 .b8 a[8];\n"
		     "mov.u32 %i, 20;\n$l: mov.u64 %q, f; cvta.global.u64 %q, %q; { .reg .b64 %w;\n"
		     "mov.u64 %w, a; cvta.local.u64 %w, %w; call (%r), vprintf, (%q, %w); }\n"
		     "sub.u32 %i, %i, 1; setp.ne.u32 %p, %i, 0; @%p bra $l; ret;\n}\n",
	};
	struct exec_launch l = { .grid = { 1, 1, 1 }, .block = { 32, 1, 1 } };
	const unsigned least[] = { 40, 20 };

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct exec_fault fault;
		struct exec_block *b;
		unsigned turns = 0;
		struct engine e;
		uint64_t used;

		assert_int_equal(load(&e, texts[i]), 0);
		l.function = exec_module_function(e.module, "k");
		l.space = &e.space;
		b = exec_block_create(&l);
		assert_non_null(b);
		while (exec_block_run(b, 1000, &used, &fault) == EXEC_BUDGET && turns < 1000) {
			assert_int_equal(used, 1000);
			turns++;
		}
		assert_in_range(turns, least[i], 100);
		exec_block_destroy(b);
		engine_finish(&e);
	}
}

/* A function is decoded again for kernels that call different functions: without a limit a short
 * text could take gigabytes. */
static void kernels_of_a_module_have_a_limit_together(void **state)
{
	struct exec_module *m = NULL;
	struct report r;
	struct buf text;

	report_init(&r);
	buf_init(&text);
	buf_puts(&text, HEAD ".func f()\n{ .reg .b64 %q;\n");
	for (unsigned i = 0; i < 4000; i++) {
		buf_printf(&text, "mad.lo.u64 %%q, %%q, %u, %u;\n", 2 * i, 2 * i + 1);
	}
	buf_puts(&text, "ret; }\n");
	for (unsigned i = 0; i < 200; i++) {
		buf_printf(
			&text,
			".func g%u() { ret; }\n.entry k%u() { call f, (); call g%u, (); ret; }\n",
			i, i, i);
	}
	assert_int_equal(exec_module_load(&m, buf_text(&text), text.len, "t", &r), -EINVAL);
	assert_non_null(strstr(buf_text(&r.message), "too many constants"));
	buf_clear(&text);
	report_finish(&r);
	report_init(&r);
	buf_puts(&text, HEAD ".func f()\n{ .reg .b32 %r; L: T: .branchtargets L");
	for (unsigned i = 0; i < 1000; i++) {
		buf_puts(&text, ",L");
	}
	buf_puts(&text,
		 "; brx.idx %r, T; ret; }\n.func g() { ret; }\n"
		 ".entry k() { call f, (); ret; }\n.entry l() { call f, (); call g, (); ret; }\n");
	assert_int_equal(exec_module_load(&m, buf_text(&text), text.len, "t", &r), 0);
	assert_in_range(exec_module_code_bytes(m), 8000, 12000);
	exec_module_unref(m);
	buf_finish(&text);
	report_finish(&r);
}

static size_t code_bytes(const char *head, unsigned kernels)
{
	struct exec_module *m;
	struct report r;
	struct buf text;
	size_t bytes;

	report_init(&r);
	buf_init(&text);
	buf_puts(&text, head);
	for (unsigned i = 0; i < kernels; i++) {
		buf_printf(&text, ".entry k%u() { call f, (); ret; }\n", i);
	}
	assert_int_equal(exec_module_load(&m, buf_text(&text), text.len, "t", &r), 0);
	assert_int_equal(exec_module_functions(m), kernels);
	for (unsigned i = 0; i < kernels; i++) {
		char name[16];

		snprintf(name, sizeof(name), "k%u", i);
		assert_string_equal(exec_function_info(exec_module_function_at(m, i))->name, name);
	}
	bytes = exec_module_code_bytes(m);
	exec_module_unref(m);
	buf_finish(&text);
	report_finish(&r);
	return bytes;
}

static void kernels_that_call_the_same_functions_share_their_code(void **state)
{
	struct buf text;

	(void)state;
	buf_init(&text);
	buf_puts(&text, HEAD ".func f()\n{ .reg .b64 %q;\n");
	for (unsigned i = 0; i < 1000; i++) {
		buf_puts(&text, "add.u64 %q, %q, 1;\n");
	}
	buf_puts(&text, "ret; }\n");
	assert_in_range(code_bytes(buf_text(&text), 1), 60000, 80000);
	assert_in_range(code_bytes(buf_text(&text), 50), 60000, 100000);
	/* Dynamic shared memory lies elsewhere in each kernel. */
	buf_puts(&text,
		 ".extern .shared .u32 dyn[];\n.func h() { st.shared.u32 [dyn], 1; ret; }\n");
	assert_in_range(code_bytes(buf_text(&text), 50), 60000, 100000);
	buf_clear(&text);
	buf_puts(&text, HEAD ".extern .shared .u32 dyn[];\n.func f()\n{ .reg .b64 %q;\n");
	for (unsigned i = 0; i < 1000; i++) {
		buf_puts(&text, "add.u64 %q, %q, 1;\n");
	}
	buf_puts(&text, "st.shared.u32 [dyn], 1; ret; }\n");
	assert_in_range(code_bytes(buf_text(&text), 3), 180000, 240000);
	buf_finish(&text);
}

static void assert_shared(const struct exec_module *m, const char *name, uint32_t bytes)
{
	assert_int_equal(exec_function_info(exec_module_function(m, name))->shared_bytes, bytes);
}

static void a_family_does_not_enlarge_its_kernels(void **state)
{
	struct exec_module *m;
	struct report r;
	static const char text[] = HEAD
		".shared .u32 common, mine[100], other[7];\n"
		".func f() { .shared .u32 inner; st.shared.u32 [common], 1; st.shared.u32 [inner], "
		"1; "
		"ret; }\n"
		".entry a() { call f, (); st.shared.u32 [mine], 1; ret; }\n"
		".entry b() { .shared .u32 own[20]; call f, (); st.shared.u32 [own], 1; ret; }\n"
		".entry c() { .local .b8 l[4000]; call f, (); st.shared.u32 [common], 1; ret; }\n"
		".entry d() { call f, (); st.shared.u32 [other], 1; ret; }\n"
		".entry e() { st.shared.u32 [other], 1; ret; }\n";

	(void)state;
	report_init(&r);
	assert_int_equal(exec_module_load(&m, text, sizeof(text) - 1, "t", &r), 0);
	assert_shared(m, "a", 408);
	assert_shared(m, "b", 88);
	assert_shared(m, "c", 8);
	assert_shared(m, "d", 36);
	assert_shared(m, "e", 28);
	assert_int_equal(exec_function_info(exec_module_function(m, "c"))->local_bytes, 4000);
	assert_int_equal(exec_function_info(exec_module_function(m, "d"))->local_bytes, 0);
	exec_module_unref(m);
	report_finish(&r);
}

static void faults_say_where(void **state)
{
	struct engine e;
	struct engine_launch l = { .grid = { 1, 1, 1 }, .block = { 64, 1, 1 } };

	assert_int_equal(load(&e, HEAD
			      ".entry k()\n{\n.reg .b32 %r<2>; .reg .b64 %w; .reg .pred %p;\n"
			      "mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 45;\n"
			      "mov.u64 %w, 0x1234;\n@%p st.global.u32 [%w+4], %r0;\nret;\n}\n"),
			 0);
	assert_int_equal(engine_run(&e, &l), EXEC_FAULT_ADDRESS);
	assert_int_equal(e.fault.address, 0x1238);
	assert_int_equal(e.fault.line, 9);
	assert_int_equal(e.fault.thread, 45);
	assert_non_null(e.fault.what);
	engine_finish(&e);
}

static void pages_have_rights(void **state)
{
	struct engine e;
	struct {
		uint64_t a;
	} p;
	struct engine_launch l = { .grid = { 1, 1, 1 }, .block = { 32, 1, 1 }, .params = &p };
	uint8_t *page;

	assert_int_equal(load(&e, HEAD ".entry get(.param .u64 a)\n{\n.reg .b32 %r; .reg .b64 %w;\n"
				       "ld.param.u64 %w, [a]; ld.global.u32 %r, [%w]; ret;\n}\n"
				       ".entry put(.param .u64 a)\n{\n.reg .b32 %r; .reg .b64 %w;\n"
				       "ld.param.u64 %w, [a]; st.global.u32 [%w], 5; ret;\n}\n"),
			 0);
	engine_take(&e, 8192, &p.a);
	page = &e.pages[(p.a - ENGINE_BASE) / EXEC_PAGE_BYTES];
	for (unsigned rights = 0; rights < 4; rights++) {
		*page = (uint8_t)rights;
		l.kernel = "get";
		assert_int_equal(engine_run(&e, &l), rights & 1 ? EXEC_DONE : EXEC_FAULT_ADDRESS);
		l.kernel = "put";
		assert_int_equal(engine_run(&e, &l), rights & 2 ? EXEC_DONE : EXEC_FAULT_ADDRESS);
	}
	engine_finish(&e);
}

static void bad_launches_make_no_block(void **state)
{
	struct engine e;
	struct exec_launch l = { .grid = { 1, 1, 1 }, .block = { 1025, 1, 1 } };

	assert_int_equal(load(&e, HEAD ".entry k() { ret; }\n"), 0);
	l.function = exec_module_function(e.module, "k");
	l.space = &e.space;
	assert_null(exec_block_create(&l));
	l.block[0] = 64;
	l.block[1] = 64;
	assert_null(exec_block_create(&l));
	l.block[1] = 0;
	assert_null(exec_block_create(&l));
	exec_block_destroy(NULL);
	engine_finish(&e);
}

static void a_block_keeps_its_module(void **state)
{
	struct engine e;
	struct exec_launch l = { .grid = { 1, 1, 1 }, .block = { 1, 1, 1 } };
	struct exec_fault fault;
	struct exec_block *b;
	uint64_t used;

	assert_int_equal(load(&e, HEAD ".entry k() { ret; }\n"), 0);
	l.function = exec_module_function(e.module, "k");
	l.space = &e.space;
	b = exec_block_create(&l);
	exec_module_unref(e.module);
	e.module = NULL;
	assert_int_equal(exec_block_run(b, 10, &used, &fault), EXEC_DONE);
	exec_block_destroy(b);
	exec_module_unref(NULL);
	engine_finish(&e);
}

struct job {
	struct exec_launch launch;
	uint64_t first, n;
	enum exec_status status;
};

static void *run_blocks(void *arg)
{
	struct job *j = arg;
	struct exec_block *b = exec_block_create(&j->launch);
	struct exec_fault fault;
	uint64_t used;

	j->status = b ? EXEC_DONE : EXEC_NO_MEMORY;
	for (uint64_t i = 0; i < j->n && j->status == EXEC_DONE; i++) {
		exec_block_reset(b, j->first + i, 0);
		do {
			j->status = exec_block_run(b, 50, &used, &fault);
		} while (j->status == EXEC_BUDGET);
	}
	exec_block_destroy(b);
	return NULL;
}

static void atomics_hold_between_threads(void **state)
{
	struct engine e;
	uint64_t p;
	struct job jobs[4];
	pthread_t threads[4];
	uint32_t *counter;

	assert_int_equal(
		load(&e, HEAD
		     ".entry k(.param .u64 a)\n{\n.reg .b32 %r<4>; .reg .b64 %w; .reg .f32 %f;\n"
		     "ld.param.u64 %w, [a];\nmov.u32 %r1, 20;\n"
		     "$l: red.global.add.u32 [%w], 1; red.global.max.u32 [%w+4], %r1;\n"
		     "red.global.add.f32 [%w+8], 0f3F800000; { .reg .pred %p; sub.u32 %r1, %r1, "
		     "1;\n"
		     "setp.ne.u32 %p, %r1, 0; @%p bra $l; } ret;\n}\n"),
		0);
	counter = engine_take(&e, 64, &p);
	for (unsigned i = 0; i < 4; i++) {
		jobs[i] = (struct job){ .launch = { .function = exec_module_function(e.module, "k"),
						    .grid = { 80, 1, 1 },
						    .block = { 64, 1, 1 },
						    .params = &p,
						    .space = &e.space },
					.first = i * 20,
					.n = 20 };
		assert_int_equal(pthread_create(&threads[i], NULL, run_blocks, &jobs[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(jobs[i].status, EXEC_DONE);
	}
	assert_int_equal(counter[0], 80 * 64 * 20);
	assert_int_equal(counter[1], 20);
	assert_true(((float *)counter)[2] == 80 * 64 * 20);
	engine_finish(&e);
}

/* Every prefix of a valid text either loads or is refused, and nothing is read past its end. */
static void truncated_modules_are_harmless(void **state)
{
	static const char text[] =
		HEAD ".global .u32 g[4] = {1, 2, 3};\n.global .u64 p = generic(g)+4;\n"
		     ".func (.param .b32 r) f(.param .b32 a) { .reg .b32 %r; ld.param.u32 %r, [a]; "
		     "st.param.b32 [r], %r; }\n"
		     ".entry k(.param .u64 a)\n{\n.reg .b32 %r<4>; .reg .pred %p; .reg .b64 %w;\n"
		     "$t: .branchtargets $x, $y; brx.idx %r1, $t; $x: ld.global.v2.u32 {%r1, %r2}, "
		     "[g+8];\n"
		     "{ .param .b32 i, o; st.param.b32 [i], %r1; call (o), f, (i); ld.param.b32 "
		     "%r2, [o]; }\n"
		     "$y: @!%p bra $x; setp.lt.or.u32 %p|_, %r1, 5, !%p; ret;\n}\n";

	for (size_t len = 0; len < sizeof(text); len++) {
		char *cut = malloc(MAX(len, (size_t)1));
		struct exec_module *m = NULL;
		struct report r;

		memcpy(cut, text, len);
		report_init(&r);
		if (exec_module_load(&m, cut, len, "t", &r) == 0) {
			exec_module_unref(m);
		} else {
			assert_true(r.message.len > 0);
		}
		assert_true(len < sizeof(text) - 2 || m != NULL);
		report_finish(&r);
		free(cut);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernels_describe_themselves),
		cmocka_unit_test(budgets_are_kept),
		cmocka_unit_test(one_long_operation_is_a_turn),
		cmocka_unit_test(kernels_of_a_module_have_a_limit_together),
		cmocka_unit_test(kernels_that_call_the_same_functions_share_their_code),
		cmocka_unit_test(a_family_does_not_enlarge_its_kernels),
		cmocka_unit_test(faults_say_where),
		cmocka_unit_test(pages_have_rights),
		cmocka_unit_test(bad_launches_make_no_block),
		cmocka_unit_test(a_block_keeps_its_module),
		cmocka_unit_test(atomics_hold_between_threads),
		cmocka_unit_test(truncated_modules_are_harmless),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
