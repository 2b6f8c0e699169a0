/* The gate: the path of every stream-ordered call while a policy is in force or calls are deferred.
 * The scheduler decides about launches. A call that must wait behind a deferred one is copied and
 * deferred as well (call_copy.c); one that cannot be copied waits here, so that no call overtakes
 * another on its stream. In this file only submit() may begin and end tickets. */
#include "shim/entry/gate.h"

#include "shim/capture_state.h"
#include "shim/defer/block_launch.h"
#include "shim/defer/call_copy.h"
#include "shim/defer/hostfn.h"
#include "shim/object/event_uses.h"
#include "shim/object/interprocess.h"
#include "shim/object/queue_drain.h"
#include "shim/probe/shim_probe.h"

static CUstream stream_of(const struct shim_call *c, const uint64_t *a)
{
	return c->stream < 0 ? NULL : (CUstream)(uintptr_t)a[c->stream];
}

static CUevent event_of(const struct shim_call *c, const uint64_t *a)
{
	return c->copy_rule == SHIM_COPY_RECORD || c->copy_rule == SHIM_COPY_AWAIT
		       ? (CUevent)(uintptr_t)a[c->copy_arg[0]]
		       : NULL;
}

/* An await depends on the latest preceding record; a record must follow all earlier awaits. So an
 * await conflicts with other queues' deferred records, a record with any deferred use. */
static enum shim_event_use in_the_way(const struct shim_call *c)
{
	return c->copy_rule == SHIM_COPY_AWAIT ? SHIM_EVENT_RECORD : SHIM_EVENT_AWAIT;
}

/* Returns true if the call is ordered, through the legacy default stream, behind a deferred call,
 * so that it must be deferred as well, or wait. Only called while shim_pending(). An unfinished run
 * counts as one deferred call. It is read before and after the count: if the run is the same and
 * the count is 1, this queue's own run was all that was pending when the count was read. Pairs with
 * shim_block_note_unfinished(), which increments the count before it publishes the run. */
static NOINLINE bool behind_siblings(struct shim_queue *q)
{
	uint32_t seen = shim_block_unfinished(&q->dev);

	if (seen && load_acquire(&shim.deferred) == 1 && shim_block_unfinished(&q->dev) == seen) {
		return false; /* only this queue's own run */
	}
	return q->blocking && shim_queue_sibling_deferred(q);
}

/* A synchronous peer copy waits for all work on both devices, not only for the work of its own
 * stream. */
static bool is_peer_copy(const struct shim_call *c)
{
	switch (c->index) {
	case CUABI_IDX_cuMemcpyPeer:
	case CUABI_IDX_cuMemcpyPeer_ptds:
	case CUABI_IDX_cuMemcpy3DPeer:
	case CUABI_IDX_cuMemcpy3DPeer_ptds:
		return true;
	default:
		return false;
	}
}

/* Handles SCHED_DEFER. Returns true if a copy of the launch is deferred; false if the work that it
 * is ordered behind has been drained instead, so that it can begin again. */
static NOINLINE bool deferred(struct shim_queue *q, const struct shim_call *c, uint64_t *a,
			      struct shim_launch *l, bool capture)
{
	struct sched_launch *r = &l->record;
	/* During a capture no launch is held, but a launch behind deferred calls can be deferred on
	 * a stream that the agent can name. */
	bool may_defer = capture ? q->kind == SHIM_QUEUE_CREATED : r->may_hold;

	if (may_defer && shim_call_defer(q, c, a, l)) {
		return true;
	}
	if (r->behind) {
		r->behind = false;
		shim_queue_drain_siblings(q);
		if (r->may_hold) { /* the policy has not been asked about it yet */
			return false;
		}
	}
	shim_queue_drain(q);
	r->may_hold = false;
	return false;
}

/* Launches the preemptible clone. Returns false if the driver refuses it: the ticket is aborted,
 * and the launch begins again without the block level, so that the caller gets the driver's answer
 * for the kernel itself. */
static NOINLINE bool launched_clone(struct sched_ticket *ticket, struct shim_queue *q,
				    const struct shim_call *c, uint64_t *a, struct shim_launch *l,
				    CUresult *ret)
{
	*ret = shim_block_launch(q, l);
	if (*ret == CUDA_ERROR_NOT_SUPPORTED) { /* the queue has no unfinished run */
		*ret = shim_launch_issue(l, c, a);
	} else if (*ret != CUDA_SUCCESS) {
		sched_ticket_abort(ticket);
		shim_queue_drain(q);
		l->record.may_hold = l->record.block_ok = false;
		return false;
	}
	return true;
}

/* Returns what the launch runs at block level, NULL: it must run as a whole. */
static struct shim_clone *clone_of(const struct shim_launch *l)
{
	unsigned has = l->own_clone->code ? SHIM_HAS_CLONE | SHIM_HAS_STUB : SHIM_HAS_CLONE;
	struct shim_form_choice c;

	c = shim_form_choose(true, l->form, l->form ? has | shim_probe_has(l->form) : has);
	return !c.stops ? NULL : c.probed ? shim_probe_clone(l->form) : l->own_clone;
}

