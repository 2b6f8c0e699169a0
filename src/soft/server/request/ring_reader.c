/* Turns records of a client's ring into operations of streams. Each record is copied once; only the
 * copy is validated and used. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "soft/bulk.h"
#include "soft/server/connection.h"
#include "soft/server/request/ipc_event.h"
#include "soft/server/request/record_check.h"
#include "soft/server/run/context_group.h"
#include "soft/server/run/kernel_launch.h"
#include "soft/server/run/op_stream.h"

#define TAKE_AT_ONCE 128 /* records of one client in one turn */
#define WAKE_AT_ONCE 128 /* threads woken when room appears; the others time out and look again */

static int make_stream(struct softd_client *c, struct softd_group *g, const union softd_record *r)
	REQUIRES(softd_lock)
{
	const struct soft_record_stream *s = &r->stream;

	if (c->streams[r->r.stream] || s->flags > (SOFT_STREAM_NON_BLOCKING | SOFT_STREAM_LEGACY) ||
	    ((s->flags & SOFT_STREAM_LEGACY) && softd_stream_legacy(g, s->part))) {
		return -EPROTO;
	}
	return softd_stream_create(c, g, s) ? 0 : -ENOMEM;
}

static void fill_copy(struct softd_op *op, const struct soft_record_copy *r)
{
	op->copy.dst = r->dst;
	op->copy.src = r->src;
	op->copy.dst_pitch = r->height > 1 ? r->dst_pitch : r->width;
	op->copy.src_pitch = r->height > 1 ? r->src_pitch : r->width;
	op->copy.width = r->width;
	op->copy.height = r->height;
	op->copy.bulk = r->bulk || r->width >= SOFT_BULK_MIN_BYTES / r->height;
}

static void fill_set(struct softd_op *op, const struct soft_record_set *r)
{
	op->copy.dst = r->dst;
	op->copy.width = r->width * r->unit;
	op->copy.height = r->height;
	op->copy.dst_pitch = r->height > 1 ? r->pitch : op->copy.width;
	op->copy.value = r->value;
	op->copy.unit = r->unit;
}

static int fill(struct softd_client *c, struct softd_group *g, struct softd_op *op,
		const union softd_record *r) REQUIRES(softd_lock)
{
	switch (op->kind) {
	case SOFT_OP_LAUNCH:
		op->launch = softd_launch_create(c, g, &r->launch);
		if (!op->launch) {
			return -EINVAL;
		}
		op->launch->op = op;
		return 0;
	case SOFT_OP_COPY:
		fill_copy(op, &r->copy);
		return 0;
	case SOFT_OP_SET:
		fill_set(op, &r->set);
		return 0;
	case SOFT_OP_RECORD:
		op->event.index = r->event.event;
		op->event.count = r->event.count;
		return 0;
	case SOFT_OP_WAIT:
		op->wait.slot = r->wait.stream;
		op->wait.target = r->wait.target;
		return 0;
	case SOFT_OP_HOST:
		op->host.cookie = r->host.cookie;
		return 0;
	case SOFT_OP_FREE:
		op->value.address = r->free.address;
		return 0;
	case SOFT_OP_VALUE:
		op->value.address = r->value.address;
		op->value.value = r->value.value;
		op->value.unit = r->value.unit;
		op->value.mode = r->value.mode;
		return 0;
	case SOFT_OP_SHARED_RECORD:
	case SOFT_OP_SHARED_WAIT:
		op->shared.key = r->shared.key;
		op->shared.index = r->shared.index;
		op->shared.ticket = r->shared.ticket;
		op->shared.held = softd_ipc_event_hold(c, r->shared.index, r->shared.key);
		return 0;
	default:
		return 0;
	}
}

/* Returns true for operations whose completion some thread may await even after an error. */
static bool must_complete(uint16_t kind)
{
	return kind == SOFT_OP_STREAM_DESTROY || kind == SOFT_OP_HOST ||
	       kind == SOFT_OP_SHARED_RECORD;
}

/* Returns the context of a record; NULL: it has been destroyed, or is being destroyed and does not
 * have the stream. Records for a stream that it still has are queued there, so that the stream ends
 * before its slot is used again. The record has been taken. */
