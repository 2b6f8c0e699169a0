/* Hardware control, the part on the main thread: takes handles, records what is wanted for each
 * tenant and submits it to the control thread when it differs from what was submitted last. Calls
 * no driver, because that may block for milliseconds. hw_level.c decides when a level ends. */
#include "daemon/hw/hw_control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/paths.h"
#include "daemon/consts.h"
#include "daemon/hw/sharing_mode.h"
#include "gpu/control.h"

#define SHORTEST_US 1u
#define LONGEST_US 100000u	 /* that every device takes; some take more */
#define SLICE_PAUSE_NS 20000000u /* between two changes of a tenant's slice */
#define CLOSE_NS 500000000u
#define ON_AGAIN_NS 10000000u /* after a failed attempt to switch work on again */
#define UNKNOWN UINT32_MAX
/* A request that we see now may have been open for so long. What its tenant says counts no further:
 * the word of one that lies could end others at once. */
#define UNSEEN_NS UINT64_C(20000000)

struct part {
	bool used;
	uint32_t gpu; /* gbpfd's number */
	int fd;	      /* owned */
	struct gpu_handles h;
	uint32_t slice_us; /* in force; 0: nothing of ours; UNKNOWN */
	bool off, left; /* switched off; taken off the hardware, for the level that is in force */
};

struct order {
	uint32_t slice_us, level, gpus;
};

struct daemon_hw {
	struct daemon_job job; /* first */
	struct daemon *d;
	struct daemon_session *s; /* NULL: it has ended */
	bool working;		  /* the thread has the parts and done */
	bool gone;		  /* its process is dead: there is nothing to take back */
	bool dirty;		  /* handles have come */
	struct part part[PROTO_MAX_GPUS], fresh[PROTO_MAX_GPUS];
	struct order want, done;
	uint64_t slice_version, level_version;
	int for_tenant; /* -1: nobody's request */
	uint64_t for_key, said_ns, since_ns, pause_ns;
	uint64_t slice_ns; /* when a slice was changed last */
	uint64_t worked_ns;
	int err; /* of the last work */
	bool told;
};

/* ---- on the thread ---- */

static bool must_switch_on(const struct part *p, enum gpu_control c)
{
	return p->h.capable & 1u << c;
}

/* Changes of slice are spaced by SLICE_INTERVAL_NS; changes of level are due at once. */
static int set_slice(struct part *p, uint32_t slice_us)
{
	int err;

	if (p->slice_us == slice_us || !must_switch_on(p, GPU_CONTROL_SLICE_SET)) {
		return 0;
	}
	err = gpu_control(&p->h, p->fd, GPU_CONTROL_SLICE_SET, slice_us, NULL);
	if (err == -EINVAL && slice_us > LONGEST_US) {
		err = gpu_control(&p->h, p->fd, GPU_CONTROL_SLICE_SET, LONGEST_US, NULL);
	}
	p->slice_us = err ? UNKNOWN : slice_us;
	return err;
}

static int set_off(struct part *p, bool off)
{
	int err;

	if (p->off == off || !must_switch_on(p, GPU_CONTROL_SCHEDULE)) {
		return 0;
	}
	p->off = true; /* also where it failed half way: then it is tried again */
	err = gpu_control(&p->h, p->fd, GPU_CONTROL_SCHEDULE, !off, NULL);
	p->off = err && !off ? true : off;
	return err;
}

static int leave(struct part *p, bool now)
{
	int err = 0;

	if (now && !p->left && must_switch_on(p, GPU_CONTROL_PREEMPT)) {
		err = gpu_control(&p->h, p->fd, GPU_CONTROL_PREEMPT, 1, NULL);
	}
	p->left = now;
	return err == -ETIMEDOUT ? 0 : err;
}

