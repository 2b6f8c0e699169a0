/* Graphs: nodes are descriptions of stream-ordered work; an exec is the same work as ring records
 * in an order that keeps all edges. */
#ifndef GBPF_SOFT_CLIENT_GRAPH_GRAPH_H
#define GBPF_SOFT_CLIENT_GRAPH_GRAPH_H

#include "base/buf.h"
#include "soft/client/process.h"

#define GRAPH_MAX_NODES (1u << 20)
#define GRAPH_MAX_DEPTH 64u /* of child graphs */
#define GRAPH_MAX_LANES 5u  /* streams that one launch uses beside each other */

/* What a node does. Also what a capturing stream records. */
struct work {
	CUgraphNodeType type;
	CUcontext ctx; /* where it runs; NULL: anywhere */
	union {
		struct {
			CUfunction handle, f; /* as given (perhaps a kernel), and the function */
			struct soft_record_launch r;
			unsigned char *params; /* owned, f->param_bytes */
			void **pointers;       /* owned, into params */
			uint32_t n_params;
			CUlaunchAttribute *attrs; /* owned */
			uint32_t n_attrs;
		} kernel;
		struct {
			struct copy c;
			CUDA_MEMCPY3D params;
		} copy;
		CUDA_MEMSET_NODE_PARAMS set;
		struct {
			CUhostFn fn;
			void *user;
		} host;
		struct {
			CUstreamBatchMemOpParams *ops; /* owned */
			unsigned n, flags;
		} values;
		CUevent event;
		CUgraph child; /* owned */
		struct {
			CUDA_MEM_ALLOC_NODE_PARAMS params;
			struct graph_memory *memory; /* counted */
		} alloc;
		CUdeviceptr free;
	};
};

struct graph_edge {
	CUgraphNode from;
	CUgraphEdgeData data;
};

struct CUgraphNode_st {
	struct object object;
	CUgraph graph;
	uint64_t id, origin; /* origin: of the node that it was cloned from */
	uint32_t index;	     /* in the graph */
	uint32_t mark;	     /* of walks */
	struct work work;
	struct graph_edge *deps; /* owned */
	uint32_t n_deps, cap_deps;
	uint32_t hint; /* where the step lies in the exec that was asked last */
};

struct graph_user { /* references of a graph or exec to a user object */
	CUuserObject object;
	unsigned count;
};

struct CUgraph_st {
	struct object object;
	uint64_t id, origin;
	CUgraphNode owner;  /* of a child graph: it goes with its node */
	CUgraphNode *nodes; /* owned */
	uint32_t n, cap;
	struct graph_user *users; /* owned */
	uint32_t n_users;
	bool capturing; /* a capture adds to it */
	bool hidden;	/* an exec's own: an old handle that means it by chance is no handle */
};

/* Memory of an allocation node: there from the node on, kept by the graphs and execs that name it.
 */
struct graph_memory {
	CUcontext ctx;
	uint64_t ctx_id;
	uint64_t address, bytes;
	unsigned refs;
	unsigned execs; /* that have it */
	bool live;	/* allocated and not freed by a launch, as programs see it */
	struct graph_memory *next;
};

/* work.c */
void work_finish(struct work *w);
CUresult work_copy(struct work *to, const struct work *from);
/* What a node of these parameters does; checked. */
CUresult work_kernel(struct work *w, const CUDA_KERNEL_NODE_PARAMS *p);
CUresult work_memcpy(struct work *w, const CUDA_MEMCPY3D *p, CUcontext ctx);
CUresult work_memset(struct work *w, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx);
CUresult work_host(struct work *w, CUhostFn fn, void *user);
CUresult work_values(struct work *w, CUcontext ctx, unsigned n, const CUstreamBatchMemOpParams *ops,
		     unsigned flags);
CUresult work_event(struct work *w, CUgraphNodeType type, CUevent ev);
CUresult work_params(struct work *w, const CUgraphNodeParams *p); /* of any kind */
CUresult work_attribute(struct work *w, CUlaunchAttributeID id, const CUlaunchAttributeValue *v);
bool work_get_attribute(const struct work *w, CUlaunchAttributeID id, CUlaunchAttributeValue *ret);
/* For who fills a kernel's work itself: the packed parameters, and an attribute that is in the
 * record already. */
CUresult work_kernel_params(struct work *w, const unsigned char *params);
CUresult work_keep_attribute(struct work *w, const CUlaunchAttribute *a);
CUresult work_memset_record(const CUDA_MEMSET_NODE_PARAMS *p, struct soft_record_set *r);
/* Other parameters for the same node: what p does not tell stays. */
CUresult work_kernel_again(struct work *w, const struct work *old,
			   const CUDA_KERNEL_NODE_PARAMS *p);

/* graph.c */
CUresult graph_new(CUgraph *ret);
void graph_delete(CUgraph g);
CUresult graph_clone(CUgraph from, CUgraph *ret);
/* Adds a node; takes what w owns, also when it fails. */
CUresult graph_add(CUgraph g, const struct graph_edge *deps, size_t n, struct work *w,
		   CUgraphNode *ret);
CUresult graph_connect(CUgraphNode to, CUgraphNode from, CUgraphEdgeData data);
bool graph_disconnect(CUgraphNode to, CUgraphNode from);
void graph_remove(CUgraphNode n);
void graph_hide(CUgraph g); /* and the graphs in it */
CUresult graph_check(CUgraph g);
CUresult node_check(CUgraphNode n);
/* Indexes of the nodes so that each comes after those it depends on; caller frees. False: there is
 * a cycle, or no memory. */
CUresult graph_order(CUgraph g, uint32_t **ret);
/* True when each of the nodes in edges is in, or before one of, the nodes in from. */
bool graph_before(CUgraph g, const struct graph_edge *edges, size_t n,
		  const struct graph_edge *from, size_t n_from);

/* graph_user.c */
CUresult users_copy(struct graph_user **to, uint32_t *to_n, const struct graph_user *from,
		    uint32_t n);
void users_release(struct graph_user *users, uint32_t n);

/* graph_memory.c */
CUresult work_alloc(struct work *w, const CUDA_MEM_ALLOC_NODE_PARAMS *p);
CUresult work_free(struct work *w, CUdeviceptr address);
void graph_memory_get(struct graph_memory *m);
void graph_memory_put(struct graph_memory *m);
CUresult graph_copyable(CUgraph g); /* graphs that own memory exist once */
CUresult graph_memory_launch(CUgraph g, bool auto_free);
/* An exec has, or no longer has, the graph's memory: one may at a time. */
CUresult graph_memory_take(CUgraph g);
void graph_memory_leave(CUgraph g);
void graph_memory_launched(CUgraph g); /* its work has been put: what it frees may go */

#endif
