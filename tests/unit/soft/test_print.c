/* Output, assertions and allocations of kernels as the program sees them. Each test is a child
 * process. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "rig.h"

#include "../eventually.h"

/* Kernels: say(n): each thread prints n + its number in 31 bytes and a newline; check(n): the
 * assertion of thread n fails; take(out, bytes, back): out[thread] = malloc(bytes), freed if back
 * is not 0. */
static const char ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
	".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, "
	".param .b64 e);\n"
	".extern .func (.param .b64 r) malloc(.param .b64 a);\n"
	".extern .func free(.param .b64 a);\n"
	".global .align 1 .b8 f[] = {37,51,49,117,10,0};\n" /* %31u */
	".global .align 1 .b8 e[] = {97,32,60,32,98,0};\n"  /* a < b */
	".visible .entry say(.param .u32 n)\n{\n"
	"	.local .align 8 .b8 v[8];\n"
	"	.reg .b64 %q<6>; .reg .b32 %r<8>;\n"
	"	ld.param.u32 %r0, [n];\n"
	"	mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;\n"
	"	mad.lo.u32 %r1, %r2, %r3, %r1; add.u32 %r1, %r1, %r0;\n"
	"	mov.u64 %q0, v; cvta.local.u64 %q1, %q0; st.local.u32 [%q0], %r1;\n"
	"	mov.u64 %q2, f;\n"
	"	{ .param .b64 a; .param .b64 b; .param .b32 c;\n"
	"	st.param.b64 [a], %q2; st.param.b64 [b], %q1;\n"
	"	call.uni (c), vprintf, (a, b); }\n"
	"	ret;\n}\n"
	".visible .entry check(.param .u32 n)\n{\n"
	"	.reg .b64 %q<6>; .reg .b32 %r<8>; .reg .pred %p;\n"
	"	ld.param.u32 %r0, [n]; mov.u32 %r1, %tid.x;\n"
	"	setp.ne.u32 %p, %r0, %r1;\n"
	"	@%p ret;\n"
	"	mov.u64 %q0, e;\n"
	"	call __assertfail, (%q0, %q0, 77, %q0, 1);\n}\n"
	".visible .entry take(.param .u64 out, .param .u64 bytes, .param .u32 back)\n{\n"
	"	.reg .b64 %q<6>; .reg .b32 %r<8>; .reg .pred %p;\n"
	"	ld.param.u64 %q0, [out]; ld.param.u64 %q1, [bytes]; ld.param.u32 %r0, [back];\n"
	"	mov.u32 %r1, %tid.x; mad.wide.u32 %q0, %r1, 8, %q0;\n"
	"	call (%q2), malloc, (%q1);\n"
	"	st.global.u64 [%q0], %q2;\n"
	"	setp.eq.u64 %p, %q2, 0;\n"
	"	@%p ret;\n"
	"	st.u64 [%q2], %q2;\n"
	"	setp.eq.u32 %p, %r0, 0;\n"
	"	@%p ret;\n"
	"	call free, (%q2);\n"
	"	ret;\n}\n";

static char out_path[128], err_path[128];

static CUfunction kernel(const char *name)
{
	CUcontext ctx;
	CUmodule m;
	CUfunction f;

	CHECK(freopen(out_path, "w", stdout) != NULL && freopen(err_path, "w", stderr) != NULL);
	setvbuf(stderr, NULL, _IONBF, 0);
	CU(cuInit(0));
	CU(cuCtxCreate_v2(&ctx, 0, 0));
	CU(cuModuleLoadData(&m, ptx));
	CU(cuModuleGetFunction(&f, m, name));
	return f;
}

static void say(CUfunction f, unsigned blocks, unsigned threads, unsigned n)
{
	void *params[] = { &n };

	CU(cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, NULL, params, NULL));
}

static size_t size_of(const char *path)
{
	FILE *f = fopen(path, "r");
	long n;

	CHECK(f && fseek(f, 0, SEEK_END) == 0);
	n = ftell(f);
	fclose(f);
	return (size_t)n;
}

static bool file_has(const char *path, const char *text)
{
	char got[4096];
	FILE *f = fopen(path, "r");
	size_t n;

	CHECK(f != NULL);
	n = fread(got, 1, sizeof(got) - 1, f);
	got[n] = '\0';
	fclose(f);
	return strstr(got, text) != NULL;
}

