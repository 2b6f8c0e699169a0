/* probed: a program with kernels for probes.bats, which obeys lines of standard input and answers
 * each on standard output with "ok" and what it found. It checks the result of every launch.
 *
 *   load            loads the module and gets its functions
 *   target SM       as load, with PTX for that architecture
 *   code            loads another module, without variables, as machine code only
 *   stored          as both, by a ptxas that has stored the PTX in it
 *   both            as code, with a kernel that uses variables
 *   counts          as code, with a kernel that adds to a variable; no constants
 *   totals N        launches of that kernel
 *   own             loads a module whose kernel calls through pointers and has a variable
 *   prepared        the same as machine code, as gBPF's ptxas has prepared and stored it
 *   inside N        launches of that kernel, one block of 32 threads
 *   unload          unloads it
 *   launch N BLOCKS launches of scale with that many blocks of 96 threads, then synchronizes
 *   variables N     launches of a kernel that uses the module's variables
 *   refused N       N launches of scale that the driver refuses
 *   beyond          launches of scale with more shared memory than it may have, which are refused
 *   config N        N launches of scale, 2 blocks, by cuLaunchKernelEx and cooperatively in turn
 *   numbers N       N launches of scale, 1 to 5 blocks, on two streams in turn, by each call and
 *                   with parameters in each form, without waiting
 *   behind N        N launches of scale on a stream that waits until all of them are launched
 *   threads N M     M threads launch N times each on streams of their own
 *   keep M          M threads launch from now on, on streams of their own
 *   stop            ends them
 *   churn           makes and destroys objects until the soft GPU makes no more new ones
 *   remember        ends a period: notes how much memory is allocated
 *   growth BYTES    in one of the periods at least the memory did not grow by more: a leak grows in
 *                   each, a free list only until it is as long as it must be
 *   library         as load and launch 3 5, by a library and its kernel
 *   graph N         N launches of a captured graph with one launch of scale
 *   compare NAME N  N launches of a kernel for --verify: same (at[i] += i), chance (the clock),
 *                   place (the address of a local variable), chain (at[0][i] = i)
 *   context         destroys a context of its own in which it has launched scale, 7 blocks
 *   fork            a child exits at once
 *   exit            returns from main()
 */
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../programs/program.h"
#include "check.h"
#include "ptx/module.h"
#include "ptx/prepare.h"
#include "ptx/stored.h"

#define THREADS 96u
#define BLOCKS_MAX 4096u
#define THREADS_MAX 16u

static const char header[] = ".version 6.0\n.target sm_70\n.address_size 64\n";
static const char variable_text[] =
	".global .align 4 .u32 total;\n.const .align 4 .u32 step = 3;\n";
/* at[i] = 2 at[i] + 1, for i < n; other threads leave early */
static const char scales[] =
	".func (.param .b32 r) twice(.param .b32 a)\n{\n"
	".reg .b32 %r<2>;\n"
	"ld.param.u32 %r0, [a]; add.u32 %r1, %r0, %r0; st.param.b32 [r], %r1; ret;\n}\n"
	"\n"
	".visible .entry scale(.param .u64 at, .param .u32 n)\n{\n"
	".reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<4>;\n"
	"ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [n];\n"
	"mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
	"mad.lo.s32 %r5, %r2, %r3, %r4; setp.ge.u32 %p1, %r5, %r1; @%p1 ret;\n"
	"mul.wide.u32 %rd2, %r5, 4; add.s64 %rd3, %rd1, %rd2; ld.global.u32 %r6, [%rd3];\n"
	"{ .param .b32 q; .param .b32 p; st.param.b32 [p], %r6; call (q), twice, (p);\n"
	"ld.param.b32 %r7, [q]; }\n"
	"add.u32 %r7, %r7, 1; st.global.u32 [%rd3], %r7; ret;\n}\n";
/* each thread adds step to total */
static const char adds[] =
	".visible .entry add()\n{\n"
	".reg .b32 %r<3>;\n"
	"ld.const.u32 %r1, [step]; atom.global.add.u32 %r2, [total], %r1; ret;\n}\n";

/* Each thread adds a step to total, by a pointer that the first one has stored. The first of a
 * block also calls functions of the driver. */
