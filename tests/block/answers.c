/* answers IMAGE FATBIN: prints the driver's answers about modules, libraries, linked images,
 * functions and kernels, and about images that it refuses. The output must be the same with and
 * without gBPF. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../programs/program.h"

#define SAY(call) printf("%s: %d\n", #call, (int)(call))
#define WORDS 4096u

static struct program p;
static char *text;
static size_t text_bytes;

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void list_names(const char **names, unsigned n)
{
	qsort(names, n, sizeof(names[0]), by_name);
	for (unsigned i = 0; i < n; i++) {
		printf(" %s", names[i] ? names[i] : "(none)");
	}
	printf("\n");
}

static void function_answers(CUfunction f)
{
	size_t offset, size;
	int v;

	for (int what = 0; what <= 15; what++) {
		v = -1;
		if (what != CU_FUNC_ATTRIBUTE_PTX_VERSION && what != CU_FUNC_ATTRIBUTE_NUM_REGS) {
			CUresult r = cuFuncGetAttribute(&v, (CUfunction_attribute)what, f);

			printf(" %d=%d:%d", what, (int)r, v);
		}
	}
	printf("\n");
	for (size_t i = 0; cuFuncGetParamInfo(f, i, &offset, &size) == CUDA_SUCCESS; i++) {
		printf(" (%zu %zu)", offset, size);
	}
	for (size_t smem = 0; smem <= 49152; smem += 8192) {
		v = -1;
		SAY(cuOccupancyMaxActiveBlocksPerMultiprocessor(&v, f, 64, smem));
		printf(" %d", v);
	}
	printf("\n");
}

/* Runs step over words with that much dynamic shared memory, and prints the result. */
static void run(CUfunction f, unsigned smem)
{
	uint32_t n = WORDS, a = 3, salt = 5, k = 7, spin = 0, *words = program_room(WORDS * 4),
		 sum = 0;
	CUdeviceptr data = program_zeros(WORDS * 4), counter = program_zeros(4);
	void *params[] = { &data, &n, &a, &salt, &k, &counter, &spin };
	CUresult r = cuLaunchKernel(f, WORDS / 64, 1, 1, 64, 1, 1, smem, NULL, params, NULL);

	printf("launch with %u: %d", smem, (int)r);
	CU(cuCtxSynchronize());
	program_get(words, data, WORDS * 4);
	for (unsigned i = 0; i < WORDS; i++) {
		sum = sum * 31 + words[i];
	}
	printf(" %08x\n", sum);
	CU(cuMemFree(data));
	CU(cuMemFree(counter));
	free(words);
}