static int act_on(struct part *p, const struct order *o)
{
	bool here = o->gpus & 1u << p->gpu;
	uint32_t level = here ? o->level : GBPF_LEVEL_NONE;
	int err = set_off(p, level == GBPF_LEVEL_OFF), e;

	e = set_slice(p, level == GBPF_LEVEL_SLICE ? SHORTEST_US : o->slice_us);
	err = err ? err : e;
	e = leave(p, level == GBPF_LEVEL_SLICE);
	return err ? err : e;
}

/* ---- the end of a session ---- */

static void part_close(struct part *p)
{
	if (p->used) {
		fd_close_foreign(p->fd);
		memset(p, 0, sizeof(*p));
	}
}

static void act(struct daemon_job *j)
{
	struct daemon_hw *st = (struct daemon_hw *)j;

	st->err = 0;
	for (unsigned i = 0; i < PROTO_MAX_GPUS && !st->gone; i++) {
		struct part *p = &st->part[i];
		int err = p->used ? act_on(p, &st->done) : 0;
		if (err == -ENODEV) { /* its context has gone */
			part_close(p);
		} else if (err) {
			st->err = err;
		}
	}
}

static void act_last(struct daemon_job *j)
{
	struct daemon_hw *st = (struct daemon_hw *)j;

	act(j);
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		part_close(&st->part[i]);
		part_close(&st->fresh[i]);
	}
}

static void last_done(struct daemon_job *j)
{
	free(j);
}

static void last_dropped(struct daemon_job *j)
{
	act_last(j);
	free(j);
}

/* ---- on the loop ---- */

static void daemon_hw_update(struct daemon_hw *st, uint64_t now);

static void install(struct daemon_hw *st, unsigned i)
{
	struct part *p = &st->part[i], *f = &st->fresh[i];
	bool touched = p->used && (p->off || p->slice_us);

	if (p->used) {
		fd_close_foreign(p->fd);
	}
	*p = *f;
	p->off = touched;
	p->slice_us = touched ? UNKNOWN : 0;
	memset(f, 0, sizeof(*f));
	st->dirty = true;
}

static void report_error(struct daemon_hw *st)
{
	if (st->err && !st->told && st->s) {
		st->told = true;
		daemon_session_event(st->s, "control",
				     "cannot apply time slice or suspension to %s: %s", st->s->name,
				     strerror(-st->err));
	}
}

static void finish(struct daemon_hw *st)
{
	st->done = (struct order){ 0, GBPF_LEVEL_NONE, 0 };
	st->job = (struct daemon_job){ .work = act_last, .done = last_done, .drop = last_dropped };
	if (st->d->control_thread.running) {
		daemon_job_thread_submit(&st->d->control_thread, &st->job);
	} else {
		last_dropped(&st->job);
	}
}

static void worked(struct daemon_job *j)
{
	struct daemon_hw *st = (struct daemon_hw *)j;

	st->working = false;
	st->worked_ns = clock_now_ns();
	if (!st->s) {
		finish(st);
		return;
	}
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		if (st->fresh[i].used) {
			install(st, i);
		}
	}
	report_error(st);
	daemon_hw_update(st, clock_now_ns());
}

static void on_dropped(struct daemon_job *j)
{
	struct daemon_hw *st = (struct daemon_hw *)j;

	st->working = false; /* gbpfd ends: steers_close sees to it */
}

static bool same(const struct order *a, const struct order *b)
{
	bool none = a->level == GBPF_LEVEL_NONE && b->level == GBPF_LEVEL_NONE;

	return a->slice_us == b->slice_us && a->level == b->level && (none || a->gpus == b->gpus);
}

static struct order order_of(const struct daemon_hw *st)
{
	struct order o = st->want;

	if (st->pause_ns) {
		o.level = GBPF_LEVEL_NONE;
	}
	return o;
}

/* A part is switched off for nobody any more: the control was refused, perhaps by chance. */
static bool left_off(const struct daemon_hw *st)
{
	for (unsigned i = 0; i < PROTO_MAX_GPUS && !st->working; i++) {
		const struct part *p = &st->part[i];

		if (p->used && p->off && must_switch_on(p, GPU_CONTROL_SCHEDULE) &&
		    (st->done.level != GBPF_LEVEL_OFF || !(st->done.gpus & 1u << p->gpu))) {
			return true;
		}
	}
	return false;
}

