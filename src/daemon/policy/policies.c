/* The line of operations. The one at its head is built by the worker (or found live already),
 * swapped in, saved and answered; then the next begins. A failure on the way leaves the old policy
 * running. */
#include "daemon/policy/policies_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/point.h"
#include "daemon/consts.h"
#include "daemon/policy/policy_failures.h"
#include "daemon/maps/maps_watch.h"
#include "daemon/clean_text.h"

void request_free(struct request *q)
{
	if (q->built) {
		ebpf_built_finish(q->built);
		free(q->built);
	}
	live_destroy(q->live);
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

void request_leave(struct request *q)
{
	struct policies *p = q->d->policies;

	p->first = q->next;
	p->n--;
}

static int exit_of(const struct request *q)
{
	if (q->err == -EACCES || (q->err == -E2BIG && strcmp(q->report.code, "limit") != 0)) {
		return 4;
	}
	return q->err == -E2BIG ? 7 : 1;
}

const char *request_what(const struct request *q)
{
	switch (q->o.op) {
	case POLICY_LOAD:
		return q->o.swap && q->was_active ? "swap" : "load";
	case POLICY_ACTIVATE:
		return q->o.reply || q->o.by_watch ? "rollback"
						   : "restore"; /* nobody asked: gbpfd began */
	default:
		return "unload";
	}
}

void request_fail(struct request *q, int exit_code)
{
	struct daemon *d = q->d;

	d->counters.refused++;
	report_set(&q->report, q->err, "failed", "%s", strerror(q->err < 0 ? -q->err : EIO));
	history_add(&d->history, "policy", -1, -1, "%s of '%s' failed: %s%s%s", request_what(q),
		    q->name, buf_text(&q->report.place), q->report.place.len ? ": " : "",
		    buf_text(&q->report.message));
	log_info("policy %s '%s': %s", request_what(q), q->name, buf_text(&q->report.message));
	if (q->o.op == POLICY_LOAD && q->o.version &&
	    !store_find(&d->policies->store, q->o.version)) {
		store_delete(q->dir, q->o.version);
	}
	request_leave(q);
	if (q->o.reply) {
		q->o.reply(d, q->o.conn, q->o.id, NULL, &q->report, exit_code);
	}
	request_free(q);
	requests_next(d);
}

/* ---- the beginning ---- */

static void on_built(struct job *j)
{
	struct request *q = (struct request *)j;
	struct daemon *d = q->d;
	struct policies *p = d->policies;
	struct live *l = q->live;

	if (q->err) {
		request_fail(q, exit_of(q));
		return;
	}
	POINT("daemon.load.built");
	q->live = NULL;
	/* Processes will hear of that number, so it is used even when init refuses. */
	p->store.next = MAX(p->store.next, q->o.version + 1);
	l->next = p->lives;
	p->lives = l;
	swap_prepare(q, l);
}

static void build(struct request *q)
{
	q->job = (struct job){ .work = request_build, .done = on_built, .drop = request_drop };
	worker_submit(&q->d->worker, &q->job);
}

/* What runs on the lowest of these GPUs that has a policy; 0: none. */
static uint64_t active_in(struct daemon *d, uint32_t gpu_mask)
{
	uint64_t version = 0;

	for (unsigned i = 0; i < SCHED_MAX_GPUS && !version; i++) {
		version = gpu_mask & 1u << i ? policy_active_version(d, i) : 0;
	}
	return version;
}

static void start_load(struct request *q)
{
	struct store *st = &q->d->policies->store;

	for (unsigned i = 0; i < SCHED_MAX_GPUS && !q->o.swap; i++) {
		const struct stored *v =
			store_find(st, q->o.gpu_mask & 1u << i ? st->active[i] : 0);

		if (v && !v->by_default) {
			q->err = report_set(&q->report, -EEXIST, "active",
					    "policy '%s' (version %llu) is active", v->name,
					    (unsigned long long)v->version);
			report_hint(&q->report,
				    "Replace it with `gbpf policy swap`, or unload it first");
			request_fail(q, 1);
			return;
		}
	}
	q->o.version = st->next;
	q->was_active = active_in(q->d, q->o.gpu_mask);
	build(q);
}

static void start_activate(struct request *q)
{
	struct store *st = &q->d->policies->store;
	struct stored *v;

	q->o.version = q->o.version ? q->o.version : st->previous;
	v = store_find(st, q->o.version);
	if (!v) {
		q->err = -ENOENT;
		if (q->o.version) {
			report_set(&q->report, -ENOENT, "not-found", "there is no version %llu",
				   (unsigned long long)q->o.version);
		} else {
			report_set(&q->report, -ENOENT, "not-found",
				   "there is no version to go back to");
		}
		report_hint(&q->report, "`gbpf policy list` shows the versions that are kept");
		request_fail(q, 5);
		return;
	}
	memcpy(q->name, v->name, sizeof(q->name));
	q->was_active = active_in(q->d, q->o.gpu_mask);
	q->d->counters.rollbacks++;
	if (policy_live_find(q->d, q->o.version)) { /* active on another GPU, or already here: only
						the words change */
		q->prepare_begin_ns = clock_now_ns();
		swap_flip(q);
	} else {
		build(q);
	}
}

static void start_unload(struct request *q)
{
	struct daemon *d = q->d;

	q->was_active = active_in(d, q->o.gpu_mask);
	if (!q->was_active) {
		q->err = report_set(&q->report, -ENOENT, "not-found", "no policy is active");
		request_fail(q, 5);
		return;
	}
	snprintf(q->name, sizeof(q->name), "%s",
		 store_find(&d->policies->store, q->was_active)->name);
	q->prepare_begin_ns = clock_now_ns();
	swap_flip(q);
}

void requests_next(struct daemon *d)
{
	struct request *q = d->policies->first;

	if (!q || d->ending) {
		return;
	}
	switch (q->o.op) {
	case POLICY_LOAD:
		start_load(q);
		break;
	case POLICY_ACTIVATE:
		start_activate(q);
		break;
	case POLICY_UNLOAD:
		start_unload(q);
		break;
	}
}

int policy_order(struct daemon *d, struct policy_order *o)
{
	struct policies *p = d->policies;
	struct request *q = p->n < POLICY_MAX_WAITING ? calloc(1, sizeof(*q)) : NULL,
		       **link = &p->first;

	if (!q) {
		fd_close_foreign(o->object_fd);
		buf_finish(&o->object);
		free(o->watch);
		return p->n < POLICY_MAX_WAITING ? -ENOMEM : -EBUSY;
	}
	q->d = d;
	q->o = *o;
	if (o->name) {
		text_copy(q->name, sizeof(q->name), o->name, strlen(o->name));
	}
	q->o.name = NULL;
	snprintf(q->dir, sizeof(q->dir), "%s", p->store.dir);
	report_init(&q->report);
	while (*link) {
		link = &(*link)->next;
	}
	*link = q;
	if (p->n++ == 0) {
		requests_next(d);
	}
	return 0;
}

bool policies_busy(const struct daemon *d)
{
	return d->policies->first != NULL;
}

int policies_open(struct daemon *d)
{
	int err;

	d->policies = calloc(1, sizeof(*d->policies));
	if (!d->policies) {
		return -ENOMEM;
	}
	err = store_open(&d->policies->store, d->opt.state);
	if (!err) {
		store_release(&daemon_directory(d)->off, (uint32_t)d->policies->store.off);
	}
	return err;
}

void policies_close(struct daemon *d)
{
	struct policies *p = d->policies;

	if (!p) {
		return;
	}
	sd_event_source_disable_unref(p->timer);
	failures_close(d);
	maps_watch_close(d);
	while (p->first) {
		struct request *q = p->first;

		p->first = q->next;
		request_free(q);
	}
	while (p->lives) {
		struct live *l = p->lives;

		p->lives = l->next;
		live_end(l, GBPF_EXIT_DAEMON);
		live_destroy(l);
	}
	store_close(&p->store);
	free(p);
	d->policies = NULL;
}
