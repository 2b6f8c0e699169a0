/* vgpu_loads CASE: modules and libraries with variables in a virtual GPU, for vgpu_loads.bats and
 * tests/gpu/memory. Each checks what it can see itself, prints what is wrong and exits with 1.
 *
 *   attack MIB   loads 40 empty modules, so that the shim leaves the measurement of further ones in
 *                this second to its thread, then variables of MIB by each entry point: all refused
 *   modules      charges of modules, until they are unloaded or their context ends
 *   libraries    charges of libraries in contexts that were made before and after them
 *   small        variables that share units
 *   threads      loads, unloads and contexts of several threads: nothing is left in the end
 *
 * Figures are those beyond the context's own memory. A number after the case says by how many MiB
 * they may differ: what a card takes for code is not known. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../programs/program.h"
#include "../unit/eventually.h"
#include "check.h"

#define MIB ((size_t)1 << 20)
#define DATA (8 * MIB)
#define EMPTY 40
#define THREADS 4
#define ROUNDS 20

#define cuMemGetInfo cuMemGetInfo_v2
#define cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2

static CUdevice device;
static CUcontext context;
static size_t base;    /* in use with one context */
static size_t another; /* what one more takes */
static size_t slack;   /* by which figures may differ */

static size_t used(void)
{
	size_t available, total;

	CU(cuMemGetInfo(&available, &total));
	return total - available;
}

/* Returns true if that much is in use beyond the first context and n more. */
static bool holds(size_t n, size_t bytes)
{
	size_t is = used(), wanted = base + n * another + bytes;

	return is <= wanted + slack && wanted <= is + slack;
}

#define EXPECT_DATA(n, bytes) CHECK(holds(n, bytes), "%zu KiB are in use", used() >> 10)
#define EVENTUALLY_DATA(n, bytes) eventually(holds(n, bytes))

/* Returns a text with n variables of that many bytes. A kernel uses each: the driver's linker
 * leaves others out. The caller frees it. */
static char *text_of(size_t n, size_t bytes)
{
	char *text = program_room(256 + n * 128), *at = text;

	at += sprintf(at, ".version 7.0\n.target sm_70\n.address_size 64\n");
	for (size_t i = 0; i < n; i++) {
		at += sprintf(at, ".visible .global .align 4 .b8 v%zu[%zu];\n", i, bytes);
	}
	at += sprintf(at, ".visible .entry k() { .reg .b32 %%r; mov.u32 %%r, 1;\n");
	for (size_t i = 0; i < n; i++) {
		at += sprintf(at, "st.global.u32 [v%zu], %%r;\n", i);
	}
	sprintf(at, "ret; }\n");
	return text;
}

static void begin(void)
{
	char *empty = text_of(0, 0);
	CUcontext other;
	CUmodule m;

	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	CU(cuCtxCreate(&context, 0, device));
	CU(cuModuleLoadData(&m, empty)); /* the first one may take memory of the context's */
	base = used();
	CU(cuCtxCreate(&other, 0, device));
	another = used() - base;
	CU(cuCtxDestroy(other));
	CU(cuCtxSetCurrent(context));
	EVENTUALLY_DATA(0, 0);
	free(empty);
}

static void load_empty(void)
{
	char *text = text_of(0, 0);
	CUmodule m;

	for (int i = 0; i < EMPTY; i++) {
		CU(cuModuleLoadData(&m, text));
	}
	free(text);
}

/* ---- entry points ---- */

static char path[4096];

static void write_file(const char *text)
{
	FILE *f;

	snprintf(path, sizeof(path), "%s/vgpu_loads.ptx", getenv("GBPF_RUNTIME_DIR"));
	f = fopen(path, "w");
	CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s", path);
}

static CUresult load_data(const char *text)
{
	CUmodule m;

	return cuModuleLoadData(&m, text);
}

static CUresult load_data_ex(const char *text)
{
	CUmodule m;

	return cuModuleLoadDataEx(&m, text, 0, NULL, NULL);
}

static CUresult load_file(const char *text)
{
	CUmodule m;

	write_file(text);
	return cuModuleLoad(&m, path);
}

static CUresult load_linked(const char *text)
{
	CUlinkState state;
	void *image;
	size_t bytes;
	CUmodule m;
	CUresult r;

	CU(cuLinkCreate(0, NULL, NULL, &state));
	CU(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)text, strlen(text) + 1, "text",
			 0, NULL, NULL));
	CU(cuLinkComplete(state, &image, &bytes));
	r = cuModuleLoadData(&m, image);
	CU(cuLinkDestroy(state));
	return r;
}

