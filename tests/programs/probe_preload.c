/* Preloaded into a program: replaces each kernel of a PTX image by its probed form, with programs
 * at all sites, and compares at the end what they counted with what was launched. A kernel that
 * cannot be sliced, and one that is first used while a stream is captured, stays as it is. Prints a
 * line of counts to the standard error output; exits with 9 if a count is wrong. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "cuabi/api.h"
#include "ptx/probe.h"
#include "ptx/probe_shared.h"

#define FORMS_MAX 256u
#define MODULES_MAX 64u
#define LANES (UINT64_C(1) << 21)   /* the field of that name, of all hooks */
#define SECTORS (UINT64_C(7) << 29) /* sectors, stride, conflicts of an access */

enum { BLOCK_ENTER, ENTER, EXIT, BLOCK_EXIT, PROBES = 11 };

struct counts {
	uint64_t calls, lanes;
};

struct form {
	CUfunction handle;
	CUdeviceptr counts;	    /* PROBES of struct counts */
	bool needs_shared, unknown; /* launched by a graph */
	uint64_t blocks, warps, threads;
};

static struct form forms[FORMS_MAX];
static unsigned n_forms, n_kept;
static struct {
	CUmodule module;
	char *path;
} modules[MODULES_MAX];
static unsigned n_modules;
static bool capturing;

