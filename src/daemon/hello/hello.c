/* From hello to tenant: number, devices, pages, admission, welcome; and the same for a process that
 * reattaches after a restart of gbpfd and brings its pages along. */
#include "daemon/hello/hello.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/point.h"
#include "daemon/clean_text.h"
#include "daemon/consts.h"
#include "daemon/hw/sharing_mode.h"
#include "daemon/policy/daemon_hooks.h"
#include "daemon/policy/policies.h"
#include "daemon/session/tenant_session.h"
#include "daemon/timer.h"
#include "daemon/vgpu/vgpu.h"
#include "daemon/vgpu/vgpu_list.h"

#define QUEUE_LIMIT_USEC 30000000u
#define MAX_FOREIGN_DEVICES 8u /* devices unknown to gbpfd that one other user may name */
#define REATTACH_GRACE_NS                                                                          \
	60000000000u /* after gbpfd started; a process that reattaches later is admitted like a    \
			new one */

static int choose_number(struct daemon *d, const struct proto_hello *h)
{
	if ((h->flags & PROTO_REATTACH) && h->tenant < PROTO_MAX_TENANTS &&
	    !d->sessions.tenant[h->tenant]) {
		return (int)h->tenant;
	}
	for (int i = 0; i < (int)PROTO_MAX_TENANTS; i++) {
		if (!d->sessions.tenant[i]) {
			return i;
		}
	}
	return -ENOSPC;
}

static bool vgpu_devices(struct daemon_session *s, const uint8_t uuid[PROTO_MAX_GPUS][16])
{
	int err = daemon_vgpu_add_devices(s, uuid);
	uint64_t left, size;

	if (err == -EDQUOT) {
		daemon_vgpu_reserve_left(s, &left, &size);
		daemon_session_refuse(s, err,
				      "its virtual GPU cannot reserve that: others leave %llu of "
				      "%llu MiB",
				      (unsigned long long)(left >> 20),
				      (unsigned long long)(size >> 20));
	} else if (err == -EINVAL) {
		daemon_session_refuse(s, err, "no GPU has the UUID of pinned memory or of swap");
	} else if (err) {
		daemon_session_refuse(s, err, "its virtual GPU spans %u devices already",
				      PROTO_MAX_GPUS);
	}
	return !err;
}

/* Acquires the devices that a process sees. On failure those acquired so far stay in s->gpus; the
 * end of the session releases them. */
static bool take_devices(struct daemon_session *s, const uint8_t uuid[PROTO_MAX_GPUS][16],
			 const uint64_t mem_bytes[PROTO_MAX_GPUS], uint32_t gpus)
{
	bool foreign = s->peer.uid != 0 && s->peer.uid != s->d->uid;
	unsigned may_name = foreign ? MAX_FOREIGN_DEVICES : PROTO_MAX_GPUS;

	for (s->gpus = 0; s->gpus < gpus; s->gpus++) {
		int n = daemon_gpus_acquire(&s->d->devices, uuid[s->gpus], s->peer.uid, may_name);

		if (n < 0) {
			daemon_session_refuse(s, n, "cannot add this GPU: gbpfd knows %u already",
					      PROTO_MAX_GPUS);
			return false;
		}
		s->gpu_index[s->gpus] = (uint32_t)n;
		s->gpu_mask |= 1u << n;
		daemon_policy_add_gpu(s->d, (uint32_t)n);
	}
	daemon_vgpu_note_sizes(s, mem_bytes);
	if (!vgpu_devices(s, uuid)) {
		return false;
	}
	s->hello.has_devices = true;
	return true;
}

static int take_pages(struct daemon_session *s, const struct proto_hello *h, int *fds)
{
	int err;

	if (!(h->flags & PROTO_REATTACH)) {
		err = daemon_page_create(&s->board, "gbpf-board", PROTO_PAGE_BYTES);
		return err ? err : daemon_page_create(&s->stats, "gbpf-stats", PROTO_STATS_BYTES);
	}
	err = daemon_page_adopt(&s->board, fds[0], PROTO_PAGE_BYTES);
	if (!err) {
		fds[0] = -1;
		err = daemon_page_adopt(&s->stats, fds[1], PROTO_STATS_BYTES);
	}
	if (!err) {
		fds[1] = -1;
		s->hello.reattached = true;
		s->hello.had_version = h->policy_version;
	}
	return err;
}

