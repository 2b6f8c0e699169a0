/* Stream capture: work that is put on a capturing stream becomes a node of a graph. Every call that
 * has to do with streams asks here first; while nobody captures that costs one load. */
#ifndef GBPF_SOFT_CLIENT_GRAPH_CAPTURE_H
#define GBPF_SOFT_CLIENT_GRAPH_CAPTURE_H

#include "soft/client/process.h"

struct soft_work;

/* Before work is put on a stream. *ret: it is to be recorded by capture_add instead. */
CUresult soft_capture_check(CUstream s, bool *ret);
/* A node after what the stream has captured so far. Takes what w owns, also when it fails. */
CUresult soft_capture_add(CUstream s, struct soft_work *w);
/* First in calls that the driver forbids while somebody captures: allocations, frees, queries of
 * events. */
CUresult soft_capture_unsafe(void);
/* Stream-ordered work that cannot be a node. */
CUresult soft_capture_refuse(CUstream s);
/* Before a stream, or all of a context's, is asked or waited for. */
CUresult soft_capture_sync(CUstream s);
CUresult soft_capture_sync_context(CUcontext ctx);

/* A copy or memset; *ret: it has been captured and nothing is left to do. */
struct soft_copy;
CUresult soft_capture_copy(CUstream s, const struct soft_copy *c, bool blocking, bool *ret);
CUresult soft_capture_memset(CUstream s, const CUDA_MEMSET_NODE_PARAMS *p, bool *ret);

/* Stream-ordered memory. */
CUresult soft_capture_alloc(CUstream s, CUdeviceptr *ret_address, size_t bytes, bool *ret);
CUresult soft_capture_free(CUstream s, CUdeviceptr address, bool *ret);
/* The program frees memory outside a capture; true: it is of a graph, and *ret_e is the answer. */
bool soft_graph_memory_free_outside(uint64_t address, CUresult *ret_e);

/* Events. *ret: the record or wait has been captured and nothing is left to do. */
CUresult soft_capture_record(CUstream s, CUevent ev, bool external, bool *ret);
CUresult soft_capture_wait(CUstream s, CUevent ev, bool external, bool *ret);
/* The event's last record is of a capture. */
bool soft_capture_has_event(const CUevent ev);

/* Before an event is asked or waited for: not one that a capture recorded. */
CUresult soft_capture_check_event(CUevent ev, bool invalidate);

/* The object ends: its part in captures too. */
void soft_capture_drop_stream(CUstream s);
void soft_capture_drop_event(CUevent ev);

#endif
