/* Each tenant has an order (what is wanted), and parts (handles and what is in force, one a GPU).
 * The loop changes orders and hands them to the thread; the thread alone touches parts while it has
 * them. Nothing stays in force for ever: a level ends with the request for which it was taken, with
 * who asked, with the policy's version, and is interrupted at the hold limit, so that tenants that
 * wait for each other go on. */
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
#define ON_AGAIN_NS 10000000u /* until who could not be switched on is tried again */
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

struct steer {
	struct job job; /* first */
	struct daemon *d;
	struct session *s; /* NULL: it has ended */
	bool working;	   /* the thread has the parts and done */
	bool gone;	   /* its process is dead: there is nothing to take back */
	bool dirty;	   /* handles have come */
	struct part part[WIRE_GPUS], fresh[WIRE_GPUS];
	struct order want, done;
	uint64_t slice_version, level_version;
	int for_tenant; /* -1: nobody's request */
	uint64_t for_key, said_ns, since_ns, pause_ns;
	uint64_t slice_ns; /* when a slice was changed last */
	uint64_t worked_ns;
	int err;   /* of the last work */
	bool told; /* the history knows that something was refused */
};

/* ---- on the thread ---- */

static bool can(const struct part *p, enum gpu_control c)
{
	return p->h.capable & 1u << c;
}

