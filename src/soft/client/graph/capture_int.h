/* What capture.c and capture_api.c share. */
#ifndef GBPF_SOFT_CLIENT_GRAPH_CAPTURE_INT_H
#define GBPF_SOFT_CLIENT_GRAPH_CAPTURE_INT_H

#include "soft/client/graph/capture.h"
#include "soft/client/graph/graph.h"

struct edges {		      /* what comes before the next node */
	struct graph_edge *v; /* owned */
	uint32_t n;
};

struct capture {
	uint64_t id;
	CUstreamCaptureMode mode;
	const void *thread; /* that began it */
	CUstream origin;
	CUgraph graph;
	bool own_graph;
	bool invalid;
	struct edges lost; /* of streams that were destroyed before they were joined */
	struct capture *next;
};

struct capturing {		 /* a stream's part */
	struct capture *capture; /* NULL: the stream does not capture */
	struct edges deps;
	CUgraphNode *nodes; /* owned; what was shown to the program */
	CUgraphEdgeData *data;
};

struct captured {    /* an event's part */
	uint64_t id; /* of the capture of its last record; 0: that was not captured */
	struct edges deps;
};

extern pthread_mutex_t capture_lock; /* all of the above; before soft.lock */

static inline struct capture *capture_of(const CUstream s)
{
	return s->capturing ? s->capturing->capture : NULL;
}

/* All with capture_lock held. */
CUresult capture_edges_set(struct edges *e, const struct graph_edge *v, uint32_t n);
CUresult capture_edges_add(struct edges *e, const struct graph_edge *v, uint32_t n);
/* Runs fn for every stream of the capture; until it answers something else than 0. */
CUresult capture_each(struct capture *c, CUresult (*fn)(CUstream s, struct capture *c));
/* The stream is the legacy one, and a blocking stream of its context captures. */
CUresult capture_legacy_conflict(CUstream s, bool invalidate);
CUresult capture_begin(CUstream s, CUgraph g, bool own, const struct graph_edge *deps, uint32_t n,
		       CUstreamCaptureMode mode);
void capture_close(struct capture *c); /* its streams are free again; frees it */
const void *capture_thread(void);      /* which thread calls */

#endif
