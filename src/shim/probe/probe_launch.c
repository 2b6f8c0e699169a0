/* Launches of kernels that have a probed form. From the first tool on, the slots of shim_real for
 * launches lead here, and from here to shim/code and the driver. Launches whose parameters were set
 * by cuParamSet* run the program's own kernels; those of graphs are in probe_graph_calls.c. */
#include "shim/probe/shim_probe_int.h"

#include "base/clock.h"
#include "policy/ctx.h"
#include "ptx/probe.h"
#include "shim/capture_state.h"
#include "shim/code/shim_code.h"
#include "shim/probe/probe_mix.h"
#include "shim/probe/probe_timer.h"

static struct {
	CUresult (*plain)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			  unsigned, CUstream, void **, void **);
	CUresult (*plain_ptsz)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
			       unsigned, unsigned, CUstream, void **, void **);
	CUresult (*cooperative)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
				unsigned, unsigned, CUstream, void **);
	CUresult (*cooperative_ptsz)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
				     unsigned, unsigned, CUstream, void **);
	CUresult (*ex)(const CUlaunchConfig *, CUfunction, void **, void **);
	CUresult (*ex_ptsz)(const CUlaunchConfig *, CUfunction, void **, void **);
} before; /* what the slots led to */

/* Returns the context in which a launch on the stream runs; NULL: the driver does not report it. */
static CUcontext context_of(CUstream stream)
{
	CUcontext of = NULL;
	CUresult r = stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD
			     ? shim_driver.cuStreamGetCtx(stream, &of)
			     : shim_driver.cuCtxGetCurrent(&of);

	return r == CUDA_SUCCESS ? of : NULL;
}

static struct shim_probe_kernel unmatched; /* in the threads' caches: no tool matches the kernel */

static NOINLINE struct shim_probe_kernel *look_up(struct shim_thread *t, const void *handle,
						  CUcontext ctx)
{
	uint32_t generation = t ? shim_thread_fill_begin(t) : 0;
	struct shim_probe_kernel *k = shim_probe_kernel_find(handle, ctx);
	struct shim_thread_kernel *e =
		t ? shim_thread_fill(t, (uintptr_t)handle, generation) : NULL;

	if (e) {
		e->probe = k ? k : &unmatched;
	}
	return k;
}

/* Returns whether a cached record is of that context. Only a library's kernel has one in each. */
static bool is_of(const struct shim_probe_kernel *k, CUcontext ctx)
{
	return !load_relaxed(&k->library) || load_relaxed(&k->ctx) == ctx;
}

/* A kernel that was captured first may have no form yet, which its first launch is to have. */
static bool is_decided(const struct shim_probe_kernel *k)
{
	return load_relaxed(&k->seen) != 0;
}

/* Returns the record of a kernel that a tool matches, or NULL. *ctx NULL: the stream's, which is
 * asked for only if it matters. */
static struct shim_probe_kernel *find(const void *f, CUstream stream, CUcontext *ctx)
{
	struct shim_thread *t = shim_thread_self();
	const struct shim_thread_kernel *e;
	struct shim_probe_kernel *k;

	if (!f || !shim_attached()) {
		return NULL;
	}
	e = t ? shim_thread_find(t, (uintptr_t)f) : NULL;
	k = likely(e) ? e->probe : NULL;
	if (likely(k == &unmatched)) {
		return NULL;
	}
	if (k && !load_relaxed(&k->library) && is_decided(k)) {
		return k;
	}
	*ctx = *ctx ? *ctx : context_of(stream);
	return k && is_of(k, *ctx) && is_decided(k) ? k : look_up(t, f, *ctx);
}

struct shim_probe_kernel *shim_probe_find(const void *handle, CUcontext ctx)
{
	return find((CUfunction)unqual(handle), NULL, &ctx);
}

/* Returns the form that launches are to take, NULL: none. *ret: the kernel's record, if any. */
static struct shim_probe_form *begin(CUfunction f, CUstream stream, CUcontext ctx,
				     struct shim_probe_kernel **ret)
{
	struct shim_probe_kernel *k = *ret = find(f, stream, &ctx);
	struct shim_probe_form *p = likely(!k) ? NULL : shim_probe_form_begin(k, f);

	if (p && p->library && p->ctx != ctx) { /* the struct was reused meanwhile */
		shim_probe_form_end(p);
		p = NULL;
	}
	return p;
}

