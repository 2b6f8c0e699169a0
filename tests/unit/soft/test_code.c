/* The soft GPU's machine code: what a link gives, loading it in every form, and kernels that begin
 * with an entry stub. Each test is a child process, since libcuda keeps global state. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../ptx/fatbin_make.h"
#include "code_patcher.h"
#include "rig.h"

#define HEAD ".version 7.8\n.target sm_75\n.address_size 64\n"
#define BLOCKS 32u
#define ARG_BYTES 64u

/* mark(out, value): out[block] = value, by the first thread. A label, a scope and registers have
 * the names of the stub's. */
static char kernels[] =
	HEAD ".global .align 4 .u32 seven = 7;\n"
	     ".visible .entry mark(.param .u64 out, .param .u32 value)\n.maxntid 64, 1, 1\n{\n"
	     "	.reg .b32 %r<6>;\n	.reg .b64 %rd<4>;\n	.reg .pred %p<2>;\n"
	     "	ld.param.u64 %rd1, [out];\n	ld.param.u32 %r1, [value];\n"
	     "	mov.u32 %r2, %tid.x;\n	setp.ne.u32 %p1, %r2, 0;\n	@%p1 bra $L1;\n"
	     "	bar.sync 1, 32;\n"
	     "	mov.u32 %r3, %ctaid.x;\n	mul.wide.u32 %rd2, %r3, 4;\n"
	     "	add.u64 %rd3, %rd1, %rd2;\n	st.global.u32 [%rd3], %r1;\n$L1:\n	ret;\n}\n"
	     ".visible .entry none() { ret; }\n";

/* A stub by which blocks leave if bit (index % 64) of the argument's word 1 is clear, unless word 0
 * is zero. Uses what a gate needs. */
static const char stub_text[] =
	".visible .entry stub(.param .align 8 .b8 pad[%u], .param .align 8 .b8 arg[64])\n{\n"
	"	.reg .b32 %%r<6>;\n	.reg .b64 %%rd<6>;\n	.reg .pred %%p<3>;\n"
	"	ld.param.u64 %%rd1, [arg];\n	setp.eq.u64 %%p1, %%rd1, 0;\n	@%%p1 bra $L1;\n"
	"	mov.u32 %%r1, %%tid.x;\n	mov.pred %%p2, 0;\n"
	"	setp.ne.u32 %%p1, %%r1, 0;\n	@%%p1 bra $L2;\n"
	"	{\n	.reg .b64 %%t, %%one;\n"
	"	mov.u64 %%t, %%globaltimer;\n	setp.eq.u64 %%p1, %%t, 0;\n	@%%p1 exit;\n"
	"	ld.volatile.global.u64 %%t, [%%rd1];\n"
	"	cvt.u64.u32 %%one, %%r1;\n	add.u64 %%one, %%one, 1;\n"
	"	atom.global.or.b64 %%t, [%%rd1+8], %%one;\n"
	"	mov.u32 %%r2, %%clusterid.x;\n	cvt.u64.u32 %%t, %%r2;\n	add.u64 %%t, %%t, "
	"1;\n"
	"	atom.global.max.u64 %%t, [%%rd1], %%t;\n	membar.sys;\n	}\n"
	"	ld.param.u64 %%rd2, [arg+8];\n	and.b32 %%r3, %%r2, 63;\n"
	"	shr.u64 %%rd2, %%rd2, %%r3;\n	and.b64 %%rd2, %%rd2, 1;\n"
	"	setp.eq.u64 %%p2, %%rd2, 0;\n"
	"$L2:\n	barrier.cta.red.or.pred %%p2, 0, %%p2;\n	@%%p2 exit;\n"
	"$L1:\n	pmevent 13;\n	ret;\n}\n";

struct code {
	void *data; /* owned */
	size_t bytes;
};

static void context(void)
{
	CUcontext ctx;

	CU(cuInit(0));
	CU(cuCtxCreate_v2(&ctx, 0, 0));
}

static struct code link_text(char *text)
{
	struct code c;
	CUlinkState s;
	void *image;

