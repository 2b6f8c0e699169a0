/* The swap: PREPARE to every session, a wait until all have answered or 50 ms, one store for each
 * GPU (the flip), DROP of versions no longer used, and the answer when the state is on disk. Before
 * the flip no process has changed its policy. */
#include "daemon/policy/policies_int.h"

#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/point.h"
#include "daemon/consts.h"
#include "daemon/policy/daemon_hooks.h"
#include "daemon/policy/policy_failures.h"

#define SLICE_NS 1000000u

static unsigned count_late(struct daemon *d)
{
	unsigned n = 0;

	daemon_session_each(d, s)
	{
		n += s->state == DAEMON_SESSION_READY && !s->dying && s->policy.awaited_ack &&
		     s->policy.prepares_acked < s->policy.awaited_ack;
	}
	return n;
}

static uint64_t longest_stall(struct daemon *d)
{
	uint64_t stall = 0;

	daemon_session_each(d, s)
	{
		if (s->stats.map) {
			uint64_t v =
				load_relaxed(&((struct proto_stats *)s->stats.map)->swap_stall_ns);

			stall = MAX(stall, v);
		}
	}
	return stall;
}

/* Returns true if a restart of gbpfd leads to what the operation has done. */
static bool is_stored(const struct daemon_policy_op *q)
{
	return !q->o.is_volatile && (q->durable || !q->store_err);
}

/* Adds how long the operation took from the request to the flip, and of that: the verification, the
 * wait for a verifier and for other operations, and the swap itself. */
static void add_times(const struct daemon_policy_op *q, json_t *r)
{
	const struct daemon_policy_times *t = &q->times;
	uint64_t total = t->flip_ns - t->submit_ns, verify = t->verify_end_ns - t->verify_begin_ns,
		 swap = t->flip_ns - t->start_ns;

	json_object_set_new(r, "total_ns", json_integer((json_int_t)total));
	json_object_set_new(r, "verify_ns", json_integer((json_int_t)verify));
	json_object_set_new(r, "queued_ns", json_integer((json_int_t)(total - verify - swap)));
	json_object_set_new(r, "swap_ns", json_integer((json_int_t)swap));
	json_object_set_new(r, "verified_before",
			    json_boolean(!t->verify_end_ns || q->was_verified));
}

static json_t *result_json(struct daemon_policy_op *q)
{
	struct daemon *d = q->d;
	const struct daemon_stored_version *v =
		daemon_store_find(&d->policies->store, q->o.version);
	json_t *hooks = v ? json_object_get(v->meta, "hooks") : NULL, *r;

	if (q->o.op == DAEMON_POLICY_UNLOAD) {
		return json_pack("{s:I,s:s,s:b}", "version", (json_int_t)q->was_active, "name",
				 q->name, "stored", (int)is_stored(q));
	}
	r = json_pack("{s:I,s:s,s:I,s:I,s:I,s:i,s:i,s:i,s:b,s:b,s:i,s:I}", "version",
		      (json_int_t)q->o.version, "name", q->name, "stall_ns",
		      (json_int_t)longest_stall(d), "flip_ns", (json_int_t)q->flip_ns, "waited_ns",
		      (json_int_t)q->waited_ns, "acked", (int)q->acked, "late",
		      (int)(q->asked - q->acked - q->failed), "failed", (int)q->failed, "stored",
		      (int)is_stored(q), "volatile", (int)q->o.is_volatile, "rejoined",
		      (int)q->rejoined, "rejoin_ns", (json_int_t)q->rejoin_ns);
	if (r) {
		json_object_set(r, "hooks", hooks);
		add_times(q, r);
	}
	if (r && q->kept) {
		json_object_set(r, "maps", q->kept);
		json_object_set_new(r, "copy_ns", json_integer((json_int_t)q->copy_ns));
	}
	return r;
}

