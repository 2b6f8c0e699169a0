/* Comparison of a probed form with the program's kernel: both run on copies of the memory that the
 * kernel writes, before each of the first three launches. The program's own memory is not touched.
 * The kernel runs twice: where its own results differ between two runs, the form is not to blame.
 * The launch that follows takes the kernel itself, so the programs are run once for it, on the
 * copies.
 *
 * The launching thread waits for the context to be idle, as for a form that is loaded at a first
 * launch, and then for the three runs; the wait is bounded. */
#include "shim/probe/shim_probe_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ptx/probe.h"
#include "ptx/probe_pointers.h"
#include "shim/capture_state.h"
#include "shim/kernel/loaded_image.h"
#include "shim/session/session_agent.h"

#define RUN_OF_FORM 0u
#define RUNS 3u			      /* of the form, and twice of the kernel */
#define BYTES_MAX ((size_t)256 << 20) /* of all copies */
#define CHUNK ((size_t)1 << 20)	      /* compared at once */
#define PATIENCE_NS 1000000000u	      /* for the context to be idle, and for the runs */
#define STEP_NS 50000u
#define PARAM_BYTES_MAX 4096u
#define ALIGN 512u

/* An allocation that the kernel writes. */
struct copied {
	CUdeviceptr base;
	size_t bytes, at; /* at: in each of the copies */
};

struct verifying {
	struct shim_probe_kernel *k;
	struct shim_probe_form *f;
	const uint32_t *dims;
	void **params;
	struct ptx_pointers ptrs;
	struct copied of[PTX_POINTERS_MAX];
	uint32_t n;
	size_t bytes;	 /* of one copy */
	CUdeviceptr mem; /* the copies, one behind the other */
	CUstream stream;
	uint64_t number; /* of the launch */
	bool ran;	 /* the form has run: the programs have seen the launch */
	char why[SHIM_PROBE_VERIFIED_TEXT];
};

static bool fail(struct verifying *v, const char *why)
{
	snprintf(v->why, sizeof(v->why), "%s", why);
	return false;
}

/* ---- what is copied ---- */

static bool find_pointers(struct verifying *v)
{
	struct shim_kept_reason kept;
	struct ptx_module *m = NULL;
	struct report r;
	size_t bytes = 0;
	char *text = v->f->code ? NULL : shim_image_ptx(v->k->owner, v->k->name, &bytes, &kept);
	struct buf why;
	bool good;

	if (!text) {
		return fail(v, "what its machine code writes is not known");
	}
	report_init(&r);
	good = ptx_module_parse(&m, text, bytes, "kernel", &r) == 0 &&
	       ptx_pointers_find(m, v->k->name, &v->ptrs, &r) == 0;
	if (!good) {
		buf_init(&why);
		report_text(&r, &why);
		(void)fail(v, buf_text(&why));
		buf_finish(&why);
	}
	report_finish(&r);
	ptx_module_free(m);
	free(text);
	return good;
}

static CUdeviceptr pointer(const struct verifying *v, const struct ptx_pointer *p)
{
	CUdeviceptr at;

	memcpy(&at, (const char *)v->params[p->param] + p->offset, sizeof(at));
	return at;
}

static struct copied *copied_at(struct verifying *v, CUdeviceptr at)
{
	for (uint32_t i = 0; i < v->n; i++) {
		if (at - v->of[i].base < v->of[i].bytes) {
			return &v->of[i];
		}
	}
	return NULL;
}

static bool add_allocation(struct verifying *v, CUdeviceptr at)
{
	struct copied c = { .at = v->bytes };
	unsigned type = 0;

	/* Of shim_real: memory that can leave the device is of several chunks for the driver. */
	if (SHIM_REAL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) !=
		    CUDA_SUCCESS ||
	    type != CU_MEMORYTYPE_DEVICE ||
	    SHIM_REAL(cuMemGetAddressRange_v2)(&c.base, &c.bytes, at) != CUDA_SUCCESS || !c.bytes) {
		return fail(v, "an argument by which it writes is no memory of the GPU");
	}
	if (c.bytes > BYTES_MAX / RUNS ||
	    v->bytes + ROUND_UP(c.bytes, (size_t)ALIGN) > BYTES_MAX / RUNS) {
		return fail(v, "three copies of the memory that it writes need more than 256 MiB");
	}
	v->bytes += ROUND_UP(c.bytes, (size_t)ALIGN);
	v->of[v->n++] = c;
	return true;
}

static bool find_allocations(struct verifying *v)
{
	for (uint32_t i = 0; i < v->ptrs.n; i++) {
		CUdeviceptr at = pointer(v, &v->ptrs.at[i]);

		if (v->ptrs.at[i].written && at && !copied_at(v, at) && !add_allocation(v, at)) {
			return false;
		}
	}
	return v->n || fail(v, "it writes no memory");
}

