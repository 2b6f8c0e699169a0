/* Programs of submit that tools have: they observe the launches that run the tool, once the driver
 * has taken each. They run in the tenant, each in the tool's own environment, in the order of the
 * attachments; what they return and store into the context is not used. The context has the time
 * of the launch on the GPU's clock, too, so that it compares with times inside kernels. Must not
 * lock: launches of several threads come here at the same time. */
#include "shim/probe/shim_probe_int.h"

#include <string.h>

#include "base/clock.h"
#include "base/strmap.h"
#include "gpu/flag.h"
#include "policy/hook.h"
#include "shim/object/driver_device.h"

#define CLOCK_NS UINT64_C(1000000000) /* the clocks drift apart by some ppm */
#define RETRY_MAX_NS UINT64_C(30000000000)

/* The clock of a context's GPU, compared with that of the host. */
struct context_clock {
	CUcontext ctx;	  /* [atomic] NULL: free; stored by the holder of the build mutex */
	int64_t ahead_ns; /* [atomic] of the GPU's */
	uint64_t due_ns, retry_ns;
};

static struct context_clock clocks[SHIM_PROBE_CONTEXTS_MAX];

static struct context_clock *clock_of(CUcontext ctx)
{
	for (unsigned i = 0; i < SHIM_PROBE_CONTEXTS_MAX; i++) {
		if (load_acquire(&clocks[i].ctx) == ctx) {
			return &clocks[i];
		}
	}
	return NULL;
}

/* ---- measuring ---- */

static void measure(struct context_clock *c, CUcontext ctx, uint64_t now)
	REQUIRES(shim_probe_build_mutex)
{
	int64_t ahead;

	if (gpu_clock_offset(shim_device_gpu(), ctx, &ahead) < 0) { /* the GPU is busy */
		c->retry_ns = MIN(MAX(2 * c->retry_ns, CLOCK_NS), RETRY_MAX_NS);
		c->due_ns = now + c->retry_ns;
		return;
	}
	c->retry_ns = 0;
	c->due_ns = now + CLOCK_NS;
	store_relaxed(&c->ahead_ns, ahead);
	/* Pairs with the acquire in clock_of(): the difference is known before the context is. */
	store_release(&c->ctx, ctx);
}

static void renew(CUcontext ctx) REQUIRES(shim_probe_build_mutex)
{
	struct context_clock *c = clock_of(ctx);
	uint64_t now = clock_now_ns();

	c = c ? c : clock_of(NULL);
	if (c && shim_device_gpu() && (load_relaxed(&c->ctx) != ctx || now >= c->due_ns)) {
		measure(c, ctx, now);
	}
}

void shim_probe_clocks_renew(const struct shim_probe_tool *t)
{
	for (unsigned i = 0; t->submits && i < SHIM_PROBE_CONTEXTS_MAX; i++) {
		if (t->blocks[i].ctx) {
			renew(t->blocks[i].ctx);
		}
	}
}

void shim_probe_clock_forget(CUcontext ctx)
{
	struct context_clock *c = clock_of(ctx);

	if (c) {
		store_release(&c->ctx, (CUcontext)NULL);
	}
}

void shim_probe_prepare_submit(struct shim_probe_form *f, const struct shim_probe_kernel *k)
{
	f->hash = hash_bytes(k->name, strlen(k->name));
	f->submits = false;
	for (uint32_t i = 0; i < f->n_tools; i++) {
		f->submits = f->submits || f->tools[i]->submits;
	}
	if (f->submits) {
		renew(f->ctx);
	}
}

/* ---- running ---- */

static void fill(struct gbpf_submit_ctx *c, const struct shim_probe_form *f,
		 const struct shim_probe_submitted *s, uint64_t now_ns)
{
	struct context_clock *clock = clock_of(f->ctx);

	memset(c, 0, sizeof(*c));
	c->now_ns = now_ns;
	c->gpu_ns = clock ? now_ns + (uint64_t)load_relaxed(&clock->ahead_ns) : 0;
	c->kernel = f->hash;
	c->blocks = s->blocks;
	c->threads = s->threads;
	c->smem_bytes = s->smem;
	c->flags = s->flags;
	c->kind = GBPF_KIND_KERNEL;
	c->vgpu = GBPF_VGPUS;
	c->tool = 1;
}

static void run(struct shim_probe_tool *t, const struct gbpf_submit_ctx *c)
{
	struct policy_reader *reader = policy_read_enter();
	struct gbpf_submit_ctx own = *c;

	/* Pairs with the release in take_fresh(). The section keeps p from being replaced. */
	if (likely(!load_acquire(&t->unsettled))) {
		policy_observe(&t->p, POLICY_HOOK_submit, &own);
	}
	policy_read_leave(reader);
}

void shim_probe_run_submit(const struct shim_probe_form *f, const struct shim_probe_submitted *s,
			   uint64_t now_ns)
{
	struct gbpf_submit_ctx c;

	fill(&c, f, s, now_ns);
	for (uint32_t i = 0; i < f->n_tools; i++) {
		if (f->tools[i]->submits) {
			run(f->tools[i], &c);
		}
	}
}