/* Slices wait for each other; levels do not wait. */
static bool is_due(const struct daemon_hw *st, const struct order *o, uint64_t now)
{
	if (left_off(st) && now - st->worked_ns >= ON_AGAIN_NS) {
		return true;
	}
	if (st->dirty) {
		return !same(o, &(struct order){ 0, GBPF_LEVEL_NONE, 0 }) || st->done.slice_us ||
		       st->done.level != GBPF_LEVEL_NONE;
	}
	if (same(o, &st->done)) {
		return false;
	}
	return o->level != st->done.level || now - st->slice_ns >= SLICE_PAUSE_NS;
}

static void daemon_hw_update(struct daemon_hw *st, uint64_t now)
{
	struct order o = order_of(st);

	if (st->working || !st->d->control_thread.running || !is_due(st, &o, now)) {
		return;
	}
	if (o.slice_us != st->done.slice_us) {
		st->slice_ns = now;
	}
	st->done = o;
	st->dirty = false;
	st->working = true;
	st->job = (struct daemon_job){ .work = act, .done = worked, .drop = on_dropped };
	daemon_job_thread_submit(&st->d->control_thread, &st->job);
}

/* Returns the session's state, created if there is none; NULL: out of memory. */
static struct daemon_hw *make(struct daemon_session *s)
{
	struct daemon_hw *st = s->steer ? s->steer : calloc(1, sizeof(*st));

	if (st && !s->steer) {
		st->d = s->d;
		st->s = s;
		st->for_tenant = -1;
		st->want = st->done = (struct order){ 0, GBPF_LEVEL_NONE, 0 };
		st->want.slice_us = s->slice_us;
		st->slice_version = s->slice_version;
		s->steer = st;
	}
	return st;
}

static int check(const struct daemon_session *s, const struct proto_control *m,
		 struct gpu_handles *h)
{
	if (m->gpu >= s->gpus || (m->bytes && m->bytes != sizeof(*h))) {
		return -EPROTO;
	}
	memcpy(h, m->handles, sizeof(*h));
	return m->bytes ? gpu_handles_check(h) : 0;
}

void daemon_hw_take_handles(struct daemon_session *s, const struct proto_control *m, int fd)
{
	struct gpu_handles h;
	struct daemon_hw *st;
	int err = check(s, m, &h);

	_Static_assert(sizeof(struct gpu_handles) <= PROTO_HANDLES, "handles fit their message");
	st = err ? NULL : make(s);
	if (!st || !m->bytes) {
		fd_close_foreign(fd);
	}
	if (err) {
		s->d->counters.garbage++;
		daemon_session_event(s, "control", "cannot use the hardware handles of %s: invalid",
				     s->name);
		return;
	}
	if (!st || (!m->bytes && st->working)) {
		return;
	}
	if (!m->bytes) {
		part_close(&st->part[m->gpu]);
		return;
	}
	part_close(&st->fresh[m->gpu]);
	st->fresh[m->gpu] =
		(struct part){ .used = true, .gpu = s->gpu_index[m->gpu], .fd = fd, .h = h };
	s->capable = h.capable;
	daemon_gpus_set_capable(&s->d->devices, s->gpu_index[m->gpu], h.capable);
	if (!st->working) {
		install(st, m->gpu);
		daemon_hw_update(st, clock_now_ns());
	}
}

void daemon_hw_session_ended(struct daemon_session *s)
{
	struct daemon_hw *st = s->steer;

	s->steer = NULL;
	if (st) {
		st->s = NULL;
		st->gone = s->dead;
		if (!st->working) {
			finish(st);
		}
	}
}

/* ---- wishes ---- */

