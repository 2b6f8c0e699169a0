/* Streams: an operation starts when it is at the head of its stream and the ordering rules allow
 * it, and is retired when it has ended. Does not execute blocks or large copies. */
#include <stdlib.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "soft/server/connection.h"
#include "soft/server/machine.h"
#include "soft/server/memory/shadow.h"
#include "soft/server/request/ipc_event.h"
#include "soft/server/run/context_group.h"
#include "soft/server/run/kernel_launch.h"
#include "soft/server/run/op_stream.h"
#include "soft/server/memory/device_memory.h"

#define INLINE_BYTES 16384u /* copies up to this size are executed in place */
#define MAX_HOST_CALLS 64u
#define STEPS_AT_ONCE 32 /* operations of one stream in one turn */
#define WAKES_A_STEP 2

struct softd_stream *softd_stream_create(struct softd_client *c, struct softd_group *g,
					 const struct soft_record_stream *r)
{
	struct softd_stream *s = calloc(1, sizeof(*s));

	if (!s) {
		return NULL;
	}
	s->group = g;
	s->slot = r->r.stream;
	s->priority = r->priority > 0 ? 0 : MAX(r->priority, SOFT_PRIORITY_GREATEST);
	s->flags = r->flags;
	s->part = r->part;
	softd_list_init(&s->ops);
	softd_list_append(&g->streams, &s->in_group);
	c->streams[s->slot] = s;
	c->machine->streams++;
	if ((s->flags & SOFT_STREAM_LEGACY) && !s->part) {
		g->legacy = s;
	}
	return s;
}

struct softd_stream *softd_stream_legacy(const struct softd_group *g, uint64_t part)
{
	if (!part) {
		return g->legacy;
	}
	softd_list_each (&g->streams, s, struct softd_stream, in_group) {
		if (s->part == part && (s->flags & SOFT_STREAM_LEGACY)) {
			return s;
		}
	}
	return NULL;
}

void softd_stream_append(struct softd_stream *s, struct softd_op *op)
{
	op->stream = s;
	op->order = s->group->next_order++;
	softd_list_append(&s->ops, &op->in_stream);
	s->group->client->queued++;
	s->group->client->machine->operations++;
	softd_group_touch(s->group);
}

static void op_free(struct softd_op *op) REQUIRES(softd_lock)
{
	if (op->kind == SOFT_OP_LAUNCH) {
		softd_launch_free(op->launch);
	}
	if (op->kind == SOFT_OP_COPY || op->kind == SOFT_OP_SET) {
		softd_copy_release(op);
	}
	if (op->kind == SOFT_OP_VALUE && op->started) {
		op->stream->group->value_polls--;
		op->stream->group->client->machine->value_polls--;
	}
	if (op->kind == SOFT_OP_HOST && op->started) {
		op->stream->group->client->host_calls--;
	}
	if (op->kind == SOFT_OP_SHARED_RECORD) {
		/* reached, or dropped: waiters continue in both cases */
		softd_ipc_event_reached(op->stream->group->client, op->shared.index, op->shared.key,
					op->shared.ticket);
	}
	if ((op->kind == SOFT_OP_SHARED_RECORD || op->kind == SOFT_OP_SHARED_WAIT) &&
	    op->shared.held) {
		softd_ipc_event_unhold(op->stream->group->client, op->shared.index, op->shared.key);
	}
	softd_list_remove(&op->in_copies);
	if (softd_list_empty(&op->stream->group->copies)) {
		softd_list_remove(&op->stream->group->in_copying);
	}
	softd_list_remove(&op->in_stream);
	free(op);
}

void softd_stream_destroy(struct softd_stream *s)
{
	struct softd_group *g = s->group;

	softd_list_each_safe (&s->ops, op, struct softd_op, in_stream) {
		g->client->queued--;
		if (op->kind == SOFT_OP_HOST && op->started) {
			g->client->host_lost[s->slot]++;
		}
		op_free(op);
	}
	softd_list_remove(&s->in_group);
	if (g->legacy == s) {
		g->legacy = NULL;
	}
	g->client->streams[s->slot] = NULL;
	g->client->machine->streams--;
	free(s);
}

void softd_stream_publish(struct softd_client *c, uint32_t slot)
{
	struct soft_stream_word *w = &c->shared->streams[slot];

	store_seqcst(&w->done, ++c->done[slot]);
	if (load_relaxed(&w->waiters)) {
		/* Waking thousands of threads takes long: charge it to this turn's steps. */
		c->machine->steps -= futex_wake_shared(&w->done, INT32_MAX) / WAKES_A_STEP;
	}
}

