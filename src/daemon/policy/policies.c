/* The queue of policy operations. Verifiers verify their objects before that (verify_jobs.c). The
 * worker makes the version of the one at its head (or a live version is found), then it is swapped
 * in, saved and answered, and the next begins. If any step fails the old policy stays active.
 *
 * Operations may enter the queue in another order than they were requested, as one verification
 * takes longer than another. The last request wins: an operation is refused if a later request of a
 * caller has taken effect on one of its GPUs. So no request undoes a later one, and none waits for
 * the verification of another. */
#include "daemon/policy/policies_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/point.h"
#include "daemon/audit.h"
#include "daemon/clean_text.h"
#include "daemon/consts.h"
#include "daemon/policy/object_read.h"
#include "daemon/policy/policy_failures.h"
#include "daemon/policy/vgpu_maps.h"

void daemon_policy_op_free(struct daemon_policy_op *q)
{
	while (q->live) {
		struct daemon_version *l = q->live;

		q->live = l->next;
		daemon_version_destroy(l);
	}
	daemon_program_drop(q->program);
	daemon_verified_drop(q->verified);
	fd_close_foreign(q->o.object_fd);
	buf_finish(&q->o.object);
	report_finish(&q->report);
	json_decref(q->meta);
	json_decref(q->kept);
	free(q->keep);
	free(q->state_text);
	free(q->o.watch);
	free(q);
}

void daemon_policy_op_finish(struct daemon_policy_op *q)
{
	struct daemon_policies *p = q->d->policies;
	struct daemon_policy_op **const lists[] = { &p->first, &p->verifying };

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		struct daemon_policy_op **link = lists[i];

		while (*link && *link != q) {
			link = &(*link)->next;
		}
		if (*link) {
			*link = q->next;
			p->n--;
		}
	}
	q->next = NULL;
	q->started = false;
}

int daemon_policy_op_exit(const struct daemon_policy_op *q)
{
	int code;

	if (daemon_durable_failed(q, &code)) {
		return code;
	}
	return daemon_object_exit(q->err, &q->report);
}

const char *daemon_policy_op_name(const struct daemon_policy_op *q)
{
	switch (q->o.op) {
	case DAEMON_POLICY_LOAD:
		return q->o.swap && q->was_active ? "swap" : "load";
	case DAEMON_POLICY_ACTIVATE:
		return q->o.reply ? "rollback"
				  : "restore"; /* without a caller: gbpfd restores it at start */
	default:
		return "unload";
	}
}

void daemon_policy_op_audit(const struct daemon_policy_op *q, const char *failed)
{
	const struct daemon_stored_version *v =
		daemon_store_find(&q->d->policies->store, q->o.version);
	const struct peer caller = { .uid = q->o.uid, .pid = q->o.pid };
	char action[24], gpus[16] = "all GPUs";

	if (!q->o.pid && !q->o.by_watch) {
		return; /* gbpfd restores what it had at its start */
	}
	if (__builtin_popcount(q->o.gpu_mask) == 1) {
		snprintf(gpus, sizeof(gpus), "GPU %d", __builtin_ctz(q->o.gpu_mask));
	}
	snprintf(action, sizeof(action), "policy.%s", daemon_policy_op_name(q));
	daemon_audit(q->d, q->o.pid ? &caller : NULL, action, v ? v->hash : q->hash,
		     "'%s' version %llu on %s, before: version %llu%s%s%s%s", q->name,
		     (unsigned long long)(q->o.op == DAEMON_POLICY_UNLOAD ? 0 : q->o.version), gpus,
		     (unsigned long long)q->was_active, q->o.is_volatile ? ", volatile" : "",
		     q->o.by_watch ? ", by its watch" : "", failed ? "; refused: " : "",
		     failed ? failed : "");
}

void daemon_policy_op_fail(struct daemon_policy_op *q, int exit_code)
{
	struct daemon *d = q->d;

	d->counters.refused++;
	report_set(&q->report, q->err, "failed", "%s", strerror(q->err < 0 ? -q->err : EIO));
	daemon_history_add(&d->history, "policy", -1, "%s of '%s' failed: %s%s%s",
			   daemon_policy_op_name(q), q->name, buf_text(&q->report.place),
			   q->report.place.len ? ": " : "", buf_text(&q->report.message));
	daemon_policy_op_audit(q, buf_text(&q->report.message));
	log_info("policy %s '%s': %s", daemon_policy_op_name(q), q->name,
		 buf_text(&q->report.message));
	if (q->o.op == DAEMON_POLICY_LOAD && q->o.version &&
	    !daemon_store_find(&d->policies->store, q->o.version)) {
		daemon_store_delete_files(q->dir, q->o.version);
	}
	daemon_policy_op_finish(q);
	if (q->o.reply) {
		q->o.reply(d, q->o.conn, q->o.id, NULL, &q->report, exit_code);
	}
	daemon_policy_op_free(q);
	daemon_policy_ops_next(d);
}