static const char counts[] =
	".extern .func (.param .b64 p) malloc (.param .b64 n);\n"
	".extern .func free (.param .b64 p);\n"
	".global .align 4 .u32 total;\n.global .align 8 .u64 chosen;\n"
	".global .align 4 .u32 steps[2] = {1, 4};\n"
	".visible .entry count()\n{\n"
	".reg .pred %p; .reg .b32 %r<4>; .reg .b64 %q<3>;\n"
	"ld.global.u64 %q0, [chosen]; setp.ne.u64 %p, %q0, 0; @%p bra known;\n"
	"mov.u64 %q1, steps; cvta.global.u64 %q1, %q1; st.global.u64 [chosen], %q1;\n"
	"mov.u64 %q0, %q1;\nknown:\n"
	"ld.u32 %r1, [%q0+4]; atom.global.add.u32 %r2, [total], %r1;\n"
	"mov.u32 %r3, %tid.x; setp.ne.u32 %p, %r3, 0; @%p ret;\n"
	"{ .param .b64 p; .param .b64 n; st.param.b64 [n], 64; call (p), malloc, (n);\n"
	"ld.param.b64 %q2, [p]; }\n"
	"{ .param .b64 p; st.param.b64 [p], %q2; call free, (p); }\n"
	"ret;\n}\n";

/* a thread: at[i] = i + 3 or i - 3, by a pointer; at[32]: launches times threads so far */
static const char owns[] =
	".func (.param .b32 r) plus(.param .b32 a, .param .b32 b)\n{\n"
	".reg .b32 %r<3>; ld.param.u32 %r0, [a]; ld.param.u32 %r1, [b];\n"
	"add.u32 %r0, %r0, %r1; st.param.b32 [r], %r0; ret;\n}\n"
	".func (.param .b32 r) minus(.param .b32 a, .param .b32 b)\n{\n"
	".reg .b32 %r<3>; ld.param.u32 %r0, [a]; ld.param.u32 %r1, [b];\n"
	"sub.u32 %r0, %r0, %r1; st.param.b32 [r], %r0; ret;\n}\n"
	".global .align 8 .u64 table[2] = {plus, minus};\n"
	".visible .entry own(.param .u64 at)\n{\n"
	".reg .pred %p; .reg .b32 %r<6>; .reg .b64 %q<5>; .global .u32 seen;\n"
	"ld.param.u64 %q0, [at]; mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 1;\n"
	"mov.u64 %q1, table; mad.wide.u32 %q1, %r1, 8, %q1; ld.global.u64 %q2, [%q1];\n"
	"mad.wide.u32 %q3, %r0, 4, %q0; atom.global.add.u32 %r2, [seen], 1;\n"
	"{ .param .b32 p0; .param .b32 p1; .param .b32 p2;\n"
	"st.param.b32 [p0], %r0; st.param.b32 [p1], 3;\n"
	"form: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);\n"
	"call (p2), %q2, (p0, p1), form; ld.param.b32 %r3, [p2]; }\n"
	"st.global.u32 [%q3], %r3; bar.sync 0; setp.ne.u32 %p, %r0, 0; @%p ret;\n"
	"ld.volatile.global.u32 %r2, [seen]; st.global.u32 [%q0+128], %r2; ret;\n}\n";

/* Kernels whose results are the same in each run, differ between runs, differ between kernel and
 * form, or are written by a pointer from memory. The soft GPU places local variables in the order
 * of their declarations, and programs of the entry run before the label. */
