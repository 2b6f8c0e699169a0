/* Capture state and functions that only capture.c and capture_api.c share. */
#ifndef GBPF_SOFT_CLIENT_GRAPH_CAPTURE_INT_H
#define GBPF_SOFT_CLIENT_GRAPH_CAPTURE_INT_H

#include "base/lock.h"
#include "soft/client/graph/capture.h"
#include "soft/client/graph/graph.h"

struct soft_edges {		   /* the nodes on which the next node depends */
	struct soft_graph_edge *v; /* owned */
	uint32_t n;
};

struct soft_capture {
	uint64_t id;
	CUstreamCaptureMode mode;
	const void *thread; /* identifies the thread that began the capture */
	CUstream origin;
	CUgraph graph;
	bool own_graph;
	bool invalid;
	struct soft_edges lost; /* sets of streams that were destroyed before they were joined */
	struct soft_capture *next;
};

struct soft_capturing {		      /* a stream's part in a capture */
	struct soft_capture *capture; /* NULL: the stream does not capture */
	struct soft_edges deps;
	CUgraphNode *nodes; /* owned; copy that the program reads */
	CUgraphEdgeData *data;
};

struct soft_captured { /* an event's part in a capture */
	uint64_t id;   /* id of the capture of its last record; 0: that was not captured */
	struct soft_edges deps;
};

extern struct lock soft_capture_lock; /* guards all of the above; taken before soft.lock */

static inline struct soft_capture *soft_capture_of(const CUstream s)
{
	return s->capturing ? s->capturing->capture : NULL;
}

CUresult soft_edges_set(struct soft_edges *e, const struct soft_graph_edge *v, uint32_t n)
	REQUIRES(soft_capture_lock);
CUresult soft_edges_add(struct soft_edges *e, const struct soft_graph_edge *v, uint32_t n)
	REQUIRES(soft_capture_lock);
/* Calls fn for every stream of the capture until it returns other than 0. */
CUresult soft_capture_each(struct soft_capture *c,
			   CUresult (*fn)(CUstream s, struct soft_capture *c))
	REQUIRES(soft_capture_lock);
/* Fails if s is the legacy stream and a blocking stream of its context captures. */
CUresult soft_capture_legacy_conflict(CUstream s, bool invalidate) REQUIRES(soft_capture_lock);
CUresult soft_capture_begin(CUstream s, CUgraph g, bool own, const struct soft_graph_edge *deps,
			    uint32_t n, CUstreamCaptureMode mode) REQUIRES(soft_capture_lock);
/* Frees the capture; its streams no longer capture. */
void soft_capture_close(struct soft_capture *c) REQUIRES(soft_capture_lock);
const void *soft_capture_thread(void); /* identifies the calling thread */

#endif