uint32_t daemon_hw_levels(const struct daemon_session *s)
{
	uint32_t levels = 1u << GBPF_LEVEL_HOLD | 1u << GBPF_LEVEL_DRAIN;

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		levels |= s->flag[i] ? 1u << GBPF_LEVEL_BLOCK : 0;
	}
	if (s->lane == GBPF_LANE_PROCESS && s->steer) {
		levels |= s->capable & 1u << GPU_CONTROL_SLICE_SET ? 1u << GBPF_LEVEL_SLICE : 0;
		levels |= s->capable & 1u << GPU_CONTROL_SCHEDULE ? 1u << GBPF_LEVEL_OFF : 0;
	}
	return levels | (s->pidfd >= 0 ? 1u << GBPF_LEVEL_END : 0);
}

uint32_t daemon_hw_level(const struct daemon_session *s)
{
	return s->steer ? s->steer->want.level : GBPF_LEVEL_NONE;
}

uint32_t daemon_hw_slice_us(const struct daemon_session *s)
{
	return s->steer ? s->steer->want.slice_us : 0;
}

int daemon_hw_set_slice(struct daemon_session *s, uint32_t slice_us, uint64_t version)
{
	struct daemon_hw *st;

	if (slice_us > LANE_MAX_SLICE_US) {
		return -EINVAL;
	}
	if (s->lane != GBPF_LANE_PROCESS ||
	    (s->steer && !(s->capable & 1u << GPU_CONTROL_SLICE_SET))) {
		return -ENOTSUP;
	}
	st = make(s);
	if (!st) {
		return -ENOMEM;
	}
	st->slice_version = version;
	if (st->want.slice_us != slice_us) {
		st->want.slice_us = slice_us;
		daemon_hw_update(st, clock_now_ns());
	}
	return 0;
}

static void daemon_hw_end_level(struct daemon_hw *st, uint64_t now)
{
	st->want.level = GBPF_LEVEL_NONE;
	st->for_tenant = -1;
	st->pause_ns = 0;
	daemon_hw_update(st, now);
}

int daemon_hw_set_level(struct daemon_session *s, uint32_t level, uint32_t gpus, uint64_t version,
			const struct daemon_session *for_s)
{
	struct daemon_hw *st = s->steer;
	uint64_t now = clock_now_ns(), key = 0;

	if (level < GBPF_LEVEL_SLICE) {
		if (st && st->want.level != GBPF_LEVEL_NONE) {
			daemon_hw_end_level(st, now);
		}
		return 0;
	}
	if (level > GBPF_LEVEL_OFF) {
		return -EINVAL;
	}
	if (!st || !(daemon_hw_levels(s) & 1u << level)) {
		return -ENOTSUP;
	}
	if (for_s) {
		(void)daemon_hw_request_since((struct daemon_session *)(uintptr_t)for_s,
					      (uint32_t)__builtin_ctz(gpus), now, &key);
	}
	if (st->want.level == GBPF_LEVEL_NONE) {
		st->since_ns = now;
	}
	st->want.level = level;
	st->want.gpus = gpus;
	st->level_version = version;
	st->for_tenant = for_s ? for_s->tenant : -1;
	st->for_key = key;
	st->said_ns = now;
	daemon_hw_update(st, now);
	return 0;
}

/* ---- ends ---- */

uint64_t daemon_hw_request_since(struct daemon_session *s, uint32_t gpu, uint64_t now,
				 uint64_t *ret_key)
{
	const struct proto_board *board = s->board.map;
	const struct proto_board_gpu *b = &board->gpu[gpu];
	uint64_t key = load_relaxed(&b->last_end_ns), opened;

	*ret_key = key;
	if (!proto_board_open(board, gpu, now)) {
		s->request_since[gpu] = 0;
		return 0;
	}
	if (!s->request_since[gpu] || s->request_key[gpu] != key) {
		opened = load_relaxed(&b->opened_ns);
		s->request_key[gpu] = key;
		s->request_since[gpu] =
			opened && opened < now ? MAX(opened, now - MIN(now, UNSEEN_NS)) : now;
	}
	return s->request_since[gpu];
}