static const char compared[] =
	".visible .entry same(.param .u64 at)\n{\n"
	".reg .b32 %r<3>; .reg .b64 %q<3>; ld.param.u64 %q0, [at]; cvta.to.global.u64 %q0, %q0;\n"
	"mov.u32 %r0, %tid.x; mad.wide.u32 %q1, %r0, 8, %q0; ld.global.u32 %r1, [%q1];\n"
	"add.u32 %r1, %r1, %r0; st.global.u32 [%q1], %r1; ret;\n}\n"
	".visible .entry chance(.param .u64 at)\n{\n"
	".reg .b32 %r<3>; .reg .b64 %q<3>; ld.param.u64 %q0, [at];\n"
	"mov.u32 %r0, %tid.x; mad.wide.u32 %q1, %r0, 8, %q0; mov.u64 %q2, %clock64;\n"
	"st.global.u64 [%q1], %q2; ret;\n}\n"
	".visible .entry place(.param .u64 at)\n{\n"
	".reg .b32 %r<3>; .reg .b64 %q<3>; ld.param.u64 %q0, [at];\n"
	"mov.u32 %r0, %tid.x; mad.wide.u32 %q1, %r0, 8, %q0;\n"
	"behind:\n.local .align 8 .b8 here[8]; mov.u64 %q2, here;\n"
	"st.global.u64 [%q1], %q2; ret;\n}\n"
	".visible .entry chain(.param .u64 at)\n{\n"
	".reg .b32 %r<3>; .reg .b64 %q<3>; ld.param.u64 %q0, [at]; ld.global.u64 %q0, [%q0];\n"
	"mov.u32 %r0, %tid.x; mad.wide.u32 %q1, %r0, 8, %q0; st.global.u32 [%q1], %r0; ret;\n}\n";

static CUdevice device;
static CUcontext context;
static CUmodule module;
static CUfunction scale, add, own;

/* Returns the text of a module with both kernels, or of scale without the function: a copy of
 * machine code must not call functions by their number in the module. */
static const char *text(bool all)
{
	static char module_text[4096];
	const char *call = strstr(scales, "{ .param"), *behind = strstr(scales, "add.u32 %r7, %r7");

	if (all) {
		snprintf(module_text, sizeof(module_text), "%s%s%s%s", header, variable_text,
			 scales, adds);
	} else {
		const char *entry = strstr(scales, ".visible");

		snprintf(module_text, sizeof(module_text), "%s%.*sadd.u32 %%r7, %%r6, %%r6;\n%s",
			 header, (int)(call - entry), entry, behind);
	}
	return module_text;
}

/* Returns the text with both kernels and another .target. */
static const char *text_for(const char *target)
{
	static char module_text[4096];

	snprintf(module_text, sizeof(module_text), ".version 8.8\n.target %s\n.address_size 64\n%s",
		 target, strstr(text(true), variable_text));
	return module_text;
}

static void get_functions(bool all)
{
	CU(cuModuleGetFunction(&scale, module, "scale"));
	if (all) {
		CU(cuModuleGetFunction(&add, module, "add"));
	}
}

static void load(const char *from)
{
	CU(cuModuleLoadData(&module, from));
	get_functions(true);
}

/* Compiles a text and loads the result, as programs do that bring no PTX. */
static void load_code(const char *from)
{
	CUlinkState s;
	size_t bytes;
	void *image, *copy;

	CU(cuLinkCreate(0, NULL, NULL, &s));
	CU(cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)(uintptr_t)from, strlen(from) + 1, "ptx", 0,
			 NULL, NULL));
	CU(cuLinkComplete(s, &image, &bytes));
	copy = malloc(bytes); /* elsewhere than what the shim knows as the linker's result */
	CHECK(copy, "no memory");
	memcpy(copy, image, bytes);
	CU(cuLinkDestroy(s));
	CU(cuModuleLoadData(&module, copy));
	free(copy);
}

static void load_counts(void)
{
	char from[4096];

	snprintf(from, sizeof(from), "%s%s", header, counts);
	load_code(from);
	CU(cuModuleGetFunction(&add, module, "count"));
}

static void load_stored(void)
{
	const char *from = text(true);
	struct buf b;

	buf_init(&b);
	buf_puts(&b, from);
	CHECK(ptx_stored_print(&b, from, strlen(from)) == 0, "not stored");
	load_code(buf_text(&b));
	get_functions(true);
	buf_finish(&b);
}

