/* The swap. Operations wait in a line; the one at its head goes through: build (worker), PREPARE to
 * every session, wait until all have answered or 50 ms, flip one word per GPU, DROP of what is no
 * longer used, save (worker), answer. Until the flip nothing has changed for anybody, so a failure
 * on the way leaves the old policy running. */
#include "daemon/policy_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/consts.h"
#include "daemon/hooks.h"
#include "daemon/text.h"

static void start_next(struct daemon *d);

/* ---- what is live ---- */

static struct live *live_find(struct daemon *d, uint64_t version)
{
	for (struct live *l = d->policies->lives; l && version; l = l->next) {
		if (l->version == version) {
			return l;
		}
	}
	return NULL;
}

uint64_t policy_active_version(struct daemon *d, unsigned gpu)
{
	return gpu < SCHED_MAX_GPUS ? load_relaxed(&daemon_directory(d)->version[gpu]) : 0;
}

struct live *policy_on(struct daemon *d, uint32_t gpu)
{
	return live_find(d, policy_active_version(d, gpu));
}

static bool is_active(struct daemon *d, uint64_t version)
{
	for (unsigned i = 0; i < SCHED_MAX_GPUS; i++) {
		if (policy_active_version(d, i) == version) {
			return true;
		}
	}
	return false;
}

struct live *policy_next_active(struct daemon *d, struct live *after)
{
	struct live *l = after ? after->next : d->policies->lives;

	while (l && !is_active(d, l->version)) {
		l = l->next;
	}
	return l;
}

static void send_drop(struct session *s, uint64_t version)
{
	union wire_message m = { 0 };

	m.version.version = version;
	session_send(s, &m, WIRE_DROP, NULL, 0);
}

/* Takes everything off that is neither active nor being prepared. */
static void drop_unused(struct daemon *d)
{
	struct live **link = &d->policies->lives;

	while (*link) {
		struct live *l = *link;

		if (l == d->policies->pending || is_active(d, l->version)) {
			link = &l->next;
			continue;
		}
		*link = l->next;
		session_each(d, s)
		{
			if (s->state == SESSION_READY && !s->dying) {
				send_drop(s, l->version);
			}
		}
		live_destroy(l);
	}
}

/* ---- the line ---- */

void request_free(struct request *q)
{
	if (q->built) {
		ebpf_built_finish(q->built);
		free(q->built);
	}
	fd_close(q->o.object_fd);
	buf_finish(&q->o.object);
	report_finish(&q->report);
	json_decref(q->meta);
	free(q->state_text);
	free(q);
}

static void leave_line(struct request *q)
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

static const char *what_of(const struct request *q)
{
	return q->o.op == POLICY_LOAD ? "load" : q->o.op == POLICY_ACTIVATE ? "rollback" : "unload";
}

void request_fail(struct request *q, int exit_code)
{
	struct daemon *d = q->d;

	d->counters.refused++;
	report_set(&q->report, q->err, "failed", "%s", strerror(q->err < 0 ? -q->err : EIO));
	history_add(&d->history, "policy", -1, -1, "%s of '%s' failed: %s%s%s", what_of(q), q->name,
		    buf_text(&q->report.place), q->report.place.len ? ": " : "",
		    buf_text(&q->report.message));
	log_info("policy %s '%s': %s", what_of(q), q->name, buf_text(&q->report.message));
	if (q->o.op == POLICY_LOAD && q->o.version &&
	    !store_find(&d->policies->store, q->o.version)) {
		store_delete(q->dir, q->o.version);
	}
	leave_line(q);
	if (q->o.reply) {
		q->o.reply(d, q->o.conn, q->o.id, NULL, &q->report, exit_code);
	}
	request_free(q);
	start_next(d);
}

static unsigned count_late(struct daemon *d)
{
	unsigned n = 0;

	session_each(d, s)
	{
		n += s->state == SESSION_READY && !s->dying && s->wait_for &&
		     s->prepares_acked < s->wait_for;
	}
	return n;
}

static uint64_t longest_stall(struct daemon *d)
{
	uint64_t stall = 0;

	session_each(d, s)
	{
		if (s->stats.map) {
			uint64_t v =
				load_relaxed(&((struct sched_stats *)s->stats.map)->swap_stall_ns);

			stall = MAX(stall, v);
		}
	}
	return stall;
}

static json_t *result_json(struct request *q)
{
	struct daemon *d = q->d;
	const struct stored *v = store_find(&d->policies->store, q->o.version);
	json_t *hooks = v ? json_object_get(v->meta, "hooks") : NULL, *r;

	if (q->o.op == POLICY_UNLOAD) {
		return json_pack("{s:I,s:s}", "version", (json_int_t)q->was_active, "name",
				 q->name);
	}
	r = json_pack("{s:I,s:s,s:I,s:I,s:I,s:i,s:i,s:i,s:b}", "version", (json_int_t)q->o.version,
		      "name", q->name, "stall_ns", (json_int_t)longest_stall(d), "flip_ns",
		      (json_int_t)q->flip_ns, "waited_ns", (json_int_t)q->waited_ns, "acked",
		      (int)q->acked, "late", (int)(q->asked - q->acked - q->failed), "failed",
		      (int)q->failed, "stored", (int)(q->store_err == 0));
	if (r) {
		json_object_set(r, "hooks", hooks);
	}
	return r;
}