/* Decides whether this launch of a function with a clone or an entry stub may run at block level. q
 * NULL: its stream captures. */
static NOINLINE void check_block(const struct shim_queue *q, struct shim_launch *l)
{
	struct shim_clone *t = NULL;
	enum proto_block_why why = PROTO_BLOCK_CAPTURE;
	bool captures = !q || shim_capture_any();

	if (!l->call.config && l->record.flags & GBPF_F_COOPERATIVE) {
		shim_block_note_reason(l, PROTO_BLOCK_COOPERATIVE);
		return;
	}
	if (!captures) {
		l->form = l->form ? l->form : shim_probe_hold(&l->call, q->dev.ctx);
		l->smem = l->form ? shim_probe_smem(l->form, &l->call) : l->smem;
		t = clone_of(l);
		why = t ? shim_block_attributes(l, t) : PROTO_BLOCK_PROBED;
	}
	if (why != PROTO_BLOCK_OK) {
		shim_block_note_reason(l, why);
		return;
	}
	shim_block_check(l, t);
}

/* Fills what only a launch that the policy is asked about needs. */
static void complete(struct shim_queue *q, struct shim_launch *l)
{
	struct sched_launch *r = &l->record;

	if (shim_launch_may_stop(l)) {
		check_block(q, l);
	}
	r->block_ok = r->block_ok && r->may_hold;
	if (unlikely(q->owner && r->block_ok)) { /* the agent could not launch missing blocks */
		shim_block_refuse(l, PROTO_BLOCK_THREAD);
	}
	r->unprepared = r->block_ok && !load_relaxed(&q->block.prepared);
}

/* Submits a launch on a queue: the only function that begins and ends tickets. Each answer except
 * SCHED_GO changes the launch's properties and makes it begin again, at most once for each reason.
 */
static CUresult submit(struct shim_thread *t, struct shim_queue *q, const struct shim_call *c,
		       uint64_t *a, struct shim_launch *l, bool capture)
{
	struct sched_launch *record = &l->record;
	struct sched_ticket ticket;
	CUresult r;

	/* During a capture a launch is counted but not held, since the capturing thread may wait
	 * for it. */
	record->may_hold = !t->host_function && !capture;
	record->granted = sched_granted(q->sched, record);
	if (!record->granted) {
		complete(q, l);
	}
	if (unlikely(shim_pending())) {
		if (c->blocking && !capture && is_peer_copy(c)) {
			shim_drain_all();
		}
		record->behind = behind_siblings(q) || (capture && sched_queue_deferred(q->sched));
	}
	for (;;) {
		enum sched_answer answer = sched_ticket_begin(&ticket, q->sched, record);

		if (likely(answer == SCHED_GO)) {
			r = shim_launch_issue(l, c, a);
			shim_queue_count_brackets(q, l->call.brackets);
			break;
		}
		if (answer == SCHED_GO_BLOCK && launched_clone(&ticket, q, c, a, l, &r)) {
			break;
		}
		if (answer == SCHED_ASK) {
			complete(q, l);
		} else if (answer == SCHED_PREPARE) {
			record->unprepared = false;
			shim_block_prepare_queue(q);
		} else if (answer == SCHED_DEFER && deferred(q, c, a, l, capture)) {
			return CUDA_SUCCESS;
		}
	}
	if (likely(r == CUDA_SUCCESS)) {
		sched_ticket_commit(&ticket);
		if (unlikely(c->drains)) {
			sched_synced(shim.sched, q->sched);
		}
	} else {
		sched_ticket_abort(&ticket);
	}
	return r;
}

CUresult shim_gate_submit(const struct shim_call *c, uint64_t *a, struct shim_launch *l)
{
	struct shim_thread *t = shim_thread_self();
	struct shim_queue *q;
	CUresult r;

	if (shim_capture_any() && shim_capture_has(l->call.stream, c->per_thread)) {
		if (shim_launch_may_stop(l)) {
			check_block(NULL, l); /* for the reason in `gbpf ps --why` */
		}
		return shim_launch_issue(l, c, a);
	}
	q = t ? shim_queue_of(t, l->call.stream, c->per_thread) : NULL;
	if (!q) {
		return shim_launch_issue(l, c, a);
	}
	r = submit(t, q, c, a, l, shim_capture_any());
	if (unlikely(l->form != NULL)) {
		shim_probe_release(l->form);
	}
	return r;
}

CUresult shim_gate_launch(const struct shim_call *c, uint64_t *a, uint64_t bytes)
{
	struct shim_launch l;
	CUresult r;

	shim_launch_init(&l, c->kind, stream_of(c, a));
	l.record.bytes = bytes;
	if (c->kind == GBPF_KIND_HOST &&
	    !(shim_capture_any() && shim_capture_has(l.call.stream, c->per_thread))) {
		struct shim_hostfn *h = shim_hostfn_wrap(c, a);

		r = shim_gate_submit(c, a, &l);
		if (r != CUDA_SUCCESS) {
			shim_hostfn_release(h);
		}
		return r;
	}
	return shim_gate_submit(c, a, &l);
}