static void admitted(struct daemon_session *s)
{
	int fds[4] = { s->d->directory.fd, s->board.fd, s->stats.fd, -1 };
	unsigned nfds = s->hello.reattached ? 1 : 3;
	union proto_message m = { 0 };

	m.welcome.tenant = (uint32_t)s->tenant;
	m.welcome.class_id = s->sent.class_id = s->class_id;
	m.welcome.weight = s->sent.weight = s->weight;
	m.welcome.min_share_ppm = DAEMON_MIN_SHARE_PPM;
	m.welcome.hold_limit_ns = DAEMON_HOLD_LIMIT_NS;
	m.welcome.lane = s->grant.lane;
	m.welcome.sm_percent = s->grant.sm_percent;
	m.welcome.slice_us = s->grant.slice_us;
	m.welcome.priority = s->grant.priority;
	m.welcome.rhythm = s->grant.rhythm;
	m.welcome.lead_us = s->grant.lead_us;
	m.welcome.uid = s->peer.uid;
	m.welcome.pid = s->peer.pid;
	daemon_lane_pipe_dir(s->d, m.welcome.mps_pipe, sizeof(m.welcome.mps_pipe));
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		m.welcome.gpu_index[i] = i < s->gpus ? s->gpu_index[i] : 0;
	}
	s->state = DAEMON_SESSION_WELCOMED;
	m.welcome.vgpu_place = daemon_vgpu_place(s);
	if (s->vgpu.of) {
		m.welcome.accounts = 1;
		m.welcome.account_line = s->vgpu.line;
		fds[nfds++] = daemon_vgpu_fd(s);
	}
	daemon_session_send(s, &m, PROTO_WELCOME, fds, nfds);
	if (!s->hello.has_devices) {
		daemon_session_extend_timeout(s);
	}
	POINT("daemon.hello.welcomed");
}

static void tell_devices(struct daemon_session *s)
{
	union proto_message m = { 0 };

	m.devices.gpus = s->gpus;
	memcpy(m.devices.gpu_index, s->gpu_index, sizeof(m.devices.gpu_index));
	s->state = DAEMON_SESSION_WELCOMED;
	daemon_session_send(s, &m, PROTO_DEVICES_ARE, NULL, 0);
}

static void wait_in_queue(struct daemon_session *s)
{
	union proto_message m = { 0 };
	uint64_t now;

	s->state = DAEMON_SESSION_QUEUED;
	if (s->vgpu.of) {
		daemon_vgpu_await_memory(s->d);
	}
	if (s->hello.queued_sent) {
		return;
	}
	s->hello.queued_sent = true;
	sd_event_now(s->d->loop, CLOCK_MONOTONIC, &now);
	daemon_timer_arm(s->conn.timer, now + clock_patience(QUEUE_LIMIT_USEC));
	daemon_session_event(s, "queued", "%s waits: admit of the policy returned queue", s->name);
	daemon_session_send(s, &m, PROTO_QUEUED, NULL, 0);
}

static void admit(struct daemon_session *s)
{
	bool returning =
		s->hello.reattached && clock_now_ns() - s->d->started_ns < REATTACH_GRACE_NS;
	int verdict = GBPF_ADMIT;

	if (returning) {
		daemon_hook_readmit(s);
	} else {
		verdict = daemon_hook_admit(s);
	}

	if (verdict == GBPF_QUEUE) {
		wait_in_queue(s);
	} else if (verdict == GBPF_REJECT) {
		daemon_session_refuse(s, -EPERM,
				      "the policy does not admit this process to the GPU");
	} else if (s->hello.early && s->hello.has_devices) {
		tell_devices(s);
	} else if (daemon_lane_prepare(s) == 0) {
		admitted(s);
	}
}

/* Completes an early hello: the process's GPUs are now known. Runs admit of those not asked yet;
 * the lane is fixed by now. */
static bool take_late_devices(struct daemon_session *s, struct daemon_received *r)
{
	const struct proto_devices *m = &r->m.devices;

	if (!s->hello.early || s->hello.has_devices) {
		return false;
	}
	s->grant.lanes = 1u << s->grant.lane;
	s->hello.queued_sent = false;
	if (take_devices(s, m->uuid, m->mem_bytes, m->gpus)) {
		daemon_policy_leave_other_gpus(s);
		s->rejoin.asked = false; /* of another GPU */
		if (s->vgpu.of) {
			daemon_features_call(vgpus_changed, s->d);
		}
		POINT("daemon.hello.devices");
		admit(s);
	}
	return true;
}