static void on_saved(struct daemon_job *j)
{
	struct daemon_policy_op *q = (struct daemon_policy_op *)j;
	struct daemon *d = q->d;
	json_t *result;

	if (q->store_err) {
		if (!q->durable) {
			daemon_history_add(&d->history, "store", -1,
					   "%s of '%s' took effect, but will not survive a restart "
					   "of gbpfd: %s",
					   daemon_policy_op_name(q), q->name,
					   strerror(-q->store_err));
		}
		log_warn("cannot write to %s: %s", q->dir, strerror(-q->store_err));
	}
	POINT("daemon.swap.saved");
	result = result_json(q);
	daemon_policy_op_finish(q);
	if (q->o.reply) {
		q->o.reply(d, q->o.conn, q->o.id, result, &q->report, 1);
	}
	POINT("daemon.swap.answered");
	json_decref(result);
	daemon_policy_op_free(q);
	daemon_policy_ops_next(d);
}

void daemon_policy_op_drop(struct daemon_job *j)
{
	(void)j; /* stays in the queue, which daemon_policies_close() empties */
}

static void save(struct daemon_policy_op *q)
{
	q->state_text = daemon_store_state_text(&q->d->policies->store);
	q->job = (struct daemon_job){ .work = daemon_policy_op_save_state,
				      .done = on_saved,
				      .drop = daemon_policy_op_drop };
	daemon_job_thread_submit(&q->d->worker, &q->job);
}

/* ---- the flip ---- */

static uint32_t exit_reason(const struct daemon_policy_op *q)
{
	switch (q->o.op) {
	case DAEMON_POLICY_UNLOAD:
		return GBPF_EXIT_UNLOAD;
	case DAEMON_POLICY_ACTIVATE:
		return GBPF_EXIT_ROLLBACK;
	default:
		return GBPF_EXIT_SWAP;
	}
}

void daemon_swap_not_pending(struct daemon_policies *p)
{
	p->pending = 0;
	for (struct daemon_version *l = p->live_versions; l; l = l->next) {
		l->pending = false;
	}
}

static void activated(struct daemon *d, uint64_t version, uint32_t gpus)
{
	if (!version) {
		return;
	}
	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		struct daemon_version *l = daemon_version_on(d, version, i);

		if (gpus & 1u << i && l) {
			l->activated = true;
		} else if (gpus & 1u << i && d->devices.d[i].used) {
			daemon_policy_add_gpu(d, i); /* with the memory that takes long */
		}
	}
	daemon_store_ended(&d->policies->store, version, "");
}

/* Returns the version that the operation makes the active one; 0: none. */
static uint64_t version_of(const struct daemon_policy_op *q)
{
	return q->o.op == DAEMON_POLICY_UNLOAD ? 0 : q->o.version;
}

/* Counts the answers of running processes; others may have answered before they exited. */
static void count_answers(struct daemon_policy_op *q)
{
	q->waited_ns = q->waited_ns ? q->waited_ns : clock_now_ns() - q->prepare_begin_ns;
	q->asked = q->acked = q->failed = 0;
	daemon_session_each(q->d, s)
	{
		bool answered =
			s->policy.awaited_ack && s->policy.prepares_acked >= s->policy.awaited_ack;

		q->asked += s->policy.awaited_ack != 0;
		q->acked += answered && !s->policy.cannot_run;
		q->failed += answered && s->policy.cannot_run;
		s->policy.awaited_ack = 0;
	}
}

/* From here on processes run the version. */
static void store_words(struct daemon_policy_op *q)
{
	struct proto_directory *dir = daemon_directory(q->d);
	uint64_t begin;

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		q->old[i] = daemon_policy_active_version(q->d, i);
	}
	begin = clock_now_ns();
	for (int i = 0; i < (int)PROTO_MAX_GPUS; i++) {
		if (q->o.gpu_mask & 1u << i) {
			store_seqcst(&dir->version[i], version_of(q));
			POINT("daemon.swap.word");
		}
	}
	q->times.flip_ns = clock_now_ns();
	q->flip_ns = q->times.flip_ns - begin;
}

