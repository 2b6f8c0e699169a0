/* Translates a node's work into ring records, once; each launch submits them. The host copies
 * memory that the server does not reach, through a staging buffer of the step. */
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "soft/bulk.h"
#include "soft/client/graph/graph_exec.h"
#include "soft/client/memory/copy.h"
#include "soft/client/memory/memory.h"
#include "soft/client/stream/stream_op.h"

#define PIECE_MAX (1u << 20)

static CUresult emit(struct soft_exec_step *st, struct soft_record *r, size_t bytes,
		     const void *more, size_t more_bytes)
{
	static const char zeros[16];

	r->bytes = (uint32_t)ROUND_UP(bytes + more_bytes, 16);
	buf_add(&st->records, r, bytes);
	buf_add(&st->records, more ? more : zeros, more_bytes);
	buf_add(&st->records, zeros, r->bytes - bytes - more_bytes);
	return st->records.failed ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult emit_host(struct soft_exec_step *st, const struct soft_host_call *call)
{
	struct soft_record_host r = { .r.op = SOFT_OP_HOST };
	struct soft_host_call *c = malloc(sizeof(*c));

	if (!c) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*c = *call;
	c->next = st->hosts;
	st->hosts = c;
	store_release(&c->ready, 1u);
	r.cookie = (uint64_t)(uintptr_t)c;
	return emit(st, &r.r, sizeof(r), NULL, 0);
}

static CUresult emit_kernel(CUgraphExec x, struct soft_exec_step *st)
{
	struct soft_record_launch r = st->node->work.kernel.r;

	if (!(x->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)) {
		r.flags &= ~SOFT_LAUNCH_PRIORITY; /* use the priority of the launch's stream */
	}
	return emit(st, &r.r, sizeof(r), st->node->work.kernel.params, r.param_bytes);
}

/* Returns a piece of a copy: whole rows of one slice, or a part of one row. */
static struct soft_copy box(const struct soft_copy *c, uint64_t slice, uint64_t row,
			    uint64_t column)
{
	struct soft_copy b = *c;

	b.width = MIN(c->width - column, PIECE_MAX);
	b.height = b.width == c->width ? MIN(c->height - row, MAX(PIECE_MAX / c->width, 1u)) : 1;
	b.depth = 1;
	b.dst += slice * c->dst_slice + row * c->dst_pitch + column;
	b.src += slice * c->src_slice + row * c->src_pitch + column;
	return b;
}

static CUresult emit_device(struct soft_exec_step *st, const struct soft_copy *b)
{
	struct soft_record_copy r;

	soft_copy_fill(&r, b->dst, b->dst_pitch, b->src, b->src_pitch, b->width, b->height);
	r.bulk = b->width >= SOFT_BULK_MIN_BYTES / b->height;
	return emit(st, &r.r, sizeof(r), NULL, 0);
}

/* Copies a piece through the staging buffer; one side is the program's own memory. up: to the
 * device. */
static CUresult emit_staged(struct soft_exec_step *st, const struct soft_copy *b, bool up)
{
	struct soft_host_call h = { .copy = *b };
	struct soft_copy d = *b;
	CUresult e;

	if (up) {
		h.copy.dst = d.src = st->staging;
		h.copy.dst_pitch = d.src_pitch = b->width;
		e = emit_host(st, &h);
		return e ? e : emit_device(st, &d);
	}
	d.dst = h.copy.src = st->staging;
	d.dst_pitch = h.copy.src_pitch = b->width;
	e = emit_device(st, &d);
	return e ? e : emit_host(st, &h);
}

static CUresult stage(struct soft_exec_step *st, const struct soft_copy *c)
{
	struct soft_range hidden = { .hidden = 1, .kind = SOFT_RANGE_HOST };
	uint64_t bytes =
		c->width >= PIECE_MAX ? PIECE_MAX : MIN(c->width * c->height, (uint64_t)PIECE_MAX);
	CUresult e = soft_memory_create(st->ctx, bytes, &hidden, &st->staging, NULL);

	st->staging_ctx = st->ctx;
	st->staging_ctx_id = st->ctx->id;
	return e;
}

static CUresult emit_copy(struct soft_exec_step *st)
{
	const struct soft_copy *c = &st->node->work.copy.c;
	bool dst = soft_copy_reachable(c, true), src = soft_copy_reachable(c, false);
	CUresult e = CUDA_SUCCESS;

	if (dst && src) {
		for (uint64_t i = 0; i < c->depth && !e; i++) {
			struct soft_copy b = *c;

			b.dst += i * c->dst_slice;
			b.src += i * c->src_slice;
			e = emit_device(st, &b);
		}
		return e;
	}
	if (!dst && !src) {
		struct soft_host_call h = { .copy = *c };

		return emit_host(st, &h);
	}
	e = stage(st, c);
	for (uint64_t i = 0; i < c->depth; i++) {
		for (uint64_t row = 0, column = 0; row < c->height && !e;) {
			struct soft_copy b = box(c, i, row, column);

			e = emit_staged(st, &b, dst);
			column += b.width;
			if (column == c->width) {
				column = 0;
				row += b.height;
			}
		}
	}
	return e;
}

static CUresult emit_values(struct soft_exec_step *st)
{
	const struct soft_work *w = &st->node->work;
	struct soft_record_value r;
	CUresult e = CUDA_SUCCESS;

	for (unsigned i = 0; i < w->values.n && !e; i++) {
		bool none;

		e = soft_stream_op_value(&w->values.ops[i], &r, &none);
		e = e || none ? e : emit(st, &r.r, sizeof(r), NULL, 0);
	}
	return e;
}

CUresult soft_exec_step_emit(CUgraphExec x, struct soft_exec_step *st)
{
	struct soft_host_call h = { 0 };
	struct soft_record_set set;
	CUresult e;

	if (!st->node) {
		return CUDA_SUCCESS;
	}
	switch (st->node->work.type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return emit_kernel(x, st);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return emit_copy(st);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		e = soft_work_memset_record(&st->node->work.set, &set);
		return e ? e : emit(st, &set.r, sizeof(set), NULL, 0);
	case CU_GRAPH_NODE_TYPE_HOST:
		h.fn = st->node->work.host.fn;
		h.user = st->node->work.host.user;
		return emit_host(st, &h);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return emit_values(st);
	default: /* event nodes are resolved at launch; the others only order */
		return CUDA_SUCCESS;
	}
}

void soft_exec_step_clear(struct soft_exec_step *st)
{
	while (st->hosts) {
		struct soft_host_call *c = st->hosts;

		st->hosts = c->next;
		free(c);
	}
	if (st->staging && soft_object_is(st->staging_ctx, SOFT_OBJECT_CONTEXT) &&
	    st->staging_ctx->id == st->staging_ctx_id) {
		soft_memory_delete(st->staging_ctx, st->staging, true);
	}
	st->staging = 0;
	buf_finish(&st->records);
	buf_init(&st->records);
}