struct shim_probe_form *shim_probe_hold(const void *handle, CUcontext ctx, const uint32_t grid[3],
					const uint32_t block[3], uint32_t *smem)
{
	const uint32_t dims[SHIM_PROBE_DIMS] = { grid[0],  grid[1],  grid[2], block[0],
						 block[1], block[2], *smem };
	struct shim_thread *t = shim_thread_self();
	struct shim_probe_kernel *k = NULL;
	struct shim_probe_form *p = NULL;
	struct shim_probe_shape *s;
	bool taken;

	if (unlikely(load_relaxed(&shim_probe_paused_until))) {
		shim_probe_wait_paused();
	}
	if (load_acquire(&shim.probes_attached)) {
		p = begin((CUfunction)unqual(handle), NULL, ctx, &k);
	}
	if (!p) {
		return NULL;
	}
	taken = p->ctx == ctx;
	if (taken && t && t->probe_choice.handle == (uintptr_t)handle) {
		taken = t->probe_choice.taken;
	} else if (taken) {
		taken = shim_probe_mix_choose(k, p, dims, &s);
		if (t) {
			t->probe_choice.handle = (uintptr_t)handle;
			t->probe_choice.taken = taken;
		}
	}
	if (!taken) {
		shim_probe_form_end(p);
		return NULL;
	}
	*smem = shim_probe_form_smem(p, *smem, block[0], block[1], block[2]);
	return p;
}

/* A launch of a kernel that a tool matches. */
struct launching {
	struct shim_probe_kernel *kernel;
	struct shim_probe_form *form;	/* that it takes, as a user of it; NULL: none */
	struct shim_probe_timer *timer; /* NULL: it is not timed */
};

/* Returns false if no tool matches the kernel. */
static bool is_probed(struct launching *l, CUfunction f, CUstream stream)
{
	if (unlikely(load_relaxed(&shim_probe_paused_until))) {
		shim_probe_wait_paused();
	}
	l->form = begin(f, stream, NULL, &l->kernel);
	l->timer = NULL;
	return l->kernel != NULL;
}

/* Decides whether the launch takes the form. */
static NOINLINE void choose(struct launching *l, CUfunction f, CUstream stream, bool per_thread,
			    const uint32_t dims[SHIM_PROBE_DIMS])
{
	struct shim_thread *t = shim_thread_self();
	struct shim_probe_form *p = l->form;
	struct shim_probe_shape *s = NULL;
	bool taken = p != NULL;

	if (p && t && t->probe_choice.handle == (uintptr_t)f) {
		taken = t->probe_choice.taken;
	} else if (p) {
		taken = shim_probe_mix_choose(l->kernel, p, dims, &s);
	}
	if (!shim_capture_any() && !(p && load_relaxed(&p->verify_left))) {
		l->timer =
			shim_probe_mix_begin(l->kernel, p, taken, dims, s,
					     !stream && per_thread ? CU_STREAM_PER_THREAD : stream);
	}
	if (p && !taken) {
		shim_probe_form_end(p);
		l->form = NULL;
	}
}

/* Compares the form with the kernel first, if that is wanted. The launch takes the kernel if its
 * form has run then. */
static NOINLINE void verify(struct launching *l, const uint32_t dims[SHIM_PROBE_DIMS],
			    void **params)
{
	if (l->form->handle && shim_probe_verify(l->kernel, l->form, dims, params)) {
		shim_probe_form_end(l->form);
		l->form = NULL;
	}
}

/* Ends a launch: the driver has answered r for what was chosen, and e for what was launched last,
 * which is the kernel itself if it has refused the form. */
static CUresult finish(struct launching *l, CUresult r, CUresult e)
{
	if (l->timer) {
		shim_probe_timer_end(l->timer, r == CUDA_SUCCESS);
	}
	if (!l->form) {
		return e;
	}
	if (unlikely(r != CUDA_SUCCESS) && l->form->handle) {
		shim_probe_mix_missed(l->form);
		if (e == CUDA_SUCCESS) {
			shim_probe_form_refused(l->form, r);
		}
	}
	shim_probe_form_end(l->form);
	return e;
}

static NOINLINE void submitted(const struct shim_probe_form *p, uint64_t now,
			       const uint32_t dims[SHIM_PROBE_DIMS], uint32_t flags)
{
	const struct shim_probe_submitted s = { (uint64_t)dims[0] * dims[1] * dims[2],
						dims[3] * dims[4] * dims[5], dims[6], flags };

	shim_probe_run_submit(p, &s, now);
}

void shim_probe_submitted(const struct shim_probe_form *f, const uint32_t grid[3],
			  const uint32_t block[3], uint32_t smem, uint64_t now_ns)
{
	if (unlikely(f->submits)) {
		submitted(f, now_ns,
			  (const uint32_t[SHIM_PROBE_DIMS]){ grid[0], grid[1], grid[2], block[0],
							     block[1], block[2], smem },
			  0);
	}
}

