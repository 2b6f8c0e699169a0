/* Launches of kernels that have a probed form. Launches whose parameters were set by cuParamSet*
 * run the program's own kernels; those of graphs are in probe_graph_calls.c. */
#include "shim/probe/shim_probe_int.h"

#include "base/clock.h"
#include "policy/ctx.h"
#include "ptx/probe.h"
#include "shim/capture_state.h"
#include "shim/code/shim_code.h"
#include "shim/probe/probe_mix.h"
#include "shim/probe/probe_timer.h"

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

struct dims {
	uint32_t v[SHIM_PROBE_DIMS];
};

static struct dims dims_of(const struct shim_kernel_call *c)
{
	return (struct dims){ { c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1],
				c->block[2], c->smem } };
}

/* Returns whether the tools' share includes the launch; decided once. *s: its shape, if that is
 * now; NULL: unknown. */
static bool is_shared(const struct shim_kernel_call *c, struct shim_probe_kernel *k,
		      const struct shim_probe_form *p, const uint32_t dims[SHIM_PROBE_DIMS],
		      struct shim_probe_shape **s)
{
	return c->choice == SHIM_KERNEL_NOT_CHOSEN ? shim_probe_mix_choose(k, p, dims, s)
						   : c->choice == SHIM_KERNEL_TAKES_FORM;
}

struct shim_probe_form *shim_probe_hold(struct shim_kernel_call *c, CUcontext ctx)
{
	const struct dims d = dims_of(c);
	struct shim_probe_kernel *k = NULL;
	struct shim_probe_form *p = NULL;
	struct shim_probe_shape *s;
	bool taken;

	if (unlikely(load_relaxed(&shim_probe_paused_until))) {
		shim_probe_wait_paused();
	}
	if (load_acquire(&shim.probes_attached)) {
		p = begin(c->f, NULL, ctx, &k);
	}
	if (!p) {
		return NULL;
	}
	taken = p->ctx == ctx && is_shared(c, k, p, d.v, &s);
	if (p->ctx == ctx) {
		c->choice = taken ? SHIM_KERNEL_TAKES_FORM : SHIM_KERNEL_TAKES_NONE;
	}
	if (!taken) {
		shim_probe_form_end(p);
		return NULL;
	}
	return p;
}

uint32_t shim_probe_smem(const struct shim_probe_form *f, const struct shim_kernel_call *c)
{
	return shim_probe_form_smem(f, c->smem, c->block[0], c->block[1], c->block[2]);
}

/* A launch of a kernel that a tool matches. */
struct launching {
	struct shim_probe_kernel *kernel;
	struct shim_probe_form *form;	/* that it takes, as a user of it; NULL: none */
	struct shim_probe_timer *timer; /* NULL: it is not timed */
};

/* Returns false if no tool matches the kernel. */
static bool is_probed(struct launching *l, const struct shim_kernel_call *c)
{
	if (unlikely(load_relaxed(&shim_probe_paused_until))) {
		shim_probe_wait_paused();
	}
	l->form = begin(c->f, c->stream, NULL, &l->kernel);
	l->timer = NULL;
	return l->kernel != NULL;
}

/* Decides whether the launch takes the form. */
static NOINLINE void choose(struct launching *l, const struct shim_kernel_call *c,
			    const uint32_t dims[SHIM_PROBE_DIMS])
{
	struct shim_probe_form *p = l->form;
	struct shim_probe_shape *s = NULL;
	bool taken = p && is_shared(c, l->kernel, p, dims, &s);

	if (!shim_capture_any() && !(p && load_relaxed(&p->verify_left))) {
		l->timer = shim_probe_mix_begin(l->kernel, p, taken, dims, s,
						!c->stream && c->per_thread ? CU_STREAM_PER_THREAD
									    : c->stream);
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

void shim_probe_submitted(const struct shim_probe_form *f, const struct shim_kernel_call *c,
			  uint64_t now_ns)
{
	if (unlikely(f->submits)) {
		submitted(f, now_ns, dims_of(c).v, 0);
	}
}

/* Fills args with the parameters of a launch of the form. */
static CUresult open_args(struct shim_launch_args *args, const struct shim_probe_form *p,
			  const uint64_t *number, const struct shim_kernel_call *c)
{
	if (unlikely(p->passing.passed)) {
		return shim_probe_number_args(args, p, number, c->params, c->extra);
	}
	args->params = c->params;
	args->extra = c->extra;
	args->heap = NULL;
	return CUDA_SUCCESS;
}

/* Returns the parameters if the launch has nothing else; not NULL for a kernel without any. */
static void **only(const struct shim_kernel_call *c)
{
	static void *none[1];
	bool more = c->extra || c->api == SHIM_KERNEL_API_COOPERATIVE ||
		    (c->config && c->config->numAttrs);

	return more ? NULL : c->params ? c->params : none;
}

static CUresult launch_own(const struct shim_kernel_call *c)
{
	return shim_code_launch(c, c->f, c->smem, c->params, c->extra, NULL);
}

static CUresult launch_form(const struct shim_probe_form *p, const struct shim_kernel_call *c,
			    struct shim_probe_around *a, enum shim_stub_arg arg)
{
	uint32_t smem = shim_probe_smem(p, c);
	struct shim_launch_args args;
	CUresult r = open_args(&args, p, &a->number, c);

	if (r == CUDA_SUCCESS && arg == SHIM_STUB_TOOLS) {
		r = shim_code_launch(c, p->handle, smem, args.params, args.extra, &a->stub);
	} else if (r == CUDA_SUCCESS) {
		r = shim_kernel_call_run(c, p->handle, smem, args.params, args.extra);
	}
	shim_launch_args_close(&args);
	return r;
}

/* Launches the form, the kernel itself if the driver refuses that, or if there is none, between
 * brackets if it has some. */
static CUresult launch_with(struct launching *l, struct shim_kernel_call *c,
			    const uint32_t dims[SHIM_PROBE_DIMS])
{
	const struct shim_probe_form *p = l->form;
	const struct shim_form_choice as = shim_form_choose(false, true, shim_probe_has(p));
	uint64_t now = unlikely(p->submits) ? clock_now_ns() : 0;
	struct shim_probe_around a = { 0 };
	CUresult r, e;

	shim_probe_around_begin(&a, l->form, c, dims);
	r = as.probed ? launch_form(p, c, &a, as.arg) : launch_own(c);
	if (unlikely(now) && r == CUDA_SUCCESS) {
		submitted(p, now, dims,
			  c->api == SHIM_KERNEL_API_COOPERATIVE ? GBPF_F_COOPERATIVE : 0);
	}
	e = r && as.probed ? launch_own(c) : r;
	shim_probe_around_end(&a, e);
	c->brackets = a.launched;
	return finish(l, r, e);
}

static NOINLINE CUresult launch_probed(struct launching *l, struct shim_kernel_call *c)
{
	const struct dims d = dims_of(c);
	CUresult r;

	choose(l, c, d.v);
	if (l->form && unlikely(load_relaxed(&l->form->verify_left))) {
		verify(l, d.v, only(c));
	}
	if (l->form) {
		return launch_with(l, c, d.v);
	}
	r = launch_own(c);
	return finish(l, r, r);
}

CUresult shim_probe_launch(struct shim_kernel_call *c)
{
	struct launching l;

	return likely(!is_probed(&l, c)) ? launch_own(c) : launch_probed(&l, c);
}

static void lead_all(void)
{
	shim_code_lead(); /* launches come to shim_launch_issue(); no slot is one of those below */
	shim_probe_lead_graphs();
}

void shim_probe_lead(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, lead_all);
}
