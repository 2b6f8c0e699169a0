/* The driver call of each launch function. */
#include "shim/object/kernel_call.h"

#include "shim/shim.h"

CUresult shim_kernel_call_run(const struct shim_kernel_call *c, CUfunction f, uint32_t smem,
			      void **params, void **extra)
{
	const uint32_t *g = c->grid, *b = c->block;
	CUlaunchConfig config;

	switch ((enum shim_kernel_api)c->api) {
	case SHIM_KERNEL_API_PLAIN:
		return (c->per_thread ? shim_driver.cuLaunchKernel_ptsz
				      : shim_driver.cuLaunchKernel)(
			f, g[0], g[1], g[2], b[0], b[1], b[2], smem, c->stream, params, extra);
	case SHIM_KERNEL_API_COOPERATIVE:
		return (c->per_thread ? shim_driver.cuLaunchCooperativeKernel_ptsz
				      : shim_driver.cuLaunchCooperativeKernel)(
			f, g[0], g[1], g[2], b[0], b[1], b[2], smem, c->stream, params);
	case SHIM_KERNEL_API_EX:
		break;
	}
	config = *c->config;
	config.sharedMemBytes = smem;
	return (c->per_thread ? shim_driver.cuLaunchKernelEx_ptsz
			      : shim_driver.cuLaunchKernelEx)(&config, f, params, extra);
}
