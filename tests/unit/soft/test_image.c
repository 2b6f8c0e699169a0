/* Loading code: fat binaries, logs, linking, libraries. Each test is a child process, since libcuda
 * keeps global state. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../ptx/fatbin_make.h"
#include "rig.h"

#define HEAD ".version 7.8\n.target sm_75\n.address_size 64\n"

/* A kernel that stores number(7) to out[0]. */
#define CALLER(number)                                                                             \
	".visible .entry run(.param .u64 out)\n{\n"                                                \
	"	.reg .b32 %r<3>;\n	.reg .b64 %rd<2>;\n"                                                  \
	"	ld.param.u64 %rd1, [out];\n"                                                             \
	"	mov.u32 %r1, 7;\n"                                                                       \
	"	{\n	.param .b32 a;\n	.param .b32 b;\n"                                                   \
	"	st.param.b32 [a], %r1;\n"                                                                \
	"	call.uni (b), " number ", (a);\n"                                                  \
	"	ld.param.b32 %r2, [b];\n	}\n"                                                            \
	"	st.global.u32 [%rd1], %r2;\n	ret;\n}\n"

/* A function that returns its argument times factor, plus a variable of its own. */
#define CALLEE(linkage, name, factor, more)                                                        \
	".global .u32 own = " more ";\n" linkage " .func (.param .b32 r) " name                    \
	"(.param .b32 x)\n{\n"                                                                     \
	"	.reg .b32 %r<4>;\n"                                                                      \
	"	ld.param.b32 %r1, [x];\n"                                                                \
	"	ld.global.u32 %r2, [own];\n"                                                             \
	"	mad.lo.u32 %r3, %r1, " factor ", %r2;\n"                                           \
	"	st.param.b32 [r], %r3;\n	ret;\n}\n"

#define PROTOTYPE(name) ".extern .func (.param .b32 r) " name "(.param .b32 x);\n"

static const char plain[] = HEAD ".global .align 4 .u32 kept = 41;\n"
				 ".visible .entry store(.param .u64 out, .param .u32 v)\n{\n"
				 "	.reg .b32 %r<2>;\n	.reg .b64 %rd<2>;\n"
				 "	ld.param.u64 %rd1, [out];\n	ld.param.u32 %r1, [v];\n"
				 "	st.global.u32 [%rd1], %r1;\n	ret;\n}\n"
				 ".visible .entry second() { ret; }\n";

static CUcontext context(void)
{
	CUcontext ctx;

	CU(cuInit(0));
	CU(cuCtxCreate_v2(&ctx, 0, 0));
	return ctx;
}