/* Records the version in the store, which save() writes, and which operation is in force. */
static void note_in_store(struct daemon_policy_op *q)
{
	struct daemon_policies *p = q->d->policies;

	if (q->o.by_watch) { /* must not come back with a plain rollback */
		daemon_store_reject(&p->store, q->o.watched);
	}
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		if (q->o.gpu_mask & 1u << i) {
			daemon_store_activate(&p->store, i, version_of(q));
			p->in_force[i] = q->o.reply && !q->o.by_watch ? q->number : p->in_force[i];
		}
	}
	if (!q->o.is_volatile) {
		daemon_durable_keep(q, version_of(q));
	}
	daemon_durable_keep_watch(q);
}

static void put_in_force(struct daemon_policy_op *q)
{
	struct daemon *d = q->d;

	daemon_swap_not_pending(d->policies);
	d->policies->timer = sd_event_source_disable_unref(d->policies->timer);
	activated(d, version_of(q), q->o.gpu_mask);
	daemon_rejoin_apply(d, version_of(q));
	d->counters.swaps++;
}

static void record_swap(struct daemon_policy_op *q)
{
	uint64_t version = version_of(q);
	char ready[96] = "";

	/* After versions_changed(): the watch of this swap counts its processes. */
	q->d->counters.late += q->asked - q->acked - q->failed;
	q->d->counters.failed_prepares += q->failed;
	if (q->asked) {
		snprintf(ready, sizeof(ready), " (%u of %u process%s ready, waited %llu us)",
			 q->acked, q->asked, q->asked == 1 ? " was" : "es were",
			 (unsigned long long)(q->waited_ns / 1000));
	}
	daemon_history_add(&q->d->history, "policy", -1, "%s: '%s' version %llu %s%s",
			   daemon_policy_op_name(q), q->name,
			   (unsigned long long)(version ? version : q->was_active),
			   version ? "is active" : "is no longer active", ready);
	daemon_policy_op_audit(q, NULL);
	daemon_verified_keep(q);
}

/* Sessions may be admitted that the former version has kept waiting. */
static void wake_others(struct daemon *d)
{
	sd_event_source_set_enabled(d->sessions.requeue, SD_EVENT_ONESHOT);
	daemon_ticker_wake(d);
}

void daemon_swap_flip(struct daemon_policy_op *q)
{
	count_answers(q);
	POINT("daemon.swap.before_flip");
	store_words(q);
	POINT("daemon.swap.flipped");
	note_in_store(q);
	put_in_force(q);
	daemon_features_call(versions_changed, q->d, q->o.watch);
	record_swap(q);
	daemon_policy_drop_unused(q->d, exit_reason(q));
	POINT("daemon.swap.dropped");
	wake_others(q->d);
	save(q);
}

static void check_acks(struct daemon *d)
{
	struct daemon_policy_op *q = d->policies ? d->policies->first : NULL;

	if (d->policies && d->policies->pending && q && !q->sending && !q->readying &&
	    count_late(d) == 0) {
		daemon_swap_ready(q);
	}
}

static int on_late(sd_event_source *src, uint64_t usec, void *arg)
{
	struct daemon *d = arg;

	(void)src;
	(void)usec;
	daemon_session_each(d, s)
	{
		if (s->policy.awaited_ack && s->policy.prepares_acked < s->policy.awaited_ack) {
			daemon_session_event(s, "late",
					     "%s has not prepared the new policy in 50 ms and "
					     "continues with the old one until it has",
					     s->name);
		}
	}
	if (d->policies->pending && !d->policies->first->readying) {
		daemon_swap_ready(d->policies->first);
	}
	return 0;
}

static bool take_prepared(struct daemon_session *s, struct daemon_received *r)
{
	int status = r->m.version.status;
	struct daemon *d = s->d;

	if (s->policy.prepares_acked >= s->policy.prepares_sent) {
		return false;
	}
	s->policy.prepares_acked++;
	POINT("daemon.swap.acked");
	if (status) {
		bool awaited = s->policy.prepares_acked > s->policy.awaited_from &&
			       s->policy.prepares_acked <= s->policy.awaited_ack;

		s->policy.cannot_run |= awaited;
		d->counters.failed_prepares += !awaited; /* record_swap() counts the others */
		daemon_session_event(s, "prepare", "%s cannot run policy version %llu: %s", s->name,
				     (unsigned long long)r->m.version.version,
				     strerror(status < 0 && status > -4096 ? -status : EINVAL));
	}
	check_acks(d);
	return true;
}