/* Launches n times on a stream, with one block less a thread, and checks the memory. */
static void launch(CUfunction f, CUstream s, unsigned n, unsigned blocks)
{
	unsigned *host, words = blocks * THREADS, used = words - 1, expected = 0;
	void *params[2];
	CUdeviceptr at;

	CHECK(blocks && blocks <= BLOCKS_MAX, "%u", blocks);
	host = calloc(words, sizeof(*host));
	CHECK(host, "no memory");
	CU(cuMemAlloc(&at, words * sizeof(*host)));
	CU(cuMemcpyHtoDAsync(at, host, words * sizeof(*host), s));
	params[0] = &at;
	params[1] = &used;
	for (unsigned i = 0; i < n; i++) {
		CU(cuLaunchKernel(f, blocks, 1, 1, THREADS, 1, 1, 0, s, params, NULL));
		expected = 2 * expected + 1;
	}
	CU(cuMemcpyDtoHAsync(host, at, words * sizeof(*host), s));
	CU(cuStreamSynchronize(s));
	for (unsigned i = 0; i < words; i++) {
		CHECK(host[i] == (i < used ? expected : 0), "word %u is %u", i, host[i]);
	}
	CU(cuMemFree(at));
	free(host);
}

static void refused(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		CUdeviceptr at = 0;
		unsigned used = 0;
		void *params[] = { &at, &used };

		CHECK(cuLaunchKernel(scale, 1, 1, 1, 4096, 1, 1, 0, NULL, params, NULL) ==
			      CUDA_ERROR_INVALID_VALUE,
		      "launch %u", i);
	}
}

/* Those of a probed form may have more. */
static void beyond(void)
{
	static const int sizes[] = { 0, 100, 4096 }; /* 0: as at first */
	CUdeviceptr at = 0;
	unsigned used = 0;
	void *params[] = { &at, &used };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const CUfunction_attribute what = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
		int max;

		if (sizes[i]) {
			CU(cuFuncSetAttribute(scale, what, sizes[i]));
		}
		CU(cuFuncGetAttribute(&max, what, scale));
		CHECK(cuLaunchKernel(scale, 1, 1, 1, 32, 1, 1, (unsigned)max + 1, NULL, params,
				     NULL) == CUDA_ERROR_INVALID_VALUE,
		      "%d bytes", max + 1);
		CU(cuLaunchKernel(scale, 1, 1, 1, 32, 1, 1, (unsigned)max, NULL, params, NULL));
	}
	CU(cuStreamSynchronize(NULL));
}

static void behind(unsigned n)
{
	unsigned used = 0, *word;
	CUdeviceptr at = 0, flag;
	void *params[] = { &at, &used };
	CUstream s;

	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuMemHostAlloc((void **)&word, sizeof(*word), CU_MEMHOSTALLOC_DEVICEMAP));
	flag = (CUdeviceptr)(uintptr_t)word;
	*word = 0;
	CU(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
	for (unsigned i = 0; i < n; i++) {
		CU(cuLaunchKernel(scale, 1, 1, 1, THREADS, 1, 1, 0, s, params, NULL));
	}
	CHECK(cuStreamQuery(s) == CUDA_ERROR_NOT_READY, "the stream did not wait");
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	CU(cuStreamSynchronize(s));
	CU(cuMemFreeHost(word));
	CU(cuStreamDestroy(s));
}

static void configured(unsigned n)
{
	CUlaunchConfig config = { .gridDimX = 2,
				  .gridDimY = 1,
				  .gridDimZ = 1,
				  .blockDimX = THREADS,
				  .blockDimY = 1,
				  .blockDimZ = 1,
				  .sharedMemBytes = 48 };
	unsigned used = 0;
	CUdeviceptr at = 0;
	void *params[] = { &at, &used };

	for (unsigned i = 0; i < n; i++) {
		if (i % 2) {
			CU(cuLaunchCooperativeKernel(scale, 2, 1, 1, THREADS, 1, 1, 48, NULL,
						     params));
		} else {
			CU(cuLaunchKernelEx(&config, scale, params, NULL));
		}
	}
	CU(cuStreamSynchronize(NULL));
}

/* One of two streams, with memory for the first block's threads. */
struct side {
	CUstream s;
	CUdeviceptr at;
	unsigned expected;
};