void softd_op_retire(struct softd_op *op)
{
	struct softd_stream *s = op->stream;
	struct softd_client *c = s->group->client;
	bool destroy = op->kind == SOFT_OP_STREAM_DESTROY;
	uint32_t slot = s->slot;

	for (unsigned i = 0; i < SOFT_MAX_CONTEXTS; i++) {
		/* waits may connect streams of all contexts */
		if (c->groups[i]) {
			softd_group_touch(c->groups[i]);
		}
	}
	c->queued--;
	op_free(op);
	if (destroy) {
		softd_stream_destroy(s);
	}
	softd_stream_publish(c, slot);
}

static bool in_order(const struct softd_stream *s, const struct softd_op *op) REQUIRES(softd_lock)
{
	const struct softd_group *g = s->group;
	const struct softd_stream *legacy;

	if (s->flags & SOFT_STREAM_NON_BLOCKING) {
		return true;
	}
	if (!(s->flags & SOFT_STREAM_LEGACY)) {
		legacy = softd_stream_legacy(g, s->part);
		return !legacy || softd_list_empty(&legacy->ops) ||
		       softd_list_first(&legacy->ops, struct softd_op, in_stream)->order >
			       op->order;
	}
	softd_list_each (&g->streams, t, struct softd_stream, in_group) {
		if (t != s && t->part == s->part && !(t->flags & SOFT_STREAM_NON_BLOCKING) &&
		    !softd_list_empty(&t->ops) &&
		    softd_list_first(&t->ops, struct softd_op, in_stream)->order < op->order) {
			return false;
		}
	}
	return true;
}

static void record_event(struct softd_client *c, const struct softd_op *op)
{
	uint32_t *own = &c->events[op->event.index];

	if ((int32_t)(op->event.count - *own) > 0) {
		/* unless a later record of the event was reached first */
		*own = op->event.count;
		store_release(&c->shared->events[op->event.index].when_ns, clock_now_ns());
	}
}

/* Executes a wait or write of a stream memory operation. Returns true if the wait is satisfied or
 * the write done. Sets *bad if the address is not valid. */
static bool do_value(struct softd_group *g, const struct softd_op *op, bool *bad)
	REQUIRES(softd_lock)
{
	bool write = op->value.mode == SOFT_VALUE_WRITE;
	void *p = softd_memory_at(g->memory, op->value.address, op->value.unit, write ? 2 : 1);
	uint64_t have, want = op->value.value;

	*bad = !p;
	if (!p) {
		return true;
	}
	if (write) {
		softd_shadow_set_initialized(&g->memory->space,
					     op->value.address - g->memory->space.base,
					     op->value.unit);
	}
	if (write && op->value.unit == 4) {
		store_release((uint32_t *)p, (uint32_t)want);
		return true;
	}
	if (write) {
		store_release((uint64_t *)p, want);
		return true;
	}
	have = op->value.unit == 4 ? load_acquire((uint32_t *)p) : load_acquire((uint64_t *)p);
	if (op->value.unit == 4) {
		want = (uint32_t)want;
	}
	switch (op->value.mode) {
	case SOFT_VALUE_GEQ:
		return op->value.unit == 4 ? (int32_t)((uint32_t)have - (uint32_t)want) >= 0
					   : (int64_t)(have - want) >= 0;
	case SOFT_VALUE_EQ:
		return have == want;
	case SOFT_VALUE_AND:
		return (have & want) != 0;
	default:
		return op->value.unit == 4 ? (uint32_t) ~(have | want) != 0 : ~(have | want) != 0;
	}
}

static bool start_host(struct softd_client *c, struct softd_op *op) REQUIRES(softd_lock)
{
	struct soft_notice n = { .op = SOFT_NOTICE_HOST,
				 .stream = op->stream->slot,
				 .cookie = op->host.cookie,
				 .result = op->stream->group->error };

	if (c->host_calls >= MAX_HOST_CALLS) {
		return false;
	}
	c->host_calls++;
	op->started = true;
	softd_client_notice(c, &n, offsetof(struct soft_notice, text));
	return false; /* retired when HOST_DONE arrives */
}

