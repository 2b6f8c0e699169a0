/* Measures the GPU's clock against CLOCK_MONOTONIC: a kernel of one thread stores %globaltimer to
 * pinned memory, and the host reads its clock before the launch and after the store. Each try
 * bounds the difference by two values; the result is the middle of the interval that all tries
 * share. Nothing on the GPU waits, and a kernel that does not run in time is given up. */
#include <errno.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "gpu/flag.h"
#include "gpu/gpu_int.h"

#define TRIES 8
#define SPIN_NS UINT64_C(100000)
#define PATIENCE_NS UINT64_C(200000000)

/* Resources in one context; they end with it. */
struct gpu_clock {
	struct gpu_clock *next;
	CUcontext ctx;
	uint64_t generation; /* gpu_device.contexts_gone when this was created or taken */
	CUstream stream;
	CUfunction f;
	volatile uint64_t *word; /* pinned; TRIES words */
	CUdeviceptr device;	 /* address of word as kernels use it */
};

static const char ptx[] = ".version 6.0\n"
			  ".target sm_50\n"
			  ".address_size 64\n"
			  ".visible .entry gbpf_clock(.param .u64 out)\n"
			  "{\n"
			  ".reg .b64 %rd<3>;\n"
			  "ld.param.u64 %rd1, [out];\n"
			  "mov.u64 %rd2, %globaltimer;\n"
			  "st.volatile.global.u64 [%rd1], %rd2;\n"
			  "ret;\n"
			  "}\n";

/* Loads the kernel and allocates. The context is current. */
static CUresult fill(struct gpu_device *d, struct gpu_clock *c)
{
	const struct cuabi_table *real = d->real;
	CUmodule module;
	void *host = NULL;
	CUresult e = real->cuModuleLoadData(&module, ptx);

	e = e ? e : real->cuModuleGetFunction(&c->f, module, "gbpf_clock");
	e = e ? e
	      : real->cuMemHostAlloc(&host, TRIES * sizeof(uint64_t), CU_MEMHOSTALLOC_DEVICEMAP);
	e = e || host ? e : CUDA_ERROR_UNKNOWN;
	e = e ? e : real->cuMemHostGetDevicePointer_v2(&c->device, host, 0);
	e = e ? e : gpu_private_stream(d, &c->stream);
	c->word = host;
	return e;
}

static struct gpu_clock *new_one(struct gpu_device *d, CUcontext ctx)
{
	struct gpu_clock *c = calloc(1, sizeof(*c));

	if (!c) {
		return NULL;
	}
	lock_take(&d->lock);
	c->generation = d->contexts_gone;
	lock_release(&d->lock);
	c->ctx = ctx;
	if (fill(d, c) != CUDA_SUCCESS) {
		free(c);
		return NULL;
	}
	return c;
}

/* Removes the context's entry from the list, so that only this thread uses it. */
static struct gpu_clock *take(struct gpu_device *d, CUcontext ctx)
{
	struct gpu_clock **at, *c;

	lock_take(&d->lock);
	for (at = &d->clocks; *at && (*at)->ctx != ctx; at = &(*at)->next) {
	}
	c = *at;
	if (c) {
		*at = c->next;
		c->generation = d->contexts_gone;
	}
	lock_release(&d->lock);
	return c;
}

/* Returns the entry to the list; frees it if a context has ended meanwhile, which may be its own.
 */
static void give(struct gpu_device *d, struct gpu_clock *c)
{
	lock_take(&d->lock);
	if (c->generation == d->contexts_gone) {
		c->next = d->clocks;
		d->clocks = c;
		c = NULL;
	}
	lock_release(&d->lock);
	free(c);
}

void gpu_clock_forget_context(struct gpu_device *d, CUcontext ctx)
{
	struct gpu_clock **at = &d->clocks, *c;

	d->contexts_gone++;
	while ((c = *at)) {
		if (c->ctx == ctx) {
			*at = c->next;
			free(c);
		} else {
			at = &c->next;
		}
	}
}

void gpu_clock_forget_all(struct gpu_device *d)
{
	struct gpu_clock *c;

	while ((c = d->clocks)) {
		d->clocks = c->next;
		free(c);
	}
}

struct span {
	int64_t low, high; /* bounds of the difference */
};

/* Measures once. 0; -EIO; -ETIMEDOUT: the kernel may still run later. */
static int once(struct gpu_device *d, struct gpu_clock *c, int i, struct span *ret)
{
	CUdeviceptr out = c->device + (CUdeviceptr)i * sizeof(uint64_t);
	void *params[] = { &out };
	uint64_t before, after, seen;

	c->word[i] = 0;
	before = clock_now_ns();
	if (d->real->cuLaunchKernel(c->f, 1, 1, 1, 1, 1, 1, 0, c->stream, params, NULL)) {
		return -EIO;
	}
	do {
		seen = load_acquire(&c->word[i]);
		after = clock_now_ns();
		if (!seen && after - before > PATIENCE_NS) {
			return -ETIMEDOUT;
		}
		if (after - before > SPIN_NS) {
			clock_sleep_ns(SPIN_NS / 2);
		}
		cpu_relax();
	} while (!seen);
	ret->low = (int64_t)(seen - after);
	ret->high = (int64_t)(seen - before);
	return 0;
}

/* Waits for a kernel of an earlier measurement. */
static int settle(struct gpu_device *d, struct gpu_clock *c)
{
	uint64_t end = clock_now_ns() + PATIENCE_NS;
	CUresult e;

	while ((e = d->real->cuStreamQuery(c->stream)) == CUDA_ERROR_NOT_READY) {
		if (clock_now_ns() > end) {
			return -ETIMEDOUT;
		}
		clock_sleep_ns(SPIN_NS / 2);
	}
	return e == CUDA_SUCCESS ? 0 : -EIO;
}

static int measure(struct gpu_device *d, struct gpu_clock *c, int64_t *ret)
{
	struct span best = { 0, INT64_MAX }, common = { INT64_MIN, INT64_MAX }, s;

	if (settle(d, c) < 0) {
		return -EIO;
	}
	for (int i = 0; i < TRIES; i++) {
		if (once(d, c, i, &s) < 0) {
			return -EIO;
		}
		if (i == 0 || s.high - s.low < best.high - best.low) {
			best = s;
		}
		common.low = MAX(common.low, s.low);
		common.high = MIN(common.high, s.high);
	}
	/* The intervals have nothing in common if a clock was set meanwhile. */
	s = common.low <= common.high ? common : best;
	*ret = s.low + (s.high - s.low) / 2;
	return 0;
}

int gpu_clock_offset(struct gpu_device *d, CUcontext ctx, int64_t *ret_ns)
{
	struct gpu_clock *c = take(d, ctx);
	struct gpu_scope scope;
	int err;

	if (gpu_scope_enter(d, ctx, &scope) < 0) {
		free(c);
		return -EIO;
	}
	c = c ? c : new_one(d, ctx);
	err = c ? measure(d, c, ret_ns) : -EIO;
	gpu_scope_leave(d, &scope);
	if (c) {
		give(d, c);
	}
	return err;
}