static CUresult load_library(const char *text)
{
	CUlibrary l;

	return cuLibraryLoadData(&l, text, NULL, NULL, 0, NULL, NULL, 0);
}

static CUresult load_library_file(const char *text)
{
	CUlibrary l;

	write_file(text);
	return cuLibraryLoadFromFile(&l, path, NULL, NULL, 0, NULL, NULL, 0);
}

static const struct {
	const char *name;
	CUresult (*load)(const char *text);
} ways[] = {
	{ "cuModuleLoadData", load_data },     { "cuModuleLoadDataEx", load_data_ex },
	{ "cuModuleLoad", load_file },	       { "a linked image", load_linked },
	{ "cuLibraryLoadData", load_library }, { "cuLibraryLoadFromFile", load_library_file },
};

static int attack(size_t bytes)
{
	char *one = text_of(1, bytes), *many = text_of(bytes / MIB, MIB);
	size_t before, after;

	begin();
	before = used();
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		load_empty();
		CHECK(ways[i].load(one) == CUDA_ERROR_OUT_OF_MEMORY, "%s", ways[i].name);
		CHECK(ways[i].load(many) == CUDA_ERROR_OUT_OF_MEMORY, "%s, many", ways[i].name);
	}
	after = used();
	CHECK(after < before + 64 * MIB, "%zu MiB", (after - before) / MIB);
	free(one);
	free(many);
	return 0;
}

/* ---- modules ---- */

static int modules(void)
{
	char *text = text_of(1, DATA), *half = text_of(1, DATA / 2);
	char *broken = text_of(1, DATA);
	CUmodule a, b;
	CUcontext other;

	begin();
	CU(cuModuleLoadData(&a, text));
	EXPECT_DATA(0, DATA);
	CU(cuModuleLoadData(&b, half));
	EXPECT_DATA(0, DATA + DATA / 2);
	CU(cuModuleUnload(a));
	EVENTUALLY_DATA(0, DATA / 2);
	CU(cuModuleUnload(b));
	EVENTUALLY_DATA(0, 0);
	strcpy(strstr(broken, ".visible .entry"), "nonsense");
	CHECK(load_data(broken) != CUDA_SUCCESS, "a broken text");
	EVENTUALLY_DATA(0, 0);
	CU(cuCtxCreate(&other, 0, device));
	CU(cuModuleLoadData(&a, text));
	EXPECT_DATA(1, DATA);
	CU(cuCtxDestroy(other)); /* with the module */
	CU(cuCtxSetCurrent(context));
	EVENTUALLY_DATA(0, 0);
	free(text);
	free(half);
	free(broken);
	return 0;
}

static int small(void)
{
	char *text = text_of(3, MIB / 2);
	CUmodule m[64];

	begin();
	load_empty();
	for (int i = 0; i < 16; i++) {
		CU(cuModuleLoadData(&m[i], text));
		CHECK(used() >= base + (size_t)(i + 1) * 3 / 2 * MIB / (2 * MIB) * (2 * MIB),
		      "%d: %zu", i, used() - base);
	}
	CHECK(used() <= base + (size_t)16 * 2 * MIB + slack, "%zu",
	      used() - base); /* a unit each */
	for (int i = 0; i < 16; i++) {
		CU(cuModuleUnload(m[i]));
	}
	EVENTUALLY_DATA(0, 0);
	free(text);
	return 0;
}

/* ---- libraries ---- */

/* The variable can be used in each context. */
static void use(CUlibrary l, CUcontext ctx)
{
	CUdeviceptr at;
	size_t bytes;

	CU(cuCtxSetCurrent(ctx));
	CU(cuLibraryGetGlobal(&at, &bytes, l, "v0"));
	CHECK(bytes == DATA, "%zu", bytes);
	CU(cuMemsetD8(at, 1, bytes));
	CU(cuCtxSynchronize());
	CU(cuCtxSetCurrent(context));
}