void softd_stream_host_done(struct softd_client *c, uint32_t slot)
{
	struct softd_stream *s = slot < SOFT_MAX_STREAMS ? c->streams[slot] : NULL;
	struct softd_op *op;

	/* The client answers the notices of a slot in order: first those of earlier streams. */
	if (slot < SOFT_MAX_STREAMS && c->host_lost[slot]) {
		c->host_lost[slot]--;
		return;
	}
	if (!s || softd_list_empty(&s->ops)) {
		return;
	}
	op = softd_list_first(&s->ops, struct softd_op, in_stream);
	if (op->kind == SOFT_OP_HOST && op->started) {
		softd_op_retire(op);
	}
}

static bool start_copy(struct softd_group *g, struct softd_op *op) REQUIRES(softd_lock)
{
	if (!softd_copy_check(op)) {
		softd_group_fail(g, CUDA_ERROR_ILLEGAL_ADDRESS,
				 "a copy or memset reaches outside valid memory");
		return false;
	}
	if (op->copy.width * op->copy.height <= INLINE_BYTES &&
	    !softd_copies_paced(g->client->machine)) {
		uint64_t bytes;

		softd_copy_step(op, INLINE_BYTES, &bytes);
		g->client->machine->steps -= (int)(bytes / 1024);
		g->counters.bytes_copied += bytes;
		return true;
	}
	op->started = true;
	softd_copy_submit(op);
	return false;
}

static bool start_value(struct softd_group *g, struct softd_op *op) REQUIRES(softd_lock)
{
	bool bad, done = do_value(g, op, &bad);

	if (bad) {
		softd_group_fail(g, CUDA_ERROR_ILLEGAL_ADDRESS,
				 "a stream memory operation reaches outside valid memory");
		return false;
	}
	if (!done && !op->started) {
		op->started = true;
		g->value_polls++;
		g->client->machine->value_polls++;
	}
	return done;
}

/* Starts the operation at the head of a stream. Returns true if it has ended already. */
static bool start(struct softd_group *g, struct softd_op *op) REQUIRES(softd_lock)
{
	struct softd_client *c = g->client;

	switch (op->kind) {
	case SOFT_OP_LAUNCH:
		op->started = true;
		softd_launch_submit(op->launch, op->stream->priority);
		return false;
	case SOFT_OP_COPY:
	case SOFT_OP_SET:
		return start_copy(g, op);
	case SOFT_OP_RECORD:
		record_event(c, op);
		return true;
	case SOFT_OP_WAIT:
		return (int32_t)(c->done[op->wait.slot] - op->wait.target) >= 0;
	case SOFT_OP_HOST:
		return start_host(c, op);
	case SOFT_OP_FREE:
		if (softd_memory_free(g->memory, c->machine, op->value.address) < 0) {
			softd_group_fail(g, CUDA_ERROR_ILLEGAL_ADDRESS,
					 "free of an address that is not allocated");
			return false;
		}
		return true;
	case SOFT_OP_VALUE:
		return start_value(g, op);
	case SOFT_OP_SHARED_WAIT:
		return !op->shared.held ||
		       softd_ipc_event_passed(c, op->shared.index, op->shared.key,
					      op->shared.ticket);
	default:
		return true;
	}
}

/* Advances one stream as far as possible. After an error operations are retired without effect,
 * except that host functions still run. */
static void stream_progress(struct softd_group *g, struct softd_stream *s) REQUIRES(softd_lock)
{
	for (int done = 0; !softd_list_empty(&s->ops); done++) {
		struct softd_op *op = softd_list_first(&s->ops, struct softd_op, in_stream);
		bool last = op->kind == SOFT_OP_STREAM_DESTROY, host = op->kind == SOFT_OP_HOST;

		if (done == STEPS_AT_ONCE || --g->client->machine->steps < 0) {
			softd_group_touch(g);
			return;
		}

		if (op->started && op->kind != SOFT_OP_VALUE) {
			return;
		}
		if (g->error && !host) {
			softd_op_retire(op);
		} else if (!in_order(s, op) || !start(g, op)) {
			if (!g->error || host) {
				return;
			}
			/* The operation failed the group, which may have retired it already: op is
			 * dangling. The loop reads the list again. */
			continue;
		} else {
			softd_op_retire(op);
		}
		if (last) {
			return;
		}
	}
}

void softd_group_progress(struct softd_group *g)
{
	/* A group that stays dirty has retired operations; it continues in the next turn. */
	for (int passes = 0; g->dirty && (g->enabled || g->error) && passes < 4; passes++) {
		g->dirty = false;
		softd_list_each_safe (&g->streams, s, struct softd_stream, in_group) {
			stream_progress(g, s);
		}
	}
}
