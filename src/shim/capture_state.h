/* Stream capture. A capturing stream records a graph instead of running, so its calls are not held,
 * marked or counted. The driver is queried only while the process has an open capture. */
#ifndef GBPF_SHIM_CAPTURE_STATE_H
#define GBPF_SHIM_CAPTURE_STATE_H

#include "shim/part.h"
#include "shim/shim.h"

static inline bool shim_capture_any(void)
{
	return unlikely(load_relaxed(&shim.captures) != 0);
}

/* Returns true if a call on this stream belongs to a capture, or would be refused because of one.
 */
bool shim_capture_has(CUstream stream, bool per_thread);

/* While a stream captures in global mode, the driver treats certain calls of any thread, event
 * queries for example, as errors that invalidate the capture. Between these two calls the thread is
 * exempt. */
CUstreamCaptureMode shim_capture_exempt(void);
void shim_capture_restore(CUstreamCaptureMode before);

/* Between lock and unlock no stream begins to capture. Querying whether a stream captures and then
 * using it must be one step: using a capturing stream, or the legacy stream while a blocking stream
 * captures, invalidates the capture in any mode. Hold the lock only around calls that do not wait
 * for the program. */
void shim_capture_lock(void);
bool shim_capture_trylock(void); /* returns false if a capture is just beginning */
void shim_capture_unlock(void);
/* Excludes both and each other: around the driver's call that begins a capture. */
void shim_capture_begin_lock(void);
void shim_capture_begin_unlock(void);

extern const struct shim_part shim_capture_part;

#endif
