/* One device for the process: queues know their stream and context themselves. While some stream
 * captures, the driver would count the scheduler's event calls as mistakes of the application; they
 * are exempted here, on whatever thread they run. */
#include "shim/device.h"

#include "gpu/lease.h"
#include "shim/capture.h"
#include "shim/shim.h"

static struct gpu_device *device; /* made before any queue; lives as long as the process */

#define EXEMPT(type, call)                                                                         \
	do {                                                                                       \
		CUstreamCaptureMode before;                                                        \
		type r;                                                                            \
		if (!capture_any()) {                                                              \
			return call;                                                               \
		}                                                                                  \
		before = capture_exempt();                                                         \
		r = call;                                                                          \
		capture_restore(before);                                                           \
		return r;                                                                          \
	} while (0)

static int mark(void *dev, void *queue, struct sched_marker *m)
{
	EXEMPT(int, gpu_sched_ops.mark(dev, queue, m));
}

static int mark_done(void *dev, const struct sched_marker *m)
{
	EXEMPT(int, gpu_sched_ops.mark_done(dev, m));
}

static int64_t mark_span_ns(void *dev, const struct sched_marker *from,
			    const struct sched_marker *to)
{
	EXEMPT(int64_t, gpu_sched_ops.mark_span_ns(dev, from, to));
}

static void mark_release(void *dev, struct sched_marker *m)
{
	gpu_sched_ops.mark_release(dev, m); /* keeps the event, asks the driver nothing */
}

static int queue_idle(void *dev, void *queue)
{
	EXEMPT(int, gpu_sched_ops.queue_idle(dev, queue));
}

static const struct sched_device_ops ops = {
	.mark = mark,
	.mark_done = mark_done,
	.mark_span_ns = mark_span_ns,
	.mark_release = mark_release,
	.queue_idle = queue_idle,
	.lease = gpu_lease,
	.warm = gpu_warm,
};

int device_setup(struct sched_config *cfg)
{
	int err = device ? 0 : gpu_device_create(&device, &shim_real);

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
}