/* ---- begin ---- */

static void on_built(struct daemon_job *j)
{
	struct daemon_policy_op *q = (struct daemon_policy_op *)j;
	struct daemon *d = q->d;
	struct daemon_policies *p = d->policies;

	if (q->err) {
		daemon_policy_op_fail(q, daemon_policy_op_exit(q));
		return;
	}
	POINT("daemon.load.built");
	/* Processes will be sent this number, so it is used up even if init refuses the version. */
	p->store.next = MAX(p->store.next, q->o.version + 1);
	while (q->live) {
		struct daemon_version *l = q->live;

		q->live = l->next;
		daemon_policy_drop_kept(d, l->version, l->gpu);
		if (daemon_version_on(d, l->version, l->gpu)) { /* the GPU has become known */
			daemon_version_destroy(l);
			continue;
		}
		l->pending = true;
		daemon_version_add(l);
	}
	daemon_swap_prepare(q);
}

/* Builds the version's instances on these GPUs. */
static void build(struct daemon_policy_op *q, uint32_t gpus)
{
	q->build_gpus = gpus;
	q->job = (struct daemon_job){ .work = daemon_policy_op_build,
				      .done = on_built,
				      .drop = daemon_policy_op_drop };
	daemon_job_thread_submit(&q->d->worker, &q->job);
}

/* Returns the version on the lowest of these GPUs that has one; 0: none. */
static uint64_t active_in(struct daemon *d, uint32_t gpu_mask)
{
	uint64_t version = 0;

	for (unsigned i = 0; i < PROTO_MAX_GPUS && !version; i++) {
		version = gpu_mask & 1u << i ? daemon_policy_active_version(d, i) : 0;
	}
	return version;
}

/* Fails the operation and returns true if a load without `swap` would replace a policy. */
static bool refuse_active(struct daemon_policy_op *q)
{
	struct daemon_store *st = &q->d->policies->store;

	for (unsigned i = 0; i < PROTO_MAX_GPUS && !q->o.swap; i++) {
		const struct daemon_stored_version *v =
			daemon_store_find(st, q->o.gpu_mask & 1u << i ? st->active[i] : 0);

		if (v && !v->by_default) {
			q->err = report_set(&q->report, -EEXIST, "active",
					    "policy '%s' (version %llu) is active", v->name,
					    (unsigned long long)v->version);
			report_hint(&q->report,
				    "Replace it with `gbpf policy swap`, or unload it first; with "
				    "--gpu on that GPU alone");
			daemon_policy_op_fail(q, 1);
			return true;
		}
	}
	return false;
}

/* Fails the operation and returns true if a later request of a caller is in force on one of its
 * GPUs. Only a verification can have put it after that. */
static bool refuse_superseded(struct daemon_policy_op *q)
{
	const struct daemon_policies *p = q->d->policies;

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		if (q->o.gpu_mask & 1u << i && p->in_force[i] > q->number) {
			q->err = report_set(&q->report, -ECANCELED, "superseded",
					    "a later request took effect while '%s' was verified",
					    q->name);
			report_hint(&q->report, "Repeat it if it is still wanted");
			daemon_policy_op_fail(q, 1);
			return true;
		}
	}
	return false;
}

static void start_load(struct daemon_policy_op *q)
{
	if (refuse_superseded(q) || refuse_active(q)) {
		return;
	}
	q->o.version = q->d->policies->store.next;
	q->was_active = active_in(q->d, q->o.gpu_mask);
	build(q, daemon_policy_known_gpus(q->d, q->o.gpu_mask));
}

/* Returns the known GPUs of the operation on which the version has no instance in use: one that is
 * kept only for GPUs that become known has maps of an earlier time. */
static uint32_t gpus_without(const struct daemon_policy_op *q)
{
	uint32_t gpus = daemon_policy_known_gpus(q->d, q->o.gpu_mask);

	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		gpus &= daemon_policy_active_of(q->d, q->o.version, i) ? ~(1u << i) : UINT32_MAX;
	}
	return gpus;
}

static struct daemon_version *active_anywhere(struct daemon *d, uint64_t version)
{
	struct daemon_version *found = NULL;

	for (uint32_t i = 0; i < PROTO_MAX_GPUS && !found; i++) {
		found = daemon_policy_active_of(d, version, i);
	}
	return found;
}

