/* Samples at random times, so that a board cannot be open between the samples only. Two samples
 * bound a piece of open time; a window of a quarter of a second of them is judged by what the
 * driver has seen in it. */
#include "daemon/idle/idle_boards.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "daemon/consts.h"
#include "daemon/idle/gpu_use.h"
#include "base/time_budget.h"
#include "daemon/session/tenant_session.h"
#include "daemon/timer.h"

#define WINDOW_NS UINT64_C(250000000)
#define SAMPLE_MIN_USEC 1000u
#define SAMPLE_SPREAD_USEC 8192u	 /* a power of two: random bits */
#define SAMPLE_MAX_NS UINT64_C(20000000) /* longer pauses of the loop are not charged */
#define SHARE_COARSE 10u

struct user {
	struct user *next;
	uid_t uid;
	struct time_budget budget;
	uint64_t charge_ns;	 /* of the window that is being judged */
	uint64_t gone_ns;	 /* open time of sessions that have ended in this window */
	uint64_t window_gone_ns; /* in the window that is being judged */
	bool has_worked;	 /* a session of the user's in that window */
};

struct daemon_idle {
	struct daemon *d;
	sd_event_source *timer; /* owned */
	struct user *users;	/* owned; those whose budget is not full, or who have boards */
	bool on, measuring;
	uint64_t sampled_ns, window_since_ns;
	uint64_t judged_ns; /* length of the window that is being judged */
};

/* Isolation is between users: root and gbpfd's own user are trusted with the GPU. */
static bool is_watched(const struct daemon_session *s)
{
	return s->state == DAEMON_SESSION_READY && !s->dying && s->peer.uid != 0 &&
	       s->peer.uid != s->d->uid && (s->lc.slot >= 0 || s->idle.demoted);
}

static struct user *user_of(struct daemon_idle *w, uid_t uid, uint64_t now)
{
	struct user *u = w->users;

	while (u && u->uid != uid) {
		u = u->next;
	}
	if (!u) {
		u = calloc(1, sizeof(*u));
		if (u) {
			u->uid = uid;
			u->next = w->users;
			time_budget_init(&u->budget, now);
			w->users = u;
		}
	}
	return u;
}

static void demote(struct daemon_session *s)
{
	s->idle.demoted = true;
	s->d->counters.idle_demotions++;
	daemon_session_event(s, "limit",
			     "%s (user %u) shows open requests but does no work on the GPU: it is "
			     "class normal until it does",
			     s->name, (unsigned)s->peer.uid);
	daemon_session_set_class(s, GBPF_CLASS_NORMAL, 0);
}

static void restore(struct daemon_session *s)
{
	s->idle.demoted = false;
	if (s->class_id == GBPF_CLASS_NORMAL) {
		daemon_session_set_class(s, GBPF_CLASS_LATENCY, 0);
	}
}

/* ---- samples ---- */

static void sample(struct daemon_idle *w, struct daemon_session *s, uint64_t ns, uint64_t now)
{
	bool open = false;

	for (uint32_t gpu = 0; gpu < PROTO_MAX_GPUS && s->lc.slot >= 0; gpu++) {
		if (s->gpu_mask & 1u << gpu && (proto_board_open(s->board.map, gpu, now) ||
						proto_board_announced(s->board.map, gpu, now))) {
			s->idle.open_ns[gpu] += ns;
			open = true;
		}
	}
	if (open && !s->idle.has_worked) {
		struct user *u = user_of(w, s->peer.uid, now);

		if (u && u->budget.spent) {
			demote(s); /* it has come back, or another of its user's has */
		}
	}
}

/* ---- windows ---- */

/* What the tenant's page says. Counts only where the driver cannot be asked. */
static bool claims_work(struct daemon_session *s)
{
	const struct proto_stats *st = s->stats.map;
	uint64_t sum = load_relaxed(&st->launches) + load_relaxed(&st->copies) +
		       load_relaxed(&st->memsets) + load_relaxed(&st->graphs) +
		       load_relaxed(&st->busy_ns);
	bool moved = sum != s->idle.claims;

	s->idle.claims = sum;
	return moved;
}