static int set_slice(struct part *p, uint32_t slice_us)
{
	int err;

	if (p->slice_us == slice_us || !can(p, GPU_CONTROL_SLICE_SET)) {
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

	if (p->off == off || !can(p, GPU_CONTROL_SCHEDULE)) {
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

	if (now && !p->left && can(p, GPU_CONTROL_PREEMPT)) {
		err = gpu_control(&p->h, p->fd, GPU_CONTROL_PREEMPT, 1, NULL);
	}
	p->left = now;
	return err == -ETIMEDOUT ? 0 : err; /* it leaves when it can */
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

static void part_close(struct part *p)
{
	if (p->used) {
		fd_close_foreign(p->fd);
		memset(p, 0, sizeof(*p));
	}
}

static void act(struct job *j)
{
	struct steer *st = (struct steer *)j;

	st->err = 0;
	for (unsigned i = 0; i < WIRE_GPUS && !st->gone; i++) {
		struct part *p = &st->part[i];
		int err = p->used ? act_on(p, &st->done) : 0;

		if (err == -ENODEV) { /* its context has gone */
			part_close(p);
		} else if (err) {
			st->err = err;
		}
	}
}

static void act_last(struct job *j)
{
	struct steer *st = (struct steer *)j;

	act(j);
	for (unsigned i = 0; i < WIRE_GPUS; i++) {
		part_close(&st->part[i]);
		part_close(&st->fresh[i]);
	}
}

static void last_done(struct job *j)
{
	free(j);
}

static void last_dropped(struct job *j)
{
	act_last(j);
	free(j);
}

/* ---- on the loop ---- */

static void kick(struct steer *st, uint64_t now);

static void install(struct steer *st, unsigned i)
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

static void tell_refusal(struct steer *st)
{
	if (st->err && !st->told && st->s) {
		st->told = true;
		session_event(st->s, "control", "%s cannot be stopped from outside as wanted: %s",
			      st->s->name, strerror(-st->err));
	}
}

static void finish(struct steer *st)
{
	st->done = (struct order){ 0, GBPF_LEVEL_NONE, 0 };
	st->job = (struct job){ .work = act_last, .done = last_done, .drop = last_dropped };
	if (st->d->hands.running) {
		worker_submit(&st->d->hands, &st->job);
	} else {
		last_dropped(&st->job);
	}
}

static void worked(struct job *j)
{
	struct steer *st = (struct steer *)j;

	st->working = false;
	st->worked_ns = clock_now_ns();
	if (!st->s) {
		finish(st);
		return;
	}
	for (unsigned i = 0; i < WIRE_GPUS; i++) {
		if (st->fresh[i].used) {
			install(st, i);
		}
	}
	tell_refusal(st);
	kick(st, clock_now_ns());
}

static void dropped(struct job *j)
{
	struct steer *st = (struct steer *)j;

	st->working = false; /* gbpfd ends: steers_close sees to it */
}

static bool same(const struct order *a, const struct order *b)
{
	bool none = a->level == GBPF_LEVEL_NONE && b->level == GBPF_LEVEL_NONE;

	return a->slice_us == b->slice_us && a->level == b->level && (none || a->gpus == b->gpus);
}

static struct order order_of(const struct steer *st)
{
	struct order o = st->want;

	if (st->pause_ns) {
		o.level = GBPF_LEVEL_NONE;
	}
	return o;
}

/* A part is switched off for nobody any more: the control was refused, perhaps by chance. */
static bool left_off(const struct steer *st)
{
	for (unsigned i = 0; i < WIRE_GPUS && !st->working; i++) {
		const struct part *p = &st->part[i];

		if (p->used && p->off && can(p, GPU_CONTROL_SCHEDULE) &&
		    (st->done.level != GBPF_LEVEL_OFF || !(st->done.gpus & 1u << p->gpu))) {
			return true;
		}
	}
	return false;
}

/* Slices wait for each other; levels do not wait. */
static bool is_due(const struct steer *st, const struct order *o, uint64_t now)
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

static void kick(struct steer *st, uint64_t now)
{
	struct order o = order_of(st);

	if (st->working || !st->d->hands.running || !is_due(st, &o, now)) {
		return;
	}
	if (o.slice_us != st->done.slice_us) {
		st->slice_ns = now;
	}
	st->done = o;
	st->dirty = false;
	st->working = true;
	st->job = (struct job){ .work = act, .done = worked, .drop = dropped };
	worker_submit(&st->d->hands, &st->job);
}

static struct steer *make(struct session *s)
{
	struct steer *st = s->steer ? s->steer : calloc(1, sizeof(*st));

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

static int check(const struct session *s, const struct wire_control *m, struct gpu_handles *h)
{
	if (m->gpu >= s->gpus || (m->bytes && m->bytes != sizeof(*h))) {
		return -EPROTO;
	}
	memcpy(h, m->handles, sizeof(*h));
	return m->bytes ? gpu_handles_check(h) : 0;
}

void steer_take(struct session *s, const struct wire_control *m, int fd)
{
	struct gpu_handles h;
	struct steer *st;
	int err = check(s, m, &h);

	_Static_assert(sizeof(struct gpu_handles) <= WIRE_HANDLES, "handles fit their message");
	st = err ? NULL : make(s);
	if (!st || !m->bytes) {
		fd_close_foreign(fd);
	}
	if (err) {
		s->d->counters.garbage++;
		session_event(s, "control", "the handles of %s are refused", s->name);
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
	devices_tried(&s->d->devices, s->gpu_index[m->gpu], h.capable);
	if (!st->working) {
		install(st, m->gpu);
		kick(st, clock_now_ns());
	}
}

void steer_forget(struct session *s)
{
	struct steer *st = s->steer;

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

uint32_t steer_levels(const struct session *s)
{
	uint32_t levels = 1u << GBPF_LEVEL_HOLD | 1u << GBPF_LEVEL_DRAIN;

	for (unsigned i = 0; i < WIRE_GPUS; i++) {
		levels |= s->flag[i] ? 1u << GBPF_LEVEL_BLOCK : 0;
	}
	if (s->lane == GBPF_LANE_PROCESS && s->steer) {
		levels |= s->capable & 1u << GPU_CONTROL_SLICE_SET ? 1u << GBPF_LEVEL_SLICE : 0;
		levels |= s->capable & 1u << GPU_CONTROL_SCHEDULE ? 1u << GBPF_LEVEL_OFF : 0;
	}
	return levels | (s->pidfd >= 0 ? 1u << GBPF_LEVEL_END : 0);
}

uint32_t steer_level_of(const struct session *s)
{
	return s->steer ? s->steer->want.level : GBPF_LEVEL_NONE;
}

uint32_t steer_slice_of(const struct session *s)
{
	return s->steer ? s->steer->want.slice_us : 0;
}

int steer_slice(struct session *s, uint32_t slice_us, uint64_t version)
{
	struct steer *st;

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
		kick(st, clock_now_ns());
	}
	return 0;
}

static void end_level(struct steer *st, uint64_t now)
{
	st->want.level = GBPF_LEVEL_NONE;
	st->for_tenant = -1;
	st->pause_ns = 0;
	kick(st, now);
}

int steer_level(struct session *s, uint32_t level, uint32_t gpus, uint64_t version,
		const struct session *for_s)
{
	struct steer *st = s->steer;
	uint64_t now = clock_now_ns(), key = 0;

	if (level < GBPF_LEVEL_SLICE) {
		if (st && st->want.level != GBPF_LEVEL_NONE) {
			end_level(st, now);
		}
		return 0;
	}
	if (level > GBPF_LEVEL_OFF) {
		return -EINVAL;
	}
	if (!st || !(steer_levels(s) & 1u << level)) {
		return -ENOTSUP;
	}
	if (for_s) {
		(void)steer_request((struct session *)(uintptr_t)for_s,
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
	kick(st, now);
	return 0;
}

/* ---- ends ---- */

uint64_t steer_request(struct session *s, uint32_t gpu, uint64_t now, uint64_t *ret_key)
{
	const struct sched_board *board = s->board.map;
	const struct sched_board_gpu *b = &board->gpu[gpu];
	uint64_t key = load_relaxed(&b->last_end_ns), opened;

	*ret_key = key;
	if (!sched_board_open(board, gpu, now)) {
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

static bool request_goes_on(const struct steer *st, uint64_t now)
{
	struct session *t = st->for_tenant >= 0 ? st->d->tenant[st->for_tenant] : NULL;
	uint64_t key;

	return t && !t->dying && t->board.map && t->class_id == GBPF_CLASS_LATENCY &&
	       steer_request(t, (uint32_t)__builtin_ctz(st->want.gpus), now, &key) &&
	       key == st->for_key;
}

/* At the hold limit it runs for its minimum share, whatever the policy says. */
static void limit(struct steer *st, uint64_t now)
{
	if (!st->pause_ns && now - st->since_ns > DAEMON_HOLD_LIMIT_NS) {
		st->pause_ns =
			now + (uint64_t)DAEMON_HOLD_LIMIT_NS / 1000000u * DAEMON_MIN_SHARE_PPM;
	} else if (st->pause_ns && now > st->pause_ns) {
		st->pause_ns = 0;
		st->since_ns = now;
	}
}

static bool look(struct steer *st, uint64_t now)
{
	if (st->want.level != GBPF_LEVEL_NONE) {
		bool on = st->for_tenant >= 0 ? request_goes_on(st, now)
					      : now - st->said_ns < DAEMON_HOLD_LIMIT_NS;

		if (!on) {
			end_level(st, now);
		} else {
			limit(st, now);
		}
	}
	kick(st, now);
	return st->want.level != GBPF_LEVEL_NONE || st->working || !same(&st->done, &st->want) ||
	       left_off(st);
}

bool steer_tick(struct daemon *d, uint64_t now)
{
	bool any = false;

	session_each(d, s)
	{
		any |= s->steer && look(s->steer, now);
	}
	return any;
}

void steer_version_ended(struct daemon *d, uint64_t version)
{
	uint64_t now = clock_now_ns();

	session_each(d, s)
	{
		struct steer *st = s->steer;

		if (s->slice_version == version) {
			s->slice_us = 0;
		}
		if (st && st->slice_version == version) {
			st->want.slice_us = 0;
			st->slice_ns = 0; /* at once */
			kick(st, now);
		}
		if (st && st->level_version == version && st->want.level != GBPF_LEVEL_NONE) {
			end_level(st, now);
		}
	}
}

void steer_release(struct daemon *d)
{
	session_each(d, s)
	{
		if (s->steer && s->steer->want.level != GBPF_LEVEL_NONE) {
			end_level(s->steer, clock_now_ns());
		}
	}
}

/* ---- gbpfd's own life ---- */

int steers_open(struct daemon *d)
{
	char path[DAEMON_PATH];

	/* The soft GPU that programs of this runtime directory use has its socket there. */
	if (strcmp(d->devices.kind, "soft") == 0 &&
	    setenv("GBPF_RUNTIME_DIR", d->opt.runtime, 1) == 0 &&
	    path_lib(path, sizeof(path), "soft/libcuda.so.1") == 0) {
		gpu_control_soft_library(path);
	}
	return worker_start(&d->hands, d->loop);
}

void steers_close(struct daemon *d)
{
	uint64_t until = clock_now_ns() + CLOSE_NS;

	worker_stop(&d->hands);
	session_each(d, s)
	{
		struct steer *st = s->steer;
		bool touched = false;

		for (unsigned i = 0; st && i < WIRE_GPUS; i++) {
			touched |= st->part[i].used && (st->part[i].off || st->part[i].slice_us);
		}
		if (touched && clock_now_ns() < until) {
			st->done = (struct order){ 0, GBPF_LEVEL_NONE, 0 };
			act(&st->job);
		}
	}
}
