/* Device memory that other processes can map, on NVIDIA's driver. */
#include "gpu/flag_int.h"
#include "gpu/gpu_int.h"

CUresult gpu_export_new(struct gpu_device *d, CUcontext ctx, size_t bytes, struct gpu_exported *ret)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location.type = CU_MEM_LOCATION_TYPE_DEVICE };
	CUdevice device = 0;
	CUresult e = d->real->cuCtxGetDevice(&device);

	*ret = (struct gpu_exported){
		.fd = -1, .why = "this build does not map device memory for other processes"
	};
	prop.location.id = device;
	return e ? e : d->real->cuMemCreate(&ret->memory, bytes, &prop, 0);
}