/* Adds what the tenant's board owes for one GPU. The use that NVML reports of NVIDIA GPUs is
 * coarse: an H100 reports 0 % for a process that works for a twentieth of the time. So there a
 * process with a context owes only if its board is practically always open, and a tenth. */
static void judge_gpu(struct daemon_session *s, const struct daemon_gpu_use_gpu *g, uint64_t open,
		      uint64_t window_ns, bool claims, bool exact)
{
	const struct daemon_gpu_use_process *p = daemon_gpu_use_find(g, (int)s->peer.pid);

	if (!g->measured || s->peer.pid <= 0) {
		s->idle.has_worked |= claims;
		s->idle.charge_ns = MAX(s->idle.charge_ns, claims ? 0 : open);
	} else if (p && p->has_worked) {
		s->idle.has_worked = true;
	} else if (!p || exact) {
		s->idle.charge_ns = MAX(s->idle.charge_ns, open);
	} else if (open > window_ns / 10 * 9) {
		s->idle.charge_ns = MAX(s->idle.charge_ns, open / SHARE_COARSE);
	}
}

static void judge(struct daemon_idle *w, struct daemon_session *s, const struct daemon_gpu_use *use,
		  uint64_t now)
{
	bool claims = claims_work(s), exact = strcmp(w->d->devices.kind, "soft") == 0;
	struct user *u = user_of(w, s->peer.uid, now);

	s->idle.charge_ns = 0;
	s->idle.has_worked = false;
	for (unsigned gpu = 0; gpu < PROTO_MAX_GPUS; gpu++) {
		if (s->gpu_mask & 1u << gpu) {
			judge_gpu(s, &use->gpu[gpu], s->idle.window_ns[gpu], w->judged_ns, claims,
				  exact);
		}
		s->idle.window_ns[gpu] = 0;
	}
	if (u) {
		u->charge_ns += s->idle.charge_ns;
		u->has_worked |= s->idle.has_worked;
	}
}

/* Takes from the user's budget what the window has shown. The driver tells nothing of processes
 * that have ended: their open time counts unless another of the user's has worked. */
static void charge(struct daemon_idle *w, struct user *u, uint64_t now)
{
	uint64_t ns = u->charge_ns + (u->has_worked ? 0 : u->window_gone_ns);

	(void)time_budget_take(&u->budget, MIN(ns, w->judged_ns), now);
	u->charge_ns = u->window_gone_ns = 0;
	u->has_worked = false;
}

static void apply(struct daemon_idle *w, struct daemon_session *s, uint64_t now)
{
	const struct user *u = user_of(w, s->peer.uid, now);

	if (s->idle.demoted) {
		if (s->idle.has_worked || (u && !u->budget.spent)) {
			restore(s);
		}
	} else if (u && u->budget.spent && s->idle.charge_ns) {
		demote(s);
	}
}

static void forget_users(struct daemon_idle *w)
{
	for (struct user **link = &w->users; *link;) {
		struct user *u = *link;

		if (time_budget_is_full(&u->budget) && !u->gone_ns) {
			*link = u->next;
			free(u);
		} else {
			link = &u->next;
		}
	}
}

static void on_measured(struct daemon_job *j)
{
	struct daemon_gpu_use *use = (struct daemon_gpu_use *)j;
	struct daemon_idle *w = ((struct daemon *)use->arg)->idle;
	uint64_t now = clock_now_ns();

	w->measuring = false;
	daemon_session_each(w->d, s)
	{
		if (is_watched(s)) {
			judge(w, s, use, now);
		}
	}
	for (struct user *u = w->users; u; u = u->next) {
		charge(w, u, now);
	}
	daemon_session_each(w->d, s)
	{
		if (is_watched(s)) {
			apply(w, s, now);
		}
	}
	forget_users(w);
	free(use);
}

static void on_dropped(struct daemon_job *j)
{
	free(j);
}

