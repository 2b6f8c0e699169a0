/* Stream capture: work submitted to a capturing stream becomes a node of a graph. Every call about
 * streams checks here first; while there is no capture that costs one load. */
#ifndef GBPF_SOFT_CLIENT_GRAPH_CAPTURE_H
#define GBPF_SOFT_CLIENT_GRAPH_CAPTURE_H

#include "soft/client/process.h"

struct soft_work;

/* Before work is submitted to a stream. *ret: pass it to soft_capture_add instead. */
CUresult soft_capture_check(CUstream s, bool *ret);
/* Adds a node that depends on what the stream has captured so far. Takes what w owns, also on
 * failure. */
CUresult soft_capture_add(CUstream s, struct soft_work *w);
/* First in calls that are forbidden during a capture (allocation, free, event queries); fails and
 * invalidates the captures concerned. */
CUresult soft_capture_unsafe(void);
/* For stream-ordered work that cannot be a node: fails and invalidates the capture if the stream
 * captures. */
CUresult soft_capture_refuse(CUstream s);
/* Before a query or a wait for a stream, or for all streams of a context. */
CUresult soft_capture_sync(CUstream s);
CUresult soft_capture_sync_context(CUcontext ctx);

/* A copy or memset. *ret: it has been captured and nothing is left to do. */
struct soft_copy;
CUresult soft_capture_copy(CUstream s, const struct soft_copy *c, bool blocking, bool *ret);
CUresult soft_capture_memset(CUstream s, const CUDA_MEMSET_NODE_PARAMS *p, bool *ret);

/* The same for stream-ordered allocation and free. */
CUresult soft_capture_alloc(CUstream s, CUdeviceptr *ret_address, size_t bytes, bool *ret);
CUresult soft_capture_free(CUstream s, CUdeviceptr address, bool *ret);
/* Frees memory of a graph outside a capture. Returns false if the address is not a graph's;
 * otherwise *ret_e is the result. */
bool soft_graph_memory_free_outside(uint64_t address, CUresult *ret_e);

/* The same for events. */
CUresult soft_capture_record(CUstream s, CUevent ev, bool external, bool *ret);
CUresult soft_capture_wait(CUstream s, CUevent ev, bool external, bool *ret);
/* Whether the last record of the event was captured. */
bool soft_capture_has_event(const CUevent ev);

/* Before a query or a wait for an event: fails if its last record was captured. */
CUresult soft_capture_check_event(CUevent ev, bool invalidate);

/* Removes a stream or event that is being destroyed from its capture. */
void soft_capture_drop_stream(CUstream s);
void soft_capture_drop_event(CUevent ev);

#endif