	CU(cuLinkCreate_v2(0, NULL, NULL, &s));
	CU(cuLinkAddData_v2(s, CU_JIT_INPUT_PTX, text, strlen(text) + 1, "text", 0, NULL, NULL));
	CU(cuLinkComplete(s, &image, &c.bytes));
	c.data = malloc(c.bytes);
	CHECK(c.data != NULL);
	memcpy(c.data, image, c.bytes);
	CU(cuLinkDestroy(s));
	return c;
}

static struct code link_stub(unsigned pad)
{
	struct buf b = { 0 };
	struct code c;

	buf_puts(&b, HEAD);
	buf_printf(&b, stub_text, pad);
	c = link_text(b.data);
	buf_finish(&b);
	return c;
}

/* ---- images ---- */

static void check_header(const struct code *c)
{
	static const uint8_t ident[16] = { 0x7f, 'E', 'L', 'F', 2, 1, 1, 0x41, 8 };
	static const uint8_t first[16] = { 0x02, 0x7a, 1, 0, 0, 0x0a, 0,    0,
					   0,	 0x0f, 0, 0, 0, 0xe4, 0x0f, 0 };
	const uint8_t *p = c->data, *code;
	uint32_t flags;
	size_t bytes;

	CHECK(memcmp(p, ident, sizeof(ident)) == 0 && p[18] == 190 && p[19] == 0);
	memcpy(&flags, p + 48, sizeof(flags));
	CHECK(flags == 0x06005604);
	code = patch_section(p, ".text", "mark", &bytes);
	CHECK(bytes % 128 == 0 && memcmp(code, first, sizeof(first)) == 0);
	patch_section(p, ".nv.constant0", "mark", &bytes);
	CHECK(bytes == 0x160 + 12);
	patch_section(p, ".nv.global.init", NULL, &bytes);
	CHECK(bytes == 4);
}

static void write_file(const char *path, const void *data, size_t n)
{
	FILE *f = fopen(path, "wb");

	CHECK(f && fwrite(data, 1, n, f) == n);
	fclose(f);
}

static CUdeviceptr zeros(size_t bytes)
{
	CUdeviceptr p;

	CU(cuMemAlloc_v2(&p, bytes));
	CU(cuMemsetD8_v2(p, 0, bytes));
	return p;
}

/* Returns the number of blocks of mark that ran; *set: which, by bits. */
static unsigned ran(CUdeviceptr out, uint64_t *set)
{
	uint32_t words[BLOCKS];
	unsigned n = 0;

	CU(cuMemcpyDtoH_v2(words, out, sizeof(words)));
	*set = 0;
	for (unsigned i = 0; i < BLOCKS; i++) {
		CHECK(words[i] == 0 || words[i] == 77);
		n += words[i] != 0;
		*set |= (uint64_t)(words[i] != 0) << i;
	}
	CU(cuMemFree_v2(out));
	return n;
}

