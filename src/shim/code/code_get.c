/* The calls by which the program gets handles: what they name is learned. */
#include "shim/code/shim_code_int.h"

static CUresult get_function(CUfunction *ret, CUmodule module, const char *name)
{
	CUresult r = shim_driver.cuModuleGetFunction(ret, module, name);

	if (r == CUDA_SUCCESS && ret && name) {
		shim_code_learn(*ret, module, name);
	}
	return r;
}

static CUresult get_kernel(CUkernel *ret, CUlibrary library, const char *name)
{
	CUresult r = shim_driver.cuLibraryGetKernel(ret, library, name);

	if (r == CUDA_SUCCESS && ret && name) {
		shim_code_learn(*ret, library, name);
	}
	return r;
}

static CUresult get_function_of_kernel(CUfunction *ret, CUkernel kernel)
{
	CUresult r = shim_driver.cuKernelGetFunction(ret, kernel);

	if (r == CUDA_SUCCESS && ret && *ret) {
		shim_code_learn_function(*ret, kernel);
	}
	return r;
}

static CUresult get_module(CUmodule *ret, CUlibrary library)
{
	CUresult r = shim_driver.cuLibraryGetModule(ret, library);

	if (r == CUDA_SUCCESS && ret) {
		shim_code_learn_module(*ret, library);
	}
	return r;
}

void shim_code_lead_handles(void)
{
	shim_code_start();
	shim_real.cuModuleGetFunction = get_function;
	shim_real.cuLibraryGetKernel = get_kernel;
	shim_real.cuKernelGetFunction = get_function_of_kernel;
	shim_real.cuLibraryGetModule = get_module;
}