/* ---- runs ---- */

static bool copy_all(struct verifying *v)
{
	CUresult r = CUDA_SUCCESS;

	for (uint32_t run = 0; run < RUNS; run++) {
		for (uint32_t i = 0; i < v->n && !r; i++) {
			const struct copied *c = &v->of[i];

			r = shim_driver.cuMemcpyDtoDAsync_v2(v->mem + run * v->bytes + c->at,
							     run ? v->mem + c->at : c->base,
							     c->bytes, v->stream);
		}
	}
	return r == CUDA_SUCCESS || fail(v, "the memory that it writes cannot be copied");
}

static bool launch(struct verifying *v, uint32_t run)
{
	unsigned char bytes[PARAM_BYTES_MAX];
	void *params[PTX_POINTER_PARAMS_MAX + 1];
	const uint32_t *d = v->dims;
	size_t at = 0;
	CUfunction f =
		run == RUN_OF_FORM ? v->f->handle : (CUfunction)unqual(load_relaxed(&v->k->handle));
	uint32_t smem =
		run == RUN_OF_FORM ? shim_probe_form_smem(v->f, d[6], d[3], d[4], d[5]) : d[6];

	for (uint32_t i = 0; i < v->ptrs.n_params; i++) {
		at = ROUND_UP(at, (size_t)16);
		if (v->ptrs.bytes[i] > sizeof(bytes) - at) {
			return fail(v, "its arguments are too long");
		}
		memcpy(bytes + at, v->params[i], v->ptrs.bytes[i]);
		params[i] = bytes + at;
		at += v->ptrs.bytes[i];
	}
	for (uint32_t i = 0; i < v->ptrs.n; i++) {
		const struct ptx_pointer *p = &v->ptrs.at[i];
		CUdeviceptr old = pointer(v, p);
		const struct copied *c = copied_at(v, old);
		CUdeviceptr now = c ? v->mem + run * v->bytes + c->at + (old - c->base) : old;

		memcpy((char *)params[p->param] + p->offset, &now, sizeof(now));
	}
	params[v->ptrs.n_params] = &v->number; /* the kernel itself does not have it */
	return shim_driver.cuLaunchKernel(f, d[0], d[1], d[2], d[3], d[4], d[5], smem, v->stream,
					  params, NULL) == CUDA_SUCCESS ||
	       fail(v, "the driver does not launch it on copies");
}

static bool wait_done(struct verifying *v)
{
	uint64_t until = clock_now_ns() + clock_patience(PATIENCE_NS);
	CUresult r;

	while ((r = shim_driver.cuStreamQuery(v->stream)) == CUDA_ERROR_NOT_READY &&
	       clock_now_ns() < until) {
		clock_sleep_ns(STEP_NS);
	}
	return r == CUDA_SUCCESS ||
	       fail(v, r == CUDA_ERROR_NOT_READY ? "it does not end within 1 s on copies"
						 : "it fails on copies");
}

/* ---- comparison ---- */

static size_t first_difference(const char *a, const char *b, size_t n)
{
	size_t i = 0;

	while (i < n && a[i] == b[i]) {
		i++;
	}
	return i;
}

static bool read_back(struct verifying *v, uint32_t run, size_t at, size_t n, char *to)
{
	return shim_driver.cuMemcpyDtoHAsync_v2(to, v->mem + run * v->bytes + at, n, v->stream) ==
		       CUDA_SUCCESS &&
	       shim_driver.cuStreamSynchronize(v->stream) == CUDA_SUCCESS;
}

/* Compares one allocation. Returns how it ends. */
static enum shim_probe_verified compare(struct verifying *v, const struct copied *c, char *host)
{
	char *a = host, *b = host + CHUNK, *again = host + 2 * CHUNK;

	for (size_t at = 0; at < c->bytes; at += CHUNK) {
		size_t n = MIN(CHUNK, c->bytes - at), first;

		if (!read_back(v, 0, c->at + at, n, a) || !read_back(v, 1, c->at + at, n, b) ||
		    !read_back(v, 2, c->at + at, n, again)) {
			(void)fail(v, "the results cannot be read");
			return SHIM_PROBE_NOT_VERIFIED;
		}
		if (first_difference(b, again, n) < n) {
			(void)fail(v, "two runs of the kernel itself have different results");
			return SHIM_PROBE_NOT_VERIFIED;
		}
		first = first_difference(a, b, n);
		if (first < n) {
			snprintf(v->why, sizeof(v->why),
				 "its form writes something else at byte %zu of the allocation of "
				 "%zu bytes at 0x%llx",
				 at + first, c->bytes, (unsigned long long)c->base);
			return SHIM_PROBE_DIFFERS;
		}
	}
	return SHIM_PROBE_EQUAL;
}