static void check_original(CUfunction f)
{
	CUdeviceptr out = zeros(4 * BLOCKS);
	uint32_t value = 77;
	void *params[] = { &out, &value };
	uint64_t set;

	CU(cuLaunchKernel(f, BLOCKS, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
	CHECK(ran(out, &set) == BLOCKS);
}

static void check_module(CUmodule m)
{
	CUdeviceptr seven;
	uint32_t value = 0;
	CUfunction f;
	size_t bytes;

	CU(cuModuleGetFunction(&f, m, "mark"));
	check_original(f);
	CU(cuModuleGetGlobal_v2(&seven, &bytes, m, "seven"));
	CU(cuMemcpyDtoH_v2(&value, seven, 4));
	CHECK(value == 7 && bytes == 4);
	CU(cuModuleUnload(m));
}

static void load_from_container(const struct code *c, uint64_t how)
{
	struct buf b = { 0 };
	struct ptx_fatbin_wrapper w = { PTX_FATBIN_WRAPPER_MAGIC, 1, NULL, NULL };
	size_t at = make_begin(&b);
	CUmodule m;

	/* The text of the PTX beside it would be refused. */
	make_entry(&b, PTX_FATBIN_PTX, 75, "broken", sizeof("broken"), 0);
	make_entry(&b, PTX_FATBIN_CUBIN, 86, c->data, c->bytes, how);
	make_end(&b, at);
	w.data = b.data;
	CU(cuModuleLoadData(&m, b.data));
	check_module(m);
	CU(cuModuleLoadFatBinary(&m, &w));
	check_module(m);
	buf_finish(&b);
}

static void load_every_way(void *arg)
{
	char path[96];
	struct code c;
	CUlibrary l;
	CUkernel k;
	CUmodule m;

	(void)arg;
	context();
	c = link_text(kernels);
	check_header(&c);
	CU(cuModuleLoadData(&m, c.data));
	check_module(m);
	snprintf(path, sizeof(path), "%s/code", rig_dir);
	write_file(path, c.data, c.bytes);
	CU(cuModuleLoad(&m, path));
	check_module(m);
	CU(cuLibraryLoadFromFile(&l, path, NULL, NULL, 0, NULL, NULL, 0));
	unlink(path);
	CU(cuLibraryUnload(l));
	CU(cuLibraryLoadData(&l, c.data, NULL, NULL, 0, NULL, NULL, 0));
	memset(c.data, 0xee, 64); /* the library has a copy */
	CU(cuLibraryGetKernel(&k, l, "mark"));
	check_original((CUfunction)(void *)k);
	CU(cuLibraryUnload(l));
	free(c.data);
	c = link_text(kernels);
	load_from_container(&c, 0);
	load_from_container(&c, PTX_FATBIN_LZ4);
	load_from_container(&c, PTX_FATBIN_ZSTD);
	free(c.data);
}

static void machine_code_loads_every_way(void **state)
{
	(void)state;
	assert_int_equal(rig_run(load_every_way, NULL), 0);
}

/* Files of ptxas for this architecture and others. */
static void refuse_files(void)
{
	static const char *const names[] = { "gate_64.sm_86", "lineinfo.sm_86", "kernels.sm_90" };
	char path[512];
	CUlibrary l;
	CUmodule m;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s.cubin", getenv("CUBINS"), names[i]);
		CU_IS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoad(&m, path));
		CU_IS(CUDA_ERROR_NO_BINARY_FOR_GPU,
		      cuLibraryLoadFromFile(&l, path, NULL, NULL, 0, NULL, NULL, 0));
	}
}

/* Machine code of a GPU, with PTX in the same container and without. */
static void refuse_foreign_code(void *arg)
{
	struct buf b = { 0 };
	size_t at, bytes;
	struct code c;
	uint8_t *name;
	CUmodule m;

	(void)arg;
	context();
	c = link_text(kernels);
	refuse_files();
	name = memmem(c.data, c.bytes, ".gbpf.soft", 10);
	CHECK(name != NULL);
	memcpy(name, ".nv.other1", 10);
	CU_IS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&m, c.data));
	at = make_begin(&b);
	make_entry(&b, PTX_FATBIN_CUBIN, 86, c.data, c.bytes, 0);
	make_end(&b, at);
	CU_IS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&m, b.data));
	buf_clear(&b);
	at = make_begin(&b);
	make_entry(&b, PTX_FATBIN_CUBIN, 86, c.data, c.bytes, 0);
	make_entry(&b, PTX_FATBIN_PTX, 75, kernels, sizeof(kernels), 0);
	make_end(&b, at);
	CU(cuModuleLoadData(&m, b.data));
	check_module(m);
	memcpy(name, ".gbpf.soft", 10);
	name = unqual(patch_section(c.data, ".gbpf.soft", NULL, &bytes));
	name[7]++; /* the version */
	CU_IS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&m, c.data));
	buf_finish(&b);
	free(c.data);
}

static void other_machine_code_is_refused(void **state)
{
	(void)state;
	assert_int_equal(rig_run(refuse_foreign_code, NULL), 0);
}

/* ---- stubs ---- */

static void compare_stubs(void *arg)
{
	struct code near, far;
	const uint8_t *a, *b;
	size_t a_bytes, b_bytes;
	unsigned moved = 0, marks = 0;

	(void)arg;
	context();
	near = link_stub(64);
	far = link_stub(1024);
	a = patch_section(near.data, ".text", "stub", &a_bytes);
	b = patch_section(far.data, ".text", "stub", &b_bytes);
	CHECK(a_bytes == b_bytes);
	for (size_t at = 0; at < a_bytes; at += 16) {
		uint64_t x[2], y[2], field = UINT64_C(0xffff) << 38;

		memcpy(x, a + at, sizeof(x));
		memcpy(y, b + at, sizeof(y));
		CHECK(x[1] == y[1] && (x[0] & ~field) == (y[0] & ~field));
		if (x[0] != y[0]) {
			CHECK((y[0] >> 38 & 0xffff) - (x[0] >> 38 & 0xffff) == 1024 - 64);
			moved++;
		}
		if ((x[0] & 0xfff) == 0x801) {
			CHECK(x[0] == 0x0000200000007801); /* PMTRIG of event 13 */
			memcpy(x, a + at + 16, sizeof(x));
			CHECK(x[0] == 0x794d); /* EXIT */
			marks++;
		}
	}
	CHECK(moved == 2 && marks == 1); /* arg and arg+8 */
	free(near.data);
	free(far.data);
}