static void retry_queued(struct daemon *d)
{
	daemon_session_each(d, s)
	{
		if (s->state == DAEMON_SESSION_QUEUED && !s->dying) {
			admit(s);
		}
	}
}

static void take_identity(struct daemon_session *s, const struct proto_hello *h)
{
	daemon_text_copy(s->name, sizeof(s->name), h->name, sizeof(h->name));
	daemon_text_copy(s->command, sizeof(s->command), h->command, sizeof(h->command));
	daemon_text_copy(s->group.name, sizeof(s->group.name), h->group, sizeof(h->group));
	if (!s->name[0]) {
		memcpy(s->name, "unnamed", 8);
	}
	s->class_id = h->class_id;
	s->weight = h->weight ? h->weight : DAEMON_DEFAULT_WEIGHT;
	s->weight_asked = s->sent.weight_asked = s->weight;
	s->hello.early = h->flags & PROTO_EARLY;
	s->grant.sm_percent = 100;
	daemon_lane_negotiate(s, h->lane, h->lanes);
}

/* A vGPU without a name says what it is given. */
static bool vgpu_is_sane(struct daemon_session *s, const struct proto_hello *h)
{
	static const struct proto_vgpu_config none;
	const char *fault = proto_vgpu_config_fault(&h->vgpu.config);
	bool gives = memcmp(&h->vgpu.config, &none, sizeof(none)) != 0;

	if (h->vgpu.name[0] && !proto_vgpu_name_is_valid(h->vgpu.name)) {
		fault = "name";
	} else if (h->vgpu.name[0] && h->vgpu.number > UINT32_MAX) {
		fault = "owner";
	} else if (gives && (h->vgpu.name[0] || !h->vgpu.number)) {
		fault = "limits of none, or of one with a name";
	} else if (h->accounts && !proto_vgpu_is_set(&h->vgpu)) {
		fault = "an account without one";
	}
	if (fault) {
		daemon_session_refuse(s, -EINVAL, "invalid virtual GPU: %s", fault);
	}
	return !fault;
}

static bool hello_is_sane(struct daemon_session *s, const struct proto_hello *h)
{
	bool early = h->flags & PROTO_EARLY;

	if (h->class_id > GBPF_CLASS_BATCH || h->weight > DAEMON_MAX_WEIGHT ||
	    h->flags & ~(uint32_t)(PROTO_REATTACH | PROTO_STRICT | PROTO_EARLY | PROTO_LOOK) ||
	    h->lane > GBPF_LANE_SHARED || h->lanes & ~(uint32_t)DAEMON_LANE_ALL) {
		daemon_session_refuse(
			s, -EINVAL,
			"invalid hello: class %u, weight %u, lane %u of 0x%x, flags 0x%x",
			h->class_id, h->weight, h->lane, h->lanes, h->flags);
		return false;
	}
	if (early && (h->gpus || h->accounts || h->flags & PROTO_REATTACH)) {
		daemon_session_refuse(s, -EINVAL,
				      "an early hello names no devices and brings no pages");
		return false;
	}
	if (h->flags & PROTO_LOOK &&
	    (h->flags != PROTO_LOOK || h->gpus || !proto_vgpu_is_set(&h->vgpu))) {
		daemon_session_refuse(s, -EINVAL,
				      "a hello that looks names a virtual GPU and nothing else");
		return false;
	}
	return vgpu_is_sane(s, h);
}

/* Returns false if the session was refused. */
static bool join_vgpu(struct daemon_session *s, const struct proto_hello *h, int *fds)
{
	struct report r;
	int err;

	report_init(&r);
	err = daemon_vgpu_join(s, h, fds, &r);
	if (err == -EUSERS) {
		daemon_session_refuse(s, err, "it cannot join its virtual GPU: %s. %s",
				      buf_text(&r.message), buf_text(&r.hint));
	} else if (err) {
		daemon_session_refuse(
			s, err, "it cannot join its virtual GPU: %s",
			err == -ENOSPC	    ? "too many processes are in it"
			: err == -ENOENT    ? "there is none of this name for this user"
			: err == -ENOTUNIQ  ? "several users have one of this name; name the "
					      "owner, too: UID/NAME"
			: err == -EPERM	    ? "only operators may reserve memory"
			: err == -ESHUTDOWN ? "it is being removed"
			: err == -EACCES    ? "its account is that of another virtual GPU, in "
					      "which programs run"
			: err == -ESRCH	    ? "gbpfd cannot see its process"
			: err == -EAGAIN    ? "gbpfd was restarted; try again"
					    : strerror(-err));
	}
	report_finish(&r);
	return !err;
}

