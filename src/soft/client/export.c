/* The library as a whole: lookups by name, the private table, and the result of unsupported
 * functions. */
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "cuabi/lookup.h"
#include "cuabi/private.h"
#include "soft/client/process.h"

/* The counters lie in the shared page, where the server reads them for `gbpf device --unsupported`.
 */
int cuabi_unsupported(unsigned index)
{
	CUresult e = soft_check();

	if (e == CUDA_ERROR_NOT_INITIALIZED) {
		return e;
	}
	(void)add_relaxed(&soft.shared->unsupported[index], 1u);
	return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult proc_address(const char *name, void **ret, int version, uint64_t flags,
			     CUdriverProcAddressQueryResult *ret_status)
{
	int i;

	if (!name || !ret) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	i = cuabi_resolve(name, version, flags);
	*ret = i >= 0 ? cuabi_own[i] : NULL;
	if (ret_status) {
		*ret_status = i >= 0	? CU_GET_PROC_ADDRESS_SUCCESS
			      : i == -2 ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
					: CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
		return CUDA_SUCCESS;
	}
	return i >= 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *name, void **ret, int version, uint64_t flags)
{
	return proc_address(name, ret, version, flags, NULL);
}

CUresult cuGetProcAddress_v2(const char *name, void **ret, int version, uint64_t flags,
			     CUdriverProcAddressQueryResult *ret_status)
{
	CUdriverProcAddressQueryResult unasked;

	/* A missing function is reported by the status and a NULL address alone; the call succeeds,
	 * as on an H200. */
	return proc_address(name, ret, version, flags, ret_status ? ret_status : &unasked);
}

/* The tables are private to NVIDIA's driver; docs/SOFTGPU.md lists what is missing. The CUDA
 * runtime reports this result as "operation not supported". */
static CUresult unsupported_runtime(void)
{
	static const char line[] =
		"gbpf soft GPU: NVIDIA's CUDA runtime library does not run here; link the "
		"program with nvcc -cudart shared, then gbpf run uses gBPF's libcudart, or "
		"use the driver API\n";

	static int told;

	if (xchg_acqrel(&told, 1) == 0) {
		(void)!write(2, line, sizeof(line) - 1);
	}
	cuabi_unsupported(CUABI_IDX_cuGetExportTable);
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGetExportTable(const void **ret, const CUuuid *id)
{
	static const CUuuid own = CUABI_SOFT_UUID;
	/* The table without which NVIDIA's runtime library does not start. */
	static const CUuuid runtime = { { 0x6b, (char)0xd5, (char)0xfb, 0x6c, 0x5b, (char)0xf4,
					  (char)0xe7, 0x4a, (char)0x89, (char)0x87, (char)0xd9,
					  0x39, 0x12, (char)0xfd, (char)0x9d, (char)0xf9 } };

	if (!ret || !id) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret = memcmp(id, &own, sizeof(own)) == 0 ? &soft_private_table : NULL;
	if (memcmp(id, &runtime, sizeof(runtime)) == 0) {
		return unsupported_runtime();
	}
	return *ret ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuProfilerStart(void)
{
	return soft_check();
}

CUresult cuProfilerStop(void)
{
	return soft_check();
}
