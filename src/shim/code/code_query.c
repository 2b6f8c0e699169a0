/* Queries about patched kernels are answered for the original: the stub's argument is no parameter,
 * and its registers do not count. What the driver derives from registers, occupancy, is the same,
 * because an image whose kernels get more than SHIM_CODE_REGISTERS_MAX is not patched. */
#include "shim/code/shim_code_int.h"

static CUresult func_param(CUfunction f, size_t i, size_t *ret_offset, size_t *ret_bytes)
{
	const struct cubin_kernel *k = shim_code_kernel(f);

	return k && i >= k->n_params ? CUDA_ERROR_INVALID_VALUE
				     : shim_driver.cuFuncGetParamInfo(f, i, ret_offset, ret_bytes);
}

static CUresult kernel_param(CUkernel kernel, size_t i, size_t *ret_offset, size_t *ret_bytes)
{
	const struct cubin_kernel *k = shim_code_kernel(kernel);

	return k && i >= k->n_params
		       ? CUDA_ERROR_INVALID_VALUE
		       : shim_driver.cuKernelGetParamInfo(kernel, i, ret_offset, ret_bytes);
}

static void answer_for_original(const void *handle, CUfunction_attribute what, int *ret)
{
	const struct cubin_kernel *k =
		what == CU_FUNC_ATTRIBUTE_NUM_REGS ? shim_code_kernel(handle) : NULL;

	if (k && k->patched_registers != k->registers) {
		*ret = (int)k->registers;
	}
}

static CUresult func_attribute(int *ret, CUfunction_attribute what, CUfunction f)
{
	CUresult r = shim_driver.cuFuncGetAttribute(ret, what, f);

	if (r == CUDA_SUCCESS && ret) {
		answer_for_original(f, what, ret);
	}
	return r;
}

static CUresult kernel_attribute(int *ret, CUfunction_attribute what, CUkernel kernel, CUdevice d)
{
	CUresult r = shim_driver.cuKernelGetAttribute(ret, what, kernel, d);

	if (r == CUDA_SUCCESS && ret) {
		answer_for_original(kernel, what, ret);
	}
	return r;
}

void shim_code_lead_queries(void)
{
	shim_real.cuFuncGetParamInfo = func_param;
	shim_real.cuKernelGetParamInfo = kernel_param;
	shim_real.cuFuncGetAttribute = func_attribute;
	shim_real.cuKernelGetAttribute = kernel_attribute;
}