static enum shim_probe_verified compare_all(struct verifying *v)
{
	enum shim_probe_verified all = SHIM_PROBE_EQUAL;
	char *host = malloc(RUNS * CHUNK);

	if (!host) {
		(void)fail(v, "out of memory");
		return SHIM_PROBE_NOT_VERIFIED;
	}
	for (uint32_t i = 0; i < v->n && all == SHIM_PROBE_EQUAL; i++) {
		all = compare(v, &v->of[i], host);
	}
	free(host);
	return all;
}

/* ---- a launch ---- */

static enum shim_probe_verified run(struct verifying *v)
{
	if (!copy_all(v)) {
		return SHIM_PROBE_NOT_VERIFIED;
	}
	for (uint32_t i = 0; i < RUNS; i++) {
		if (!launch(v, i)) {
			break;
		}
		v->ran = true;
	}
	if (!wait_done(v) || v->why[0]) {
		return SHIM_PROBE_NOT_VERIFIED;
	}
	return compare_all(v);
}

/* Runs with memory and a stream, in the current context, which is idle. A kernel that does not end
 * keeps the memory until the context is idle. */
static enum shim_probe_verified run_with_memory(struct verifying *v)
	REQUIRES(shim_probe_build_mutex)
{
	enum shim_probe_verified result = SHIM_PROBE_NOT_VERIFIED;

	if (!find_pointers(v) || !find_allocations(v)) {
		return result;
	}
	if (shim_driver.cuMemAlloc_v2(&v->mem, RUNS * v->bytes) != CUDA_SUCCESS) {
		(void)fail(v, "no memory of the GPU for copies");
		return result;
	}
	if (shim_driver.cuStreamCreate(&v->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
		(void)fail(v, "no stream");
	} else {
		result = run(v);
		(void)shim_driver.cuStreamDestroy_v2(v->stream);
	}
	shim_probe_memory_discard(load_relaxed(&v->k->ctx), v->mem);
	return result;
}

static void note(const struct verifying *v, enum shim_probe_verified result)
{
	struct shim_probe_form *f = v->f;

	lock_take(&shim_probe_mutex);
	if (f->verified != SHIM_PROBE_DIFFERS) {
		f->verified = result;
		snprintf(f->verified_why, sizeof(f->verified_why), "%s", v->why);
	}
	lock_release(&shim_probe_mutex);
	if (result == SHIM_PROBE_EQUAL) {
		(void)sub_acqrel(&f->verify_left, 1u);
	} else {
		store_relaxed(&f->verify_left, 0u);
	}
	shim_probe_thread_wake();
}

/* Waits until the context, which is current, is idle. */
static bool begin_quiet(void) REQUIRES(shim_probe_build_mutex)
{
	uint64_t now = clock_now_ns(), until = now + clock_patience(PATIENCE_NS);
	enum shim_probe_quiet quiet = SHIM_PROBE_BUSY;

	for (; quiet == SHIM_PROBE_BUSY && now < until; now = clock_now_ns()) {
		quiet = shim_probe_quiet_begin(until - now);
	}
	return quiet == SHIM_PROBE_QUIET;
}

bool shim_probe_verify(struct shim_probe_kernel *k, struct shim_probe_form *f,
		       const uint32_t dims[SHIM_PROBE_DIMS], void **params)
{
	struct verifying *v;
	CUstreamCaptureMode mode;
	CUcontext popped;
	bool ran = false;

	if (shim_agent_is_current() || shim_capture_any()) {
		return false; /* the next launch may be compared instead */
	}
	v = calloc(1, sizeof(*v));
	if (!v) {
		return false;
	}
	*v = (struct verifying){
		.k = k, .f = f, .dims = dims, .params = params, .number = shim_probe_number(f)
	};
	lock_take(&shim_probe_build_mutex);
	mode = shim_capture_exempt();
	if (load_relaxed(&f->verify_left) && load_seqcst(&k->form) == f &&
	    shim_driver.cuCtxPushCurrent_v2(f->ctx) == CUDA_SUCCESS) {
		if (f->bracket || f->submits || !params) {
			(void)fail(v, f->bracket ? "it runs between brackets"
				      : f->submits
					      ? "a program of submit observes its launches"
					      : "its launch is of a kind that cannot be repeated");
			note(v, SHIM_PROBE_NOT_VERIFIED);
		} else if (begin_quiet()) {
			note(v, run_with_memory(v));
			shim_probe_quiet_end();
		} else {
			(void)fail(v, "its context is not idle within 1 s");
			note(v, SHIM_PROBE_NOT_VERIFIED);
		}
		(void)shim_driver.cuCtxPopCurrent_v2(&popped);
	}
	shim_capture_restore(mode);
	lock_release(&shim_probe_build_mutex);
	ran = v->ran;
	free(v);
	return ran;
}
