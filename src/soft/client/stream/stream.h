/* Streams: creation, destruction, and waits for all work of several streams. */
#ifndef GBPF_SOFT_CLIENT_STREAM_STREAM_H
#define GBPF_SOFT_CLIENT_STREAM_STREAM_H

#include "soft/client/process.h"

CUresult soft_stream_create(CUcontext ctx, int priority, uint32_t flags, CUstream *ret);
/* The same in a green context; green NULL: in none. */
CUresult soft_stream_create_in(CUcontext ctx, CUgreenCtx green, int priority, uint32_t flags,
			       CUstream *ret);
CUresult soft_stream_destroy(CUstream s);
/* Returns whether the slot is of a stream of the context, which may be destroyed but not have
 * ended. Racy unless the caller orders itself behind the stream's creation. */
bool soft_stream_slot_is(uint32_t slot, const struct CUcontext_st *ctx);
CUresult soft_context_drain(CUcontext ctx);
CUresult soft_green_drain(CUgreenCtx g); /* all streams of a green context */
void soft_streams_drop_context(
	CUcontext ctx); /* the context has been destroyed: so are its streams */
/* Calls fn for each stream of the context until fn fails. */
CUresult soft_streams_each(CUcontext ctx, CUresult (*fn)(CUstream s, void *arg), void *arg);

#endif