/* Returns the value that the kernel writes to its first parameter. */
static uint32_t result_of(CUfunction f, uint32_t v)
{
	CUdeviceptr out;
	uint32_t got = 0;
	void *params[] = { &out, &v };

	CU(cuMemAlloc_v2(&out, 4));
	CU(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CU(cuMemcpyDtoH_v2(&got, out, 4));
	CU(cuMemFree_v2(out));
	return got;
}

static void check_module(CUmodule m)
{
	CUfunction f;

	CU(cuModuleGetFunction(&f, m, "store"));
	CHECK(result_of(f, 1234) == 1234);
	CU(cuModuleUnload(m));
}

static void write_file(const char *path, const void *data, size_t n)
{
	FILE *f = fopen(path, "wb");

	CHECK(f && fwrite(data, 1, n, f) == n);
	fclose(f);
}

static void make_fatbin(struct buf *b, uint64_t how)
{
	size_t at = make_begin(b);

	make_entry(b, PTX_FATBIN_CUBIN, 90,
		   "\x7f"
		   "ELF....",
		   8, 0);
	make_entry(b, PTX_FATBIN_PTX, 75, plain, sizeof(plain), how);
	make_end(b, at);
}

static void load_every_way(void *arg)
{
	static const uint64_t how[] = { 0, PTX_FATBIN_LZ4, PTX_FATBIN_ZSTD };
	char path[96];

	(void)arg;
	context();
	snprintf(path, sizeof(path), "%s/image", rig_dir);
	for (size_t i = 0; i < ARRAY_SIZE(how); i++) {
		struct buf b = { 0 };
		struct ptx_fatbin_wrapper w = { PTX_FATBIN_WRAPPER_MAGIC, 1, NULL, NULL };
		const void *list[] = { NULL, NULL };
		CUmodule m;

		make_fatbin(&b, how[i]);
		w.data = list[0] = b.data;
		CU(cuModuleLoadData(&m, b.data));
		check_module(m);
		CU(cuModuleLoadFatBinary(&m, b.data));
		check_module(m);
		CU(cuModuleLoadFatBinary(&m, &w));
		check_module(m);
		w.version = 2;
		w.more = list;
		CU(cuModuleLoadData(&m, &w));
		check_module(m);
		write_file(path, b.data, b.len);
		CU(cuModuleLoad(&m, path));
		check_module(m);
		buf_finish(&b);
	}
	unlink(path);
}

static void fat_binaries_load_every_way(void **state)
{
	(void)state;
	assert_int_equal(rig_run(load_every_way, NULL), 0);
}

static void refuse_images(void *arg)
{
	uint8_t elf[64] = { 0x7f, 'E', 'L', 'F', 2, 1, 1, [18] = 190 };
	struct buf b = { 0 };
	size_t at = make_begin(&b);
	CUmodule m;

	(void)arg;
	CU_IS(CUDA_ERROR_NOT_INITIALIZED, cuModuleLoadData(&m, plain));
	CU(cuInit(0));
	CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuModuleLoadData(&m, plain));
	context();
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&m, NULL));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(NULL, plain));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuModuleLoadDataEx(&m, plain, 1, NULL, NULL));
	CU_IS(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&m, "/nonexistent/file"));
	make_entry(&b, PTX_FATBIN_CUBIN, 90,
		   "\x7f"
		   "ELF....",
		   8, 0);
	make_end(&b, at);
	CU_IS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadFatBinary(&m, b.data));
	CU_IS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&m, elf));
	elf[18] = 62;
	CU_IS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&m, elf));
	b.data[16 + 8] = 120; /* longer than its container */
	CU_IS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&m, b.data));
	memset(b.data + 8, 0xff, 8);
	CU_IS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&m, b.data));
	CU_IS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&m, "ab"));
	CU_IS(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&m, "no ptx at all"));
	CU_IS(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
	      cuModuleLoadData(&m, ".version 10.0\n.target sm_75\n.address_size 64\n"));
	buf_finish(&b);
}

static void load_errors_are_distinguished(void **state)
{
	(void)state;
	assert_int_equal(rig_run(refuse_images, NULL), 0);
}

static void read_logs(void *arg)
{
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
				   CU_JIT_INFO_LOG_BUFFER,  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
				   CU_JIT_LOG_VERBOSE,	    CU_JIT_WALL_TIME,
				   CU_JIT_MAX_REGISTERS,    CU_JIT_TARGET,
				   (CUjit_option)1000 };
	char error[200] = "old", info[400] = "old";
	void *values[] = { error,      (void *)sizeof(error),
			   info,       (void *)sizeof(info),
			   (void *)1,  NULL,
			   (void *)32, (void *)80,
			   NULL };
	static const char wrong[] =
		HEAD ".visible .entry k() {\n\tfrobnicate.u32 %r1, %r2;\n\tret;\n}\n";
	CUmodule m;

	(void)arg;
	context();
	CU_IS(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&m, wrong, 9, options, values));
	CHECK(strstr(error, "frobnicate") && strstr(error, "5"));
	CHECK((size_t)values[1] == strlen(error) && (size_t)values[3] == 0 && !*info);
	CHECK(values[5] != NULL); /* the elapsed time */
	values[1] = (void *)8;	  /* a short buffer must not overflow */
	memset(error, 'x', sizeof(error));
	CU_IS(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx(&m, wrong, 9, options, values));
	CHECK(strlen(error) == 7 && error[8] == 'x' && (size_t)values[1] == 7);
	values[1] = (void *)sizeof(error);
	values[3] = (void *)sizeof(info);
	CU(cuModuleLoadDataEx(&m, plain, 9, options, values));
	CHECK(!*error && (size_t)values[1] == 0);
	CHECK(strstr(info, "'store'") && (size_t)values[3] == strlen(info));
}

