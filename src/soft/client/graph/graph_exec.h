/* Execs: a graph as ring records, step by step, in lanes that run beside each other. */
#ifndef GBPF_SOFT_CLIENT_GRAPH_GRAPH_EXEC_H
#define GBPF_SOFT_CLIENT_GRAPH_GRAPH_EXEC_H

#include "soft/client/graph/graph.h"
#include "soft/client/host_call.h"

struct soft_exec_step {
	CUgraphNode node;    /* of the exec's own graph; NULL: where a child graph begins or ends */
	CUcontext ctx;	     /* NULL: anywhere */
	uint32_t branch, at; /* at: place in its lane */
	uint32_t *deps;	     /* owned; steps */
	uint32_t n_deps;
	uint32_t first_wait, n_waits; /* of exec.waits: steps of other lanes that must have ended */
	bool disabled;
	struct buf records;	      /* what is put in the ring */
	struct soft_host_call *hosts; /* owned; what the host records in it refer to */
	uint64_t staging;	      /* for memory that the server does not reach; 0: none */
	CUcontext staging_ctx;
	uint64_t staging_ctx_id;
	uint32_t target; /* soft.ring_lock: the count of its lane's stream when it has ended */
};

struct soft_exec_branch {
	CUcontext ctx;
	CUstream stream; /* NULL: not made yet; of lane 0: used when the launch's stream is another
			    context's */
	uint64_t stream_id;
	uint32_t n; /* steps */
};

struct CUgraphExec_st {
	struct soft_object object;
	uint64_t flags;
	CUgraph graph; /* owned: a clone */
	struct soft_exec_step *steps;
	uint32_t n, cap;
	uint32_t *waits;
	uint32_t n_waits, cap_waits;
	struct soft_exec_branch branches[GRAPH_BRANCHES_MAX];
	uint32_t n_branches;
	uint32_t *joins; /* owned: the last steps of lanes that lane 0 has to wait for */
	uint32_t n_joins;
	bool launched;			   /* soft.ring_lock, as the rest */
	uint32_t last_slot, last_target;   /* where and when the last launch ends */
	bool dying;			   /* destroyed, but its last launch has not ended */
	struct CUgraphExec_st *next_dying; /* soft.lock */
};

/* graph_exec.c */
CUresult soft_exec_create(CUgraph g, uint64_t flags, CUgraphExec *ret, CUgraphNode *ret_node);
void soft_exec_destroy(CUgraphExec x);
CUresult soft_exec_check(CUgraphExec x);
CUresult soft_exec_branch_stream(struct soft_exec_branch *l); /* makes the lane's stream */
struct soft_exec_step *soft_exec_find_step(CUgraphExec x,
					   CUgraphNode n); /* n: of the graph it was made from */

/* graph_emit.c: the step's work as records. */
CUresult soft_exec_step_emit(CUgraphExec x, struct soft_exec_step *st);
void soft_exec_step_clear(struct soft_exec_step *st);

/* graph_launch.c */
CUresult soft_exec_launch(CUgraphExec x, CUstream s);
bool soft_exec_ended(CUgraphExec x);
void soft_exec_reap(void); /* frees destroyed execs whose launches have ended */

#endif