/* Reports that there is no version to return to, which one is active, and which one is left out. */
static void no_previous(struct daemon_policy_op *q, uint64_t active)
{
	struct daemon_store *st = &q->d->policies->store;
	const struct daemon_stored_version *v = daemon_store_find(st, active);
	const struct daemon_stored_version *bad = daemon_store_last_rejected(st);
	char now[64] = "no policy", left_out[64] = "";

	if (v) {
		snprintf(now, sizeof(now), "'%s' version %llu", v->name,
			 (unsigned long long)v->version);
	}
	if (bad) {
		snprintf(left_out, sizeof(left_out), "; version %llu was rolled back by its watch",
			 (unsigned long long)bad->version);
	}
	q->err = report_set(&q->report, -ENOENT, "not-found",
			    "no previous version to return to: %s is active and no older one is "
			    "known%s",
			    now, left_out);
}

/* Sets the version that was active before on the operation's GPUs, which must be the same. */
static void find_previous(struct daemon_policy_op *q)
{
	const struct daemon_store *st = &q->d->policies->store;
	uint32_t gpus = daemon_policy_known_gpus(q->d, q->o.gpu_mask);
	uint64_t version = st->history[__builtin_ctz(gpus)][0];

	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		if (gpus & 1u << i && st->history[i][0] != version) {
			q->err = report_set(&q->report, -EINVAL, "differ",
					    "GPU %d and GPU %u had different policies before",
					    __builtin_ctz(gpus), i);
			report_hint(&q->report, "Name a GPU with --gpu, or a version");
			return;
		}
	}
	q->o.version = version;
	if (!version) {
		no_previous(q, st->active[__builtin_ctz(gpus)]);
	}
}

/* Ends an operation that has become unnecessary while it waited. */
static void leave_out(struct daemon_policy_op *q)
{
	struct daemon *d = q->d;

	daemon_policy_op_finish(q);
	daemon_policy_op_free(q);
	daemon_policy_ops_next(d);
}

/* Returns true if another operation has replaced the version that a watch rolls back, or is about
 * to be made there. Leaves out GPUs on which it was replaced. */
static bool is_obsolete(struct daemon_policy_op *q)
{
	if (q->o.by_watch) {
		q->o.gpu_mask &= daemon_policy_gpus_of(q->d, q->o.watched);
	}
	return !q->o.gpu_mask ||
	       (q->o.is_late &&
		q->d->policies->store.active[__builtin_ctz(q->o.gpu_mask)] != q->o.version);
}

/* Takes the operation out of the queue until its object is verified. */
static void verify_first(struct daemon_policy_op *q)
{
	struct daemon *d = q->d;

	daemon_policy_op_finish(q);
	daemon_policy_op_verify(q);
	daemon_policy_ops_next(d);
}

static void start_activate(struct daemon_policy_op *q)
{
	struct daemon_store *st = &q->d->policies->store;
	struct daemon_stored_version *v;
	struct daemon_version *l;
	uint32_t gpus;

	if (is_obsolete(q)) {
		leave_out(q);
		return;
	}
	if (q->verified && !q->o.by_watch && !q->o.is_late && refuse_superseded(q)) {
		return;
	}
	if (!q->o.version) {
		find_previous(q);
	}
	v = daemon_store_find(st, q->o.version);
	if (!v && !q->err) {
		q->err = report_set(&q->report, -ENOENT, "not-found", "there is no version %llu",
				    (unsigned long long)q->o.version);
	}
	if (q->err) {
		report_hint(&q->report, "`gbpf policy list` shows the versions that are kept");
		daemon_policy_op_fail(q, q->err == -EINVAL ? 1 : 5);
		return;
	}
	memcpy(q->name, v->name, sizeof(q->name));
	q->was_active = active_in(q->d, q->o.gpu_mask);
	q->o.is_volatile = v->is_volatile;
	l = active_anywhere(q->d, q->o.version);
	gpus = gpus_without(q);
	if (!l && !q->verified && v->verified) {
		q->verified = daemon_verified_use(v->verified);
		q->was_verified = true;
	}
	if (!l && !q->verified) {
		if (v->is_volatile && buf_add(&q->o.object, v->object.data, v->object.len) < 0) {
			q->err = report_set(&q->report, -ENOMEM, "memory", "out of memory");
			daemon_policy_op_fail(q, 1);
			return;
		}
		verify_first(q);
		return;
	}
	q->d->counters.rollbacks++;
	if (l && !gpus) { /* active on all of these: only the version words change */
		q->prepare_begin_ns = clock_now_ns();
		daemon_swap_rejoin(q);
	} else {
		q->program = l ? daemon_program_use(l->of) : NULL; /* active on another GPU */
		build(q, gpus);
	}
}