static struct softd_group *group_of(const struct softd_client *c, const struct soft_record *r)
{
	struct softd_group *g = c->taken > c->begins[r->context] ? c->groups[r->context] : NULL;
	const struct softd_stream *s = c->streams[r->stream];

	return g && g->dead && (!s || s->group != g) ? NULL : g;
}

static int take(struct softd_client *c, const union softd_record *r) REQUIRES(softd_lock)
{
	struct softd_group *g;
	struct softd_stream *s;
	struct softd_op *op;
	int err;

	if (r->r.op == SOFT_OP_PAD) { /* its other fields have not been checked */
		return 0;
	}
	g = group_of(c, &r->r);
	if (!g) {
		if (r->r.op == SOFT_OP_SHARED_RECORD) {
			softd_ipc_event_reached(c, r->shared.index, r->shared.key,
						r->shared.ticket);
		}
		softd_stream_publish(c, r->r.stream);
		return 0;
	}
	if (r->r.op == SOFT_OP_STREAM_CREATE) {
		err = make_stream(c, g, r);
		if (err) {
			return err;
		}
	}
	s = c->streams[r->r.stream];
	if (!s || s->group != g) {
		return -EPROTO;
	}
	op = calloc(1, sizeof(*op));
	if (!op) {
		return -ENOMEM;
	}
	op->kind = r->r.op;
	softd_list_init(&op->in_stream);
	softd_list_init(&op->in_copies);
	/* After an error no object is looked up any more: the operation only needs to be counted.
	 */
	if (g->error) {
		op->kind = must_complete(r->r.op) ? r->r.op : SOFT_OP_PAD;
	}
	if (fill(c, g, op, r) < 0) {
		/* A missing object is the context's fault, not a protocol violation. */
		op->kind = SOFT_OP_PAD;
		softd_group_fail(g, CUDA_ERROR_INVALID_HANDLE,
				 "a launch names a function that is not loaded");
	}
	softd_stream_append(s, op);
	return 0;
}

static int take_one(struct softd_client *c, uint32_t available) REQUIRES(softd_lock)
{
	uint32_t at = c->tail % SOFT_RING_BYTES, to_end = SOFT_RING_BYTES - at;
	static union softd_record r GUARDED_BY(softd_lock);

	if (available < sizeof(r.r)) {
		return -EPROTO;
	}
	memcpy(&r, c->shared->ring + at, sizeof(r.r));
	compiler_barrier();
	if (softd_record_header_check(&r.r, available, to_end) < 0) {
		return -EPROTO;
	}
	if (r.r.op != SOFT_OP_PAD) {
		memcpy(r.bytes + sizeof(r.r), c->shared->ring + at + sizeof(r.r),
		       r.r.bytes - sizeof(r.r));
		compiler_barrier();
		if (softd_record_check(&r) < 0) {
			return -EPROTO;
		}
	}
	c->tail += r.r.bytes;
	c->taken += r.r.bytes;
	return take(c, &r);
}

static bool full(const struct softd_client *c)
{
	return c->queued >= SOFT_MAX_QUEUED || c->queued_bytes >= SOFT_MAX_QUEUED_BYTES;
}

int softd_ring_read(struct softd_client *c, bool *any)
{
	uint32_t head = load_acquire(&c->shared->head), before = c->tail;
	int err = 0, taken = 0;

	/* A client that filled its queue continues only when half is free: otherwise it would be
	 * woken for every record. */
	if (c->stalled &&
	    (c->queued > SOFT_MAX_QUEUED / 2 || c->queued_bytes > SOFT_MAX_QUEUED_BYTES / 2)) {
		return 0;
	}
	while (head != c->tail && !full(c) && taken++ < TAKE_AT_ONCE && !err) {
		if (head - c->tail > SOFT_RING_BYTES) {
			return -EPROTO;
		}
		err = take_one(c, head - c->tail);
	}
	c->stalled = full(c);
	if (c->tail != before) {
		*any = true;
		softd_ipc_event_ring_read(c);
		store_seqcst(&c->shared->tail, c->tail);
		if (load_relaxed(&c->shared->room_waiters)) {
			futex_wake_shared(&c->shared->tail, WAKE_AT_ONCE);
		}
	}
	return err;
}