static bool request_goes_on(const struct daemon_hw *st, uint64_t now)
{
	struct daemon_session *t = st->for_tenant >= 0 ? st->d->tenant[st->for_tenant] : NULL;
	uint64_t key;

	return t && !t->dying && t->board.map && t->class_id == GBPF_CLASS_LATENCY &&
	       daemon_hw_request_since(t, (uint32_t)__builtin_ctz(st->want.gpus), now, &key) &&
	       key == st->for_key;
}

/* At the hold limit it runs for its minimum share, whatever the policy says. */
static void limit(struct daemon_hw *st, uint64_t now)
{
	if (!st->pause_ns && now - st->since_ns > DAEMON_HOLD_LIMIT_NS) {
		st->pause_ns =
			now + (uint64_t)DAEMON_HOLD_LIMIT_NS / 1000000u * DAEMON_MIN_SHARE_PPM;
	} else if (st->pause_ns && now > st->pause_ns) {
		st->pause_ns = 0;
		st->since_ns = now;
	}
}

static bool look(struct daemon_hw *st, uint64_t now)
{
	if (st->want.level != GBPF_LEVEL_NONE) {
		bool on = st->for_tenant >= 0 ? request_goes_on(st, now)
					      : now - st->said_ns < DAEMON_HOLD_LIMIT_NS;

		if (!on) {
			daemon_hw_end_level(st, now);
		} else {
			limit(st, now);
		}
	}
	daemon_hw_update(st, now);
	return st->want.level != GBPF_LEVEL_NONE || st->working || !same(&st->done, &st->want) ||
	       left_off(st);
}

bool daemon_hw_tick(struct daemon *d, uint64_t now)
{
	bool any = false;

	daemon_session_each(d, s)
	{
		any |= s->steer && look(s->steer, now);
	}
	return any;
}

void daemon_hw_version_ended(struct daemon *d, uint64_t version)
{
	uint64_t now = clock_now_ns();

	daemon_session_each(d, s)
	{
		struct daemon_hw *st = s->steer;

		if (s->slice_version == version) {
			s->slice_us = 0;
		}
		if (st && st->slice_version == version) {
			st->want.slice_us = 0;
			st->slice_ns = 0; /* due at once */
			daemon_hw_update(st, now);
		}
		if (st && st->level_version == version && st->want.level != GBPF_LEVEL_NONE) {
			daemon_hw_end_level(st, now);
		}
	}
}

void daemon_hw_release_levels(struct daemon *d)
{
	daemon_session_each(d, s)
	{
		if (s->steer && s->steer->want.level != GBPF_LEVEL_NONE) {
			daemon_hw_end_level(s->steer, clock_now_ns());
		}
	}
}

/* ---- gbpfd's own life ---- */

int daemon_hw_open(struct daemon *d)
{
	char path[DAEMON_PATH];

	/* The soft GPU that programs of this runtime directory use has its socket there. */
	if (strcmp(d->devices.kind, "soft") == 0 &&
	    setenv("GBPF_RUNTIME_DIR", d->opt.runtime, 1) == 0 &&
	    path_lib(path, sizeof(path), "soft/libcuda.so.1") == 0) {
		gpu_control_soft_library(path);
	}
	return daemon_job_thread_start(&d->control_thread, d->loop);
}

void daemon_hw_close(struct daemon *d)
{
	uint64_t until = clock_now_ns() + CLOSE_NS;

	daemon_job_thread_stop(&d->control_thread);
	daemon_session_each(d, s)
	{
		struct daemon_hw *st = s->steer;
		bool touched = false;

		for (unsigned i = 0; st && i < PROTO_MAX_GPUS; i++) {
			touched |= st->part[i].used && (st->part[i].off || st->part[i].slice_us);
		}
		if (touched && clock_now_ns() < until) {
			st->done = (struct order){ 0, GBPF_LEVEL_NONE, 0 };
			act(&st->job);
		}
	}
}