/* Ends the window and has the driver asked about it. */
static void end_window(struct daemon_idle *w, uint64_t now)
{
	struct daemon_gpu_use *use = calloc(1, sizeof(*use));
	struct daemon *d = w->d;

	if (!use) {
		return; /* the window goes on */
	}
	use->job = (struct daemon_job){ .work = daemon_gpu_use_measure,
					.done = on_measured,
					.drop = on_dropped };
	use->arg = d;
	daemon_gpu_use_library(d->devices.kind, use->library);
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		if (d->devices.d[i].used) {
			daemon_gpu_uuid_text(d->devices.d[i].uuid, use->gpu[i].uuid);
		}
	}
	daemon_session_each(d, s)
	{
		memcpy(s->idle.window_ns, s->idle.open_ns, sizeof(s->idle.window_ns));
		memset(s->idle.open_ns, 0, sizeof(s->idle.open_ns));
	}
	for (struct user *u = w->users; u; u = u->next) {
		u->window_gone_ns = u->gone_ns;
		u->gone_ns = 0;
	}
	w->judged_ns = now - w->window_since_ns;
	w->window_since_ns = now;
	w->measuring = true;
	daemon_job_thread_submit(&d->control_thread, &use->job);
}

/* ---- the timer ---- */

static void arm(struct daemon_idle *w)
{
	unsigned random = 0;
	uint64_t usec;

	(void)getrandom(&random, sizeof(random), GRND_NONBLOCK);
	sd_event_now(w->d->loop, CLOCK_MONOTONIC, &usec);
	daemon_timer_arm(w->timer, usec + SAMPLE_MIN_USEC + random % SAMPLE_SPREAD_USEC);
}

static int on_timer(sd_event_source *src, uint64_t usec, void *arg)
{
	struct daemon_idle *w = arg;
	uint64_t now = clock_now_ns();
	uint64_t ns = MIN(now - w->sampled_ns, SAMPLE_MAX_NS);
	bool any = w->users || w->measuring;

	(void)src;
	(void)usec;
	w->sampled_ns = now;
	daemon_session_each(w->d, s)
	{
		if (is_watched(s)) {
			any = true;
			if (!daemon_policy_is_off(w->d)) {
				sample(w, s, ns, now);
			}
		}
	}
	if (now - w->window_since_ns >= WINDOW_NS && !w->measuring) {
		end_window(w, now);
	}
	w->on = any;
	if (any) {
		arm(w);
	}
	return 0;
}

static void board_published(struct daemon_session *s)
{
	struct daemon_idle *w = s->d->idle;

	if (w && !w->on) {
		w->on = true;
		w->sampled_ns = w->window_since_ns = clock_now_ns();
		arm(w);
	}
}

void daemon_idle_leave(struct daemon_session *s)
{
	struct daemon_idle *w = s->d->idle;
	uint64_t ns = 0;
	struct user *u;

	for (uint32_t gpu = 0; gpu < PROTO_MAX_GPUS; gpu++) {
		ns = MAX(ns, s->idle.open_ns[gpu] + s->idle.window_ns[gpu]);
	}
	u = w && ns && !s->idle.has_worked ? user_of(w, s->peer.uid, clock_now_ns()) : NULL;
	if (u) {
		u->gone_ns += ns;
	}
}

const struct daemon_feature daemon_idle_feature = {
	.board_published = board_published,
	.session_ended = daemon_idle_leave,
};

int daemon_idle_open(struct daemon *d)
{
	int err;

	d->idle = calloc(1, sizeof(*d->idle));
	if (!d->idle) {
		return -ENOMEM;
	}
	d->idle->d = d;
	err = sd_event_add_time(d->loop, &d->idle->timer, CLOCK_MONOTONIC, UINT64_MAX, 1, on_timer,
				d->idle);
	if (err >= 0) {
		err = sd_event_source_set_enabled(d->idle->timer, SD_EVENT_OFF);
	}
	return err < 0 ? err : 0;
}

void daemon_idle_close(struct daemon *d)
{
	struct daemon_idle *w = d->idle;

	if (!w) {
		return;
	}
	d->idle = NULL;
	sd_event_source_disable_unref(w->timer);
	while (w->users) {
		struct user *u = w->users;

		w->users = u->next;
		free(u);
	}
	free(w);
}
