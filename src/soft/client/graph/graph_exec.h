/* Execs: a graph as ring records, step by step, in lanes that run beside each other. */
#ifndef GBPF_SOFT_CLIENT_GRAPH_GRAPH_EXEC_H
#define GBPF_SOFT_CLIENT_GRAPH_GRAPH_EXEC_H

#include "soft/client/graph/graph.h"
#include "soft/client/host_call.h"

struct step {
	CUgraphNode node;  /* of the exec's own graph; NULL: where a child graph begins or ends */
	CUcontext ctx;	   /* NULL: anywhere */
	uint32_t lane, at; /* at: place in its lane */
	uint32_t *deps;	   /* owned; steps */
	uint32_t n_deps;
	uint32_t first_wait, n_waits; /* of exec.waits: steps of other lanes that must have ended */
	bool disabled;
	struct buf records;	 /* what is put in the ring */
	struct host_call *hosts; /* owned; what the host records in it refer to */
	uint64_t staging;	 /* for memory that the server does not reach; 0: none */
	CUcontext staging_ctx;
	uint64_t staging_ctx_id;
	uint32_t target; /* soft.ring_lock: the count of its lane's stream when it has ended */
};

struct lane {
	CUcontext ctx;
	CUstream stream; /* NULL: not made yet; of lane 0: used when the launch's stream is another
			    context's */
	uint64_t stream_id;
	uint32_t n; /* steps */
};

struct CUgraphExec_st {
	struct object object;
	uint64_t flags;
	CUgraph graph; /* owned: a clone */
	struct step *steps;
	uint32_t n, cap;
	uint32_t *waits;
	uint32_t n_waits, cap_waits;
	struct lane lanes[GRAPH_MAX_LANES];
	uint32_t n_lanes;
	uint32_t *joins; /* owned: the last steps of lanes that lane 0 has to wait for */
	uint32_t n_joins;
	bool launched;			   /* soft.ring_lock, as the rest */
	uint32_t last_slot, last_target;   /* where and when the last launch ends */
	bool dying;			   /* destroyed, but its last launch has not ended */
	struct CUgraphExec_st *next_dying; /* soft.lock */
};

/* graph_exec.c */
CUresult exec_new(CUgraph g, uint64_t flags, CUgraphExec *ret, CUgraphNode *ret_node);
void exec_free(CUgraphExec x);
CUresult exec_check(CUgraphExec x);
CUresult lane_stream(struct lane *l);		      /* makes the lane's stream */
struct step *exec_step(CUgraphExec x, CUgraphNode n); /* n: of the graph it was made from */

/* graph_emit.c: the step's work as records. */
CUresult step_emit(CUgraphExec x, struct step *st);
void step_clear(struct step *st);

/* graph_launch.c */
CUresult exec_launch(CUgraphExec x, CUstream s);
bool exec_ended(CUgraphExec x);
void exec_reap(void); /* frees destroyed execs whose launches have ended */

#endif
