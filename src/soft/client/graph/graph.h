/* Graphs: nodes describe stream-ordered work. Instantiation makes an exec, which holds the same
 * work as ring records in an order that respects all edges. */
#ifndef GBPF_SOFT_CLIENT_GRAPH_GRAPH_H
#define GBPF_SOFT_CLIENT_GRAPH_GRAPH_H

#include "base/buf.h"
#include "soft/client/memory/copy.h"
#include "soft/client/process.h"

#define SOFT_GRAPH_MAX_NODES (1u << 20)
#define SOFT_GRAPH_MAX_DEPTH 64u   /* nesting of child graphs */
#define SOFT_GRAPH_BRANCHES_MAX 5u /* streams that one launch uses concurrently */

/* The work of one node; also what a capturing stream records. */
struct soft_work {
	CUgraphNodeType type;
	CUcontext ctx; /* where it runs; NULL: in any context */
	union {
		struct {
			CUfunction handle,
				f; /* as given, perhaps a kernel; and the resolved function */
			struct soft_record_launch r;
			unsigned char *params; /* owned; f->param_bytes */
			void **pointers;       /* owned; pointers into params */
			uint32_t n_params;
			CUlaunchAttribute *attrs; /* owned */
			uint32_t n_attrs;
		} kernel;
		struct {
			struct soft_copy c;
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
			struct soft_graph_memory *memory; /* reference-counted */
		} alloc;
		CUdeviceptr free;
	};
};

struct soft_graph_edge {
	CUgraphNode from;
	CUgraphEdgeData data;
};

struct CUgraphNode_st {
	struct soft_object object;
	CUgraph graph;
	uint64_t id, origin; /* origin: id of the node that it was cloned from */
	uint32_t index;	     /* in the graph's nodes */
	uint32_t mark;	     /* used by traversals */
	struct soft_work work;
	struct soft_graph_edge *deps; /* owned */
	uint32_t n_deps, cap_deps;
	uint32_t hint; /* index of its step in the exec that was last searched */
};

struct soft_graph_user { /* references of a graph or exec to one user object */
	CUuserObject object;
	unsigned count;
};

struct CUgraph_st {
	struct soft_object object;
	uint64_t id, origin;
	CUgraphNode owner;  /* the node whose child graph this is, and with which it is destroyed;
			       else NULL */
	CUgraphNode *nodes; /* owned */
	uint32_t n, cap;
	struct soft_graph_user *users; /* owned */
	uint32_t n_users;
	bool capturing; /* a capture adds nodes to it */
	bool hidden;	/* belongs to an exec; handles that match it by chance are invalid */
};

/* Memory of an allocation node. It exists from the creation of the node until the last graph and
 * exec that refer to it are destroyed. */
struct soft_graph_memory {
	CUcontext ctx;
	uint64_t ctx_id;
	CUdevice device; /* its context's */
	uint64_t address, bytes;
	unsigned refs;
	unsigned execs; /* number of execs that hold it */
	bool live;	/* allocated by a launch and not freed since */
	struct soft_graph_memory *next;
};

/* graph_work.c */
void soft_work_finish(struct soft_work *w);
CUresult soft_work_copy(struct soft_work *to, const struct soft_work *from);
/* Each fills *w with the checked work of a node that has these parameters. */
CUresult soft_work_kernel(struct soft_work *w, const CUDA_KERNEL_NODE_PARAMS *p);
CUresult soft_work_memcpy(struct soft_work *w, const CUDA_MEMCPY3D *p, CUcontext ctx);
CUresult soft_work_memset(struct soft_work *w, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx);
CUresult soft_work_host(struct soft_work *w, CUhostFn fn, void *user);
CUresult soft_work_values(struct soft_work *w, CUcontext ctx, unsigned n,
			  const CUstreamBatchMemOpParams *ops, unsigned flags);
CUresult soft_work_event(struct soft_work *w, CUgraphNodeType type, CUevent ev);
CUresult soft_work_params(struct soft_work *w, const CUgraphNodeParams *p); /* of any node type */
CUresult soft_work_set_attribute(struct soft_work *w, CUlaunchAttributeID id,
				 const CUlaunchAttributeValue *v);
bool soft_work_get_attribute(const struct soft_work *w, CUlaunchAttributeID id,
			     CUlaunchAttributeValue *ret);
/* For a caller that fills in a kernel's work itself: set its packed parameters, or store an
 * attribute that the record already reflects. */
CUresult soft_work_kernel_params(struct soft_work *w, const unsigned char *params);
CUresult soft_work_store_attribute(struct soft_work *w, const CUlaunchAttribute *a);
CUresult soft_work_memset_record(const CUDA_MEMSET_NODE_PARAMS *p, struct soft_record_set *r);
/* Replaces the parameters of a kernel node; keeps what p does not specify. */
CUresult soft_work_kernel_update(struct soft_work *w, const struct soft_work *old,
				 const CUDA_KERNEL_NODE_PARAMS *p);

/* graph.c */
CUresult soft_graph_create(CUgraph *ret);
void soft_graph_destroy(CUgraph g);
CUresult soft_graph_clone(CUgraph from, CUgraph *ret);
/* Adds a node. Takes what w owns, also on failure. */
CUresult soft_graph_add(CUgraph g, const struct soft_graph_edge *deps, size_t n,
			struct soft_work *w, CUgraphNode *ret);
CUresult soft_graph_connect(CUgraphNode to, CUgraphNode from, CUgraphEdgeData data);
bool soft_graph_disconnect(CUgraphNode to, CUgraphNode from);
void soft_graph_remove(CUgraphNode n);
void soft_graph_hide(CUgraph g); /* also hides child graphs */
CUresult soft_graph_check(CUgraph g);
CUresult soft_graph_check_node(CUgraphNode n);
/* Returns in *ret the indexes of the nodes in topological order; caller frees. Fails if there is a
 * cycle or no memory. */
CUresult soft_graph_order(CUgraph g, uint32_t **ret);
/* Returns whether each node in edges is in `from` or precedes a node in it. */
bool soft_graph_reachable(CUgraph g, const struct soft_graph_edge *edges, size_t n,
			  const struct soft_graph_edge *from, size_t n_from);

/* graph_user_object.c */
CUresult soft_graph_users_copy(struct soft_graph_user **to, uint32_t *to_n,
			       const struct soft_graph_user *from, uint32_t n);
void soft_graph_users_release(struct soft_graph_user *users, uint32_t n);

/* graph_memory.c */
CUresult soft_work_alloc(struct soft_work *w, const CUDA_MEM_ALLOC_NODE_PARAMS *p);
CUresult soft_work_free(struct soft_work *w, CUdeviceptr address);
void soft_graph_memory_ref(struct soft_graph_memory *m);
void soft_graph_memory_unref(struct soft_graph_memory *m);
CUresult soft_graph_check_copyable(
	CUgraph g); /* fails if the graph owns memory, since only one instance of it may exist */
CUresult soft_graph_memory_launch(CUgraph g, bool auto_free);
/* An exec acquires or releases the graph's memory; only one may hold it at a time. */
CUresult soft_graph_memory_acquire(CUgraph g);
void soft_graph_memory_release(CUgraph g);
void soft_graph_memory_launched(
	CUgraph g); /* after submission: releases the memory that the graph frees */

#endif
