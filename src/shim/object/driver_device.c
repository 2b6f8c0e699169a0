/* The scheduler's device over the real driver. One device serves the process, because queues know
 * their stream and context.
 *
 * While a stream captures, the driver would count the scheduler's queries as errors of the
 * application that invalidate the capture. The calling thread is therefore exempted here for the
 * query, whichever thread it is. No capture may begin while a stream is queried or marked
 * (shim_capture_lock()), because the exemption does not cover streams that capture themselves. */
#include "shim/object/driver_device.h"

#include <errno.h>

#include "gpu/flag_lease.h"
#include "gpu/gpu_run.h"
#include "shim/capture_state.h"
#include "shim/object/queue_drain.h"
#include "shim/shim.h"

static struct gpu_device *device;		  /* created before any queue, never freed */
static const struct shim_device_control *control; /* set with device */

/* Evaluates to the result of call, made while the thread is exempt from capture checks. */
#define EXEMPT(call)                                                                               \
	__extension__({                                                                            \
		CUstreamCaptureMode before = shim_capture_exempt();                                \
		__auto_type answer = (call);                                                       \
                                                                                                   \
		shim_capture_restore(before);                                                      \
		answer;                                                                            \
	})

static int mark(void *dev, void *queue, bool timed, struct sched_marker *m)
{
	int r;

	if (!shim_capture_trylock()) { /* called on the launch path, which must not block */
		return -EAGAIN;
	}
	r = EXEMPT(gpu_sched_ops.mark(dev, queue, timed, m));
	shim_capture_unlock();
	return r;
}

/* Needs no capture lock: it queries an event, not a stream. Exempt even if no capture is open yet,
 * because one may begin meanwhile. */
static int mark_done(void *dev, const struct sched_marker *m)
{
	return EXEMPT(gpu_sched_ops.mark_done(dev, m));
}

static int64_t mark_span_ns(void *dev, const struct sched_marker *from,
			    const struct sched_marker *to)
{
	return EXEMPT(gpu_sched_ops.mark_span_ns(dev, from, to));
}

static void mark_release(void *dev, struct sched_marker *m)
{
	gpu_sched_ops.mark_release(dev,
				   m); /* stores the event for reuse without calling the driver */
}

static int queue_idle(void *dev, void *queue)
{
	int r;

	shim_capture_lock();
	r = EXEMPT(gpu_sched_ops.queue_idle(dev, queue));
	shim_capture_unlock();
	return r;
}

/* Called by the agent and by threads that synchronize. A run that has finished no longer counts as
 * deferred. */
static int run_busy(void *dev, void *queue)
{
	uint32_t seen = shim_block_unfinished(queue);
	int r = gpu_sched_ops.run_busy(dev, queue);

	if (r == 0) {
		shim_block_finished(queue, seen);
	}
	return r;
}

static uint64_t run_step(void *dev, void *queue, bool may_run, bool force)
{
	uint32_t seen = shim_block_unfinished(queue);
	uint64_t ns;

	shim_capture_lock(); /* gpu's run_step exempts the thread itself */
	ns = gpu_sched_ops.run_step(dev, queue, may_run, force);
	shim_capture_unlock();
	if (ns == UINT64_MAX) {
		shim_block_finished(queue, seen);
	}
	return ns;
}

static int slice(void *dev, uint32_t gpu, uint32_t slice_us)
{
	(void)dev;
	return control->slice(gpu, slice_us);
}

static const struct sched_device_ops ops = {
	.mark = mark,
	.mark_done = mark_done,
	.mark_span_ns = mark_span_ns,
	.mark_release = mark_release,
	.queue_idle = queue_idle,
	.lease = gpu_lease,
	.warm = gpu_warm,
	.slice = slice,
	.run_busy = run_busy,
	.run_step = run_step,
	.run_look = gpu_run_look,
	.run_took = gpu_run_took,
};

int shim_device_setup(struct sched_config *cfg, const struct shim_device_control *c)
{
	int err = device ? 0 : gpu_device_create(&device, &shim_driver);

	control = c;
	cfg->device = &ops;
	cfg->dev = device;
	return err;
}

struct gpu_device *shim_device_gpu(void)
{
	return device;
}

void shim_device_context_seen(uint32_t gpu, CUcontext ctx)
{
	if (device) {
		gpu_lease_context(device, gpu, ctx);
		control->context_seen(gpu, ctx);
	}
}

uint64_t shim_device_maintain(uint64_t now)
{
	return device ? gpu_lease_measure_clocks(device, now) : UINT64_MAX;
}

unsigned shim_device_arch(CUdevice d)
{
	int major = 0, minor = 0;

	if (shim_driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
					     d) != CUDA_SUCCESS ||
	    shim_driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
					     d) != CUDA_SUCCESS ||
	    major <= 0 || minor < 0) {
		return 0;
	}
	return (unsigned)major * 10 + (unsigned)minor;
}

void shim_device_context_end(CUcontext ctx)
{
	if (device) {
		gpu_context_forget(device, ctx);
		control->context_ends(ctx);
	}
}

static uint64_t context_ending(CUcontext ctx)
{
	shim_device_context_end(ctx);
	return 0;
}

const struct shim_part shim_device_part = { .if_attached = true, .context_ending = context_ending };