static void logs_say_what_is_wrong_and_where(void **state)
{
	(void)state;
	assert_int_equal(rig_run(read_logs, NULL), 0);
}

static void link_inputs(void *arg)
{
	static char caller[] = HEAD PROTOTYPE("scale") ".global .u32 own = 9;\n" CALLER("scale");
	static const char callee[] = HEAD CALLEE(".visible", "scale", "3", "100");
	struct buf b = { 0 };
	size_t at = make_begin(&b), bytes = 0;
	CUlinkState s;
	CUfunction f;
	CUmodule m;
	void *image, *again;

	(void)arg;
	context();
	make_entry(&b, PTX_FATBIN_PTX, 75, callee, strlen(callee), PTX_FATBIN_ZSTD);
	make_end(&b, at);
	CU(cuLinkCreate_v2(0, NULL, NULL, &s));
	CU(cuLinkAddData_v2(s, CU_JIT_INPUT_PTX, caller, sizeof(caller), "caller.ptx", 0, NULL,
			    NULL));
	CU(cuLinkAddData_v2(s, CU_JIT_INPUT_FATBINARY, b.data, b.len, NULL, 0, NULL, NULL));
	CU(cuLinkComplete(s, &image, &bytes));
	CU(cuLinkComplete(s, &again, &bytes));
	CHECK(image == again && bytes > 64 && memcmp(image, "\177ELF", 4) == 0);
	CU_IS(CUDA_ERROR_INVALID_HANDLE,
	      cuLinkAddData_v2(s, CU_JIT_INPUT_PTX, caller, sizeof(caller), "more", 0, NULL, NULL));
	CU(cuModuleLoadData(&m, image));
	CU(cuLinkDestroy(s));
	CU_IS(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy(s));
	CU(cuModuleGetFunction(&f, m, "run"));
	CHECK(result_of(f, 0) == 121);
	buf_finish(&b);
}

static void linked_modules_call_each_other(void **state)
{
	(void)state;
	assert_int_equal(rig_run(link_inputs, NULL), 0);
}

static void refuse_links(void *arg)
{
	static char caller[] = HEAD PROTOTYPE("scale") CALLER("scale");
	static char twice[] = HEAD CALLEE(".visible", "scale", "3", "1");
	static char elf[64] = { 0x7f, 'E', 'L', 'F', 2, 1, 1 };
	char log[300], path[96];
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[2], *image;
	CUlinkState s;
	size_t n;

	(void)arg;
	elf[18] = (char)190;
	CU(cuInit(0));
	CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuLinkCreate_v2(0, NULL, NULL, &s));
	context();
#define CREATE()                                                                                   \
	(values[0] = log, values[1] = (void *)sizeof(log), cuLinkCreate_v2(2, options, values, &s))
	CU(CREATE());
	CU(cuLinkAddData_v2(s, CU_JIT_INPUT_PTX, caller, sizeof(caller), "a.ptx", 0, NULL, NULL));
	CU_IS(CUDA_ERROR_UNKNOWN, cuLinkComplete(s, &image, &n));
	CHECK(strstr(log, "Undefined reference to 'scale' in 'a.ptx'"));
	CHECK((size_t)values[1] == strlen(log));
	CU(cuLinkDestroy(s));
	CU(CREATE());
	CU(cuLinkAddData_v2(s, CU_JIT_INPUT_PTX, twice, sizeof(twice), "a.ptx", 0, NULL, NULL));
	CU_IS(CUDA_ERROR_INVALID_SOURCE,
	      cuLinkAddData_v2(s, CU_JIT_INPUT_PTX, twice, sizeof(twice), "b.ptx", 0, NULL, NULL));
	CHECK(strstr(log, "'scale'") && strstr(log, "b.ptx"));
	CU_IS(CUDA_ERROR_INVALID_SOURCE, cuLinkComplete(s, &image, &n));
	CU(cuLinkDestroy(s));
	CU(CREATE());
	CU_IS(CUDA_ERROR_INVALID_PTX, cuLinkAddData_v2(s, CU_JIT_INPUT_PTX, (char[]){ HEAD "foo" },
						       sizeof(HEAD "foo"), "x.ptx", 0, NULL, NULL));
	CHECK(strstr(log, "x.ptx:4"));
	CU(cuLinkDestroy(s));
	for (int type = CU_JIT_INPUT_CUBIN; type <= CU_JIT_INPUT_NVVM; type++) {
		if (type != CU_JIT_INPUT_PTX && type != CU_JIT_INPUT_FATBINARY) {
			CU(CREATE());
			CU_IS(type == CU_JIT_INPUT_CUBIN ? CUDA_ERROR_NO_BINARY_FOR_GPU
							 : CUDA_ERROR_NOT_SUPPORTED,
			      cuLinkAddData_v2(s, (CUjitInputType)type, elf, sizeof(elf), "in", 0,
					       NULL, NULL));
			CHECK(strstr(log, "in: ") && strstr(log, "cannot be linked"));
			CU(cuLinkDestroy(s));
		}
	}
	CU(CREATE());
	CU_IS(CUDA_ERROR_FILE_NOT_FOUND,
	      cuLinkAddFile_v2(s, CU_JIT_INPUT_PTX, "/nonexistent", 0, NULL, NULL));
	snprintf(path, sizeof(path), "%s/a.ptx", rig_dir);
	write_file(path, twice, strlen(twice));
	CU(cuLinkAddFile_v2(s, CU_JIT_INPUT_PTX, path, 0, NULL, NULL));
	unlink(path);
	CU(cuLinkComplete(s, &image, &n));
	CHECK(memmem(image, n, twice, strlen(twice) + 1)); /* a single input stays unchanged */
	CU(cuLinkDestroy(s));
}

