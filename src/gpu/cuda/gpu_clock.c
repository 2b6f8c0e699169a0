/* The GPU's clock against ours: a kernel of one thread stores what %globaltimer says into pinned
 * memory while we read our own clock before its launch and after its store. Each try says that the
 * difference lies between two values; the narrowest part that they share is taken. Nothing waits on
 * the GPU, and a kernel that does not get to run in time is given up, not waited for. */
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

/* What is kept for one context; it ends with the context. */
struct gpu_clock {
	struct gpu_clock *next;
	CUcontext ctx;
	uint64_t generation; /* of the device's contexts when it was made or taken */
	CUstream stream;
	CUfunction f;
	volatile uint64_t *word; /* pinned, TRIES of them */
	CUdeviceptr device;	 /* the same as kernels see it */
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

/* The context is current. */
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
	pthread_mutex_lock(&d->lock);
	c->generation = d->contexts_gone;
	pthread_mutex_unlock(&d->lock);
	c->ctx = ctx;
	if (fill(d, c) != CUDA_SUCCESS) {
		free(c);
		return NULL;
	}
	return c;
}

/* Takes the context's entry out of the list, so that nobody else uses it meanwhile. */
static struct gpu_clock *take(struct gpu_device *d, CUcontext ctx)
{
	struct gpu_clock **at, *c;

	pthread_mutex_lock(&d->lock);
	for (at = &d->clocks; *at && (*at)->ctx != ctx; at = &(*at)->next) {
	}
	c = *at;
	if (c) {
		*at = c->next;
		c->generation = d->contexts_gone;
	}
	pthread_mutex_unlock(&d->lock);
	return c;
}

/* It may have been its context that ended meanwhile. */
static void give(struct gpu_device *d, struct gpu_clock *c)
{
	pthread_mutex_lock(&d->lock);
	if (c->generation == d->contexts_gone) {
		c->next = d->clocks;
		d->clocks = c;
		c = NULL;
	}
	pthread_mutex_unlock(&d->lock);
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
	int64_t low, high; /* the difference lies between them */
};

/* 0, -EIO, -ETIMEDOUT: the kernel may run yet. */
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

/* A kernel of an earlier measurement may not have ended, or not even come to run. */
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
	/* Not one value fits all when a clock was set meanwhile. */
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
