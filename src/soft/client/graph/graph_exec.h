/* Execs: a graph as ring records, step by step, in concurrent branches. */
#ifndef GBPF_SOFT_CLIENT_GRAPH_GRAPH_EXEC_H
#define GBPF_SOFT_CLIENT_GRAPH_GRAPH_EXEC_H

#include "soft/client/graph/graph.h"
#include "soft/client/host_call.h"

struct soft_exec_step {
	CUgraphNode node;    /* of the exec's own graph; NULL: begin or end of a child graph */
	CUcontext ctx;	     /* NULL: any */
	uint32_t branch, at; /* at: index in its branch */
	uint32_t *deps;	     /* owned; indexes of steps */
	uint32_t n_deps;
	uint32_t first_wait,
		n_waits; /* in exec.waits: steps of other branches that must have ended */
	bool disabled;
	struct buf records;	      /* the ring records */
	struct soft_host_call *hosts; /* owned; the calls that the host records refer to */
	uint64_t staging; /* buffer for memory that the server does not reach; 0: none */
	CUcontext staging_ctx;
	uint64_t staging_ctx_id;
	uint32_t target; /* count of its branch's stream when the step has ended; guarded by
			    soft.ring_lock */
};

struct soft_exec_branch {
	CUcontext ctx;
	CUstream stream; /* NULL: not created yet. Branch 0 uses it only if the launch's stream
			    belongs to another context */
	uint64_t stream_id;
	uint32_t n; /* number of steps */
};

struct CUgraphExec_st {
	struct soft_object object;
	uint64_t flags;
	CUgraph graph; /* owned; a clone */
	struct soft_exec_step *steps;
	uint32_t n, cap;
	uint32_t *waits;
	uint32_t n_waits, cap_waits;
	struct soft_exec_branch branches[SOFT_GRAPH_BRANCHES_MAX];
	uint32_t n_branches;
	uint32_t *joins; /* owned; last steps of branches that branch 0 has to wait for */
	uint32_t n_joins;
	bool launched;			   /* guarded by soft.ring_lock, as are the next two */
	uint32_t last_slot, last_target;   /* stream slot and count at which the last launch ends */
	bool dying;			   /* destroyed, but its last launch has not ended */
	struct CUgraphExec_st *next_dying; /* guarded by soft.lock */
};

/* graph_exec.c */
CUresult soft_exec_create(CUgraph g, uint64_t flags, CUgraphExec *ret, CUgraphNode *ret_node);
void soft_exec_destroy(CUgraphExec x);
CUresult soft_exec_check(CUgraphExec x);
CUresult soft_exec_branch_stream(struct soft_exec_branch *l); /* creates the branch's stream */
struct soft_exec_step *
soft_exec_find_step(CUgraphExec x, CUgraphNode n); /* n: of the graph that it was made from */

/* graph_emit.c: makes the step's ring records. */
CUresult soft_exec_step_emit(CUgraphExec x, struct soft_exec_step *st);
void soft_exec_step_clear(struct soft_exec_step *st);

/* graph_launch.c */
CUresult soft_exec_launch(CUgraphExec x, CUstream s);
bool soft_exec_ended(CUgraphExec x);
void soft_exec_reap(void); /* frees destroyed execs whose launches have ended */

#endif
