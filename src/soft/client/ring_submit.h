/* The submission ring: puts records into it, and waits for counts that streams reach. */
#ifndef GBPF_SOFT_CLIENT_RING_SUBMIT_H
#define GBPF_SOFT_CLIENT_RING_SUBMIT_H

#include "soft/client/process.h"

/* Submits one record to a stream. *ret_target: the count that the stream has reached when the
 * operation is complete. */
CUresult soft_ring_submit(CUstream s, struct soft_record *r, size_t bytes, const void *more,
			  size_t more_bytes, uint32_t *ret_target);
/* Returns the bytes ever written to the ring: records submitted up to now lie before this place. */
uint64_t soft_ring_written(void);
/* Submits several records without interleaving: begin takes soft.ring_lock, end releases it. In a
 * host function, begin returns CUDA_ERROR_NOT_PERMITTED, without the lock, where it might wait. */
CUresult soft_ring_begin(void) ACQUIRES_IF(false, soft.ring_lock);
void soft_ring_end(void) RELEASES(soft.ring_lock);
/* Between begin and end: adds a record; the record of an event; a wait until another stream has
 * reached a count. */
CUresult soft_ring_add(CUstream s, struct soft_record *r, size_t bytes) REQUIRES(soft.ring_lock);
CUresult soft_ring_add_record(CUstream s, CUevent e) REQUIRES(soft.ring_lock);
CUresult soft_ring_add_wait(CUstream s, uint32_t stream_slot, uint32_t target)
	REQUIRES(soft.ring_lock);
/* Returns the stream slot of an event's last record (CUevent_st.last). */
static inline uint32_t soft_event_slot(uint64_t last)
{
	return (uint32_t)(last >> 32) - 1;
}
/* Waits until the stream has reached the count. Returns the error of its context. */
CUresult soft_stream_wait(CUstream s, uint32_t target);
/* Waits until *done has reached target, modulo 2^32; *waiters counts sleeping threads. Returns the
 * error of ctx, also before target is reached; CUDA_ERROR_NOT_PERMITTED at once if it would have to
 * wait in a host function. blocking: sleeps at once instead of spinning first.
 */
CUresult soft_word_wait_mode(const uint32_t *done, uint32_t *waiters, uint32_t target,
			     CUcontext ctx, bool blocking);
CUresult soft_word_wait(const uint32_t *done, uint32_t *waiters, uint32_t target, CUcontext ctx);
bool soft_word_reached(const uint32_t *done, uint32_t target);
CUresult soft_stream_drain(CUstream s); /* waits for everything submitted so far */

#endif
