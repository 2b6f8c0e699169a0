/* Launches: shape and parameters are checked here, so that the server does not have to reply. */
#include "soft/client/context/green.h"
#include "soft/client/graph/capture.h"
#include "soft/client/graph/graph.h"
#include "soft/client/launch.h"
#include "soft/client/module/function.h"
#include "soft/client/ring_submit.h"
#include "soft/client/stream/stream_event.h"
#include "soft/client/texture/texture_ref.h"
#include <stdlib.h>
#include <string.h>

CUresult soft_launch_check_shape(const CUfunction f, const struct soft_record_launch *r)
{
	uint64_t threads = (uint64_t)r->block[0] * r->block[1] * r->block[2];
	const uint32_t *grid = r->grid, *block = r->block;

	if (!grid[0] || !grid[1] || !grid[2] || grid[0] > INT32_MAX || grid[1] > 65535 ||
	    grid[2] > 65535 || block[0] > 1024 || block[1] > 1024 || block[2] > 64 || !threads ||
	    threads > 1024) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (threads > f->max_threads || threads * f->local_bytes > SOFT_BLOCK_BYTES_MAX) {
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	}
	if (r->shared_bytes > f->max_dynamic_shared) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if ((r->flags & SOFT_LAUNCH_COOPERATIVE) &&
	    (uint64_t)grid[0] * grid[1] * grid[2] >
		    (uint64_t)soft_occupancy_blocks(f, (unsigned)threads, r->shared_bytes) *
			    soft.hello.sms) {
		return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
	}
	return CUDA_SUCCESS;
}

/* Copies parameters from the packed buffer in `extra`. */
static CUresult pack_extra(const CUfunction f, void **extra, unsigned char *out)
{
	const void *packed = NULL;
	size_t bytes = 0;

	for (int i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END && i < 8; i += 2) {
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
			packed = extra[i + 1];
		} else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[i + 1]) {
			bytes = *(size_t *)extra[i + 1];
		} else {
			return CUDA_ERROR_INVALID_VALUE;
		}
	}
	if (f->n_params && (!packed || bytes > SOFT_MAX_PARAM_BYTES)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (packed) {
		memcpy(out, packed, MIN(bytes, f->param_bytes));
	}
	return CUDA_SUCCESS;
}

/* Copies parameters from an array of pointers or from a packed buffer. */
static CUresult pack(const CUfunction f, void **params, void **extra, unsigned char *out)
{
	memset(out, 0, f->param_bytes);
	if (!params) {
		return pack_extra(f, extra, out);
	}
	for (uint32_t i = 0; i < f->n_params; i++) {
		if (!params[i]) {
			return CUDA_ERROR_INVALID_VALUE;
		}
		memcpy(out + f->params[i].offset, params[i], f->params[i].bytes);
	}
	return CUDA_SUCCESS;
}

/* Attributes that have no effect here are accepted; those that a program's correctness may depend
 * on are refused. */
