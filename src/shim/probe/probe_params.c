/* Where a kernel's parameters lie, as the driver reports it: all kernels have that, whatever form
 * they can have. */
#include "shim/probe/shim_probe_int.h"

#include <stdlib.h>

#define PARAMS_MAX 1024u
#define PARAM_BYTES_MAX 32768u /* of all parameters of a kernel */

static CUresult ask(const struct shim_probe_kernel *k, uint32_t i, size_t *offset, size_t *bytes)
{
	uintptr_t handle = (uintptr_t)load_relaxed(&k->handle);

	return k->kind == SHIM_KERNEL_OF_LIBRARY
		       ? SHIM_REAL(cuKernelGetParamInfo)((CUkernel)handle, i, offset, bytes)
		       : SHIM_REAL(cuFuncGetParamInfo)((CUfunction)handle, i, offset, bytes);
}

const struct ptx_kernel_params *shim_probe_params(struct shim_probe_params *p,
						  const struct shim_probe_kernel *k)
{
	size_t offset = 0, bytes = 0;
	uint32_t n = 0;
	CUresult r;

	*p = (struct shim_probe_params){ .at = calloc(PARAMS_MAX, sizeof(*p->at)) };
	if (!p->at) {
		return NULL;
	}
	while ((r = ask(k, n, &offset, &bytes)) == CUDA_SUCCESS) {
		if (n == PARAMS_MAX || offset > PARAM_BYTES_MAX || bytes > PARAM_BYTES_MAX) {
			return NULL;
		}
		p->at[n++] = (struct ptx_kernel_param){ (uint32_t)offset, (uint32_t)bytes };
	}
	if (r != CUDA_ERROR_INVALID_VALUE) { /* the answer to the index after the last one */
		return NULL;
	}
	p->all = (struct ptx_kernel_params){ p->at, n };
	return &p->all;
}

void shim_probe_params_finish(struct shim_probe_params *p)
{
	free(p->at);
	p->at = NULL;
}