static int libraries(void)
{
	char *text = text_of(1, DATA), *huge;
	CUcontext second, third, primary;
	CUlibrary l, other;
	CUresult r;
	size_t left;

	begin();
	CU(cuCtxCreate(&second, 0, device));
	CU(cuCtxSetCurrent(context));
	CU(cuLibraryLoadData(&l, text, NULL, NULL, 0, NULL, NULL, 0));
	EXPECT_DATA(1, 2 * DATA);
	use(l, context);
	use(l, second);
	EXPECT_DATA(1, 2 * DATA);
	CU(cuCtxCreate(&third, 0, device));
	EXPECT_DATA(2, 3 * DATA);
	use(l, third);
	EXPECT_DATA(2, 3 * DATA);
	CU(cuCtxDestroy(third));
	EVENTUALLY_DATA(1, 2 * DATA);
	CU(cuDevicePrimaryCtxRetain(&primary, device));
	EXPECT_DATA(2, 3 * DATA);
	CU(cuLibraryLoadData(&other, text, NULL, NULL, 0, NULL, NULL, 0));
	EXPECT_DATA(2, 6 * DATA);
	CU(cuLibraryUnload(other));
	EVENTUALLY_DATA(2, 3 * DATA);
	CU(cuDevicePrimaryCtxRelease(device));
	EVENTUALLY_DATA(1, 2 * DATA);
	CU(cuCtxSetCurrent(context));
	{
		size_t available, total;

		CU(cuMemGetInfo(&available, &total));
		left = available;
	}
	/* It fits once, but not in both contexts. */
	huge = text_of(1, (left / 2 / (2 * MIB) + 1) * 2 * MIB);
	r = cuLibraryLoadData(&other, huge, NULL, NULL, 0, NULL, NULL, 0);
	CHECK(r == CUDA_ERROR_OUT_OF_MEMORY, "error %d", (int)r);
	EVENTUALLY_DATA(1, 2 * DATA);
	CU(cuCtxDestroy(second));
	CU(cuCtxSetCurrent(context));
	EVENTUALLY_DATA(0, DATA);
	CU(cuLibraryLoadData(&other, huge, NULL, NULL, 0, NULL, NULL, 0));
	r = cuCtxCreate(&second, 0, device); /* where it does not fit again */
	CHECK(r == CUDA_ERROR_OUT_OF_MEMORY, "error %d", (int)r);
	r = cuDevicePrimaryCtxRetain(&primary, device);
	CHECK(r == CUDA_ERROR_OUT_OF_MEMORY, "error %d", (int)r);
	CU(cuLibraryUnload(other));
	EVENTUALLY_DATA(0, DATA);
	CU(cuLibraryUnload(l));
	EVENTUALLY_DATA(0, 0);
	free(text);
	free(huge);
	return 0;
}

/* ---- threads ---- */

static void *load_and_unload(void *arg)
{
	char *text = text_of(1, 2 * MIB);
	CUlibrary l;
	CUmodule m;

	CU(cuCtxSetCurrent(context));
	for (int i = 0; i < ROUNDS; i++) {
		if (arg) {
			CU(cuModuleLoadData(&m, text));
			CU(cuModuleUnload(m));
		} else {
			CU(cuLibraryLoadData(&l, text, NULL, NULL, 0, NULL, NULL, 0));
			CU(cuLibraryUnload(l));
		}
	}
	free(text);
	return NULL;
}

static void *make_contexts(void *arg)
{
	CUcontext ctx;

	(void)arg;
	for (int i = 0; i < ROUNDS; i++) {
		CU(cuCtxCreate(&ctx, 0, device));
		CU(cuCtxDestroy(ctx));
	}
	return NULL;
}

static int threads(void)
{
	pthread_t t[2 * THREADS];

	begin();
	for (size_t i = 0; i < 2 * THREADS; i++) {
		CHECK(pthread_create(&t[i], NULL, i < THREADS ? load_and_unload : make_contexts,
				     i % 2 ? &t[i] : NULL) == 0,
		      "a thread");
	}
	for (size_t i = 0; i < 2 * THREADS; i++) {
		pthread_join(t[i], NULL);
	}
	EVENTUALLY_DATA(0, 0);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	slack = argc == 3 ? (size_t)atoi(argv[2]) * MIB : 0;
	if (strcmp(what, "attack") == 0 && argc == 3) {
		return attack((size_t)atoi(argv[2]) * MIB);
	}
	if (strcmp(what, "modules") == 0) {
		return modules();
	}
	if (strcmp(what, "libraries") == 0) {
		return libraries();
	}
	if (strcmp(what, "small") == 0) {
		return small();
	}
	if (strcmp(what, "threads") == 0) {
		return threads();
	}
	fprintf(stderr, "usage: %s CASE, see vgpu_loads.c\n", argv[0]);
	return 2;
}