/* An allocation may overtake earlier work in the stream, which cannot know the memory yet. But a
 * deferred free may be what makes room. */
static CUresult allocate(struct shim_queue *q, const struct shim_call *c, uint64_t *a)
{
	CUresult r = c->run(a);

	if (r == CUDA_ERROR_OUT_OF_MEMORY) {
		shim_queue_drain(q);
		r = c->run(a);
	}
	return r;
}

/* Records an event at once behind an unfinished run, which records it again if it is stopped.
 * Returns false if the event cannot join the run. */
static bool record_joins(struct shim_queue *q, const struct shim_call *c, const uint64_t *a,
			 CUresult *ret)
{
	CUevent event = (CUevent)(uintptr_t)a[c->copy_arg[0]];
	bool flags = c->nargs > 2 && a[2];
	struct shim_event_call e;

	if (c->copy_rule != SHIM_COPY_RECORD || !shim_block_unfinished(&q->dev) || !event ||
	    flags || shim_capture_any() || q->owner || shim_interprocess_event(event) ||
	    !shim_event_defer(&e, event, q, SHIM_EVENT_RECORD)) {
		return false;
	}
	if (!sched_run_join(q->sched)) {
		shim_event_submitted(&e);
		return false;
	}
	(void)shim_event_enqueued(&e);
	*ret = shim_event_record(&e);
	sched_run_joined(q->sched);
	return true;
}

/* Returns true if the call completes only when memory is written, possibly by a deferred call of
 * another stream. That call could not get past this one on a hardware channel that both streams
 * share. */
static bool waits_for_memory(const struct shim_call *c)
{
	switch (c->index) {
	case CUABI_IDX_cuStreamWaitValue32:
	case CUABI_IDX_cuStreamWaitValue32_ptsz:
	case CUABI_IDX_cuStreamWaitValue32_v2:
	case CUABI_IDX_cuStreamWaitValue32_v2_ptsz:
	case CUABI_IDX_cuStreamWaitValue64:
	case CUABI_IDX_cuStreamWaitValue64_ptsz:
	case CUABI_IDX_cuStreamWaitValue64_v2:
	case CUABI_IDX_cuStreamWaitValue64_v2_ptsz:
	case CUABI_IDX_cuStreamBatchMemOp:
	case CUABI_IDX_cuStreamBatchMemOp_ptsz:
	case CUABI_IDX_cuStreamBatchMemOp_v2:
	case CUABI_IDX_cuStreamBatchMemOp_v2_ptsz:
		return true;
	default:
		return false;
	}
}

/* Submits a call that is ordered but no launch. Where possible the caller is not blocked on work
 * that may depend on its next calls: if other queues have deferred conflicting uses of the call's
 * event, the call waits for them in its queue. */
static CUresult order_on(struct shim_queue *q, const struct shim_call *c, uint64_t *a)
{
	CUevent event = event_of(c, a);
	struct shim_launch l;
	CUresult r;
	bool behind = behind_siblings(q), later;

	if (waits_for_memory(c)) {
		sched_drain_others(shim.sched, q->sched);
	}
	if (c->copy_rule == SHIM_COPY_AWAIT && shim_capture_any()) {
		/* The event may belong to the capture, in which case the stream joins the capture
		 * with this call. */
		shim_event_drain(event, in_the_way(c), q);
		shim_queue_drain_siblings(q);
		shim_queue_drain(q);
		return c->run(a);
	}
	later = behind || (event && shim_event_used(event, in_the_way(c), q));
	if (!later && record_joins(q, c, a, &r)) {
		return r;
	}
	if (later || sched_queue_deferred(q->sched)) {
		shim_launch_init(&l, GBPF_KIND_OTHER, stream_of(c, a));
		if (shim_call_defer(q, c, a, &l)) {
			return CUDA_SUCCESS;
		}
		shim_event_drain(event, in_the_way(c), q);
		shim_queue_drain_siblings(q);
		shim_queue_drain(q);
	}
	return c->run(a);
}

CUresult shim_gate_order(const struct shim_call *c, uint64_t *a)
{
	CUstream stream = stream_of(c, a);
	struct shim_thread *t;
	struct shim_queue *q;

	if (likely(!shim_pending())) {
		return c->run(a);
	}
	if (shim_capture_any() && shim_capture_has(stream, c->per_thread)) {
		/* Deferred uses of the event refer to the preceding record. */
		shim_event_drain(c->copy_rule == SHIM_COPY_RECORD ? event_of(c, a) : NULL,
				 SHIM_EVENT_AWAIT, NULL);
		return c->run(a);
	}
	t = shim_thread_self();
	q = t ? shim_queue_of(t, stream, c->per_thread) : NULL;
	if (q && c->copy_rule == SHIM_COPY_EARLY) {
		return allocate(q, c, a);
	}
	return q ? order_on(q, c, a) : c->run(a);
}