static void child_prints(void *arg)
{
	CUfunction f = kernel("say");

	say(f, 1, 4, 10);
	CU(cuCtxSynchronize());
	CHECK(size_of(out_path) == 4 * 32);
	CHECK(file_has(out_path,
		       "                             10\n                             11\n"));
	/* More than a megabyte, with a program that synchronizes often enough. */
	for (unsigned i = 0; i < 40; i++) {
		say(f, 16, 64, 0);
		CU(cuStreamSynchronize(NULL));
	}
	CHECK(size_of(out_path) == 4 * 32 + 40 * 1024 * 32);
	CHECK(size_of(err_path) == 0);
}

static void text_appears_when_the_program_synchronizes(void **state)
{
	assert_int_equal(rig_run(child_prints, NULL), 0);
}

static void child_floods(void *arg)
{
	CUfunction f = kernel("say");

	say(f, 64, 1024, 0);
	eventually(cuStreamQuery(NULL) != CUDA_ERROR_NOT_READY);
	CU(cuCtxSynchronize());
	/* The buffer holds as many whole texts, with their lengths, as fit. */
	CHECK(size_of(out_path) == SOFT_PRINT_BYTES / 36 * 32);
	CHECK(file_has(err_path, "36409 texts that kernels printed did not fit"));
	say(f, 1, 1, 7);
	CU(cuCtxSynchronize());
	CHECK(size_of(out_path) == SOFT_PRINT_BYTES / 36 * 32 + 32);
}

static void text_that_does_not_fit_is_counted(void **state)
{
	assert_int_equal(65536 - SOFT_PRINT_BYTES / 36, 36409);
	assert_int_equal(rig_run(child_floods, NULL), 0);
}

static void child_asserts(void *arg)
{
	CUfunction f = kernel("check");

	say(f, 1, 8, 100);
	CU(cuCtxSynchronize());
	say(f, 1, 8, 5);
	CU_IS(CUDA_ERROR_ASSERT, cuCtxSynchronize());
	CHECK(file_has(
		err_path,
		"a < b:77: a < b: block: [0,0,0], thread: [5,0,0] Assertion `a < b` failed."));
}

static void a_failed_assertion_is_reported_and_fails_the_context(void **state)
{
	assert_int_equal(rig_run(child_asserts, NULL), 0);
}

static uint64_t take(CUfunction f, CUdeviceptr out, unsigned threads, uint64_t bytes, unsigned back)
{
	uint64_t got[1024], n = 0;
	void *params[] = { &out, &bytes, &back };

	CU(cuLaunchKernel(f, 1, 1, 1, threads, 1, 1, 0, NULL, params, NULL));
	CU(cuMemcpyDtoH_v2(got, out, threads * 8));
	for (unsigned i = 0; i < threads; i++) {
		n += got[i] != 0;
		for (unsigned k = 0; k < i && !back; k++) {
			CHECK(got[i] == 0 || got[k] == 0 || got[i] >= got[k] + bytes ||
			      got[k] >= got[i] + bytes);
		}
	}
	return n;
}

static void child_allocates(void *arg)
{
	CUfunction f = kernel("take");
	CUdeviceptr out;

	CU(cuMemAlloc_v2(&out, 8192));
	CHECK(take(f, out, 256, 100, 0) == 256);
	for (unsigned i = 0; i < 100; i++) {
		CHECK(take(f, out, 32, 200000, 1) == 32);
	}
	/* The heap has 8 MiB, some of which is overhead. */
	CHECK(take(f, out, 1, 9u << 20, 0) == 0);
	CHECK(take(f, out, 32, 1u << 20, 0) < 8);
	CHECK(take(f, out, 1, 0, 0) == 0);
}

static void the_heap_is_bounded_and_what_is_freed_comes_back(void **state)
{
	assert_int_equal(rig_run(child_allocates, NULL), 0);
	assert_int_equal(rig_stats_idle().memory_used, 0);
}

static int setup(void **state)
{
	rig_open();
	rig_start(NULL);
	snprintf(out_path, sizeof(out_path), "%s/out", rig_dir);
	snprintf(err_path, sizeof(err_path), "%s/err", rig_dir);
	return 0;
}

static int teardown(void **state)
{
	rig_stop(SIGTERM);
	unlink(out_path);
	unlink(err_path);
	rig_close();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_appears_when_the_program_synchronizes),
		cmocka_unit_test(text_that_does_not_fit_is_counted),
		cmocka_unit_test(a_failed_assertion_is_reported_and_fails_the_context),
		cmocka_unit_test(the_heap_is_bounded_and_what_is_freed_comes_back),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