/* Launches that every driver refuses: the error is the same, and nothing has run. */
static void wrong_launches(CUfunction f)
{
	static const struct {
		unsigned grid[3], block[3], smem;
	} shapes[] = {
		{ { 0, 1, 1 }, { 64, 1, 1 }, 0 },	 { { 1, 65536, 1 }, { 64, 1, 1 }, 0 },
		{ { 1, 1, 65536 }, { 64, 1, 1 }, 0 },	 { { 0x80000000u, 1, 1 }, { 64, 1, 1 }, 0 },
		{ { 1, 1, 1 }, { 0, 1, 1 }, 0 },	 { { 1, 1, 1 }, { 1025, 1, 1 }, 0 },
		{ { 1, 1, 1 }, { 1, 1, 65 }, 0 },	 { { 1, 1, 1 }, { 64, 32, 1 }, 0 },
		{ { 1, 1, 1 }, { 65536, 65536, 1 }, 0 }, { { 1, 1, 1 }, { 64, 1, 1 }, 1u << 30 },
		{ { 1, 1, 1 }, { 64, 1, 1 }, ~0u },	 { { 1, 1, 1 }, { 65536, 65537, 1 }, 0 },
	};
	uint32_t n = 64, a = 3, salt = 5, k = 7, spin = 0;
	CUdeviceptr data = program_zeros(256), counter = program_zeros(4);
	void *params[] = { &data, &n, &a, &salt, &k, &counter, &spin };
	size_t many = 4096;
	char buffer[4096] = { 0 };
	void *too_many[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
			     &many, CU_LAUNCH_PARAM_END };

	memcpy(buffer, &data, sizeof(data)); /* exceeds the limit with the ticket's place; n is 0 */
	memcpy(buffer + 24, &counter, sizeof(counter));
	printf("wrong:");
	for (unsigned i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		const unsigned *g = shapes[i].grid, *b = shapes[i].block;

		printf(" %d", (int)cuLaunchKernel(f, g[0], g[1], g[2], b[0], b[1], b[2],
						  shapes[i].smem, NULL, params, NULL));
	}
	printf(" %d", (int)cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, NULL, params, too_many));
	printf(" %d", (int)cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, too_many));
	printf(" %d", (int)cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, (CUstream)8, params, NULL));
	printf(" %d", (int)cuLaunchKernel(NULL, 1, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
	printf(" %d\n", (int)cuCtxSynchronize());
	program_get(buffer, data, 256);
	program_check(&p, buffer[0] == 0, "memory after wrong launches");
	CU(cuMemFree(data));
	CU(cuMemFree(counter));
}

static void module_answers(const char *what, CUmodule m)
{
	CUfunction f, all[64];
	const char *names[64];
	unsigned n = 0, given = 0;
	CUmodule owner;
	int v;

	printf("== %s\n", what);
	SAY(cuModuleGetFunctionCount(&n, m));
	memset(all, 0, sizeof(all));
	SAY(cuModuleEnumerateFunctions(all, 64, m));
	for (unsigned i = 0; i < 64 && all[i]; i++) {
		CU(cuFuncGetName(&names[given++], all[i]));
	}
	printf("%u, %u:", n, given);
	list_names(names, given);
	memset(all, 0, sizeof(all));
	SAY(cuModuleEnumerateFunctions(all, 1, m));
	printf("one: %d\n", all[0] != NULL && all[1] == NULL);
	SAY(cuModuleGetFunction(&f, m, "step$gbpf"));
	SAY(cuModuleGetFunction(&f, m, "nothing"));
	SAY(cuModuleGetFunction(&f, m, "step"));
	SAY(cuFuncGetModule(&owner, f));
	printf("its own: %d\n", owner == m);
	function_answers(f);
	wrong_launches(f);
	run(f, 0);
	wrong_launches(f);
	run(f, 48 * 1024);
	run(f, 49153);
	SAY(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
	SAY(cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f));
	printf("%d\n", v);
	run(f, 60000);
	run(f, 60001);
	SAY(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20));
	SAY(cuFuncSetCacheConfig(f, CU_FUNC_CACHE_PREFER_SHARED));
	function_answers(f);
}

static void library_answers(const char *what, CUlibrary l)
{
	CUkernel k, all[64];
	CUfunction f, g;
	CUlibrary owner;
	CUmodule m;
	const char *names[64];
	unsigned n = 0, given = 0;

	printf("== %s\n", what);
	SAY(cuLibraryGetKernelCount(&n, l));
	memset(all, 0, sizeof(all));
	SAY(cuLibraryEnumerateKernels(all, 64, l));
	for (unsigned i = 0; i < 64 && all[i]; i++) {
		CU(cuKernelGetName(&names[given++], all[i]));
	}
	printf("%u, %u:", n, given);
	list_names(names, given);
	SAY(cuLibraryGetKernel(&k, l, "step$gbpf"));
	SAY(cuLibraryGetKernel(&k, l, "step"));
	SAY(cuKernelGetLibrary(&owner, k));
	printf("its own: %d\n", owner == l);
	SAY(cuKernelGetFunction(&f, k));
	function_answers(f);
	run(f, 0);
	run((CUfunction)(void *)k, 0);
	run((CUfunction)(void *)k, 1024);
	SAY(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000, k,
				 p.device));
	run((CUfunction)(void *)k, 60000);
	run(f, 60000);
	SAY(cuLibraryGetModule(&m, l));
	SAY(cuModuleGetFunction(&g, m, "step"));
	run(g, 16);
	SAY(cuModuleGetFunctionCount(&n, m));
	printf("%u\n", n);
	SAY(cuLibraryUnload(l));
}

static void refused(const char *what, const void *image)
{
	char errors[512] = "untouched", infos[512] = "untouched";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
				   CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { errors, (void *)sizeof(errors), infos, (void *)sizeof(infos) };
	CUlibrary l = NULL;
	CUmodule m = NULL;

	printf("== %s\n", what);
	SAY(cuModuleLoadData(&m, image));
	SAY(cuModuleLoadDataEx(&m, image, 4, options, values));
	printf("%zu [%s] %zu\n", (size_t)(uintptr_t)values[1], errors,
	       (size_t)(uintptr_t)values[3]);
	SAY(cuLibraryLoadData(&l, image, NULL, NULL, 0, NULL, NULL, 0));
	printf("%d %d\n", m != NULL, l != NULL);
}