/* how: the call, and the form of the parameters. */
static void launch_by(struct side *side, unsigned how, unsigned blocks)
{
	CUlaunchConfig config = { .gridDimX = blocks,
				  .gridDimY = 1,
				  .gridDimZ = 1,
				  .blockDimX = THREADS,
				  .blockDimY = 1,
				  .blockDimZ = 1,
				  .hStream = side->s };
	struct {
		CUdeviceptr at;
		unsigned used;
	} packed = { side->at, THREADS - 1 };
	size_t bytes = offsetof(__typeof__(packed), used) + sizeof(packed.used);
	void *params[] = { &packed.at, &packed.used };
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };

	switch (how % 5) {
	case 0:
		CU(cuLaunchKernel(scale, blocks, 1, 1, THREADS, 1, 1, 0, side->s, params, NULL));
		break;
	case 1:
		CU(cuLaunchKernel(scale, blocks, 1, 1, THREADS, 1, 1, 0, side->s, NULL, extra));
		break;
	case 2:
		CU(cuLaunchKernelEx(&config, scale, params, NULL));
		break;
	case 3:
		CU(cuLaunchKernelEx(&config, scale, NULL, extra));
		break;
	default:
		CU(cuLaunchCooperativeKernel(scale, blocks, 1, 1, THREADS, 1, 1, 0, side->s,
					     params));
	}
	side->expected = 2 * side->expected + 1;
}

/* The program sees the parameters of its own kernel. */
static void check_params(void)
{
	size_t offset = 0, bytes = 0;

	CU(cuFuncGetParamInfo(scale, 1, &offset, &bytes));
	CHECK(offset == 8 && bytes == 4, "%zu bytes at %zu", bytes, offset);
	CHECK(cuFuncGetParamInfo(scale, 2, &offset, &bytes) == CUDA_ERROR_INVALID_VALUE,
	      "a third parameter");
}

static void numbers(unsigned n)
{
	unsigned host[THREADS] = { 0 };
	struct side sides[2];

	for (unsigned k = 0; k < 2; k++) {
		sides[k].expected = 0;
		CU(cuStreamCreate(&sides[k].s, CU_STREAM_NON_BLOCKING));
		CU(cuMemAlloc(&sides[k].at, sizeof(host)));
		CU(cuMemcpyHtoD(sides[k].at, host, sizeof(host)));
	}
	for (unsigned i = 0; i < n; i++) {
		launch_by(&sides[i % 2], i, 1 + i % 5);
	}
	check_params();
	for (unsigned k = 0; k < 2; k++) {
		CU(cuStreamSynchronize(sides[k].s));
		CU(cuMemcpyDtoH(host, sides[k].at, sizeof(host)));
		for (unsigned i = 0; i < THREADS; i++) {
			CHECK(host[i] == (i < THREADS - 1 ? sides[k].expected : 0), "word %u is %u",
			      i, host[i]);
		}
		memset(host, 0, sizeof(host));
		CU(cuMemFree(sides[k].at));
		CU(cuStreamDestroy(sides[k].s));
	}
}

static void variables(unsigned n)
{
	CUdeviceptr total, step;
	unsigned zero = 0, now, three;
	size_t bytes;

	CU(cuModuleGetGlobal(&total, &bytes, module, "total"));
	CU(cuModuleGetGlobal(&step, &bytes, module, "step"));
	CU(cuMemcpyDtoH(&three, step, sizeof(three)));
	CU(cuMemcpyHtoD(total, &zero, sizeof(zero)));
	for (unsigned i = 0; i < n; i++) {
		CU(cuLaunchKernel(add, 2, 1, 1, 40, 1, 1, 0, NULL, NULL, NULL));
	}
	CU(cuMemcpyDtoH(&now, total, sizeof(now)));
	CHECK(now == n * 80 * three, "%u", now);
	three += 2; /* the program may change its constants */
	CU(cuMemcpyHtoD(step, &three, sizeof(three)));
}

