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
#include "daemon/hw/hw_control_int.h"
#include "daemon/hw/sharing_mode.h"

#define SLICE_INTERVAL_NS 20000000u  /* between two changes of a tenant's slice */
#define SWITCH_ON_RETRY_NS 10000000u /* after a failed attempt to switch work on again */
#define CLOSE_TIMEOUT_NS 500000000u
#define OFFERS_PER_SECOND 200u

/* ---- submission ---- */

static bool same(const struct daemon_hw_target *a, const struct daemon_hw_target *b)
{
	bool none = a->level == GBPF_LEVEL_NONE && b->level == GBPF_LEVEL_NONE;

	return a->slice_us == b->slice_us && a->level == b->level && (none || a->gpus == b->gpus);
}

static struct daemon_hw_target target_now(const struct daemon_hw *hw)
{
	struct daemon_hw_target t = hw->want;

	if (hw->pause_until_ns) {
		t.level = GBPF_LEVEL_NONE;
	}
	return t;
}

/* Returns true if a GPU is switched off although no level asks for it: the driver refused to switch
 * it on, perhaps only for the moment. */
static bool must_switch_on(const struct daemon_hw *hw)
{
	for (unsigned i = 0; i < PROTO_MAX_GPUS && !hw->working; i++) {
		const struct daemon_hw_gpu *g = &hw->gpu[i];

		if (g->used && g->off && daemon_hw_gpu_can(g, GPU_CONTROL_SCHEDULE) &&
		    (hw->done.level != GBPF_LEVEL_OFF || !(hw->done.gpus & 1u << g->gpu))) {
			return true;
		}
	}
	return false;
}

/* Changes of slice are spaced by SLICE_INTERVAL_NS; changes of level are due at once. */
static bool is_due(const struct daemon_hw *hw, const struct daemon_hw_target *t, uint64_t now)
{
	if (must_switch_on(hw) && now - hw->finished_ns >= SWITCH_ON_RETRY_NS) {
		return true;
	}
	if (hw->new_handles) {
		return !same(t, &HW_NOTHING) || hw->done.slice_us ||
		       hw->done.level != GBPF_LEVEL_NONE;
	}
	if (same(t, &hw->done)) {
		return false;
	}
	return t->level != hw->done.level || now - hw->slice_changed_ns >= SLICE_INTERVAL_NS;
}

static void on_applied(struct daemon_job *j);
static void on_dropped(struct daemon_job *j);

void daemon_hw_update(struct daemon_hw *hw, uint64_t now)
{
	struct daemon_hw_target t = target_now(hw);

	if (hw->working || !hw->d->control_thread.running || !is_due(hw, &t, now)) {
		return;
	}
	if (t.slice_us != hw->done.slice_us) {
		hw->slice_changed_ns = now;
	}
	hw->done = t;
	hw->new_handles = false;
	hw->working = true;
	hw->job = (struct daemon_job){ .work = daemon_hw_apply,
				       .done = on_applied,
				       .drop = on_dropped };
	daemon_job_thread_submit(&hw->d->control_thread, &hw->job);
}

bool daemon_hw_is_busy(const struct daemon_hw *hw)
{
	return hw->want.level != GBPF_LEVEL_NONE || hw->working || !same(&hw->done, &hw->want) ||
	       must_switch_on(hw);
}

/* ---- the end of a session ---- */

static void on_last_applied(struct daemon_job *j)
{
	free(j);
}

static void on_last_dropped(struct daemon_job *j)
{
	daemon_hw_apply_last(j);
	free(j);
}

/* Undoes what is in force and frees hw. */
static void release(struct daemon_hw *hw)
{
	hw->done = HW_NOTHING;
	hw->job = (struct daemon_job){ .work = daemon_hw_apply_last,
				       .done = on_last_applied,
				       .drop = on_last_dropped };
	if (hw->d->control_thread.running) {
		daemon_job_thread_submit(&hw->d->control_thread, &hw->job);
	} else {
		on_last_dropped(&hw->job);
	}
}

/* Undoes what is in force for the session. */
static void session_ended(struct daemon_session *s)
{
	struct daemon_hw *hw = s->hw.state;

	s->hw.state = NULL;
	if (hw) {
		hw->s = NULL;
		store_relaxed(&hw->exited, s->dead);
		if (!hw->working) {
			release(hw);
		}
	}
}