static void *real(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (!f) {
		fprintf(stderr, "no %s\n", name);
		_exit(9);
	}
	return f;
}
#define REAL(f)                                                                                    \
	(__extension__({                                                                           \
		void *at_ = real(#f);                                                              \
		__typeof__(&f) call_;                                                              \
		memcpy(&call_, &at_, sizeof(call_));                                               \
		call_;                                                                             \
	}))

static void wrong(const char *what, unsigned long long got, unsigned long long want)
{
	fprintf(stderr, "%s: %llu, not %llu\n", what, got, want);
	_exit(9);
}

/* ---- making forms ---- */

static void program(struct buf *out, const char *name, uint32_t hook)
{
	buf_printf(out, ".func %s_f0 (.param .b64 env, .param .b32 lanes%s)\n{\n", name,
		   hook == 38 ? ", .param .b32 s, .param .b32 t, .param .b32 c" : "");
	buf_puts(out, ".reg .b64 %e, %l; .reg .b32 %w;\nld.param.b64 %e, [env];\n"
		      "ld.param.b32 %w, [lanes];\ncvt.u64.u32 %l, %w;\nred.add.u64 [%e], 1;\n"
		      "red.add.u64 [%e+8], %l;\nret;\n}\n");
}

static int rewrite(const struct ptx_module *m, const char *name, struct ptx_probed *ret)
{
	static const uint32_t hooks[PROBES] = { 34, 32, 33, 35, 36, 37, 38, 39, 40, 41, 42 };
	struct ptx_probe probes[PROBES];
	struct buf texts[PROBES];
	char names[PROBES][16];
	struct report r;
	int err;

	report_init(&r);
	for (unsigned i = 0; i < PROBES; i++) {
		snprintf(names[i], sizeof(names[i]), "count%u", i);
		buf_init(&texts[i]);
		program(&texts[i], names[i], hooks[i]);
		probes[i] = (struct ptx_probe){ .hook = hooks[i],
						.fields = hooks[i] == 38 ? LANES | SECTORS : LANES,
						.name = names[i],
						.text = buf_text(&texts[i]) };
	}
	err = ptx_probe_rewrite(m, name, probes, PROBES, ret, &r);
	if (err < 0 && err != -ENOTSUP) {
		fprintf(stderr, "%s: %s\n", name, buf_text(&r.message));
		_exit(9);
	}
	for (unsigned i = 0; i < PROBES; i++) {
		buf_finish(&texts[i]);
	}
	report_finish(&r);
	return err;
}

static void check(CUresult r, const char *call)
{
	if (r != CUDA_SUCCESS) {
		fprintf(stderr, "%s: %d\n", call, (int)r);
		_exit(9);
	}
}
#define CHECK(call) check(call, #call)

static void load(struct form *f, CUmodule original, const char *name, const struct ptx_probed *p)
{
	uint64_t *table = calloc(PROBES + p->n_variables, sizeof(*table));
	CUdeviceptr at;
	size_t bytes;
	CUmodule m;

	CHECK(cuModuleLoadData(&m, buf_text(&p->text)));
	CHECK(REAL(cuModuleGetFunction)(&f->handle, m, name));
	CHECK(cuMemAlloc_v2(&f->counts, PROBES * sizeof(struct counts)));
	CHECK(cuMemsetD8_v2(f->counts, 0, PROBES * sizeof(struct counts)));
	for (unsigned i = 0; i < PROBES; i++) {
		table[i] = f->counts + i * sizeof(struct counts);
	}
	for (unsigned i = 0; i < p->n_variables; i++) {
		CHECK(cuModuleGetGlobal_v2(&at, &bytes, original, p->variables[i]));
		table[PROBES + i] = at;
	}
	CHECK(cuModuleGetGlobal_v2(&at, &bytes, m, PTX_PROBE_TABLE));
	if (bytes != (PROBES + p->n_variables) * sizeof(*table)) {
		wrong("bytes of the table", bytes, (PROBES + p->n_variables) * sizeof(*table));
	}
	CHECK(cuMemcpyHtoD_v2(at, table, bytes));
	f->needs_shared = p->needs_shared;
	free(table);
}

static const char *path_of(CUmodule m)
{
	for (unsigned i = 0; i < n_modules; i++) {
		if (modules[i].module == m) {
			return modules[i].path;
		}
	}
	return NULL;
}

/* Returns the form's handle; NULL: the kernel stays as it is. */
static CUfunction probe(CUmodule original, const char *name)
{
	const char *path = path_of(original);
	struct ptx_probed p = { 0 };
	struct ptx_module *m = NULL;
	CUfunction ret = NULL;
	struct report r;
	struct buf text;

	buf_init(&text);
	report_init(&r);
	if (path && !capturing && n_forms < FORMS_MAX &&
	    buf_read_file(&text, path, PTX_TEXT_MAX) == 0 &&
	    ptx_module_parse(&m, buf_text(&text), text.len, path, &r) == 0 &&
	    ptx_shared_merge(m, name, NULL, &r) == 0 && rewrite(m, name, &p) == 0) {
		load(&forms[n_forms], original, name, &p);
		ret = forms[n_forms++].handle;
	}
	n_kept += !ret;
	ptx_probed_finish(&p);
	ptx_module_free(m);
	report_finish(&r);
	buf_finish(&text);
	return ret;
}

/* ---- launches ---- */

static struct form *form_of(CUfunction f)
{
	for (unsigned i = 0; i < n_forms; i++) {
		if (forms[i].handle == f) {
			return &forms[i];
		}
	}
	return NULL;
}

/* Returns the dynamic shared memory of a launch. */
static unsigned shared_of(CUfunction handle, unsigned shared)
{
	const struct form *f = form_of(handle);

	return f && f->needs_shared ? ptx_probe_smem(shared, 0, 0) : shared;
}

static CUresult launched(CUresult r, CUfunction handle, uint64_t blocks, uint64_t threads)
{
	struct form *f = form_of(handle);

	if (f && r == CUDA_SUCCESS) {
		f->unknown = f->unknown || capturing;
		f->blocks += blocks;
		f->threads += blocks * threads;
		f->warps += blocks * ((threads + 31) / 32);
	}
	return r;
}

EXPORT CUresult cuModuleLoad(CUmodule *m, const char *path)
{
	CUresult r = REAL(cuModuleLoad)(m, path);

	if (r == CUDA_SUCCESS && n_modules < MODULES_MAX && strstr(path, ".ptx")) {
		modules[n_modules].module = *m;
		modules[n_modules++].path = strdup(path);
	}
	return r;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
	static struct {
		CUfunction original, form;
	} known[FORMS_MAX];
	static unsigned n;
	CUresult r = REAL(cuModuleGetFunction)(f, m, name);
	CUfunction form;

	for (unsigned i = 0; r == CUDA_SUCCESS && i < n; i++) {
		if (known[i].original == *f) {
			*f = known[i].form;
			return r;
		}
	}
	form = r == CUDA_SUCCESS ? probe(m, name) : NULL;
	if (form && n < FORMS_MAX) {
		known[n].original = *f;
		known[n++].form = form;
		*f = form;
	}
	return r;
}

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
			       unsigned by, unsigned bz, unsigned shared, CUstream s, void **params,
			       void **extra)
{
	CUresult r = REAL(cuLaunchKernel)(f, gx, gy, gz, bx, by, bz, shared_of(f, shared), s,
					  params, extra);

	return launched(r, f, (uint64_t)gx * gy * gz, (uint64_t)bx * by * bz);
}

EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
					  unsigned bx, unsigned by, unsigned bz, unsigned shared,
					  CUstream s, void **params)
{
	CUresult r = REAL(cuLaunchCooperativeKernel)(f, gx, gy, gz, bx, by, bz,
						     shared_of(f, shared), s, params);

	return launched(r, f, (uint64_t)gx * gy * gz, (uint64_t)bx * by * bz);
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params,
				 void **extra)
{
	CUlaunchConfig c = *config;
	CUresult r;

	c.sharedMemBytes = shared_of(f, c.sharedMemBytes);
	r = REAL(cuLaunchKernelEx)(&c, f, params, extra);
	return launched(r, f, (uint64_t)c.gridDimX * c.gridDimY * c.gridDimZ,
			(uint64_t)c.blockDimX * c.blockDimY * c.blockDimZ);
}

EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph g, const CUgraphNode *deps,
					size_t n, const CUDA_KERNEL_NODE_PARAMS *params)
{
	CUDA_KERNEL_NODE_PARAMS k = *params;
	struct form *f = form_of(k.func);

	if (f) {
		f->unknown = true;
	}
	k.sharedMemBytes = shared_of(k.func, k.sharedMemBytes);
	return REAL(cuGraphAddKernelNode_v2)(node, g, deps, n, &k);
}

EXPORT CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute which, int value)
{
	const struct form *form = form_of(f);

	if (form && form->needs_shared &&
	    which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
		value = (int)ptx_probe_smem((unsigned)value, 0, 0);
	}
	return REAL(cuFuncSetAttribute)(f, which, value);
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode)
{
	capturing = true;
	return REAL(cuStreamBeginCapture_v2)(s, mode);
}

EXPORT CUresult cuStreamEndCapture(CUstream s, CUgraph *g)
{
	capturing = false;
	return REAL(cuStreamEndCapture)(s, g);
}

/* ---- the end ---- */

static void compare(const struct form *f)
{
	struct counts c[PROBES];

	CHECK(cuMemcpyDtoH_v2(c, f->counts, sizeof(c)));
	if (f->unknown) {
		return;
	}
	if (c[BLOCK_ENTER].calls != f->blocks) {
		wrong("blocks that began", c[BLOCK_ENTER].calls, f->blocks);
	}
	if (c[BLOCK_EXIT].calls != f->blocks) {
		wrong("blocks that ended", c[BLOCK_EXIT].calls, f->blocks);
	}
	if (c[ENTER].calls != f->warps) {
		wrong("warps that began", c[ENTER].calls, f->warps);
	}
	if (c[EXIT].lanes != f->threads) {
		wrong("threads that left", c[EXIT].lanes, f->threads);
	}
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
	uint64_t blocks = 0;

	CHECK(cuCtxSynchronize());
	for (unsigned i = 0; i < n_forms; i++) {
		compare(&forms[i]);
		blocks += forms[i].blocks;
	}
	fprintf(stderr, "%u probed forms, %u kernels as they are, %llu blocks\n", n_forms, n_kept,
		(unsigned long long)blocks);
	return REAL(cuCtxDestroy_v2)(context);
}