/* The host writes the step of all launches but the first, whatever form they take. */
static void totals(unsigned n)
{
	CUdeviceptr total, steps, chosen;
	unsigned zero = 0, now, step;
	uint64_t pointer;
	size_t bytes;

	CU(cuModuleGetGlobal(&total, &bytes, module, "total"));
	CU(cuModuleGetGlobal(&steps, &bytes, module, "steps"));
	CU(cuModuleGetGlobal(&chosen, &bytes, module, "chosen"));
	CU(cuMemcpyHtoD(total, &zero, sizeof(zero)));
	CU(cuMemcpyDtoH(&step, steps + 4, sizeof(step)));
	for (unsigned i = 0; i < n; i++) {
		CU(cuLaunchKernel(add, 2, 1, 1, 40, 1, 1, 0, NULL, NULL, NULL));
	}
	CU(cuMemcpyDtoH(&now, total, sizeof(now)));
	CHECK(now == n * 80 * step, "%u", now);
	CU(cuMemcpyDtoH(&pointer, chosen, sizeof(pointer)));
	CHECK(pointer == steps, "0x%llx", (unsigned long long)pointer);
	step += 3;
	CU(cuMemcpyHtoD(steps + 4, &step, sizeof(step)));
}

/* As gBPF's ptxas compiles and stores a module under gbpf run --probes. */
static void load_prepared(void)
{
	struct ptx_module *m = NULL;
	struct report r;
	char own_text[4096];
	struct buf b;
	size_t bytes;

	snprintf(own_text, sizeof(own_text), "%s%s", header, owns);
	buf_init(&b);
	report_init(&r);
	CHECK(ptx_module_parse(&m, own_text, strlen(own_text), "own", &r) == 0 &&
		      ptx_prepare(m, 1) == 1 && ptx_module_print(m, &b) == 0,
	      "not prepared");
	bytes = b.len;
	CHECK(strlen(buf_text(&b)) < sizeof(own_text), "too long");
	memcpy(own_text, buf_text(&b), bytes + 1);
	CHECK(ptx_stored_print(&b, own_text, bytes) == 0, "not stored");
	load_code(buf_text(&b));
	CU(cuModuleGetFunction(&own, module, "own"));
	ptx_module_free(m);
	report_finish(&r);
	buf_finish(&b);
}

static void load_own(void)
{
	char text[4096];

	snprintf(text, sizeof(text), "%s%s", header, owns);
	CU(cuModuleLoadData(&module, text));
	CU(cuModuleGetFunction(&own, module, "own"));
}