/* ---- handles ---- */

/* New handles start with what was in force through the old ones, whose effect is unknown. */
static void install(struct daemon_hw *hw, unsigned ordinal)
{
	struct daemon_hw_gpu *g = &hw->gpu[ordinal], *received = &hw->received[ordinal];
	bool touched = g->used && (g->off || g->slice_us);

	if (g->used) {
		fd_close_foreign(g->fd);
	}
	*g = *received;
	g->off = touched;
	g->slice_us = touched ? DAEMON_HW_SLICE_UNKNOWN : 0;
	memset(received, 0, sizeof(*received));
	hw->new_handles = true;
}

static void report_error(struct daemon_hw *hw)
{
	if (hw->err && !hw->err_reported && hw->s) {
		hw->err_reported = true;
		daemon_session_event(hw->s, "control",
				     "cannot apply time slice or suspension to %s: %s", hw->s->name,
				     strerror(-hw->err));
	}
}

static void on_applied(struct daemon_job *j)
{
	struct daemon_hw *hw = (struct daemon_hw *)j;

	hw->working = false;
	hw->finished_ns = clock_now_ns();
	if (!hw->s) {
		release(hw);
		return;
	}
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		if (hw->received[i].used) {
			install(hw, i);
		}
	}
	report_error(hw);
	daemon_hw_update(hw, clock_now_ns());
}

static void on_dropped(struct daemon_job *j)
{
	struct daemon_hw *hw = (struct daemon_hw *)j;

	/* gbpfd ends. daemon_hw_close() undoes levels and slices of present sessions; those of an
	 * ended session are undone here. */
	hw->working = false;
	if (!hw->s) {
		release(hw);
	}
}

/* Returns the session's state, created if there is none; NULL: out of memory. */
static struct daemon_hw *state_of(struct daemon_session *s)
{
	struct daemon_hw *hw = s->hw.state ? s->hw.state : calloc(1, sizeof(*hw));

	if (hw && !s->hw.state) {
		hw->d = s->d;
		hw->s = s;
		hw->for_tenant = -1;
		hw->want = hw->done = HW_NOTHING;
		hw->want.slice_us = s->grant.slice_us;
		hw->slice_version = s->grant.slice_version;
		s->hw.state = hw;
	}
	return hw;
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

/* Takes the handles of one of the process's GPUs and fd, the descriptor that they belong to. */
static void take_handles(struct daemon_session *s, const struct proto_control *m, int fd)
{
	struct gpu_handles h;
	struct daemon_hw *hw;
	int err = check(s, m, &h);

	_Static_assert(sizeof(struct gpu_handles) <= PROTO_HANDLES, "handles fit their message");
	hw = err ? NULL : state_of(s);
	if (!hw || !m->bytes) {
		fd_close_foreign(fd);
	}
	if (err) {
		s->d->counters.garbage++;
		daemon_session_event(s, "control", "cannot use the hardware handles of %s: invalid",
				     s->name);
		return;
	}
	if (!hw || (!m->bytes && hw->working)) {
		return;
	}
	if (!m->bytes) { /* the process withdraws them */
		daemon_hw_gpu_close(&hw->gpu[m->gpu]);
		return;
	}
	daemon_hw_gpu_close(&hw->received[m->gpu]);
	hw->received[m->gpu] = (struct daemon_hw_gpu){
		.used = true, .gpu = s->gpu_index[m->gpu], .fd = fd, .h = h
	};
	s->hw.capable = h.capable;
	daemon_gpus_set_capable(&s->d->devices, s->gpu_index[m->gpu], h.capable);
	if (!hw->working) {
		install(hw, m->gpu);
		daemon_hw_update(hw, clock_now_ns());
	}
}

bool daemon_hw_may_offer(struct daemon_session *s)
{
	if (rate_allow(&s->hw.offers, OFFERS_PER_SECOND, clock_now_ns())) {
		return true;
	}
	daemon_session_drop(s, "it offers more than %u flag pages and handles per second",
			    OFFERS_PER_SECOND);
	return false;
}

static bool take_control(struct daemon_session *s, struct daemon_received *r)
{
	bool may = daemon_hw_may_offer(s);

	if (may) {
		take_handles(s, &r->m.control, r->nfds ? r->fds[0] : -1);
	}
	return may;
}

const struct daemon_feature daemon_hw_feature = {
	.messages = { { PROTO_CONTROL, 1u << DAEMON_SESSION_READY, take_control } },
	.session_ended = session_ended,
};

/* ---- what can be had, and time slices ---- */

uint32_t daemon_hw_levels(const struct daemon_session *s)
{
	uint32_t levels = 1u << GBPF_LEVEL_HOLD | 1u << GBPF_LEVEL_DRAIN;

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		levels |= s->flags.own[i] ? 1u << GBPF_LEVEL_BLOCK : 0;
	}
	if (s->grant.lane == GBPF_LANE_PROCESS && s->hw.state) {
		levels |= s->hw.capable & 1u << GPU_CONTROL_SLICE_SET ? 1u << GBPF_LEVEL_SLICE : 0;
		levels |= s->hw.capable & 1u << GPU_CONTROL_SCHEDULE ? 1u << GBPF_LEVEL_OFF : 0;
	}
	return levels | (s->pidfd >= 0 ? 1u << GBPF_LEVEL_END : 0);
}