static void unsupported_link_inputs_are_named(void **state)
{
	(void)state;
	assert_int_equal(rig_run(refuse_links, NULL), 0);
}

static void use_library(void *arg)
{
	CUcontext first, second;
	CUkernel k, found[4];
	CUlibrary l, of;
	CUmodule m, same;
	CUfunction f;
	CUdeviceptr g;
	const char *name;
	size_t bytes;
	unsigned n;
	int value;

	(void)arg;
	CU(cuInit(0));
	/* Names are known without a context. */
	CU(cuLibraryLoadData(&l, plain, NULL, NULL, 0, NULL, NULL, 0));
	CU(cuLibraryGetKernelCount(&n, l));
	CHECK(n == 2);
	CU(cuLibraryEnumerateKernels(found, 4, l));
	CU(cuLibraryGetKernel(&k, l, "store"));
	CHECK(k == found[0] || k == found[1]);
	CU_IS(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel(&k, l, "third"));
	CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuKernelGetFunction(&f, k));
	CU_IS(CUDA_ERROR_INVALID_CONTEXT, cuLibraryGetModule(&m, l));
	CU_IS(CUDA_ERROR_INVALID_CONTEXT,
	      cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, k, 0));
	CU(cuDevicePrimaryCtxRetain(&first, 0)); /* not current, but active */
	CU(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k, 0));
	CHECK(value == 1024);
	CU(cuDevicePrimaryCtxRelease_v2(0));
	CU(cuKernelGetName(&name, k));
	CHECK(strcmp(name, "store") == 0);
	CU(cuKernelGetLibrary(&of, k));
	CHECK(of == l);
	/* In two contexts. */
	first = context();
	CHECK(result_of((CUfunction)(void *)k, 5) == 5);
	second = context();
	CU(cuKernelGetFunction(&f, k));
	CHECK(result_of(f, 6) == 6);
	CU(cuLibraryGetModule(&m, l));
	CU(cuFuncGetModule(&same, f));
	CHECK(m == same);
	CU_IS(CUDA_ERROR_NOT_PERMITTED, cuModuleUnload(m));
	CU(cuLibraryGetGlobal(&g, &bytes, l, "kept"));
	CHECK(bytes == 4);
	CU_IS(CUDA_ERROR_NOT_FOUND, cuLibraryGetManaged(&g, &bytes, l, "kept"));
	CU(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_PTX_VERSION, f));
	CHECK(value == 75);
	CU(cuKernelSetCacheConfig(k, CU_FUNC_CACHE_PREFER_L1, 0));
	CU(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000, k, 0));
	CU(cuCtxPushCurrent_v2(first)); /* applies to the other context too */
	CU(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, k, 0));
	CHECK(value == 60000);
	CU(cuCtxPopCurrent_v2(&first));
	CU_IS(CUDA_ERROR_INVALID_DEVICE,
	      cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, k, 77));
	CU(cuKernelGetParamInfo(k, 1, &bytes, NULL));
	CHECK(bytes == 8);
	CU(cuLibraryUnload(l));
	CU_IS(CUDA_ERROR_INVALID_HANDLE, cuLibraryGetKernelCount(&n, l));
	CU_IS(CUDA_ERROR_INVALID_HANDLE, cuKernelGetName(&name, k));
	CU(cuCtxDestroy_v2(second));
	CU(cuCtxDestroy_v2(first));
}

