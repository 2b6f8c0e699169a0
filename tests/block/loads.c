/* loads HOW SEED ROUNDS: kernels are loaded and unloaded while resumable runs are in progress.
 * `modules` loads a module in a random way (its image is unmapped at once, a linker is destroyed),
 * enqueues some launches, and unloads it without waiting; `contexts` creates a context for that and
 * destroys it while launches run; `primary` retains the primary context and resets or releases it
 * in turn. Each kernel computes something different, so that confusing two, by their handles for
 * example, is detected. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../programs/program.h"

#define THREADS 64u
#define BLOCKS 192u
#define WORDS (THREADS * BLOCKS)
#define IMAGE_BYTES 4096u

struct kernel {
	uint32_t a, b; /* x of thread i becomes x * a + i * b */
	CUfunction f;
	CUmodule module;
	CUlibrary library;
};

static const char text[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry k(.param .u64 data, .param .u32 spin)\n{\n"
	"	.reg .pred %%p<2>;\n	.reg .u32 %%r<10>;\n	.reg .u64 %%rd<4>;\n"
	"	mov.u32 %%r1, %%ctaid.x;\n	mov.u32 %%r2, %%ntid.x;\n"
	"	mov.u32 %%r3, %%tid.x;\n	mad.lo.u32 %%r4, %%r1, %%r2, %%r3;\n"
	"	ld.param.u64 %%rd1, [data];\n	ld.param.u32 %%r9, [spin];\n"
	"	mul.wide.u32 %%rd2, %%r4, 4;\n	add.u64 %%rd1, %%rd1, %%rd2;\n"
	"	ld.global.u32 %%r5, [%%rd1];\n	mov.u32 %%r8, 0;\n"
	"spinning:\n	add.u32 %%r8, %%r8, 1;\n"
	"	setp.lt.u32 %%p0, %%r8, %%r9;\n	@%%p0 bra spinning;\n"
	"	mul.lo.u32 %%r5, %%r5, %u;\n	mad.lo.u32 %%r5, %%r4, %u, %%r5;\n"
	"	st.global.u32 [%%rd1], %%r5;\n	ret;\n}\n";

static uint64_t seed;
static CUstream streams[2];
static CUdeviceptr data;
static uint32_t expected[WORDS];

static uint32_t below(uint32_t n)
{
	return program_random(&seed) % n;
}

/* A separate mapping, so that reading it after it has been unmapped faults. */
static char *make_image(struct kernel *k, size_t *ret_bytes)
{
	char *m =
		mmap(NULL, IMAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (m == MAP_FAILED) {
		exit(2);
	}
	*k = (struct kernel){ .a = below(1000) * 2 + 1, .b = below(100000) };
	*ret_bytes = (size_t)snprintf(m, IMAGE_BYTES, text, k->a, k->b) + 1;
	return m;
}

static void load_module(struct kernel *k)
{
	size_t bytes;
	char *m = make_image(k, &bytes);

	CU(cuModuleLoadData(&k->module, m));
	munmap(m, IMAGE_BYTES);
	CU(cuModuleGetFunction(&k->f, k->module, "k"));
}

static void load_library(struct kernel *k)
{
	CUkernel kernel;
	size_t bytes;
	char *m = make_image(k, &bytes);

	CU(cuLibraryLoadData(&k->library, m, NULL, NULL, 0, NULL, NULL, 0));
	munmap(m, IMAGE_BYTES);
	CU(cuLibraryGetKernel(&kernel, k->library, "k"));
	if (below(2)) {
		k->f = (CUfunction)(void *)kernel;
	} else {
		CU(cuKernelGetFunction(&k->f, kernel));
	}
}

static void load_linked(struct kernel *k)
{
	CUlinkState link;
	size_t bytes;
	char *m = make_image(k, &bytes);
	void *code;

	CU(cuLinkCreate(0, NULL, NULL, &link));
	CU(cuLinkAddData(link, CU_JIT_INPUT_PTX, m, bytes, "k", 0, NULL, NULL));
	munmap(m, IMAGE_BYTES);
	CU(cuLinkComplete(link, &code, &bytes));
	CU(cuModuleLoadData(&k->module, code));
	CU(cuLinkDestroy(link));
	CU(cuModuleGetFunction(&k->f, k->module, "k"));
}

static void launch(const struct kernel *k, uint32_t n)
{
	for (; n; n--) {
		uint32_t spin = below(8) ? below(60) : below(2000);
		void *params[] = { &data, &spin };

		CU(cuLaunchKernel(k->f, BLOCKS, 1, 1, THREADS, 1, 1, 0, streams[0], params, NULL));
		for (uint32_t i = 0; i < WORDS; i++) {
			expected[i] = expected[i] * k->a + i * k->b;
		}
	}
}

static void check(const char *what)
{
	uint32_t *words = malloc(WORDS * sizeof(*words));

	CU(cuMemcpyDtoHAsync(words, data, WORDS * sizeof(*words), streams[0]));
	CU(cuStreamSynchronize(streams[0]));
	for (uint32_t i = 0; i < WORDS; i++) {
		if (words[i] != expected[i]) {
			fprintf(stderr, "%s: word %u is wrong: %08x instead of %08x\n", what, i,
				words[i], expected[i]);
			_exit(1);
		}
	}
	free(words);
}

/* The other stream continues after an event that is destroyed at once. */
static void change_streams(void)
{
	CUstream before = streams[0];
	CUevent e;

	CU(cuEventCreate(&e, 0));
	CU(cuEventRecord(e, before));
	CU(cuStreamWaitEvent(streams[1], e, 0));
	CU(cuEventDestroy(e));
	streams[0] = streams[1];
	streams[1] = before;
}

static void prepare(void)
{
	CU(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc(&data, WORDS * 4));
	CU(cuMemsetD32Async(data, 0, WORDS, streams[0]));
	memset(expected, 0, sizeof(expected));
}

static void module_round(void)
{
	void (*const load[])(struct kernel *) = { load_module, load_library, load_linked };
	struct kernel k;

	load[below(3)](&k);
	launch(&k, 1 + below(6));
	if (below(3) == 0) {
		change_streams();
		launch(&k, 1);
	}
	if (k.module) {
		CU(cuModuleUnload(k.module));
	} else {
		CU(cuLibraryUnload(k.library));
	}
	if (below(10) == 0) {
		check("behind unloaded modules");
	}
}

static void context_round(bool primary, bool reset)
{
	uint64_t begin = program_ns();
	struct kernel k;
	CUcontext ctx;

	if (primary) {
		CU(cuDevicePrimaryCtxRetain(&ctx, 0));
		CU(cuCtxSetCurrent(ctx));
	} else {
		CU(cuCtxCreate(&ctx, 0, 0));
	}
	load_module(&k);
	prepare();
	/* A process launches nothing at block level in its first moments. */
	do {
		launch(&k, 1 + below(8));
	} while (below(4) && program_ns() - begin < 100000000u);
	if (below(2)) {
		check("in a context");
		launch(&k, 1 + below(20));
	}
	if (!primary) {
		CU(cuCtxDestroy(ctx));
	} else if (reset) {
		CU(cuDevicePrimaryCtxReset_v2(0));
	} else {
		CU(cuDevicePrimaryCtxRelease_v2(0));
	}
}

int main(int argc, char **argv)
{
	bool modules = argc == 4 && strcmp(argv[1], "modules") == 0;
	CUcontext ctx;

	if (argc != 4) {
		fputs("usage: loads HOW SEED ROUNDS\n", stderr);
		return 2;
	}
	seed = strtoull(argv[2], NULL, 10) * 2654435761u + 1;
	CU(cuInit(0));
	if (modules) {
		CU(cuCtxCreate(&ctx, 0, 0));
		prepare();
	}
	for (unsigned long i = strtoul(argv[3], NULL, 10); i; i--) {
		if (modules) {
			module_round();
		} else {
			context_round(strcmp(argv[1], "primary") == 0, i % 2 == 0);
		}
	}
	if (modules) {
		check("at the end");
		CU(cuCtxDestroy(ctx));
	}
	return 0;
}
