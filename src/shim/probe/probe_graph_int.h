/* Executable graphs whose kernel nodes take probed forms; the room's own interface. */
#ifndef GBPF_SHIM_PROBE_PROBE_GRAPH_INT_H
#define GBPF_SHIM_PROBE_PROBE_GRAPH_INT_H

#include "base/lock.h"
#include "shim/probe/shim_probe_int.h"

/* A kernel node of the program's graph; under shim_probe_graphs_mutex. */
struct shim_probe_place {
	CUgraphNode node;
	bool nested; /* in a child graph */
	bool edited; /* the program has changed it, in the graph or in the exec, so its parameters
			are not the exec's */
	bool gone;   /* the program has destroyed it */
	/* For coverage: the kernel that the exec runs there, as the program names it. */
	CUkernel kern;
	CUfunction func;
	struct sched_kernel *kernel; /* NULL: not looked up */
};

/* The exec's node; under the exec's mutex. */
struct shim_probe_node {
	CUgraphNode node;   /* node of the program's graph, or of `copy` */
	CUgraphNode saved;  /* node of `own` that keeps parameters; NULL: none */
	bool kept;	    /* `saved` has the exec's parameters, with the program's kernel */
	const void *handle; /* handle of the program's kernel */
	CUcontext ctx;	    /* context of the node; NULL: the exec's */
	struct shim_probe_kernel *kernel; /* record that was found last */
	struct shim_probe_form *form;	  /* form that the exec runs; NULL: the program's kernel */
	struct shim_probe_form *next; /* form that it is to run; differs from `form` only while the
					 node is changed */
	uint64_t refused;	      /* number of the form that the driver refused last */
	CUresult refusal;	      /* the driver's answer then */
	const char *lost;	      /* why the node cannot be changed; NULL: it can */
	bool learned;		      /* handle and ctx are known */
	bool checked;		      /* it was checked that kernels cannot change it */
};

/* Structs are never freed, only reused: a thread's cache may lead to one that has ended. */
struct shim_probe_exec {
	struct shim_probe_exec *next; /* next of all structs; constant */
	struct shim_probe_exec *next_free;
	CUgraphExec exec; /* [atomic] NULL: free; changed under both mutexes */
	/* Under shim_probe_graphs_mutex: */
	CUgraph graph;
	struct shim_probe_place *places; /* owned; by address */
	uint32_t n_places;
	uint64_t accounted; /* launches of the handle that were counted at its kernels, or were of
			       an earlier exec */
	bool looked_up;	    /* the kernels of its places are known, as far as they can be */
	/* Under the exec's mutex: */
	struct lock mutex;	       /* held over all calls of the driver that name the exec */
	CUcontext ctx;		       /* [atomic] NULL: the context has ended */
	struct shim_probe_node *nodes; /* owned; by address unless of `copy`; NULL: not made yet */
	uint32_t n_nodes;
	CUgraph own;  /* owned; graph of the `saved` nodes; NULL: none */
	CUgraph copy; /* owned; copy of the graph that the exec was updated from; NULL: the exec has
			 the parameters of its own graph */
	const char *lost;    /* why no node can be changed; NULL: nodes can be */
	bool bodies;	     /* has conditional nodes, whose graphs cannot be reached */
	uint64_t updated_ns; /* monotonic; when it was updated from another graph */
	uint64_t copy_ns;    /* time that the last copy of that graph took */
	uint64_t seen;	     /* value of shim_probe_forms_generation for which its forms were set */
	uint32_t n_forms;    /* [atomic] nodes with a form */
};

/* docs/LOCKING.md has the order. */
extern struct lock shim_probe_graphs_mutex;	 /* guards which execs and nodes there are */
extern struct shim_probe_exec *shim_probe_execs; /* [atomic] all structs, also free ones */

/* ---- probe_execs.c ---- */
/* Returns the place of a node of the exec's graph, NULL: none. */
struct shim_probe_place *shim_probe_place(const struct shim_probe_exec *x, CUgraphNode node)
	REQUIRES(shim_probe_graphs_mutex);
/* Returns whether the exec was made from that graph and has its nodes, with their parameters as of
 * now. */
bool shim_probe_exec_is_of(struct shim_probe_exec *x, CUgraph g);
/* Takes the struct's mutex; returns false, without it, if the exec was destroyed meanwhile.
 * UNCHECKED: held until shim_probe_exec_end(), by callers that know the exec by its handle. */
UNCHECKED static inline bool shim_probe_exec_enter(struct shim_probe_exec *x, CUgraphExec exec)
{
	lock_take(&x->mutex);
	if (likely(load_acquire(&x->exec) == exec)) {
		return true;
	}
	lock_release(&x->mutex);
	return false;
}
/* Takes the exec's mutex; returns false if a second does not suffice. */
bool shim_probe_exec_lock(struct shim_probe_exec *x);
/* Stores the kernel nodes of a graph, sorted by address; caller frees. Returns their number, or
 * -ENOMEM. */