static void start_unload(struct daemon_policy_op *q)
{
	struct daemon *d = q->d;

	if (is_obsolete(q)) {
		leave_out(q);
		return;
	}
	q->was_active = active_in(d, q->o.gpu_mask);
	if (!q->was_active) {
		q->err = report_set(&q->report, -ENOENT, "not-found", "no policy is active%s",
				    q->o.gpu_mask == DAEMON_POLICY_ALL_GPUS ? "" : " there");
		daemon_policy_op_fail(q, 5);
		return;
	}
	snprintf(q->name, sizeof(q->name), "%s",
		 daemon_store_find(&d->policies->store, q->was_active)->name);
	q->prepare_begin_ns = clock_now_ns();
	daemon_swap_flip(q);
}

void daemon_policy_ops_next(struct daemon *d)
{
	struct daemon_policy_op *q = d->policies->first;

	if (!q || d->ending) {
		if (!daemon_policy_follow_shares(d) && !d->ending) {
			daemon_vgpu_maps_check_rest(d);
		}
		return;
	}
	if (q->started) {
		return;
	}
	q->started = true;
	q->times.start_ns = clock_now_ns();
	switch (q->o.op) {
	case DAEMON_POLICY_LOAD:
		start_load(q);
		break;
	case DAEMON_POLICY_ACTIVATE:
		start_activate(q);
		break;
	case DAEMON_POLICY_UNLOAD:
		start_unload(q);
		break;
	}
}

void daemon_policy_op_enqueue(struct daemon_policy_op *q)
{
	struct daemon_policies *p = q->d->policies;
	struct daemon_policy_op **link = &p->first;

	while (*link) {
		link = &(*link)->next;
	}
	*link = q;
	p->n++;
	daemon_policy_ops_next(q->d);
}

int daemon_policy_submit(struct daemon *d, struct daemon_policy_request *o)
{
	struct daemon_policies *p = d->policies;
	/* Rollbacks by watches, one for each GPU at most, are not refused. */
	bool room = p->n < DAEMON_POLICY_MAX_WAITING || o->by_watch;
	struct daemon_policy_op *q = room ? calloc(1, sizeof(*q)) : NULL;

	if (!q) {
		fd_close_foreign(o->object_fd);
		buf_finish(&o->object);
		free(o->watch);
		return room ? -ENOMEM : -EBUSY;
	}
	q->d = d;
	q->o = *o;
	if (o->name) {
		daemon_text_copy(q->name, sizeof(q->name), o->name, strlen(o->name));
	}
	q->o.name = NULL;
	snprintf(q->dir, sizeof(q->dir), "%s", p->store.dir);
	report_init(&q->report);
	q->number = ++p->requests;
	q->times.submit_ns = clock_now_ns();
	q->was_active = active_in(d, q->o.gpu_mask);
	if (q->o.op != DAEMON_POLICY_LOAD) {
		daemon_policy_op_enqueue(q);
	} else if (p->n || !refuse_active(q)) { /* else asked when the others have ended */
		daemon_policy_op_verify(q);
	}
	return 0;
}

bool daemon_policies_busy(const struct daemon *d)
{
	return d->policies->n > 0;
}

const char *daemon_policies_first_failed(const struct daemon *d)
{
	return d->policies->first_failed;
}

int daemon_policies_open(struct daemon *d)
{
	int err;

	d->policies = calloc(1, sizeof(*d->policies));
	if (!d->policies) {
		return -ENOMEM;
	}
	daemon_verified_cache_init(&d->policies->cache);
	err = daemon_store_open(&d->policies->store, d->opt.state);
	if (!err) {
		store_release(&daemon_directory(d)->off, (uint32_t)d->policies->store.off);
	}
	return err;
}

struct daemon_store *daemon_policies_store(const struct daemon *d)
{
	return &d->policies->store;
}

void daemon_policies_close(struct daemon *d)
{
	struct daemon_policies *p = d->policies;

	if (!p) {
		return;
	}
	sd_event_source_disable_unref(p->timer);
	while (p->first || p->verifying) {
		struct daemon_policy_op *q = p->first ? p->first : p->verifying;

		daemon_policy_op_finish(q);
		daemon_policy_op_free(q);
	}
	while (p->live_versions) {
		struct daemon_version *l = p->live_versions;

		p->live_versions = l->next;
		daemon_version_run_exit(l, GBPF_EXIT_DAEMON);
		daemon_version_destroy(l);
	}
	daemon_failures_close(d); /* after exit, whose failures set its timer */
	daemon_store_close(&p->store);
	daemon_verified_cache_finish(&p->cache);
	free(p->first_failed);
	free(p);
	d->policies = NULL;
}