static void inside(unsigned n)
{
	static unsigned seen;
	unsigned host[33];
	CUdeviceptr at;
	void *params[] = { &at };

	CU(cuMemAlloc(&at, sizeof(host)));
	for (unsigned i = 0; i < n; i++) {
		CU(cuLaunchKernel(own, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
		CU(cuMemcpyDtoH(host, at, sizeof(host)));
		seen += 32;
		CHECK(host[32] == seen, "%u of %u", host[32], seen);
		for (unsigned k = 0; k < 32; k++) {
			CHECK(host[k] == (k % 2 ? k - 3 : k + 3), "word %u is %u", k, host[k]);
		}
	}
	CU(cuMemFree(at));
}

static unsigned each;

static void *run(void *arg)
{
	CUstream s;

	(void)arg;
	CU(cuCtxSetCurrent(context));
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < each; i++) {
		launch(scale, s, 1, 3);
	}
	CU(cuStreamDestroy(s));
	return NULL;
}

static void threads(unsigned n, unsigned m)
{
	pthread_t t[THREADS_MAX];

	CHECK(m <= THREADS_MAX, "%u", m);
	each = n;
	for (unsigned i = 0; i < m; i++) {
		CHECK(pthread_create(&t[i], NULL, run, NULL) == 0, "thread");
	}
	for (unsigned i = 0; i < m; i++) {
		pthread_join(t[i], NULL);
	}
}

static pthread_t keepers[THREADS_MAX];
static unsigned n_keepers, stopped; /* the latter [atomic] */

static void *launch_on(void *arg)
{
	CUstream s;

	(void)arg;
	CU(cuCtxSetCurrent(context));
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	while (!__atomic_load_n(&stopped, __ATOMIC_SEQ_CST)) {
		launch(scale, s, 1, 3);
		usleep(500); /* leaves the processor to others */
	}
	CU(cuStreamDestroy(s));
	return NULL;
}

static void keep(unsigned m)
{
	CHECK(m <= THREADS_MAX, "%u", m);
	__atomic_store_n(&stopped, 0u, __ATOMIC_SEQ_CST);
	for (n_keepers = 0; n_keepers < m; n_keepers++) {
		CHECK(pthread_create(&keepers[n_keepers], NULL, launch_on, NULL) == 0, "thread");
	}
}

static void stop(void)
{
	__atomic_store_n(&stopped, 1u, __ATOMIC_SEQ_CST);
	while (n_keepers) {
		pthread_join(keepers[--n_keepers], NULL);
	}
}

/* The soft GPU reuses a destroyed object once there are 256 of its kind. */
static void churn(void)
{
	for (unsigned i = 0; i < 300; i++) {
		CUlinkState l;
		CUfunction f;
		CUmodule m;
		CUstream s;
		CUevent e;

		CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
		CU(cuStreamDestroy(s));
		CU(cuLinkCreate(0, NULL, NULL, &l));
		CU(cuLinkDestroy(l));
		CU(cuModuleLoadData(&m, text(true)));
		CU(cuModuleGetFunction(&f, m, "scale"));
		CU(cuModuleUnload(m));
		CU(cuEventCreate(&e, 0));
		CU(cuEventDestroy(e));
	}
}

/* Returns the number of bytes allocated, the minimum of samples that end as soon as 60 in a row are
 * not lower: calls in progress hold some, and ended forms are unloaded later. */
static size_t allocated(void)
{
	size_t least = SIZE_MAX;

	for (unsigned since = 0; since < 60; since++) {
		struct mallinfo2 now = mallinfo2();
		size_t bytes = now.uordblks + now.hblkhd;

		if (bytes < least) {
			least = bytes;
			since = 0;
		}
		usleep(5000);
	}
	return least;
}

static size_t remembered;
static ptrdiff_t least_growth = PTRDIFF_MAX; /* of the periods between two calls of remember() */

static void remember(void)
{
	size_t now = allocated();

	if (remembered) {
		ptrdiff_t growth = (ptrdiff_t)(now - remembered);

		least_growth = growth < least_growth ? growth : least_growth;
		fprintf(stderr, "allocated %zu, then %zu bytes\n", remembered, now);
	}
	remembered = now;
}

static void library(void)
{
	CUlibrary l;
	CUkernel k;

	CU(cuLibraryLoadData(&l, text(true), NULL, NULL, 0, NULL, NULL, 0));
	CU(cuLibraryGetKernel(&k, l, "scale"));
	launch((CUfunction)(void *)k, NULL, 3, 5);
	CU(cuLibraryUnload(l));
}

static void graph(unsigned n)
{
	unsigned words = THREADS, used = words - 1, host[THREADS] = { 0 }, expected = 0;
	void *params[2];
	CUgraphExec exec;
	CUdeviceptr at;
	CUgraph g;
	CUstream s;

	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc(&at, sizeof(host)));
	CU(cuMemcpyHtoD(at, host, sizeof(host)));
	params[0] = &at;
	params[1] = &used;
	CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuLaunchKernel(scale, 1, 1, 1, THREADS, 1, 1, 0, s, params, NULL));
	CU(cuStreamEndCapture(s, &g));
	CU(cuGraphInstantiateWithFlags(&exec, g, 0));
	for (unsigned i = 0; i < n; i++) {
		CU(cuGraphLaunch(exec, s));
		expected = 2 * expected + 1;
	}
	CU(cuStreamSynchronize(s));
	CU(cuMemcpyDtoH(host, at, sizeof(host)));
	CHECK(host[0] == expected && host[THREADS - 1] == 0, "%u", host[0]);
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(g));
	CU(cuStreamDestroy(s));
}

