/* The work of one graph node: made from the driver's descriptions, checked, copied, destroyed. */
#include <stdlib.h>
#include <string.h>

#include "soft/client/context/green.h"
#include "soft/client/graph/graph.h"
#include "soft/client/launch.h"
#include "soft/client/memory/copy.h"
#include "soft/client/memory/memory.h"
#include "soft/client/module/function.h"
#include "soft/client/stream/stream_event.h"
#include "soft/client/stream/stream_op.h"
#include "soft/client/strict.h"

void soft_work_finish(struct soft_work *w)
{
	switch (w->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		free(w->kernel.params);
		free(w->kernel.pointers);
		free(w->kernel.attrs);
		break;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		free(w->values.ops);
		break;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		soft_graph_destroy(w->child);
		break;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		soft_graph_memory_unref(w->alloc.memory);
		break;
	default:
		break;
	}
	*w = (struct soft_work){ .type = CU_GRAPH_NODE_TYPE_EMPTY };
}

CUresult soft_work_kernel_params(struct soft_work *w, const unsigned char *params)
{
	CUfunction f = w->kernel.f;

	w->kernel.params = calloc(1, f->param_bytes + 1);
	w->kernel.pointers = calloc(f->n_params + 1, sizeof(void *));
	if (!w->kernel.params || !w->kernel.pointers) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	w->kernel.n_params = f->n_params;
	memcpy(w->kernel.params, params, f->param_bytes);
	for (uint32_t i = 0; i < f->n_params; i++) {
		w->kernel.pointers[i] = w->kernel.params + f->params[i].offset;
	}
	return CUDA_SUCCESS;
}

CUresult soft_work_store_attribute(struct soft_work *w, const CUlaunchAttribute *a)
{
	CUlaunchAttribute *grown;

	if ((int)a->id == CU_LAUNCH_ATTRIBUTE_IGNORE) {
		return CUDA_SUCCESS;
	}
	for (uint32_t i = 0; i < w->kernel.n_attrs; i++) {
		if (w->kernel.attrs[i].id == a->id) {
			w->kernel.attrs[i] = *a;
			return CUDA_SUCCESS;
		}
	}
	grown = realloc(w->kernel.attrs, (w->kernel.n_attrs + 1) * sizeof(*grown));
	if (!grown) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	w->kernel.attrs = grown;
	grown[w->kernel.n_attrs++] = *a;
	return CUDA_SUCCESS;
}

/* Attributes of a launch or a stream that a node cannot have. */
static bool is_launch_attribute(CUlaunchAttributeID id)
{
	return id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT ||
	       id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
	       id == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
}

CUresult soft_work_set_attribute(struct soft_work *w, CUlaunchAttributeID id,
				 const CUlaunchAttributeValue *v)
{
	CUlaunchAttribute a = { .id = id };
	struct soft_record_launch r = w->kernel.r;
	CUresult e;

	if (is_launch_attribute(id)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	a.value = *v;
	e = soft_object_is(w->kernel.f, SOFT_OBJECT_FUNCTION) ? soft_launch_attribute(&a, &r)
							      : CUDA_ERROR_INVALID_HANDLE;
	e = e ? e : soft_launch_check_shape(w->kernel.f, &r);
	e = e ? e : soft_work_store_attribute(w, &a);
	if (!e) {
		w->kernel.r = r;
	}
	return e;
}

bool soft_work_get_attribute(const struct soft_work *w, CUlaunchAttributeID id,
			     CUlaunchAttributeValue *ret)
{
	memset(ret, 0, sizeof(*ret));
	if ((unsigned)id > CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING ||
	    is_launch_attribute(id)) {
		return false;
	}
	for (uint32_t i = 0; i < w->kernel.n_attrs; i++) {
		if (w->kernel.attrs[i].id == id) {
			*ret = w->kernel.attrs[i].value;
			return true;
		}
	}
	if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
		ret->clusterDim.x = ret->clusterDim.y = ret->clusterDim.z = 0;
	}
	return true;
}

/* A kernel handle means its function in the context that the parameters name. */
static CUresult resolve(const CUDA_KERNEL_NODE_PARAMS *p, CUfunction *ret)
{
	CUfunction h = p->func ? p->func : (CUfunction)(void *)p->kern;
	CUcontext popped;
	CUresult e;

	if (!p->ctx || soft_object_is(h, SOFT_OBJECT_FUNCTION)) {
		e = soft_function_current(h, ret);
		return e == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : e;
	}
	if (!soft_handle_is(soft_green_context(p->ctx), SOFT_OBJECT_CONTEXT)) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	e = soft_context_push(p->ctx);
	if (!e) {
		e = soft_function_current(h, ret);
		soft_context_pop(&popped);
	}
	return e;
}