static void begin(struct daemon_session *s, const struct proto_hello *h, int *fds)
{
	struct daemon *d = s->d;
	int number = choose_number(d, h), err;

	if (number < 0) {
		daemon_session_refuse(s, number, "there are %u tenants already", PROTO_MAX_TENANTS);
		return;
	}
	s->tenant = number;
	d->sessions.tenant[number] = s;
	d->counters.sessions++;
	if (!join_vgpu(s, h, fds) ||
	    (!s->hello.early && !take_devices(s, h->uuid, h->mem_bytes, h->gpus))) {
		return;
	}
	if (s->vgpu.of) {
		daemon_features_call(vgpus_changed, d);
	}
	err = take_pages(s, h, fds);
	if (err) {
		daemon_session_refuse(s, err, "its pages cannot be %s: %s",
				      h->flags & PROTO_REATTACH ? "taken over" : "made",
				      strerror(-err));
		return;
	}
	POINT("daemon.hello.pages_taken");
	if (s->hello.reattached && h->regions) {
		daemon_policy_adopt_regions(s, h->policy_version, h->regions, &fds[2]);
		POINT("daemon.reattach.adopted");
	}
	admit(s);
}

/* Answers a process that is only to see the account of its vGPU. */
static void look(struct daemon_session *s, const struct proto_hello *h)
{
	const struct proto_vgpu_config *given;
	union proto_message m = { 0 };
	int fd = daemon_vgpu_look(s, h, &given);

	memcpy(m.account.limit, given->mem, sizeof(m.account.limit));
	m.account.swap = proto_vgpu_shown_swap(given);
	m.account.accounts = fd >= 0;
	m.account.error = fd < 0 && fd != -ENOENT ? -fd : 0;
	daemon_session_send(s, &m, PROTO_ACCOUNT, &fd, m.account.accounts);
	daemon_session_end(s, DAEMON_END_CLOSED);
}

static bool take_hello(struct daemon_session *s, struct daemon_received *r)
{
	const struct proto_hello *h = &r->m.hello;

	POINT("daemon.hello.received");
	if (!hello_is_sane(s, h)) {
		/* refused */
	} else if (h->flags & PROTO_LOOK) {
		look(s, h);
	} else {
		take_identity(s, h);
		begin(s, h, r->fds);
	}
	for (unsigned i = 0; i < r->nfds; i++) {
		fd_close_foreign(r->fds[i]); /* those that were taken are -1 */
	}
	return true;
}

static bool take_mapped(struct daemon_session *s, struct daemon_received *r)
{
	struct daemon *d = s->d;

	(void)r;
	if (!s->hello.has_devices) {
		return false;
	}
	if (daemon_page_seal(&s->board) < 0 || daemon_page_seal(&s->stats) < 0) {
		d->counters.garbage++;
		daemon_session_drop(s, "its pages cannot be sealed");
		return true;
	}
	POINT("daemon.session.sealed");
	daemon_page_close_fd(&s->stats);
	s->state = DAEMON_SESSION_READY;
	sd_event_source_set_enabled(s->conn.timer, SD_EVENT_OFF);
	daemon_session_event(s, s->hello.reattached ? "reattach" : "start",
			     "%s (pid %d, class %s) %s tenant %d", s->name, (int)s->peer.pid,
			     daemon_class_name(s->class_id),
			     s->hello.reattached ? "came back as" : "is", s->tenant);
	if (s->sent.class_id != s->class_id || s->sent.weight != s->weight ||
	    s->sent.weight_asked != s->weight_asked) {
		daemon_session_send_settings(s); /* they changed after WELCOME was sent */
	}
	daemon_features_call(session_ready, s);
	POINT("daemon.session.introduced");
	return true;
}

const struct daemon_feature daemon_hello_feature = {
	.messages = {
		{ PROTO_HELLO, 1u << DAEMON_SESSION_NEW, take_hello },
		{ PROTO_BOARD_MAPPED, 1u << DAEMON_SESSION_WELCOMED, take_mapped },
		{ PROTO_DEVICES, 1u << DAEMON_SESSION_WELCOMED, take_late_devices },
	},
	.lane_ready = admitted,
	.retry_queued = retry_queued,
};