static void linked(void)
{
	size_t bytes = 0;
	void *image = NULL, *copy;
	CUlinkState s;
	CUmodule m;

	CU(cuLinkCreate(0, NULL, NULL, &s));
	SAY(cuLinkAddData(s, CU_JIT_INPUT_PTX, text, text_bytes + 1, "first", 0, NULL, NULL));
	SAY(cuLinkComplete(s, &image, &bytes));
	SAY(cuModuleLoadData(&m, image));
	module_answers("linked", m);
	SAY(cuModuleUnload(m));
	copy = program_room(bytes);
	memcpy(copy, image, bytes);
	SAY(cuLinkDestroy(s));
	SAY(cuModuleLoadData(&m, copy));
	module_answers("linked, copied", m);
	SAY(cuModuleUnload(m));
	free(copy);
	CU(cuLinkCreate(0, NULL, NULL, &s));
	SAY(cuLinkAddFile(s, CU_JIT_INPUT_PTX, p.argv[1], 0, NULL, NULL));
	SAY(cuLinkComplete(s, &image, &bytes));
	SAY(cuModuleLoadData(&m, image));
	module_answers("linked from a file", m);
	SAY(cuModuleUnload(m));
	SAY(cuLinkDestroy(s));
}

/* Handles are reused for other images. */
static void again(void)
{
	for (int i = 0; i < 50; i++) {
		CUfunction f;
		CUmodule m;

		CU(cuModuleLoadData(&m, text));
		CU(cuModuleGetFunction(&f, m, i % 2 ? "step" : "swap"));
		run(f, 256);
		CU(cuModuleUnload(m));
	}
}

/* The same with contexts, which end together with their modules; other contexts are unaffected. */
static void other_contexts(void)
{
	CUfunction first = program_kernel(&p, "step");

	printf("== contexts\n");
	for (int i = 0; i < 12; i++) {
		CUcontext ctx, popped;
		CUfunction f;
		CUmodule m;

		CU(cuCtxCreate(&ctx, 0, p.device));
		CU(cuModuleLoadData(&m, text));
		CU(cuModuleGetFunction(&f, m, i % 2 ? "step" : "swap"));
		run(f, 256);
		CU(cuCtxPopCurrent_v2(&popped));
		run(first, 16);
		CU(cuCtxDestroy(ctx));
		run(first, 32);
	}
}

int main(int argc, char **argv)
{
	char errors[256] = "", infos[256] = "";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
				   CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { errors, (void *)sizeof(errors), infos, (void *)sizeof(infos) };
	unsigned n;
	CUlibrary l;
	CUmodule m;

	program_open(&p, "answers", argc, argv);
	text = program_read(argv[1], &text_bytes);
	module_answers("module from a file", p.module);
	CU(cuModuleLoadDataEx(&m, text, 4, options, values));
	module_answers("module from memory", m);
	SAY(cuModuleUnload(m));
	SAY(cuModuleLoadData(NULL, text));
	CU(cuModuleLoad(&m, argv[2]));
	SAY(cuModuleGetFunctionCount(&n, m));
	printf("%u\n", n);
	SAY(cuModuleUnload(m));
	SAY(cuModuleLoad(&m, "/nonexistent"));
	CU(cuLibraryLoadData(&l, text, NULL, NULL, 0, NULL, NULL, 0));
	library_answers("library from memory", l);
	CU(cuLibraryLoadFromFile(&l, argv[1], NULL, NULL, 0, NULL, NULL, 0));
	library_answers("library from a file", l);
	linked();
	refused("no PTX at all", "this is no PTX, but text that is long enough to be looked at");
	refused("a word that is none",
		".version 7.0\n.target sm_70\n.address_size 64\n"
		".visible .entry f()\n{\n\tnonsense.u32 %r1, 2;\n\tret;\n}\n");
	refused("an unknown name", ".version 7.0\n.target sm_70\n.address_size 64\n"
				   ".visible .entry f()\n{\n\tmov.u32 %r1, 2;\n\tret;\n}\n");
	refused("a newer device's", ".version 9.0\n.target sm_999\n.address_size 64\n"
				    ".visible .entry f()\n{\n\tret;\n}\n");
	again();
	other_contexts();
	return program_close(&p);
}
