/* Streams that come and go. */
#include "cuabi/api.h"
#include "shim/green.h"
#include "shim/queue.h"

static CUresult created(CUresult r, CUstream *stream)
{
	if (r == CUDA_SUCCESS && stream && shim_attached()) {
		queue_reap_all();
		queue_created(*stream);
		green_cap(stream);
	}
	return r;
}

CUresult cuStreamCreate(CUstream *ret, unsigned flags)
{
	return created(shim_real.cuStreamCreate(ret, flags), ret);
}

CUresult cuStreamCreateWithPriority(CUstream *ret, unsigned flags, int priority)
{
	return created(shim_real.cuStreamCreateWithPriority(ret, flags, priority), ret);
}

CUresult cuGreenCtxStreamCreate(CUstream *ret, CUgreenCtx green, unsigned flags, int priority)
{
	CUresult r = shim_real.cuGreenCtxStreamCreate(ret, green, flags, priority);

	if (r == CUDA_SUCCESS && ret && shim_attached()) {
		queue_created(*ret);
	}
	return r;
}

/* Before the driver forgets it: markers in it are still to be asked about. True: the driver
 * destroys it later. It lets the stream's work finish as well, and waits for none of it. */
static bool destroying(CUstream stream)
{
	bool later = false;

	if (shim_attached() && (uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD) {
		later = queue_close_stream(stream);
		queue_reap_all();
	}
	green_destroyed(stream);
	return later;
}

CUresult cuStreamDestroy(CUstream stream)
{
	return destroying(stream) ? CUDA_SUCCESS : shim_real.cuStreamDestroy(stream);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
	return destroying(stream) ? CUDA_SUCCESS : shim_real.cuStreamDestroy_v2(stream);
}
