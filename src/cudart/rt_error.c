/* Errors: the last error of each thread, names and texts. The runtime's numbers from 100 on are the
 * driver's, so a result of the driver is its error. */
#include "cudart/rt_int.h"

static _Thread_local cudaError_t last;

static const struct {
	cudaError_t value;
	const char *name, *text;
} errors[] = {
#define CUDART_ERROR(name, value, text) { name, #name, text },
#include "cudart/errors.def"
#undef CUDART_ERROR
};

static int find(cudaError_t e)
{
	for (int i = 0; i < (int)(sizeof(errors) / sizeof(errors[0])); i++) {
		if (errors[i].value == e) {
			return i;
		}
	}
	return -1;
}

cudaError_t cudart_from_driver(CUresult r)
{
	cudaError_t e = (cudaError_t)r;

	return r == CUDA_SUCCESS ? cudaSuccess : find(e) >= 0 ? e : cudaErrorUnknown;
}

cudaError_t cudart_leave(cudaError_t e)
{
	if (e && e != cudaErrorNotReady) {
		last = e;
	}
	return e;
}

RT_EXPORT cudaError_t cudaGetLastError(void);
RT_EXPORT cudaError_t cudaPeekAtLastError(void);
RT_EXPORT const char *cudaGetErrorName(cudaError_t e);
RT_EXPORT const char *cudaGetErrorString(cudaError_t e);

cudaError_t cudaGetLastError(void)
{
	cudaError_t e = last;

	last = cudaSuccess;
	return e;
}

cudaError_t cudaPeekAtLastError(void)
{
	return last;
}

const char *cudaGetErrorName(cudaError_t e)
{
	int i = find(e);

	return i >= 0 ? errors[i].name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t e)
{
	int i = find(e);

	return i >= 0 ? errors[i].text : "unrecognized error code";
}
