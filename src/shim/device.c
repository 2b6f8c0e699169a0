/* One device for the process: queues know their stream and context themselves. */
#include "shim/device.h"

#include "shim/shim.h"

static struct gpu_device *device; /* made before any queue; lives as long as the process */

int device_setup(struct sched_config *cfg)
{
	int err = device ? 0 : gpu_device_create(&device, &shim_real);

	cfg->device = &gpu_sched_ops;
	cfg->dev = device;
	return err;
}

void device_context_gone(CUcontext ctx)
{
	if (device) {
		gpu_context_gone(device, ctx);
	}
}