/* Fills args with the parameters of a launch of the form. */
static CUresult open_args(struct shim_launch_args *args, const struct shim_probe_form *p,
			  const uint64_t *number, void **params, void **extra)
{
	if (unlikely(p->passing.passed)) {
		return shim_probe_number_args(args, p, number, params, extra);
	}
	args->params = params;
	args->extra = extra;
	args->heap = NULL;
	return CUDA_SUCCESS;
}

/* Returns the parameters if there is nothing in extra; not NULL for a kernel without any. */
static void **only(void **params, void **extra)
{
	static void *none[1];

	return extra ? NULL : params ? params : none;
}

/* A launch of a kernel that a tool matches: FORM if f has one that the driver takes, else OWN,
 * between brackets if it has some, which `launcher` launches. flags: GBPF_F_* for programs of
 * submit. PARAMS: of a launch that has nothing else, else NULL. FORM takes its parameters from
 * `args`. */
#define PROBED(f, stream, per_thread, launcher, DIMS, flags, PARAMS, params, extra, FORM, OWN)     \
	{                                                                                          \
		struct shim_probe_around a = { 0 };                                                \
		struct shim_launch_args args;                                                      \
		const struct shim_probe_form *p;                                                   \
		const uint32_t *dims = DIMS;                                                       \
		uint64_t now = 0;                                                                  \
		CUresult r = CUDA_SUCCESS, e;                                                      \
                                                                                                   \
		choose(l, f, stream, per_thread, dims);                                            \
		if (l->form && unlikely(load_relaxed(&l->form->verify_left))) {                    \
			verify(l, dims, PARAMS);                                                   \
		}                                                                                  \
		p = l->form;                                                                       \
		if (p) {                                                                           \
			now = unlikely(p->submits) ? clock_now_ns() : 0;                           \
			shim_probe_around_begin(&a, l->form, launcher, dims, stream);              \
			r = open_args(&args, p, &a.number, params, extra);                         \
		}                                                                                  \
		if (r == CUDA_SUCCESS) {                                                           \
			r = p && p->handle ? FORM : OWN;                                           \
		}                                                                                  \
		if (unlikely(now) && r == CUDA_SUCCESS) {                                          \
			submitted(p, now, dims, flags);                                            \
		}                                                                                  \
		e = r && p && p->handle ? OWN : r;                                                 \
		if (p) {                                                                           \
			shim_launch_args_close(&args);                                             \
		}                                                                                  \
		shim_probe_around_end(&a, e);                                                      \
		return finish(l, r, e);                                                            \
	}

/* The body of a launch. Those of other kernels need none of the room that the former takes. */
#define LAUNCH(f, stream, OWN, THEN)                                                               \
	{                                                                                          \
		struct launching l;                                                                \
                                                                                                   \
		return likely(!is_probed(&l, f, stream)) ? OWN : THEN;                             \
	}

#define DIMS ((const uint32_t[SHIM_PROBE_DIMS]){ gx, gy, gz, bx, by, bz, smem })

#define PLAIN_PROBED(name, launcher, real, own, per_thread)                                        \
	static NOINLINE CUresult name(struct launching *l, CUfunction f, unsigned gx, unsigned gy, \
				      unsigned gz, unsigned bx, unsigned by, unsigned bz,          \
				      unsigned smem, CUstream s, void **params, void **extra)      \
		PROBED(f, s, per_thread, launcher, DIMS, 0, only(params, extra), params, extra,    \
		       (p->code ? own : real)(p->handle, gx, gy, gz, bx, by, bz,                   \
					      shim_probe_form_smem(p, smem, bx, by, bz), s,        \
					      args.params, args.extra),                            \
		       own(f, gx, gy, gz, bx, by, bz, smem, s, params, extra))

#define PLAIN(name, own, probed)                                                                   \
	static CUresult name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,     \
			     unsigned by, unsigned bz, unsigned smem, CUstream s, void **params,   \
			     void **extra)                                                         \
		LAUNCH(f, s, own(f, gx, gy, gz, bx, by, bz, smem, s, params, extra),               \
		       probed(&l, f, gx, gy, gz, bx, by, bz, smem, s, params, extra))

#define COOPERATIVE_PROBED(name, launcher, real, own, per_thread)                                  \
	static NOINLINE CUresult name(struct launching *l, CUfunction f, unsigned gx, unsigned gy, \
				      unsigned gz, unsigned bx, unsigned by, unsigned bz,          \
				      unsigned smem, CUstream s, void **params)                    \
		PROBED(f, s, per_thread, launcher, DIMS, GBPF_F_COOPERATIVE, NULL, params, NULL,   \
		       (p->code ? own : real)(p->handle, gx, gy, gz, bx, by, bz,                   \
					      shim_probe_form_smem(p, smem, bx, by, bz), s,        \
					      args.params),                                        \
		       own(f, gx, gy, gz, bx, by, bz, smem, s, params))

