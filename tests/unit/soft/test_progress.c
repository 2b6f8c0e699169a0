/* Blocks that wait for other blocks end, with any number of workers: decoupled look-back over many
 * more blocks than can be resident, blocks that wait for later ones, and a block beside a stream
 * that always has a short kernel ready. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rig.h"

#define TILES 1500u
#define STREAMS 3u
#define SHORT_KERNELS 3000u
#define LATER 12u /* blocks that are resident together on 2 SMs */

/* Arguments: how to store and to load a descriptor, and what to do before loading it again.
 * A tile publishes {1, its value}, adds up what the tiles before it have published until one says
 * {2, the sum up to its end}, and publishes that. Word 2 is the complement of the value, word 3 the
 * status again: a descriptor that is none of those stored stops the tile, with out = ~0. */
static const char look_back[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry scan(.param .u64 tiles, .param .u64 out)\n{\n"
	"	.reg .pred %%p<4>;\n	.reg .b32 %%r<20>;\n	.reg .b64 %%rd<9>;\n"
	"	ld.param.u64 %%rd1, [tiles];\n	ld.param.u64 %%rd2, [out];\n"
	"	mov.u32 %%r1, %%ctaid.x;\n	mul.wide.u32 %%rd3, %%r1, 16;\n"
	"	add.u64 %%rd3, %%rd1, %%rd3;\n	mul.wide.u32 %%rd4, %%r1, 4;\n"
	"	add.u64 %%rd4, %%rd2, %%rd4;\n"
	"	mul.lo.u32 %%r2, %%r1, 2654435761;\n	shr.u32 %%r2, %%r2, 20;\n"
	"	mov.u32 %%r3, 1;\n	mov.u32 %%r4, 0;\n	not.b32 %%r5, %%r2;\n"
	"	%s [%%rd3], {%%r3, %%r2, %%r5, %%r3};\n"
	"	mov.u64 %%rd5, %%rd3;\n"
	"BEFORE:\n"
	"	setp.eq.u64 %%p1, %%rd5, %%rd1;\n	@%%p1 bra KNOWN;\n"
	"	sub.u64 %%rd5, %%rd5, 16;\n	bra LOOK;\n"
	"AGAIN:\n"
	"	%s\n"
	"LOOK:\n"
	"	%s {%%r6, %%r7, %%r8, %%r9}, [%%rd5];\n"
	"	setp.eq.u32 %%p1, %%r6, 0;\n	@%%p1 bra AGAIN;\n"
	"	not.b32 %%r10, %%r7;\n	setp.ne.u32 %%p2, %%r10, %%r8;\n"
	"	setp.ne.or.u32 %%p2, %%r6, %%r9, %%p2;\n	@%%p2 bra TORN;\n"
	"	add.u32 %%r4, %%r4, %%r7;\n"
	"	setp.ne.u32 %%p1, %%r6, 2;\n	@%%p1 bra BEFORE;\n"
	"KNOWN:\n"
	"	mov.u32 %%r3, 2;\n	add.u32 %%r2, %%r2, %%r4;\n	not.b32 %%r5, %%r2;\n"
	"	%s [%%rd3], {%%r3, %%r2, %%r5, %%r3};\n"
	"	st.global.u32 [%%rd4], %%r2;\n	ret;\n"
	"TORN:\n"
	"	mov.u32 %%r2, -1;\n	st.global.u32 [%%rd4], %%r2;\n	bra KNOWN;\n}\n";

static const struct form {
	const char *store, *load, *again;
} forms[] = {
	{ "st.relaxed.gpu.v4.u32", "ld.relaxed.gpu.v4.u32", "" },
	{ "st.relaxed.gpu.global.v4.u32", "ld.relaxed.gpu.global.v4.u32", "nanosleep.u32 350;" },
	{ "st.volatile.global.v4.u32", "ld.volatile.global.v4.u32", "membar.gl;" },
	{ "st.global.cg.v4.u32", "ld.global.cg.v4.u32", "membar.gl;" },
};

static void scan_once(CUfunction f, CUstream s[STREAMS], uint32_t *out)
{
	CUdeviceptr tiles[STREAMS], sums[STREAMS];

	for (unsigned i = 0; i < STREAMS; i++) {
		CU(cuMemAlloc_v2(&tiles[i], TILES * 16));
		CU(cuMemAlloc_v2(&sums[i], TILES * 4));
		CU(cuMemsetD8Async(tiles[i], 0, TILES * 16, s[i]));
		rig_launch(f, TILES, 1, s[i], (void *[]){ &tiles[i], &sums[i] });
	}
	for (unsigned i = 0; i < STREAMS; i++) {
		uint32_t sum = 0;

		CU(cuStreamSynchronize(s[i]));
		CU(cuMemcpyDtoH_v2(out, sums[i], TILES * 4));
		for (uint32_t k = 0; k < TILES; k++) {
			sum += k * 2654435761u >> 20;
			rig_check(out[k] == sum, "the sum of a tile", __FILE__, __LINE__, k);
		}
		CU(cuMemFree_v2(tiles[i]));
		CU(cuMemFree_v2(sums[i]));
	}
}

static void scan_program(void *arg)
{
	const struct form *form = arg;
	uint32_t *out = malloc(TILES * 4);
	CUstream s[STREAMS];
	char text[4096];
	CUmodule m;
	CUfunction f;

	rig_context();
	snprintf(text, sizeof(text), look_back, form->store, form->again, form->load, form->store);
	CU(cuModuleLoadData(&m, text));
	CU(cuModuleGetFunction(&f, m, "scan"));
	for (unsigned i = 0; i < STREAMS; i++) {
		CU(cuStreamCreate(&s[i], CU_STREAM_NON_BLOCKING));
	}
	scan_once(f, s, out);
}

static void tiles_look_back(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		assert_int_equal(rig_run(scan_program, (void *)(uintptr_t)&forms[i]), 0);
	}
}

static void tiles_of_several_programs_look_back(void **state)
{
	pid_t p[ARRAY_SIZE(forms)];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		p[i] = rig_spawn(scan_program, (void *)(uintptr_t)&forms[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		assert_int_equal(rig_wait(p[i]), 0);
	}
}

static const char others[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	/* each block but the last waits for the next one's flag, then sets its own */
	".visible .entry later(.param .u64 flags)\n{\n"
	"	.reg .pred %p<2>;\n	.reg .b32 %r<6>;\n	.reg .b64 %rd<4>;\n"
	"	ld.param.u64 %rd1, [flags];\n	mov.u32 %r1, %ctaid.x;\n	mov.u32 %r2, "
	"%nctaid.x;\n"
	"	mul.wide.u32 %rd2, %r1, 4;\n	add.u64 %rd2, %rd1, %rd2;\n"
	"	add.u32 %r1, %r1, 1;\n	setp.eq.u32 %p1, %r1, %r2;\n	@%p1 bra SET;\n"
	"WAIT:\n"
	"	ld.volatile.global.u32 %r3, [%rd2+4];\n"
	"	setp.eq.u32 %p1, %r3, 0;\n	@%p1 bra WAIT;\n"
	"SET:\n"
	"	mov.u32 %r3, 1;\n	st.volatile.global.u32 [%rd2], %r3;\n	ret;\n}\n"
	/* 40 turns, opens the gate at word 0, 40 turns, stores how many short kernels have run */
	".visible .entry turns(.param .u64 words)\n{\n"
	"	.reg .pred %p<3>;\n	.reg .b32 %r<4>;\n	.reg .b64 %rd<2>;\n"
	"	ld.param.u64 %rd1, [words];\n	mov.u32 %r1, 0;\n"
	"TURN:\n"
	"	nanosleep.u32 1;\n	nanosleep.u32 1;\n	add.u32 %r1, %r1, 1;\n"
	"	setp.eq.u32 %p1, %r1, 40;\n	mov.u32 %r2, 1;\n"
	"	@%p1 st.volatile.global.u32 [%rd1], %r2;\n"
	"	setp.lt.u32 %p1, %r1, 80;\n	@%p1 bra TURN;\n"
	"	ld.volatile.global.u32 %r3, [%rd1+4];\n"
	"	st.volatile.global.u32 [%rd1+8], %r3;\n	ret;\n}\n"
	".visible .entry count(.param .u64 words)\n{\n"
	"	.reg .b64 %rd<2>;\n	ld.param.u64 %rd1, [words];\n"
	"	red.global.add.u32 [%rd1+4], 1;\n	ret;\n}\n";

static CUfunction other(const char *name, CUdeviceptr *ret_words)
{
	CUmodule m;
	CUfunction f;

	rig_context();
	CU(cuModuleLoadData(&m, others));
	CU(cuModuleGetFunction(&f, m, name));
	CU(cuMemAlloc_v2(ret_words, 4096));
	CU(cuMemsetD8_v2(*ret_words, 0, 4096));
	return f;
}

static void later_program(void *arg)
{
	CUdeviceptr words;
	CUfunction f = other("later", &words);

	(void)arg;
	rig_launch(f, LATER, 1, NULL, (void *[]){ &words });
	CU(cuCtxSynchronize());
}

static void blocks_wait_for_later_ones(void **state)
{
	(void)state;
	assert_int_equal(rig_run(later_program, NULL), 0);
}

static void beside_program(void *arg)
{
	uint32_t seen[3];
	CUdeviceptr words;
	CUfunction f = other("turns", &words), count;
	CUmodule m;
	CUstream a, b;

	(void)arg;
	CU(cuModuleLoadData(&m, others));
	CU(cuModuleGetFunction(&count, m, "count"));
	CU(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	CU(cuStreamWaitValue32_v2(b, words, 1, CU_STREAM_WAIT_VALUE_EQ));
	for (unsigned i = 0; i < SHORT_KERNELS; i++) {
		rig_launch(count, 1, 1, b, (void *[]){ &words });
	}
	rig_launch(f, 1, 1, a, (void *[]){ &words });
	CU(cuCtxSynchronize());
	CU(cuMemcpyDtoH_v2(seen, words, sizeof(seen)));
	CHECK(seen[1] == SHORT_KERNELS);
	rig_check(seen[2] < SHORT_KERNELS / 2, "short kernels before the long one's end", __FILE__,
		  __LINE__, seen[2]);
}

/* The short kernels that are ready run in turn with the long one, not all before it. With several
 * workers the kernel of the host decides that, too: it may stop the one that has the long block. */
static void short_kernels_do_not_starve_a_long_one(void **state)
{
	(void)state;
	assert_int_equal(rig_run(beside_program, NULL), 0);
}

static int start_with(const char *workers)
{
	const char *const args[] = { "--mem", "256M", "--sms", "2", "--workers", workers, NULL };

	rig_open();
	rig_start(args);
	return 0;
}

static int start_1(void **state)
{
	(void)state;
	return start_with("1");
}

static int start_2(void **state)
{
	(void)state;
	return start_with("2");
}

static int start_4(void **state)
{
	(void)state;
	return start_with("4");
}

static int start_8(void **state)
{
	(void)state;
	return start_with("8");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tiles_look_back),
		cmocka_unit_test(tiles_of_several_programs_look_back),
		cmocka_unit_test(blocks_wait_for_later_ones),
	}, turns[] = {
		cmocka_unit_test(short_kernels_do_not_starve_a_long_one),
	};

	return cmocka_run_group_tests_name("turns, 1 worker", turns, start_1, rig_end) +
	       cmocka_run_group_tests_name("progress, 1 worker", tests, start_1, rig_end) +
	       cmocka_run_group_tests_name("progress, 2 workers", tests, start_2, rig_end) +
	       cmocka_run_group_tests_name("progress, 4 workers", tests, start_4, rig_end) +
	       cmocka_run_group_tests_name("progress, 8 workers", tests, start_8, rig_end);
}