static void two_compilations_differ_only_in_the_argument(void **state)
{
	(void)state;
	assert_int_equal(rig_run(compare_stubs, NULL), 0);
}

static void patch(struct buf *ret, enum patch_fault fault)
{
	struct code image = link_text(kernels), stub = link_stub(64);
	struct buf one = { 0 };

	patch_kernel(&one, image.data, image.bytes, "none", stub.data, "stub", 64, ARG_BYTES,
		     PATCH_RIGHT);
	patch_kernel(ret, one.data, one.len, "mark", stub.data, "stub", 64, ARG_BYTES, fault);
	buf_finish(&one);
	free(image.data);
	free(stub.data);
}

static int registers_of(CUfunction f)
{
	int n;

	CU(cuFuncGetAttribute(&n, CU_FUNC_ATTRIBUTE_NUM_REGS, f));
	return n;
}

/* As a driver, which does not know what the code needs: what the file says. */
static void read_registers(void *arg)
{
	struct code c;
	struct buf b = { 0 };
	CUfunction f;
	CUlibrary l;
	CUkernel k;
	CUmodule m;
	int n, said;

	(void)arg;
	context();
	c = link_text(kernels);
	said = (int)patch_registers(c.data, "mark");
	CHECK(said > 2 && said < 64);
	CU(cuModuleLoadData(&m, c.data));
	CU(cuModuleGetFunction(&f, m, "mark"));
	CHECK(registers_of(f) == said);
	patch(&b, PATCH_RIGHT);
	CHECK(patch_registers(b.data, "mark") == 64);
	CU(cuLibraryLoadData(&l, b.data, NULL, NULL, 0, NULL, NULL, 0));
	CU(cuLibraryGetKernel(&k, l, "mark"));
	CU(cuKernelGetAttribute(&n, CU_FUNC_ATTRIBUTE_NUM_REGS, k, 0));
	CHECK(n == 64);
	CU(cuLibraryUnload(l));
	CU(cuModuleUnload(m));
	buf_finish(&b);
	free(c.data);
}

/* n values of 8 bytes that a kernel reads; all at once, or one after the other. */
static int registers_for(unsigned n, bool at_once)
{
	struct buf text = { 0 };
	struct code c;
	int said;

	buf_printf(&text,
		   ".version 7.0\n.target sm_70\n.address_size 64\n"
		   ".visible .entry mark(.param .u64 at)\n{\n"
		   ".reg .b64 %%q, %%v<%u>; ld.param.u64 %%q, [at];\n",
		   n);
	for (unsigned k = 0; k < 2; k++) {
		for (unsigned i = 0; i < n; i++) {
			if (k == 0) {
				buf_printf(&text, "ld.global.u64 %%v%u, [%%q+%u];\n", i, 8 * i);
			}
			if (k == (unsigned)at_once) {
				buf_printf(&text, "st.global.u64 [%%q+%u], %%v%u;\n", 8 * i, i);
			}
		}
	}
	buf_puts(&text, "ret;\n}\n");
	c = link_text(unqual(buf_text(&text)));
	said = (int)patch_registers(c.data, "mark");
	free(c.data);
	buf_finish(&text);
	return said;
}

static void count_registers(void *arg)
{
	int all, one;

	(void)arg;
	context();
	all = registers_for(60, true);
	one = registers_for(60, false);
	CHECK(all == 120); /* the address is a parameter */
	CHECK(one == 64);
	CHECK(registers_for(200, true) == 255);
	CHECK(registers_for(20, false) == 2 + 2 + 40);
}

static void values_that_are_not_live_at_once_share_registers(void **state)
{
	(void)state;
	assert_int_equal(rig_run(count_registers, NULL), 0);
}

