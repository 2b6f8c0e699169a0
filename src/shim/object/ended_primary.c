/* The list of ended primary contexts, one for each device. */
#include "shim/object/ended_primary.h"

#include "base/atomic.h"
#include "shim/shim.h"

#define DEVICES 64

static CUcontext gone[DEVICES]; /* [atomic] NULL: none */

void shim_primary_ended(CUdevice device, CUcontext ctx)
{
	if (device >= 0 && device < DEVICES) {
		store_release(&gone[device], ctx);
	}
}

void shim_primary_retained(CUdevice device)
{
	shim_primary_ended(device, NULL);
}

/* The runtime's private calls may have made it again. */
static bool is_active(CUdevice device)
{
	unsigned flags;
	int active = 0;

	return shim_real.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
	       active;
}

bool shim_primary_is_gone(CUcontext ctx)
{
	for (CUdevice d = 0; d < DEVICES; d++) {
		if (load_acquire(&gone[d]) == ctx && ctx) {
			if (!is_active(d)) {
				return true;
			}
			shim_primary_retained(d);
		}
	}
	return false;
}