#define COOPERATIVE(name, own, probed)                                                             \
	static CUresult name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,     \
			     unsigned by, unsigned bz, unsigned smem, CUstream s, void **params)   \
		LAUNCH(f, s, own(f, gx, gy, gz, bx, by, bz, smem, s, params),                      \
		       probed(&l, f, gx, gy, gz, bx, by, bz, smem, s, params))

PLAIN_PROBED(probed, shim_driver.cuLaunchKernel, shim_driver.cuLaunchKernel, before.plain, false)
PLAIN_PROBED(probed_ptsz, shim_driver.cuLaunchKernel_ptsz, shim_driver.cuLaunchKernel_ptsz,
	     before.plain_ptsz, true)
PLAIN(launch, before.plain, probed)
PLAIN(launch_ptsz, before.plain_ptsz, probed_ptsz)
COOPERATIVE_PROBED(cooperative_probed, shim_driver.cuLaunchKernel,
		   shim_driver.cuLaunchCooperativeKernel, before.cooperative, false)
COOPERATIVE_PROBED(cooperative_probed_ptsz, shim_driver.cuLaunchKernel_ptsz,
		   shim_driver.cuLaunchCooperativeKernel_ptsz, before.cooperative_ptsz, true)
COOPERATIVE(cooperative, before.cooperative, cooperative_probed)
COOPERATIVE(cooperative_ptsz, before.cooperative_ptsz, cooperative_probed_ptsz)

static CUresult launch_form(const struct shim_probe_form *p, const CUlaunchConfig *config,
			    void **params, void **extra,
			    CUresult (*real)(const CUlaunchConfig *, CUfunction, void **, void **))
{
	CUlaunchConfig c = *config;

	c.sharedMemBytes =
		shim_probe_form_smem(p, c.sharedMemBytes, c.blockDimX, c.blockDimY, c.blockDimZ);
	return real(&c, p->handle, params, extra);
}

#define CONFIG_DIMS                                                                                \
	((const uint32_t[SHIM_PROBE_DIMS]){ config->gridDimX, config->gridDimY, config->gridDimZ,  \
					    config->blockDimX, config->blockDimY,                  \
					    config->blockDimZ, config->sharedMemBytes })

#define EX_PROBED(name, launcher, real, own, per_thread)                                           \
	static NOINLINE CUresult name(struct launching *l, const CUlaunchConfig *config,           \
				      CUfunction f, void **params, void **extra)                   \
		PROBED(f, config->hStream, per_thread, launcher, CONFIG_DIMS, 0,                   \
		       config->numAttrs ? NULL : only(params, extra), params, extra,               \
		       launch_form(p, config, args.params, args.extra, p->code ? own : real),      \
		       own(config, f, params, extra))

#define EX(name, own, probed)                                                                      \
	static CUresult name(const CUlaunchConfig *config, CUfunction f, void **params,            \
			     void **extra)                                                         \
		LAUNCH(config ? f : NULL, config ? config->hStream : NULL,                         \
		       own(config, f, params, extra), probed(&l, config, f, params, extra))

EX_PROBED(ex_probed, shim_driver.cuLaunchKernel, shim_driver.cuLaunchKernelEx, before.ex, false)
EX_PROBED(ex_probed_ptsz, shim_driver.cuLaunchKernel_ptsz, shim_driver.cuLaunchKernelEx_ptsz,
	  before.ex_ptsz, true)
EX(launch_ex, before.ex, ex_probed)
EX(launch_ex_ptsz, before.ex_ptsz, ex_probed_ptsz)

static void lead_all(void)
{
	shim_code_lead(); /* first: it would replace what is stored below */
	before.plain = shim_real.cuLaunchKernel;
	before.plain_ptsz = shim_real.cuLaunchKernel_ptsz;
	before.cooperative = shim_real.cuLaunchCooperativeKernel;
	before.cooperative_ptsz = shim_real.cuLaunchCooperativeKernel_ptsz;
	before.ex = shim_real.cuLaunchKernelEx;
	before.ex_ptsz = shim_real.cuLaunchKernelEx_ptsz;
	shim_real.cuLaunchKernel = launch;
	shim_real.cuLaunchKernel_ptsz = launch_ptsz;
	shim_real.cuLaunchCooperativeKernel = cooperative;
	shim_real.cuLaunchCooperativeKernel_ptsz = cooperative_ptsz;
	shim_real.cuLaunchKernelEx = launch_ex;
	shim_real.cuLaunchKernelEx_ptsz = launch_ex_ptsz;
	shim_probe_lead_graphs();
}

void shim_probe_lead(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, lead_all);
}