static void session_ended(struct daemon_session *s)
{
	daemon_failures_add_session(s);
	daemon_policy_remove_tenant(s->d, (uint32_t)s->tenant);
}

const struct daemon_feature daemon_policies_feature = {
	.messages = { { PROTO_PREPARED, 1u << DAEMON_SESSION_READY, take_prepared } },
	.session_ready = daemon_policy_send_active,
	.session_ended = session_ended,
	.sessions_reaped = check_acks,
};

/* Waits for acknowledgements after PREPARE was sent to all sessions. */
static void await_acks(struct daemon_policy_op *q)
{
	struct daemon *d = q->d;
	struct daemon_policies *p = d->policies;
	uint64_t now; /* us */

	POINT("daemon.swap.prepare_sent_all");
	q->sending = false;
	if (count_late(d) == 0) {
		daemon_swap_ready(q);
		return;
	}
	/* Not sd_event_now(): building the version has taken part of this turn of the loop. */
	now = clock_now_ns() / 1000 + 1;
	if (sd_event_add_time(d->loop, &p->timer, CLOCK_MONOTONIC, now + DAEMON_POLICY_ACK_USEC,
			      1000, on_late, d) < 0) {
		daemon_swap_ready(q);
	}
}

/* Sends PREPARE for the pending instances on the GPUs of a session. */
static void prepare(struct daemon_session *s)
{
	struct daemon *d = s->d;

	for (struct daemon_version *l = d->policies->live_versions; l && !s->dying; l = l->next) {
		if (l->pending) {
			daemon_version_send_prepare(l, s);
			POINT("daemon.swap.prepare_sent");
		}
	}
}

static int on_slice(sd_event_source *src, uint64_t usec, void *arg);

/* Sends PREPARE for at most SLICE_NS, then continues in a later turn of the loop: creating a
 * tenant's memory takes about 30 us, and there may be a thousand tenants. */
static void prepare_some(struct daemon_policy_op *q)
{
	struct daemon *d = q->d;
	struct daemon_policies *p = d->policies;
	uint64_t begin = clock_now_ns();

	p->timer = sd_event_source_disable_unref(p->timer);
	daemon_session_each(d, s)
	{
		uint64_t before = s->policy.prepares_sent;

		if (s->state != DAEMON_SESSION_READY || s->dying || s->policy.offered) {
			continue;
		}
		if (clock_now_ns() - begin > SLICE_NS &&
		    sd_event_add_time(d->loop, &p->timer, CLOCK_MONOTONIC, 0, 1, on_slice, d) >=
			    0) {
			return;
		}
		s->policy.offered = true;
		s->policy.awaited_from = before;
		prepare(s);
		s->policy.awaited_ack =
			s->policy.prepares_sent > before && !s->dying ? s->policy.prepares_sent : 0;
	}
	await_acks(q);
}

static int on_slice(sd_event_source *src, uint64_t usec, void *arg)
{
	struct daemon *d = arg;

	(void)src;
	(void)usec;
	prepare_some(d->policies->first);
	return 0;
}

void daemon_swap_prepare(struct daemon_policy_op *q)
{
	daemon_session_each(q->d, s)
	{
		s->policy.awaited_ack = 0;
		s->policy.offered = s->policy.cannot_run = false;
	}
	q->d->policies->pending = q->o.version;
	q->sending = true;
	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) { /* known since the instances were made */
		if (q->d->devices.d[i].used) {
			daemon_policy_add_gpu(q->d, i);
		}
	}
	q->prepare_begin_ns = clock_now_ns();
	prepare_some(q);
}