static void on_saved(struct job *j)
{
	struct request *q = (struct request *)j;
	struct daemon *d = q->d;
	json_t *result;

	if (q->store_err) {
		history_add(&d->history, "store", -1, -1,
			    "'%s' runs, but will not survive a restart of gbpfd: %s", q->name,
			    strerror(-q->store_err));
		log_warn("cannot write to %s: %s", q->dir, strerror(-q->store_err));
	}
	result = result_json(q);
	leave_line(q);
	if (q->o.reply) {
		q->o.reply(d, q->o.conn, q->o.id, result, &q->report, 1);
	}
	json_decref(result);
	request_free(q);
	start_next(d);
}

static void drop_job(struct job *j)
{
	(void)j; /* stays in the line, which policies_close empties */
}

static void save(struct request *q)
{
	q->state_text = store_state_text(&q->d->policies->store);
	q->job = (struct job){ .work = request_save_state, .done = on_saved, .drop = drop_job };
	worker_submit(&q->d->worker, &q->job);
}

/* ---- the flip ---- */

static void flip(struct request *q)
{
	struct daemon *d = q->d;
	struct policies *p = d->policies;
	struct sched_directory *dir = daemon_directory(d);
	uint64_t version = q->o.op == POLICY_UNLOAD ? 0 : q->o.version, begin = clock_now_ns();
	int first = -1;

	q->waited_ns = begin - q->prepare_begin_ns;
	q->asked = q->acked = 0;
	session_each(d, s)
	{
		q->asked += s->wait_for != 0;
		q->acked += s->wait_for && s->prepares_acked >= s->wait_for;
		s->wait_for = 0;
	}
	q->acked -= MIN(q->failed, q->acked); /* they answered, but cannot run it */
	begin = clock_now_ns();
	for (int i = 0; i < (int)SCHED_MAX_GPUS; i++) {
		if (q->o.gpu_mask & 1u << i) {
			store_seqcst(&dir->version[i], version);
		}
	}
	q->flip_ns = clock_now_ns() - begin;
	for (int i = 0; i < (int)SCHED_MAX_GPUS; i++) {
		if ((q->o.gpu_mask & 1u << i) && p->store.active[i] != version) {
			first = first < 0 ? i : first;
		}
	}
	if (first >= 0 && p->store.active[first]) {
		p->store.previous = p->store.active[first];
	}
	for (int i = 0; i < (int)SCHED_MAX_GPUS; i++) {
		if (q->o.gpu_mask & 1u << i) {
			p->store.active[i] = version;
		}
	}
	p->pending = NULL;
	p->timer = sd_event_source_disable_unref(p->timer);
	d->counters.swaps++;
	d->counters.late += q->asked - q->acked - q->failed;
	history_add(&d->history, "policy", -1, -1,
		    "%s: '%s' version %llu %s (%u of %u processes were ready, waited %llu us)",
		    what_of(q), q->name, (unsigned long long)(version ? version : q->was_active),
		    version ? "is active" : "is no longer active", q->acked, q->asked,
		    (unsigned long long)(q->waited_ns / 1000));
	drop_unused(d);
	sd_event_source_set_enabled(d->requeue, SD_EVENT_ONESHOT);
	ticker_wake(d);
	save(q);
}

void policy_check_acks(struct daemon *d)
{
	struct request *q = d->policies ? d->policies->first : NULL;

	if (d->policies && d->policies->pending && q && count_late(d) == 0) {
		flip(q);
	}
}

static int on_late(sd_event_source *src, uint64_t usec, void *arg)
{
	struct daemon *d = arg;

	(void)src;
	(void)usec;
	session_each(d, s)
	{
		if (s->wait_for && s->prepares_acked < s->wait_for) {
			history_add(&d->history, "late", s->tenant, s->peer.pid,
				    "%s has not prepared the new policy in 50 ms and goes on with "
				    "the old one until it has",
				    s->name);
		}
	}
	if (d->policies->pending) {
		flip(d->policies->first);
	}
	return 0;
}

void policy_prepared(struct session *s, uint64_t version, int status)
{
	struct daemon *d = s->d;

	s->prepares_acked++;
	if (status) {
		d->counters.failed_prepares++;
		history_add(&d->history, "prepare", s->tenant, s->peer.pid,
			    "%s cannot run policy version %llu: %s", s->name,
			    (unsigned long long)version,
			    strerror(status < 0 && status > -4096 ? -status : EINVAL));
		if (d->policies->pending && s->wait_for == s->prepares_acked) {
			d->policies->first->failed++;
		}
	}
	policy_check_acks(d);
}