static void a_library_serves_every_context(void **state)
{
	struct soft_stats before = rig_stats_idle();

	(void)state;
	assert_int_equal(rig_run(use_library, NULL), 0);
	assert_int_equal(rig_stats_idle().modules, before.modules);
}

static void refuse_libraries(void *arg)
{
	CUlibraryOption bad[] = { (CUlibraryOption)77 };
	CUlibrary l;
	struct buf b = { 0 };

	(void)arg;
	CU(cuInit(0));
	for (int i = 0; i < 2; i++) { /* without and with a context */
		size_t at;

		buf_clear(&b);
		at = make_begin(&b);
		make_entry(&b, PTX_FATBIN_CUBIN, 90,
			   "\x7f"
			   "ELF....",
			   8, 0);
		make_end(&b, at);
		CU_IS(CUDA_ERROR_NO_BINARY_FOR_GPU,
		      cuLibraryLoadData(&l, b.data, NULL, NULL, 0, NULL, NULL, 0));
		CU_IS(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
		      cuLibraryLoadData(&l, ".version 11.0\n", NULL, NULL, 0, NULL, NULL, 0));
		CU_IS(CUDA_ERROR_FILE_NOT_FOUND,
		      cuLibraryLoadFromFile(&l, "/nonexistent", NULL, NULL, 0, NULL, NULL, 0));
		CU_IS(CUDA_ERROR_INVALID_VALUE,
		      cuLibraryLoadData(&l, plain, NULL, NULL, 0, bad, NULL, 1));
		context();
	}
	CU_IS(CUDA_ERROR_INVALID_PTX,
	      cuLibraryLoadData(&l, HEAD "foo", NULL, NULL, 0, NULL, NULL, 0));
	buf_finish(&b);
}

static void libraries_that_cannot_be_loaded_are_refused(void **state)
{
	(void)state;
	assert_int_equal(rig_run(refuse_libraries, NULL), 0);
}

/* A managed variable and a plain one; the kernel adds the plain one to it. */
static void use_managed(void *arg)
{
	static const char text[] =
		HEAD ".visible .global .align 4 .u32 plain = 30;\n"
		     ".visible .global .attribute(.managed) .align 4 .u32 both = 5;\n"
		     ".visible .entry add(.param .u64 unused)\n{\n"
		     "	.reg .b32 %r<4>;\n"
		     "	ld.global.u32 %r1, [plain];\n	ld.global.u32 %r2, [both];\n"
		     "	add.u32 %r3, %r1, %r2;\n	st.global.u32 [both], %r3;\n	ret;\n}\n";
	volatile uint32_t *both;
	CUdeviceptr address, plain_at;
	uint32_t value;
	CUfunction f;
	CUlibrary l;
	CUmodule m;
	size_t bytes;

	(void)arg;
	context();
	for (int i = 0; i < 3; i++) {
		CU(cuLibraryLoadData(&l, text, NULL, NULL, 0, NULL, NULL, 0));
		CU(cuLibraryGetManaged(&address, &bytes, l, "both"));
		CHECK(bytes == 4);
		CU_IS(CUDA_ERROR_NOT_FOUND, cuLibraryGetManaged(&plain_at, &bytes, l, "plain"));
		CU(cuLibraryGetGlobal(&plain_at, &bytes, l, "plain"));
		both = (volatile uint32_t *)(uintptr_t)address;
		CHECK(*both == 5);
		*both = 12;
		CU(cuLibraryGetModule(&m, l));
		CU(cuModuleGetFunction(&f, m, "add"));
		result_of(f, 0);
		CHECK(*both == 42);
		CU(cuMemcpyDtoH_v2(&value, address, 4));
		CHECK(value == 42);
		CU(cuMemcpyDtoD_v2(plain_at, address, 4));
		result_of(f, 0);
		CHECK(*both == 84);
		CU(cuLibraryUnload(l));
	}
}