/* Returns the part (1 + number; 0: all SMs) on which the node's kernel may run: that of its
 * context. */
static uint32_t part_of(CUcontext h)
{
	CUgreenCtx g = soft_thread_green();
	CUcontext ctx;

	return h && soft_green_resolve(h, &ctx, &g) ? 0 : g ? g->part : 0;
}

CUresult soft_work_kernel(struct soft_work *w, const CUDA_KERNEL_NODE_PARAMS *p)
{
	unsigned char packed[SOFT_MAX_PARAM_BYTES];
	struct soft_launch_spec l;
	CUfunction f;
	CUresult e = resolve(p, &f);

	*w = (struct soft_work){ .type = CU_GRAPH_NODE_TYPE_KERNEL };
	if (e) {
		return e;
	}
	l = (struct soft_launch_spec){ .grid = { p->gridDimX, p->gridDimY, p->gridDimZ },
				       .block = { p->blockDimX, p->blockDimY, p->blockDimZ },
				       .shared = p->sharedMemBytes,
				       .params = p->kernelParams,
				       .extra = p->extra };
	e = soft_launch_prepare(f, &l, &w->kernel.r, packed);
	w->ctx = f->module->context;
	w->kernel.r.part = part_of(p->ctx);
	w->kernel.handle = p->func ? p->func : (CUfunction)(void *)p->kern;
	w->kernel.f = f;
	e = e ? e : soft_work_kernel_params(w, packed);
	if (e) {
		soft_work_finish(w);
	}
	return e;
}

static CUresult check_context(CUcontext *ctx)
{
	*ctx = soft_green_context(*ctx);
	return *ctx ? soft_handle_is(*ctx, SOFT_OBJECT_CONTEXT) ? CUDA_SUCCESS
								: CUDA_ERROR_INVALID_CONTEXT
		    : soft_context_current(ctx);
}

CUresult soft_work_memcpy(struct soft_work *w, const CUDA_MEMCPY3D *p, CUcontext ctx)
{
	CUDA_MEMCPY3D_PEER peer;
	CUresult e = check_context(&ctx);
	bool empty;

	*w = (struct soft_work){ .type = CU_GRAPH_NODE_TYPE_MEMCPY, .ctx = ctx };
	if (e) {
		return e;
	}
	memcpy(&peer, p,
	       sizeof(peer)); /* same layout; the peer's contexts lie in reserved fields */
	peer.srcContext = peer.dstContext = NULL;
	w->copy.params = *p;
	e = soft_copy_resolve(&peer, &w->copy.c);
	e = e ? e : soft_copy_prepare(&w->copy.c, &empty);
	e = e ? e : !empty && w->copy.c.depth ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	return !e && soft_copy_is_invalid(&w->copy.c) ? CUDA_ERROR_INVALID_VALUE : e;
}