static void prepare(struct request *q, struct live *l)
{
	struct daemon *d = q->d;
	struct policies *p = d->policies;
	uint64_t now;

	p->pending = l;
	q->prepare_begin_ns = clock_now_ns();
	session_each(d, s)
	{
		uint64_t before = s->prepares_sent;

		s->wait_for = 0;
		if (s->state == SESSION_READY && !s->dying) {
			live_prepare(l, s);
			s->wait_for = s->prepares_sent > before && !s->dying ? s->prepares_sent : 0;
		}
	}
	if (count_late(d) == 0) {
		flip(q);
		return;
	}
	sd_event_now(d->loop, CLOCK_MONOTONIC, &now);
	if (sd_event_add_time(d->loop, &p->timer, CLOCK_MONOTONIC, now + POLICY_ACK_USEC, 1000,
			      on_late, d) < 0) {
		flip(q);
	}
}

/* ---- the beginning ---- */

static void on_built(struct job *j)
{
	struct request *q = (struct request *)j;
	struct daemon *d = q->d;
	struct policies *p = d->policies;
	struct live *l;

	if (q->err) {
		request_fail(q, exit_of(q));
		return;
	}
	q->err = live_create(&l, d, q->built, q->o.version, &q->report);
	if (!q->err && q->o.op == POLICY_LOAD) {
		json_t *meta = q->meta;

		q->meta = NULL;
		q->err = store_add(&p->store, q->o.version, meta, &q->removed);
		if (q->err) {
			q->built = NULL; /* the live version's */
			live_destroy(l);
			report_set(&q->report, -E2BIG, "limit",
				   "%u versions are kept and all are in use", STORE_VERSIONS);
			q->err = -E2BIG;
			request_fail(q, 7);
			return;
		}
		d->counters.loads++;
	}
	if (q->err) {
		request_fail(q, exit_of(q));
		return;
	}
	q->built = NULL;
	l->next = p->lives;
	p->lives = l;
	prepare(q, l);
}

static void build(struct request *q)
{
	q->job = (struct job){ .work = request_build, .done = on_built, .drop = drop_job };
	worker_submit(&q->d->worker, &q->job);
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
				   "no other policy was active before");
		}
		report_hint(&q->report, "`gbpf policy list` shows the versions that are kept");
		request_fail(q, 5);
		return;
	}
	memcpy(q->name, v->name, sizeof(q->name));
	q->d->counters.rollbacks++;
	if (live_find(q->d, q->o.version)) { /* active on another GPU, or already here: only the
						words change */
		q->prepare_begin_ns = clock_now_ns();
		flip(q);
	} else {
		build(q);
	}
}

static void start_unload(struct request *q)
{
	struct daemon *d = q->d;

	for (unsigned i = 0; i < SCHED_MAX_GPUS && !q->was_active; i++) {
		q->was_active = q->o.gpu_mask & 1u << i ? policy_active_version(d, i) : 0;
	}
	if (!q->was_active) {
		q->err = report_set(&q->report, -ENOENT, "not-found", "no policy is active");
		request_fail(q, 5);
		return;
	}
	snprintf(q->name, sizeof(q->name), "%s",
		 store_find(&d->policies->store, q->was_active)->name);
	q->prepare_begin_ns = clock_now_ns();
	flip(q);
}

static void start_next(struct daemon *d)
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
		fd_close(o->object_fd);
		buf_finish(&o->object);
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
		start_next(d);
	}
	return 0;
}

bool policies_busy(const struct daemon *d)
{
	return d->policies->first != NULL;
}

/* ---- sessions ---- */

void policy_introduce(struct session *s)
{
	struct daemon *d = s->d;

	/* Also to a process that came back and has that version: the global memory is new, and the
	 * number alone does not prove that it is the same program (the state directory may have
	 * been emptied). Its own memory it gets back. */
	for (struct live *l = d->policies->lives; l; l = l->next) {
		live_prepare(l, s);
	}
	if (s->had_version && !live_find(d, s->had_version)) {
		send_drop(s, s->had_version);
	}
}

void policy_forget_tenant(struct daemon *d, uint32_t tenant)
{
	for (struct live *l = d->policies ? d->policies->lives : NULL; l; l = l->next) {
		live_forget_tenant(l, tenant);
	}
}

unsigned policy_regions_of(struct daemon *d, uint32_t tenant)
{
	unsigned n = 0;

	for (struct live *l = d->policies->lives; l; l = l->next) {
		n += l->region[tenant].map != NULL;
	}
	return n;
}

void policy_adopt_region(struct session *s, uint64_t version, int *fd)
{
	struct live *l = live_find(s->d, version);

	if (l) {
		live_adopt_tenant(l, (uint32_t)s->tenant, fd);
	}
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
	while (p->first) {
		struct request *q = p->first;

		p->first = q->next;
		request_free(q);
	}
	while (p->lives) {
		struct live *l = p->lives;

		p->lives = l->next;
		live_destroy(l);
	}
	store_close(&p->store);
	free(p);
	d->policies = NULL;
}
