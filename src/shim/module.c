/* Where function handles come from, with the names that the program asks by, and where they end. */
#include "cuabi/api.h"
#include "shim/gates.h"
#include "shim/kernel.h"

CUresult cuModuleGetFunction(CUfunction *ret, CUmodule module, const char *name)
{
	CUresult r = shim_real.cuModuleGetFunction(ret, module, name);

	if (r == CUDA_SUCCESS && ret && name && shim_attached()) {
		kernel_note(*ret, name, module, false);
	}
	return r;
}

CUresult cuLibraryGetKernel(CUkernel *ret, CUlibrary library, const char *name)
{
	CUresult r = shim_real.cuLibraryGetKernel(ret, library, name);

	if (r == CUDA_SUCCESS && ret && name && shim_attached()) {
		kernel_note(*ret, name, library, true);
	}
	return r;
}

static void unloading(const void *owner)
{
	if (unlikely(shim_pending())) {
		shim_settle_all();
	}
	kernel_forget(owner);
}

CUresult cuModuleUnload(CUmodule module)
{
	unloading(module);
	return shim_real.cuModuleUnload(module);
}

CUresult cuLibraryUnload(CUlibrary library)
{
	unloading(library);
	return shim_real.cuLibraryUnload(library);
}