static void managed_variables_are_reached_by_the_program(void **state)
{
	struct soft_stats before = rig_stats_idle();

	(void)state;
	assert_int_equal(rig_run(use_managed, NULL), 0);
	assert_int_equal(rig_stats_idle().pinned_used, before.pinned_used);
}

/* Loads PTX of about 3 MiB, as text and in a small fat binary. */
static void load_large(void *arg)
{
	size_t n = sizeof(plain) + (3u << 20);
	char *text = malloc(n);
	struct buf b = { 0 };
	CUmodule m;
	size_t at;

	(void)arg;
	context();
	memset(text, ' ', n);
	memcpy(text, plain, sizeof(plain) - 1);
	text[n - 1] = 0;
	at = make_begin(&b);
	make_entry(&b, PTX_FATBIN_PTX, 75, text, n, PTX_FATBIN_ZSTD);
	make_end(&b, at);
	CHECK(b.len < 100000);
	for (int i = 0; i < 3; i++) {
		CU(cuModuleLoadData(&m, text));
		check_module(m);
		CU(cuModuleLoadData(&m, b.data));
		check_module(m);
	}
	buf_finish(&b);
	free(text);
}

static void large_images_of_many_programs_take_turns(void **state)
{
	pid_t pids[12];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		pids[i] = rig_spawn(load_large, NULL);
	}
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		assert_int_equal(rig_wait(pids[i]), 0);
	}
}

static void unload_many(void *arg)
{
	struct buf text = { 0 };
	CUfunction f[3];
	unsigned n;
	CUmodule m;

	(void)arg;
	context();
	buf_puts(&text, HEAD);
	for (unsigned i = 0; i < 5000; i++) {
		buf_printf(&text, ".visible .entry k%u() { ret; }\n", i);
	}
	CU(cuModuleLoadData(&m, buf_text(&text)));
	CU(cuModuleGetFunctionCount(&n, m));
	CHECK(n == 5000);
	CU(cuModuleEnumerateFunctions(f, 3, m));
	CU(cuModuleGetFunction(&f[0], m, "k4999"));
	CU(cuLaunchKernel(f[0], 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	CU(cuModuleUnload(m));
	CU(cuCtxSynchronize());
	buf_finish(&text);
}

static void a_module_of_thousands_of_kernels_comes_and_goes(void **state)
{
	(void)state;
	assert_int_equal(rig_run(unload_many, NULL), 0);
}

static void list_functions(void *arg)
{
	CUmoduleLoadingMode mode;
	CUfunction f[4] = { 0 };
	const char *name;
	CUtexref tex;
	CUmodule m;
	unsigned n;

	(void)arg;
	context();
	CU(cuModuleGetLoadingMode(&mode));
	CHECK(mode == CU_MODULE_EAGER_LOADING);
	CU(cuModuleLoadData(&m, plain));
	CU(cuModuleGetFunctionCount(&n, m));
	CHECK(n == 2);
	CU(cuModuleEnumerateFunctions(f, 1, m));
	CHECK(f[0] && !f[1]);
	CU(cuModuleEnumerateFunctions(f, 4, m));
	CHECK(f[0] && f[1] && f[0] != f[1] && !f[2]);
	CU(cuFuncGetName(&name, f[0]));
	CHECK(strcmp(name, "store") == 0 || strcmp(name, "second") == 0);
	CU_IS(CUDA_ERROR_NOT_FOUND, cuModuleGetTexRef(&tex, m, "tex"));
	CU_IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&f[0], m, "third"));
	CU_IS(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunctionCount(&n, NULL));
	CU(cuModuleUnload(m));
	CU_IS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(m));
}

static void a_module_lists_its_functions(void **state)
{
	(void)state;
	assert_int_equal(rig_run(list_functions, NULL), 0);
}