/* The program's memory is that of N launches of the kernel itself. */
static void compare(const char *name, unsigned n)
{
	char *text = malloc(sizeof(header) + sizeof(compared));
	uint64_t host[THREADS] = { 0 };
	CUdeviceptr at, to;
	void *params[] = { &at };
	CUmodule m;
	CUfunction f;

	CHECK(text, "no memory");
	sprintf(text, "%s%s", header, compared);
	CU(cuModuleLoadData(&m, text));
	free(text);
	CU(cuModuleGetFunction(&f, m, name));
	CU(cuMemAlloc(&at, sizeof(host)));
	CU(cuMemAlloc(&to, sizeof(host)));
	host[0] = strcmp(name, "chain") ? 0 : to;
	CU(cuMemcpyHtoD(at, host, sizeof(host)));
	for (unsigned i = 0; i < n; i++) {
		CU(cuLaunchKernel(f, 1, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
	}
	CU(cuMemcpyDtoH(host, at, sizeof(host)));
	for (unsigned i = 1; i < THREADS && strcmp(name, "same") == 0; i++) {
		CHECK(host[i] == n * i, "word %u is %llu", i, (unsigned long long)host[i]);
	}
	CU(cuMemFree(at));
	CU(cuMemFree(to));
}

static void other_context(void)
{
	CUmodule m = module;
	CUcontext c;

	CU(cuCtxCreate(&c, 0, device));
	load(text(true));
	launch(scale, NULL, 1, 7);
	CU(cuCtxDestroy(c));
	CU(cuCtxSetCurrent(context));
	module = m;
	if (m) {
		CU(cuModuleGetFunction(&scale, module, "scale"));
		CU(cuModuleGetFunction(&add, module, "add"));
	}
}

static void fork_child(void)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "child");
}

static bool obey(const char *line)
{
	unsigned n = 0, m = 0;
	char name[16];

	if (strcmp(line, "load\n") == 0) {
		load(text(true));
	} else if (sscanf(line, "target %15s", name) == 1) {
		load(text_for(name));
	} else if (strcmp(line, "code\n") == 0) {
		load_code(text(false));
		get_functions(false);
	} else if (strcmp(line, "stored\n") == 0) {
		load_stored();
	} else if (strcmp(line, "both\n") == 0) {
		load_code(text(true));
		get_functions(true);
	} else if (strcmp(line, "counts\n") == 0) {
		load_counts();
	} else if (sscanf(line, "totals %u", &n) == 1) {
		totals(n);
	} else if (strcmp(line, "prepared\n") == 0) {
		load_prepared();
	} else if (strcmp(line, "own\n") == 0) {
		load_own();
	} else if (sscanf(line, "inside %u", &n) == 1) {
		inside(n);
	} else if (strcmp(line, "unload\n") == 0) {
		CU(cuModuleUnload(module));
		module = NULL;
	} else if (sscanf(line, "launch %u %u", &n, &m) == 2) {
		launch(scale, NULL, n, m);
	} else if (sscanf(line, "compare %15s %u", name, &n) == 2) {
		compare(name, n);
	} else if (sscanf(line, "variables %u", &n) == 1) {
		variables(n);
	} else if (sscanf(line, "refused %u", &n) == 1) {
		refused(n);
	} else if (sscanf(line, "behind %u", &n) == 1) {
		behind(n);
	} else if (strcmp(line, "beyond\n") == 0) {
		beyond();
	} else if (sscanf(line, "config %u", &n) == 1) {
		configured(n);
	} else if (sscanf(line, "numbers %u", &n) == 1) {
		numbers(n);
	} else if (sscanf(line, "threads %u %u", &n, &m) == 2) {
		threads(n, m);
	} else if (sscanf(line, "keep %u", &n) == 1) {
		keep(n);
	} else if (strcmp(line, "stop\n") == 0) {
		stop();
	} else if (strcmp(line, "churn\n") == 0) {
		churn();
	} else if (strcmp(line, "remember\n") == 0) {
		remember();
	} else if (sscanf(line, "growth %u", &n) == 1) {
		CHECK(least_growth <= (ptrdiff_t)n, "%td bytes more after each period",
		      least_growth);
	} else if (strcmp(line, "library\n") == 0) {
		library();
	} else if (sscanf(line, "graph %u", &n) == 1) {
		graph(n);
	} else if (strcmp(line, "context\n") == 0) {
		other_context();
	} else if (strcmp(line, "fork\n") == 0) {
		fork_child();
	} else {
		CHECK(strcmp(line, "exit\n") == 0, "unknown line %s", line);
		return false;
	}
	return true;
}

int main(void)
{
	char line[64];

	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	CU(cuDevicePrimaryCtxRetain(&context, device));
	CU(cuCtxSetCurrent(context));
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && obey(line)) {
		printf("ok\n");
		fflush(stdout);
	}
	return 0;
}
