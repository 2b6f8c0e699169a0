/* One device for the process: queues know their stream and context themselves. While some stream
 * captures, the driver would count the scheduler's queries as mistakes of the application; they are
 * exempted here, on whatever thread they run. Where a stream is asked no capture begins meanwhile:
 * the exemption is not for streams that capture themselves. */
#include "shim/object/driver_device.h"

#include <errno.h>

#include "gpu/flag_lease.h"
#include "gpu/gpu_run.h"
#include "shim/defer/block_launch.h"
#include "shim/capture_state.h"
#include "shim/session/session.h"
#include "shim/shim.h"

static struct gpu_device *device; /* made before any queue; lives as long as the process */

/* What the driver answers to an exempted thread. */
#define EXEMPT(call)                                                                               \
	({                                                                                         \
		CUstreamCaptureMode before = capture_exempt();                                     \
		__auto_type answer = (call);                                                       \
                                                                                                   \
		capture_restore(before);                                                           \
		answer;                                                                            \
	})

static int mark(void *dev, void *queue, struct sched_marker *m)
{
	int r;

	if (!capture_try_bar()) { /* launches come here: they do not wait */
		return -EAGAIN;
	}
	r = EXEMPT(gpu_sched_ops.mark(dev, queue, m));
	capture_unbar();
	return r;
}

/* Also while nobody captures yet. */
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
	gpu_sched_ops.mark_release(dev, m); /* keeps the event, asks the driver nothing */
}

static int queue_idle(void *dev, void *queue)
{
	int r;

	capture_bar();
	r = EXEMPT(gpu_sched_ops.queue_idle(dev, queue));
	capture_unbar();
	return r;
}

/* The agent and whoever synchronizes ask; what they see finished is no longer kept back. */
static int chain_busy(void *dev, void *queue)
{
	uint32_t seen = block_seen(queue);
	int r = gpu_sched_ops.chain_busy(dev, queue);

	if (r == 0) {
		block_finished(queue, seen);
	}
	return r;
}

static uint64_t chain_step(void *dev, void *queue, bool may_run, bool force)
{
	uint32_t seen = block_seen(queue);
	uint64_t ns;

	capture_bar(); /* it exempts itself */
	ns = gpu_sched_ops.chain_step(dev, queue, may_run, force);
	capture_unbar();
	if (ns == UINT64_MAX) {
		block_finished(queue, seen);
	}
	return ns;
}

static int slice(void *dev, uint32_t gpu, uint32_t slice_us)
{
	(void)dev;
	return session_control_slice(gpu, slice_us);
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
	.chain_busy = chain_busy,
	.chain_step = chain_step,
	.chain_look = gpu_chain_look,
	.chain_took = gpu_chain_took,
};

static void hung(void *arg, CUfunction twin)
{
	(void)arg;
	twin_exclude(twin);
}

int device_setup(struct sched_config *cfg)
{
	int err = device ? 0 : gpu_device_create(&device, &shim_real);

	if (!err) {
		gpu_chain_on_hung(device, hung, NULL);
	}

	cfg->device = &ops;
	cfg->dev = device;
	return err;
}

struct gpu_device *device_gpu(void)
{
	return device;
}

void device_context_seen(uint32_t gpu, CUcontext ctx)
{
	if (device) {
		gpu_lease_context(device, gpu, ctx);
	}
	session_control_context(gpu, ctx);
}

uint64_t device_keep(uint64_t now)
{
	return device ? gpu_lease_keep(device, now) : UINT64_MAX;
}

void device_context_gone(CUcontext ctx)
{
	if (device) {
		gpu_context_gone(device, ctx);
	}
	session_control_gone(ctx);
}
