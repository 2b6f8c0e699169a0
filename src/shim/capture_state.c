/* Queries about stream captures, and the lock that keeps a capture from beginning. Must not submit
 * or drain calls. */
#include "shim/capture_state.h"

#include <pthread.h>

bool shim_capture_has(CUstream stream, bool per_thread)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult r = per_thread ? shim_real.cuStreamIsCapturing_ptsz(stream, &status)
				: shim_real.cuStreamIsCapturing(stream, &status);

	return r != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUstreamCaptureMode shim_capture_exempt(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	return shim_real.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS
		       ? mode
		       : CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void shim_capture_restore(CUstreamCaptureMode before)
{
	shim_real.cuThreadExchangeStreamCaptureMode(&before);
}

/* Read-locked by threads that use streams, write-locked by a thread that begins a capture. Writers
 * are preferred: helping threads may hold the read lock one after the other without a pause. */
static pthread_rwlock_t beginning = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

void shim_capture_lock(void)
{
	pthread_rwlock_rdlock(&beginning);
}

bool shim_capture_trylock(void)
{
	return pthread_rwlock_tryrdlock(&beginning) == 0;
}

void shim_capture_unlock(void)
{
	pthread_rwlock_unlock(&beginning);
}

void shim_capture_begin_lock(void)
{
	pthread_rwlock_wrlock(&beginning);
}

void shim_capture_begin_unlock(void)
{
	pthread_rwlock_unlock(&beginning);
}

static void child(void)
{
	shim.captures = 0;
	pthread_rwlock_init(&beginning, NULL);
}

const struct shim_part shim_capture_part = { .child = child };