uint32_t daemon_hw_level(const struct daemon_session *s)
{
	return s->hw.state ? s->hw.state->want.level : GBPF_LEVEL_NONE;
}

uint32_t daemon_hw_slice_us(const struct daemon_session *s)
{
	return s->hw.state ? s->hw.state->want.slice_us : 0;
}

static bool has_handles(const struct daemon_hw *hw)
{
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		if (hw->gpu[i].used || hw->received[i].used) {
			return true;
		}
	}
	return false;
}

int daemon_hw_set_slice(struct daemon_session *s, uint32_t slice_us, uint64_t version)
{
	struct daemon_hw *hw;

	if (slice_us > DAEMON_LANE_MAX_SLICE_US) {
		return -EINVAL;
	}
	if (s->grant.lane != GBPF_LANE_PROCESS ||
	    (s->hw.state && has_handles(s->hw.state) &&
	     !(s->hw.capable & 1u << GPU_CONTROL_SLICE_SET))) {
		return -ENOTSUP;
	}
	hw = state_of(s);
	if (!hw) {
		return -ENOMEM;
	}
	hw->slice_version = version;
	if (hw->want.slice_us != slice_us) {
		hw->want.slice_us = slice_us;
		daemon_hw_update(hw, clock_now_ns());
	}
	return 0;
}

void daemon_hw_version_ended(struct daemon *d, uint64_t version)
{
	uint64_t now = clock_now_ns();

	daemon_session_each(d, s)
	{
		struct daemon_hw *hw = s->hw.state;

		if (s->grant.slice_version == version) {
			s->grant.slice_us = 0;
		}
		if (hw && hw->slice_version == version) {
			hw->want.slice_us = 0;
			hw->slice_changed_ns = 0; /* due at once */
			daemon_hw_update(hw, now);
		}
		if (hw && hw->level_version == version && hw->want.level != GBPF_LEVEL_NONE) {
			daemon_hw_end_level(hw, now);
		}
	}
}

/* ---- start and end of gbpfd ---- */

int daemon_hw_open(struct daemon *d)
{
	char path[DAEMON_PATH];

	/* The soft GPU that programs of this runtime directory use has its socket there. */
	if (strcmp(d->devices.kind, "soft") == 0 &&
	    setenv("GBPF_RUNTIME_DIR", d->opt.runtime, 1) == 0 &&
	    path_lib(path, sizeof(path), "soft/libcuda.so.1") == 0) {
		gpu_control_soft_library(path);
	}
	return daemon_job_thread_start(&d->control_thread, d->loop, 1);
}

void daemon_hw_close(struct daemon *d)
{
	uint64_t until = clock_now_ns() + clock_patience(CLOSE_TIMEOUT_NS);

	daemon_job_thread_stop(&d->control_thread);
	daemon_session_each(d, s)
	{
		struct daemon_hw *hw = s->hw.state;
		bool touched = false;

		for (unsigned i = 0; hw && i < PROTO_MAX_GPUS; i++) {
			touched |= hw->gpu[i].used && (hw->gpu[i].off || hw->gpu[i].slice_us);
		}
		if (touched && clock_now_ns() < until) {
			hw->done = HW_NOTHING;
			daemon_hw_apply(&hw->job);
		}
	}
}