#define LENGTHS 6u

/* Fills a name that ends in its last letter only; returns it. */
static const char *long_name(char *name, size_t length, char first, char last)
{
	memset(name, 'x', length);
	name[0] = first;
	name[length - 1] = last;
	name[length] = '\0';
	return name;
}

static void use_long_names(void *arg)
{
	static const size_t lengths[LENGTHS] = { 1023, 1024, 1456, 4095, 4096, 20000 };
	static char name[65537];
	struct buf text = { 0 };
	CUfunction f, all[2 * LENGTHS];
	CUkernel kernels[2 * LENGTHS];
	CUdeviceptr at;
	const char *got;
	CUlibrary l;
	size_t bytes;
	CUmodule m;
	unsigned n, found = 0;

	(void)arg;
	buf_puts(&text, HEAD);
	for (unsigned i = 0; i < LENGTHS; i++) {
		buf_printf(&text, ".visible .entry %s() { ret; }\n",
			   long_name(name, lengths[i], 'f', 'a'));
		buf_printf(&text, ".visible .entry %s() { ret; }\n",
			   long_name(name, lengths[i], 'f', 'b'));
		buf_printf(&text, ".visible .global .u32 %s[%u];\n",
			   long_name(name, lengths[i], 'v', 'a'), i + 1);
	}
	CU(cuInit(0));
	CU(cuLibraryLoadData(&l, buf_text(&text), NULL, NULL, 0, NULL, NULL, 0));
	CU(cuLibraryEnumerateKernels(kernels, 2 * LENGTHS, l)); /* without a context */
	context();
	CU(cuModuleLoadData(&m, buf_text(&text)));
	CU(cuModuleGetFunctionCount(&n, m));
	CHECK(n == 2 * LENGTHS);
	CU(cuModuleEnumerateFunctions(all, n, m));
	for (unsigned i = 0; i < LENGTHS; i++) {
		long_name(name, lengths[i], 'f', 'b');
		CU(cuModuleGetFunction(&f, m, name));
		CU(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
		CU(cuFuncGetName(&got, f));
		CHECK(strcmp(got, name) == 0);
		for (unsigned k = 0; k < n; k++) {
			CU(cuKernelGetName(&got, kernels[k]));
			found += all[k] == f;
			found += strcmp(got, name) == 0;
		}
		CU_IS(CUDA_ERROR_NOT_FOUND,
		      cuModuleGetFunction(&f, m, long_name(name, lengths[i], 'f', 'c')));
		CU(cuModuleGetGlobal_v2(&at, &bytes, m, long_name(name, lengths[i], 'v', 'a')));
		CHECK(bytes == 4 * (i + 1));
	}
	CHECK(found == 2 * LENGTHS);
	CU_IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&f, m, long_name(name, 65535, 'f', 'a')));
	CU_IS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&f, m, long_name(name, 65536, 'f', 'a')));
	CU(cuCtxSynchronize());
	CU(cuModuleUnload(m));
	CU(cuLibraryUnload(l));
	buf_finish(&text);
}

static void names_have_any_length(void **state)
{
	(void)state;
	assert_int_equal(rig_run(use_long_names, NULL), 0);
}

static int set_up(void **state)
{
	(void)state;
	rig_open();
	rig_start((const char *[]){ "--mem", "256M", "--sms", "2", NULL });
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fat_binaries_load_every_way),
		cmocka_unit_test(names_have_any_length),
		cmocka_unit_test(load_errors_are_distinguished),
		cmocka_unit_test(logs_say_what_is_wrong_and_where),
		cmocka_unit_test(linked_modules_call_each_other),
		cmocka_unit_test(unsupported_link_inputs_are_named),
		cmocka_unit_test(a_library_serves_every_context),
		cmocka_unit_test(libraries_that_cannot_be_loaded_are_refused),
		cmocka_unit_test(managed_variables_are_reached_by_the_program),
		cmocka_unit_test(large_images_of_many_programs_take_turns),
		cmocka_unit_test(a_module_of_thousands_of_kernels_comes_and_goes),
		cmocka_unit_test(a_module_lists_its_functions),
	};

	return cmocka_run_group_tests(tests, set_up, rig_end);
}