CUresult soft_work_memset_record(const CUDA_MEMSET_NODE_PARAMS *p, struct soft_record_set *r)
{
	uint64_t bytes, extent;

	if ((p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4) || !p->width ||
	    !p->height || p->dst % p->elementSize ||
	    checked_mul((uint64_t)p->width, (uint64_t)p->elementSize, &bytes) ||
	    (p->height > 1 && (p->pitch < bytes || p->pitch % p->elementSize)) ||
	    checked_mul(p->height > 1 ? (uint64_t)p->pitch : 0, (uint64_t)p->height - 1, &extent) ||
	    checked_add(extent, bytes, &extent) || !soft_memory_valid(p->dst, extent)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	*r = (struct soft_record_set){ .r.op = SOFT_OP_SET,
				       .dst = p->dst,
				       .pitch = p->pitch,
				       .width = p->width,
				       .height = p->height,
				       .value = p->value,
				       .unit = p->elementSize };
	return CUDA_SUCCESS;
}

CUresult soft_work_memset(struct soft_work *w, const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx)
{
	struct soft_record_set r;
	CUresult e = check_context(&ctx);

	*w = (struct soft_work){ .type = CU_GRAPH_NODE_TYPE_MEMSET, .ctx = ctx, .set = *p };
	return e ? e : soft_work_memset_record(p, &r);
}

CUresult soft_work_host(struct soft_work *w, CUhostFn fn, void *user)
{
	*w = (struct soft_work){ .type = CU_GRAPH_NODE_TYPE_HOST };
	w->host.fn = fn;
	w->host.user = user;
	return fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult soft_work_values(struct soft_work *w, CUcontext ctx, unsigned n,
			  const CUstreamBatchMemOpParams *ops, unsigned flags)
{
	struct soft_record_value r;
	CUresult e = check_context(&ctx);

	*w = (struct soft_work){ .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, .ctx = ctx };
	e = e							   ? e
	    : (n && !ops) || n > SOFT_STREAM_OP_BATCH_MAX || flags ? CUDA_ERROR_INVALID_VALUE
								   : e;
	for (unsigned i = 0; i < n && !e; i++) {
		bool none;

		e = soft_stream_op_value(&ops[i], &r, &none);
	}
	if (e) {
		return e;
	}
	w->values.ops = calloc(n + 1u, sizeof(*ops));
	if (!w->values.ops) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memcpy(w->values.ops, ops, n * sizeof(*ops));
	w->values.n = n;
	w->values.flags = flags;
	return CUDA_SUCCESS;
}

CUresult soft_work_event(struct soft_work *w, CUgraphNodeType type, CUevent ev)
{
	*w = (struct soft_work){ .type = type };
	if (!soft_handle_is(ev, SOFT_OBJECT_EVENT)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	w->event = ev;
	w->ctx = type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? ev->context : NULL;
	return CUDA_SUCCESS;
}

static CUresult work_child(struct soft_work *w, CUgraph child)
{
	CUresult e = soft_graph_check(child);

	*w = (struct soft_work){ .type = CU_GRAPH_NODE_TYPE_GRAPH };
	e = e ? e : soft_graph_check_copyable(child);
	if (e) {
		return e;
	}
	e = soft_graph_clone(child, &w->child);
	if (e) {
		w->type = CU_GRAPH_NODE_TYPE_EMPTY;
	}
	return e;
}

CUresult soft_work_params(struct soft_work *w, const CUgraphNodeParams *p)
{
	CUDA_MEMSET_NODE_PARAMS set;

	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return soft_work_kernel(w, &p->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return p->memcpy.flags || p->memcpy.reserved
			       ? CUDA_ERROR_INVALID_VALUE
			       : soft_work_memcpy(w, &p->memcpy.copyParams, p->memcpy.copyCtx);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		memcpy(&set, &p->memset, sizeof(set));
		return soft_work_memset(w, &set, p->memset.ctx);
	case CU_GRAPH_NODE_TYPE_HOST:
		return soft_work_host(w, p->host.fn, p->host.userData);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return work_child(w, p->graph.graph);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		*w = (struct soft_work){ .type = CU_GRAPH_NODE_TYPE_EMPTY };
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return soft_work_event(w, p->type, p->eventWait.event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return soft_work_event(w, p->type, p->eventRecord.event);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return soft_work_values(w, p->memOp.ctx, p->memOp.count, p->memOp.paramArray,
					p->memOp.flags);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return soft_work_alloc(w, &p->alloc);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return soft_work_free(w, p->free.dptr);
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult copy_kernel(struct soft_work *to, const struct soft_work *from)
{
	uint32_t bytes =
		from->kernel.r
			.param_bytes; /* not from the function, which may have been unloaded */
	CUresult e = CUDA_SUCCESS;

	to->kernel.attrs = NULL;
	to->kernel.n_attrs = 0;
	to->kernel.params = calloc(1, bytes + 1);
	to->kernel.pointers = calloc(from->kernel.n_params + 1, sizeof(void *));
	if (!to->kernel.params || !to->kernel.pointers) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memcpy(to->kernel.params, from->kernel.params, bytes);
	for (uint32_t i = 0; i < from->kernel.n_params; i++) {
		ptrdiff_t at = (unsigned char *)from->kernel.pointers[i] - from->kernel.params;

		to->kernel.pointers[i] = to->kernel.params + at;
	}
	for (uint32_t i = 0; i < from->kernel.n_attrs && !e; i++) {
		e = soft_work_store_attribute(to, &from->kernel.attrs[i]);
	}
	return e;
}

CUresult soft_work_copy(struct soft_work *to, const struct soft_work *from)
{
	CUresult e = CUDA_SUCCESS;

	*to = *from;
	switch (from->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		e = copy_kernel(to, from);
		break;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		to->values.ops = calloc(from->values.n + 1u, sizeof(*to->values.ops));
		if (to->values.ops) {
			memcpy(to->values.ops, from->values.ops,
			       from->values.n * sizeof(*to->values.ops));
		}
		e = to->values.ops ? e : CUDA_ERROR_OUT_OF_MEMORY;
		break;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		to->child = NULL;
		e = soft_graph_clone(from->child, &to->child);
		break;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		soft_graph_memory_ref(to->alloc.memory);
		break;
	default:
		break;
	}
	if (e) {
		soft_work_finish(to);
	}
	return e;
}
