/* Launches of kernels that have a probed form. From the first tool on, the slots of shim_real for
 * launches lead here, and from here to shim/code and the driver. Launches whose parameters were set
 * by cuParamSet* run the program's own kernels; those of graphs are in probe_graph_calls.c. */
#include "shim/probe/shim_probe_int.h"

#include <string.h>

#include "ptx/probe.h"
#include "shim/code/shim_code.h"

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

static NOINLINE struct shim_probe_kernel *look_up(struct shim_thread *t, const void *handle,
						  unsigned slot, CUcontext ctx)
{
	uint32_t now = load_acquire(&shim.probe_generation);
	struct shim_probe_kernel *k = shim_probe_kernel_find(handle, ctx);

	if (t && t->probe_generation != now) {
		memset(t->probes, 0, sizeof(t->probes));
		t->probe_generation = now;
	}
	if (t) {
		t->probes[slot] = (struct shim_thread_probe){ (uintptr_t)handle, k };
	}
	return k;
}

/* Returns whether a cached record is of that context. Only a library's kernel has one in each. */
static bool is_of(const struct shim_probe_kernel *k, CUcontext ctx)
{
	return !k || !load_relaxed(&k->library) || load_relaxed(&k->ctx) == ctx;
}

/* Returns the record of a kernel that a tool matches, or NULL. *ctx NULL: the stream's, which is
 * asked for only if it matters. */
static struct shim_probe_kernel *find(const void *f, CUstream stream, CUcontext *ctx)
{
	struct shim_thread *t = shim_thread_self();
	uintptr_t key = (uintptr_t)f;
	unsigned slot = (unsigned)(key * 0x9e3779b97f4a7c15u >> 52) % SHIM_THREAD_KERNELS;
	struct shim_probe_kernel *k = NULL;
	bool known;

	if (!f || !shim_attached()) {
		return NULL;
	}
	known = t && t->probe_generation == load_acquire(&shim.probe_generation) &&
		t->probes[slot].key == key;
	k = likely(known) ? t->probes[slot].kernel : NULL;
	if (likely(known) && (!k || !load_relaxed(&k->library))) {
		return k;
	}
	*ctx = *ctx ? *ctx : context_of(stream);
	return known && is_of(k, *ctx) ? k : look_up(t, f, slot, *ctx);
}

struct shim_probe_kernel *shim_probe_find(const void *handle, CUcontext ctx)
{
	return find(handle, NULL, &ctx);
}

/* Returns the form that a launch is to take, NULL: none. */
static struct shim_probe_form *begin(CUfunction f, CUstream stream, CUcontext ctx)
{
	struct shim_probe_kernel *k = find(f, stream, &ctx);
	struct shim_probe_form *p = likely(!k) ? NULL : shim_probe_form_begin(k, f);

	if (p && p->library && p->ctx != ctx) { /* the struct was reused meanwhile */
		shim_probe_form_end(p);
		p = NULL;
	}
	return p;
}

static unsigned shared_of(const struct shim_probe_form *p, unsigned smem)
{
	return p->needs_shared ? PTX_PROBE_SMEM(smem) : smem;
}

struct shim_probe_form *shim_probe_hold(const void *handle, CUcontext ctx, uint32_t *smem)
{
	struct shim_probe_form *p = NULL;

	if (unlikely(load_relaxed(&shim_probe_paused_until))) {
		shim_probe_wait_paused();
	}
	if (load_acquire(&shim.probes_attached)) {
		p = begin((CUfunction)unqual(handle), NULL, ctx);
	}
	if (p && p->ctx != ctx) {
		shim_probe_form_end(p);
		p = NULL;
	}
	if (p) {
		*smem = shared_of(p, *smem);
	}
	return p;
}

/* The body of a launch: FORM if f has one that the driver takes, else OWN. */
#define LAUNCH(f, stream, FORM, OWN)                                                               \
	{                                                                                          \
		struct shim_probe_form *p;                                                         \
                                                                                                   \
		if (unlikely(load_relaxed(&shim_probe_paused_until))) {                            \
			shim_probe_wait_paused();                                                  \
		}                                                                                  \
		p = begin(f, stream, NULL);                                                        \
                                                                                                   \
		if (unlikely(p != NULL)) {                                                         \
			CUresult r = FORM;                                                         \
			CUresult e = r ? OWN : r;                                                  \
                                                                                                   \
			if (unlikely(r != CUDA_SUCCESS) && e == CUDA_SUCCESS) {                    \
				shim_probe_form_refused(p, r);                                     \
			}                                                                          \
			shim_probe_form_end(p);                                                    \
			return e;                                                                  \
		}                                                                                  \
		return OWN;                                                                        \
	}

#define PLAIN(name, real, own)                                                                     \
	static CUresult name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,     \
			     unsigned by, unsigned bz, unsigned smem, CUstream s, void **params,   \
			     void **extra)                                                         \
		LAUNCH(f, s,                                                                       \
		       (p->code ? own : real)(p->handle, gx, gy, gz, bx, by, bz,                   \
					      shared_of(p, smem), s, params, extra),               \
		       own(f, gx, gy, gz, bx, by, bz, smem, s, params, extra))

#define COOPERATIVE(name, real, own)                                                               \
	static CUresult name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,     \
			     unsigned by, unsigned bz, unsigned smem, CUstream s, void **params)   \
		LAUNCH(f, s,                                                                       \
		       (p->code ? own : real)(p->handle, gx, gy, gz, bx, by, bz,                   \
					      shared_of(p, smem), s, params),                      \
		       own(f, gx, gy, gz, bx, by, bz, smem, s, params))

PLAIN(launch, shim_driver.cuLaunchKernel, before.plain)
PLAIN(launch_ptsz, shim_driver.cuLaunchKernel_ptsz, before.plain_ptsz)
COOPERATIVE(cooperative, shim_driver.cuLaunchCooperativeKernel, before.cooperative)
COOPERATIVE(cooperative_ptsz, shim_driver.cuLaunchCooperativeKernel_ptsz, before.cooperative_ptsz)

static CUresult launch_form(const struct shim_probe_form *p, const CUlaunchConfig *config,
			    void **params, void **extra,
			    CUresult (*real)(const CUlaunchConfig *, CUfunction, void **, void **))
{
	CUlaunchConfig c = *config;

	c.sharedMemBytes = shared_of(p, c.sharedMemBytes);
	return real(&c, p->handle, params, extra);
}

#define EX(name, real, own)                                                                        \
	static CUresult name(const CUlaunchConfig *config, CUfunction f, void **params,            \
			     void **extra)                                                         \
		LAUNCH(config ? f : NULL, config ? config->hStream : NULL,                         \
		       launch_form(p, config, params, extra, p->code ? own : real),                \
		       own(config, f, params, extra))

EX(launch_ex, shim_driver.cuLaunchKernelEx, before.ex)
EX(launch_ex_ptsz, shim_driver.cuLaunchKernelEx_ptsz, before.ex_ptsz)

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