CUresult soft_launch_attribute(const CUlaunchAttribute *a, struct soft_record_launch *r)
{
	const CUlaunchAttributeValue *v = &a->value;

	switch ((int)a->id) {
	case CU_LAUNCH_ATTRIBUTE_IGNORE:
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT: /* recorded by record_events */
	case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
	case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		r->flags |= SOFT_LAUNCH_PRIORITY;
		r->priority = MIN(MAX(v->priority, SOFT_PRIORITY_GREATEST), 0);
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		r->flags &= ~SOFT_LAUNCH_COOPERATIVE;
		r->flags |= v->cooperative ? SOFT_LAUNCH_COOPERATIVE : 0;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		return (uint64_t)v->clusterDim.x * v->clusterDim.y * v->clusterDim.z == 1
			       ? CUDA_SUCCESS
			       : CUDA_ERROR_INVALID_CLUSTER_SIZE;
	case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
		return v->deviceUpdatableKernelNode.deviceUpdatable ? CUDA_ERROR_NOT_SUPPORTED
								    : CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult soft_launch_prepare(const CUfunction f, const struct soft_launch_spec *l,
			     struct soft_record_launch *r, unsigned char *params)
{
	CUresult e = CUDA_SUCCESS;

	*r = (struct soft_record_launch){ .r.op = SOFT_OP_LAUNCH,
					  .function = f->id,
					  .shared_bytes = l->shared,
					  .param_bytes = f->param_bytes };
	memcpy(r->grid, l->grid, sizeof(r->grid));
	memcpy(r->block, l->block, sizeof(r->block));
	if ((l->params && l->extra) || (l->n_attrs && !l->attrs)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (unsigned i = 0; i < l->n_attrs && !e; i++) {
		e = soft_launch_attribute(&l->attrs[i], r);
	}
	e = e ? e : soft_launch_check_shape(f, r);
	return e ? e : pack(f, l->params, l->extra, params);
}

/* Adds the launch as a node to the stream's capture. */
static CUresult record(CUstream s, CUfunction h, CUfunction f, const struct soft_launch_spec *l,
		       const struct soft_record_launch *r, const unsigned char *params)
{
	struct soft_work w = { .type = CU_GRAPH_NODE_TYPE_KERNEL, .ctx = f->module->context };
	CUresult e;

	w.kernel.handle = h;
	w.kernel.f = f;
	w.kernel.r = *r;
	e = soft_work_kernel_params(&w, params);
	if (!e && s->priority) { /* a captured kernel keeps the priority of its stream */
		CUlaunchAttribute a = { .id = CU_LAUNCH_ATTRIBUTE_PRIORITY,
					.value.priority = s->priority };

		soft_launch_attribute(&a, &w.kernel.r);
		e = soft_work_store_attribute(&w, &a);
	}
	for (unsigned i = 0; i < l->n_attrs && !e; i++) {
		e = soft_work_store_attribute(&w, &l->attrs[i]);
	}
	if (e) {
		soft_work_finish(&w);
		return e;
	}
	return soft_capture_add(s, &w);
}

/* Records the events that launch attributes name. They complete after the kernel, which may be
 * later than the attribute asks for but never too early. */
static CUresult record_events(CUstream s, const struct soft_launch_spec *l)
{
	CUresult e = CUDA_SUCCESS;

	for (unsigned i = 0; i < l->n_attrs && !e; i++) {
		const CUlaunchAttribute *a = &l->attrs[i];

		if ((int)a->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
			e = soft_event_record(s, a->value.launchCompletionEvent.event, 0);
		} else if ((int)a->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
			e = soft_event_record(s, a->value.programmaticEvent.event, 0);
		}
	}
	return e;
}

/* Restricts a launch in a stream of a green context to its SMs; refuses a cooperative launch that
 * is too large for them. */
static CUresult launch_in_part(const CUfunction f, CUstream s, struct soft_record_launch *r)
{
	unsigned threads = r->block[0] * r->block[1] * r->block[2];

	if (!s->green) {
		return CUDA_SUCCESS;
	}
	r->part = s->green->part;
	return (r->flags & SOFT_LAUNCH_COOPERATIVE) &&
			       (uint64_t)r->grid[0] * r->grid[1] * r->grid[2] >
				       (uint64_t)soft_occupancy_blocks(f, threads,
								       r->shared_bytes) *
					       soft_sm_ranges_count(&s->green->sms)
		       ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
		       : CUDA_SUCCESS;
}

static CUresult launch(int pt, CUfunction h, const struct soft_launch_spec *l, CUstream sh)
{
	unsigned char packed[SOFT_MAX_PARAM_BYTES];
	struct soft_record_launch r;
	bool capturing = false;
	CUfunction f;
	CUstream s;
	CUresult e = soft_stream_resolve(sh, pt, &s);

	e = e ? e : soft_function_resolve(h, &f);
	e = e ? e : soft_launch_prepare(f, l, &r, packed);
	e = e ? e : launch_in_part(f, s, &r);
	e = e ? e : f->module->context == s->context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	e = e ? e : soft_capture_check(s, &capturing);
	if (e) {
		return e;
	}
	if (s->reprioritized && !(r.flags & SOFT_LAUNCH_PRIORITY)) {
		r.flags |= SOFT_LAUNCH_PRIORITY;
		r.priority = s->priority;
	}
	if (!capturing && f->module->references) {
		e = soft_reference_bind(f->module, s);
	}
	if (e) {
		return e;
	}
	e = capturing ? record(s, h, f, l, &r, packed)
		      : soft_ring_submit(s, &r.r, sizeof(r), packed, f->param_bytes, NULL);
	return e || !l->n_attrs ? e : record_events(s, l);
}

static CUresult launch_kernel(int pt, CUfunction f, unsigned gx, unsigned gy, unsigned gz,
			      unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s,
			      void **params, void **extra)
{
	struct soft_launch_spec l = { .grid = { gx, gy, gz },
				      .block = { bx, by, bz },
				      .shared = shared,
				      .params = params,
				      .extra = extra };

	return launch(pt, f, &l, s);
}
SOFT_PAIR(cuLaunchKernel, _ptsz, launch_kernel,
	  (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
	   unsigned int by, unsigned int bz, unsigned int shared, CUstream s, void **params,
	   void **extra),
	  f, gx, gy, gz, bx, by, bz, shared, s, params, extra)

static CUresult launch_ex(int pt, const CUlaunchConfig *c, CUfunction f, void **params,
			  void **extra)
{
	struct soft_launch_spec l;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!c) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	l = (struct soft_launch_spec){ .grid = { c->gridDimX, c->gridDimY, c->gridDimZ },
				       .block = { c->blockDimX, c->blockDimY, c->blockDimZ },
				       .shared = c->sharedMemBytes,
				       .params = params,
				       .extra = extra,
				       .attrs = c->attrs,
				       .n_attrs = c->numAttrs };
	return launch(pt, f, &l, c->hStream);
}
SOFT_PAIR(cuLaunchKernelEx, _ptsz, launch_ex,
	  (const CUlaunchConfig *c, CUfunction f, void **params, void **extra), c, f, params, extra)

static CUresult cooperative(int pt, CUfunction f, unsigned gx, unsigned gy, unsigned gz,
			    unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s,
			    void **params)
{
	CUlaunchAttribute a = { .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1 };
	struct soft_launch_spec l = { .grid = { gx, gy, gz },
				      .block = { bx, by, bz },
				      .shared = shared,
				      .params = params,
				      .attrs = &a,
				      .n_attrs = 1 };

	return launch(pt, f, &l, s);
}
SOFT_PAIR(cuLaunchCooperativeKernel, _ptsz, cooperative,
	  (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
	   unsigned int by, unsigned int bz, unsigned int shared, CUstream s, void **params),
	  f, gx, gy, gz, bx, by, bz, shared, s, params)
