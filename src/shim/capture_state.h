/* Stream capture: a capturing stream records a graph instead of running, so nothing of it is held,
 * marked or counted. The driver is asked only while some capture is open in the process. */
#ifndef GBPF_SHIM_CAPTURE_STATE_H
#define GBPF_SHIM_CAPTURE_STATE_H

#include "shim/shim.h"

static inline bool shim_capture_any(void)
{
	return unlikely(load_relaxed(&shim.captures) != 0);
}

/* The call on this stream belongs to a capture, or would be refused because of one. */
bool shim_capture_has(CUstream stream, bool per_thread);

/* While some stream captures in global mode the driver counts certain calls of any thread, event
 * queries for example, as mistakes that spoil the capture. Between these two the thread is exempt.
 */
CUstreamCaptureMode shim_capture_exempt(void);
void shim_capture_restore(CUstreamCaptureMode before);

/* Between these no stream begins to capture: asking a stream whether it captures and then using it
 * must be one step, since what uses a capturing stream, or the legacy stream beside a blocking one
 * that captures, spoils the capture in whatever mode. Only around calls that do not wait for what
 * the program does. */
void shim_capture_lock(void);
bool shim_capture_trylock(void); /* false: one is just beginning */
void shim_capture_unlock(void);
void shim_capture_forget(void); /* in a child after fork */

#endif