static void kernels_have_the_registers_of_the_file(void **state)
{
	(void)state;
	assert_int_equal(rig_run(read_registers, NULL), 0);
}

static void check_params(CUfunction f)
{
	size_t at, bytes;

	CU(cuFuncGetParamInfo(f, 1, &at, &bytes));
	CHECK(at == 8 && bytes == 4);
	CU(cuFuncGetParamInfo(f, 2, &at, &bytes));
	CHECK(at == 16 && bytes == ARG_BYTES);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(f, 3, &at, &bytes));
}

/* Launches with an argument; extra: all parameters as one buffer. */
static unsigned launch(CUfunction f, const uint64_t words[8], bool extra, uint64_t *set)
{
	struct {
		CUdeviceptr out;
		uint32_t value, hole;
		uint64_t words[8];
	} all = { .out = zeros(4 * BLOCKS), .value = 77 };
	size_t bytes = sizeof(all);
	void *params[] = { &all.out, &all.value, all.words };
	void *buffer[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &all, CU_LAUNCH_PARAM_BUFFER_SIZE,
			   &bytes, CU_LAUNCH_PARAM_END };

	memcpy(all.words, words, sizeof(all.words));
	CU(cuLaunchKernel(f, BLOCKS, 1, 1, 64, 1, 1, 0, NULL, extra ? NULL : params,
			  extra ? buffer : NULL));
	return ran(all.out, set);
}

static void run_patched(void *arg)
{
	uint64_t words[8] = { 0 }, gate[2], set;
	struct buf b = { 0 };
	void *none[] = { words };
	CUfunction f;
	CUmodule m;

	(void)arg;
	context();
	patch(&b, PATCH_RIGHT);
	CU(cuModuleLoadData(&m, b.data));
	CU(cuModuleGetFunction(&f, m, "mark"));
	check_params(f);
	CHECK(launch(f, words, false, &set) == BLOCKS); /* zero: as the original */
	words[0] = zeros(16);
	words[1] = 0x5555555555555555;
	CHECK(launch(f, words, false, &set) == BLOCKS / 2 && set == 0x55555555);
	words[1] = 0x00000000fffffff0;
	CHECK(launch(f, words, true, &set) == BLOCKS - 4 && set == 0xfffffff0);
	CU(cuMemcpyDtoH_v2(gate, words[0], sizeof(gate)));
	CHECK(gate[0] == BLOCKS && gate[1] == 1); /* the stub of each block has run */
	CU(cuModuleGetFunction(&f, m, "none"));
	words[0] = 0;
	CU(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, none, NULL));
	CU(cuCtxSynchronize());
	CU(cuModuleUnload(m));
	buf_finish(&b);
}

static void a_stub_runs_before_its_kernel(void **state)
{
	(void)state;
	assert_int_equal(rig_run(run_patched, NULL), 0);
}

static void refuse_faults(void *arg)
{
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	char log[400];

	(void)arg;
	context();
	for (int i = PATCH_RIGHT + 1; i < PATCH_FAULTS; i++) {
		void *values[] = { log, (void *)sizeof(log) };
		struct buf b = { 0 };
		CUresult e;
		CUmodule m;

		patch(&b, (enum patch_fault)i);
		e = cuModuleLoadDataEx(&m, b.data, 2, options, values);
		rig_check(e == CUDA_ERROR_INVALID_IMAGE && strstr(log, "kernel mark of the cubin"),
			  "refused", __FILE__, i, (long)e);
		buf_finish(&b);
	}
}

static void code_that_does_not_fit_its_tables_is_refused(void **state)
{
	(void)state;
	assert_int_equal(rig_run(refuse_faults, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(machine_code_loads_every_way),
		cmocka_unit_test(other_machine_code_is_refused),
		cmocka_unit_test(two_compilations_differ_only_in_the_argument),
		cmocka_unit_test(kernels_have_the_registers_of_the_file),
		cmocka_unit_test(values_that_are_not_live_at_once_share_registers),
		cmocka_unit_test(a_stub_runs_before_its_kernel),
		cmocka_unit_test(code_that_does_not_fit_its_tables_is_refused),
	};

	return cmocka_run_group_tests(tests, rig_begin_small, rig_end);
}