int64_t shim_probe_places_of(CUgraph g, struct shim_probe_place **ret, bool *ret_bodies);

/* ---- probe_nodes.c; caller holds the exec's mutex ---- */
/* Gives each node the form that its kernel has now. builds: kernels that are newer than a tool of
 * theirs get theirs at once. */
void shim_probe_exec_settle(struct shim_probe_exec *x, bool builds);
/* Gives nodes the program's kernels: all of them, or those whose kernel has lost the form. ends:
 * the form is let go even if the driver refuses, since it ends with its context. */
void shim_probe_exec_restore(struct shim_probe_exec *x, bool all, bool ends);
/* Gives one node the program's kernel, because its handle is about to end. */
void shim_probe_exec_restore_node(struct shim_probe_exec *x, CUgraphNode node);
/* Records the driver's answer to a launch: whether it refuses the exec's forms. */
void shim_probe_exec_note_refusal(struct shim_probe_exec *x, CUresult r);
/* The exec's nodes run the program's kernels by a call of the program: lets their forms go and
 * forgets the nodes. */
void shim_probe_exec_clear(struct shim_probe_exec *x);
/* A call of the program has given the node these parameters, and with them its kernel. */
void shim_probe_exec_set(struct shim_probe_exec *x, CUgraphNode node,
			 const CUDA_KERNEL_NODE_PARAMS *p);
/* The exec was updated from its own graph, whose parameters it has now. */
void shim_probe_exec_renew(struct shim_probe_exec *x);
/* The program is about to change the node in the exec's graph: the exec keeps its parameters. */
void shim_probe_exec_keep(struct shim_probe_exec *x, CUgraphNode node);
/* A call of the program has replaced the child graph of that node in the exec. */
void shim_probe_exec_set_child(struct shim_probe_exec *x, CUgraphNode node, CUgraph child);
/* Returns the exec's node for that of its graph; NULL: none. */
struct shim_probe_node *shim_probe_exec_node(const struct shim_probe_exec *x, CUgraphNode node);
/* The exec was updated from that graph, which is not the one that it was made from. */
void shim_probe_exec_updated(struct shim_probe_exec *x, CUgraph from);
/* Restores the program's kernels in an exec that was updated from another graph, since a call of
 * the program is about to change a node by its handle. */
void shim_probe_exec_leave_copy(struct shim_probe_exec *x);

/* ---- probe_node_params.c; caller holds the exec's mutex ---- */
/* Learns kernel and context of a node, from another one: false if the driver does not report it. */
bool shim_probe_node_learn_from(struct shim_probe_node *n, CUgraphNode from);
void shim_probe_node_learn(const struct shim_probe_exec *x, struct shim_probe_node *n);
/* Returns the exec's parameters with the program's kernel, which stay until they are copied again;
 * the second only if they were. n->lost: why they are not known. */
CUresult shim_probe_node_params(struct shim_probe_exec *x, struct shim_probe_node *n,
				CUDA_KERNEL_NODE_PARAMS *ret);
CUresult shim_probe_node_kept_params(const struct shim_probe_node *n, CUDA_KERNEL_NODE_PARAMS *ret);
/* A call of the program has given the node these parameters. */
void shim_probe_node_set(struct shim_probe_exec *x, struct shim_probe_node *n,
			 const CUDA_KERNEL_NODE_PARAMS *p);
/* The program is about to change the node in the exec's graph. */
void shim_probe_node_keep(struct shim_probe_exec *x, struct shim_probe_node *n);
/* A child graph's kernel nodes have those of `from` as parameters. Returns false, without effect,
 * if the nodes of either are no chain: then only the driver knows which correspond. */
bool shim_probe_exec_pair(struct shim_probe_exec *x, CUgraph old, CUgraph from);

/* ---- probe_graph_cover.c ---- */
/* The exec was made: launches count from now on. */
void shim_probe_exec_count_begin(struct shim_probe_exec *x) REQUIRES(shim_probe_graphs_mutex);
/* Counts the launches since the last call at its kernels, if these were looked up. Caller holds the
 * exec's mutex, too. */
void shim_probe_exec_account(struct shim_probe_exec *x) REQUIRES(shim_probe_graphs_mutex);
/* A place of the exec has another kernel from now on: counts the launches so far. Caller holds the
 * exec's mutex, too. */
void shim_probe_exec_recount(struct shim_probe_exec *x, struct shim_probe_place *p,
			     const CUDA_KERNEL_NODE_PARAMS *now) REQUIRES(shim_probe_graphs_mutex);

#endif
