/* The hook preempt. Each millisecond, on each GPU whose policy has the hook, it runs for the
 * longest open request and each tenant of another class with work in flight there. If the policy
 * asks for it, also in between, and as soon as a request opens, which the process then reports. The
 * verdict is a level; a level that the tenant's lane or driver lacks is replaced by the next higher
 * one, except for GBPF_LEVEL_END, which the policy must name itself. */
#include "daemon/policy/preempt.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "daemon/audit.h"
#include "daemon/consts.h"
#include "daemon/hw/hw_control.h"
#include "daemon/policy/daemon_hooks.h"
#include "daemon/policy/policies.h"
#include "daemon/policy/policy_failures.h"
#include "daemon/vgpu/vgpu_list.h"

#define TELL_NS 1000000000u
#define REPORTS_PER_SECOND                                                                         \
	4000u /* openings and ends; further ones are seen by the tick each millisecond */

static const char *const names[] = {
	[GBPF_LEVEL_HOLD] = "hold",   [GBPF_LEVEL_DRAIN] = "drain", [GBPF_LEVEL_BLOCK] = "block",
	[GBPF_LEVEL_SLICE] = "slice", [GBPF_LEVEL_OFF] = "off",	    [GBPF_LEVEL_END] = "end",
};

static bool is_on(const struct daemon_session *s, uint32_t gpu)
{
	return s->state == DAEMON_SESSION_READY && !s->dying && s->gpu_mask & 1u << gpu;
}

static struct daemon_session *longest_waiting(struct daemon *d, uint32_t gpu, uint64_t now,
					      uint64_t *ret_since)
{
	struct daemon_session *found = NULL;

	for (unsigned i = 0; i < PROTO_MAX_LC; i++) {
		struct daemon_session *s = d->sessions.lc[i];
		uint64_t since, key;

		if (!s || !is_on(s, gpu)) {
			continue;
		}
		since = daemon_hw_request_since(s, gpu, now, &key);
		if (since && (!found || since < *ret_since)) {
			found = s;
			*ret_since = since;
		}
	}
	return found;
}

/* The event is read by the owner of s: another user's names are not for it. */
static const char *name_for(const struct daemon_session *lc, const struct daemon_session *s)
{
	return lc->peer.uid == s->peer.uid || s->peer.uid == 0 || s->peer.uid == s->d->uid
		       ? lc->name
		       : "another user's tenant";
}

static void end_process(struct daemon_session *s, const struct daemon_session *lc,
			uint64_t waited_ns)
{
	bool done;

	if (s->preempt.killed) { /* and not gone yet */
		return;
	}
	done = syscall(SYS_pidfd_send_signal, s->pidfd, SIGKILL, NULL, 0) == 0;
	s->preempt.killed = done;
	daemon_audit(s->d, NULL, "kill", 0, "%s (pid %d, user %d) %s by a policy's verdict, for %s",
		     s->name, (int)s->peer.pid, (int)s->peer.uid,
		     done ? "is ended" : "cannot be ended", lc->name);
	daemon_history_add_of(
		&s->d->history, s->peer.uid, "preempt", s->tenant, s->peer.pid,
		"%s (pid %d) %s: as the policy decided, %s has waited for %llu us%s%s", s->name,
		(int)s->peer.pid, done ? "is ended" : "cannot be ended", name_for(lc, s),
		(unsigned long long)(waited_ns / 1000), done ? "" : ": ",
		done ? "" : strerror(errno));
}

static void tell(struct daemon_session *s, uint32_t level, const struct daemon_session *lc,
		 uint64_t waited_ns, uint64_t now)
{
	if (level >= GBPF_LEVEL_SLICE && daemon_session_event_allowed(s->d, s->peer.uid)) {
		daemon_history_repeat(&s->d->history, now, s->peer.uid, "preempt", s->tenant,
				      s->peer.pid, "%s is stopped (%s): %s has waited for %llu us",
				      s->name, names[level], name_for(lc, s),
				      (unsigned long long)(waited_ns / 1000));
	}
}

/* Returns the lowest available level that is at least as strong, GBPF_LEVEL_NONE if there is none.
 */
static uint32_t available(uint32_t level, uint32_t levels)
{
	if (level == GBPF_LEVEL_END) {
		return levels & 1u << level ? level : GBPF_LEVEL_NONE;
	}
	while (level < GBPF_LEVEL_END && !(levels & 1u << level)) {
		level++;
	}
	return level < GBPF_LEVEL_END ? level : GBPF_LEVEL_NONE;
}

static void use(struct daemon_session *s, uint32_t level, uint32_t gpu,
		const struct daemon_version *l, struct daemon_session *lc, uint64_t waited_ns,
		uint64_t now)
{
	if (level == GBPF_LEVEL_END) {
		end_process(s, lc, waited_ns);
	} else if (daemon_hw_set_level(s, level, 1u << gpu, l->version, lc) < 0) {
		return;
	} else if (level != s->preempt.tried) {
		tell(s, level, lc, waited_ns, now);
	}
	s->preempt.tried = level;
}

static void ask(struct daemon_version *l, struct daemon_session *s, struct daemon_session *lc,
		uint32_t gpu, uint64_t waited_ns, uint64_t now)
{
	const struct proto_stats_gpu *st = daemon_session_gpu_stats(s, gpu);
	uint64_t key, verdict, since = daemon_hw_request_since(lc, gpu, now, &key);
	uint32_t levels = daemon_hw_levels(s), level;
	struct daemon_ctx_preempt ctx = { .now_ns = now,
					  .waited_ns = waited_ns,
					  .inflight_ns = load_relaxed(&st->inflight_ns),
					  .tenant = (uint32_t)s->tenant,
					  .uid = s->peer.uid,
					  .vgpu = daemon_vgpu_place(s),
					  .for_vgpu = daemon_vgpu_place(lc),
					  .class_id = s->class_id,
					  .lane = s->grant.lane,
					  .for_tenant = (uint32_t)lc->tenant,
					  .levels = levels,
					  .gpu = gpu };

	if (s->preempt.tried_for != lc->tenant || s->preempt.tried_since != since) {
		s->preempt.tried_for = lc->tenant;
		s->preempt.tried_since = since;
		s->preempt.tried = GBPF_LEVEL_NONE;
	}
	ctx.tried = s->preempt.tried;
	verdict = daemon_hook_run(l, HOOK_preempt, &ctx);
	if (verdict > GBPF_LEVEL_END && verdict != GBPF_LEVEL_NONE) {
		s->d->counters.verdict_errors++;
		daemon_failures_count(l, HOOK_preempt, PROTO_FAILED_VERDICT);
		return;
	}
	if (ctx.at_open) {
		lc->preempt.report_until_ns = now + TELL_NS;
	}
	if (ctx.again_us) {
		daemon_ticker_preempt_in(s->d, gpu, now, ctx.again_us);
	}
	level = verdict == GBPF_LEVEL_NONE ? GBPF_LEVEL_NONE : available((uint32_t)verdict, levels);
	if (level != GBPF_LEVEL_NONE) {
		use(s, level, gpu, l, lc, waited_ns, now);
	}
}

/* Runs the hook for the longest open request of a GPU. With `only`, does nothing unless that
 * request is this session's. */
static void look_at(struct daemon *d, uint32_t gpu, struct daemon_session *only, uint64_t after_ns,
		    uint64_t now)
{
	struct daemon_version *l = daemon_policy_active_on(d, gpu);
	uint64_t since = 0;
	struct daemon_session *lc;

	if (!l || !daemon_version_has_hook(l, HOOK_preempt) || l->copying) {
		return;
	}
	lc = longest_waiting(d, gpu, now, &since);
	if (!lc || (only && lc != only) || now - since < after_ns) {
		return;
	}
	daemon_session_each(d, s)
	{
		if (s != lc && is_on(s, gpu) && s->class_id != GBPF_CLASS_LATENCY &&
		    load_relaxed(&daemon_session_gpu_stats(s, gpu)->inflight)) {
			ask(l, s, lc, gpu, now - since, now);
		}
	}
}

/* Looks at each of these GPUs, given as bits. */
static void look_on(struct daemon *d, uint32_t gpus, struct daemon_session *only, uint64_t after_ns,
		    uint64_t now)
{
	for (uint32_t gpu = 0; gpu < PROTO_MAX_GPUS; gpu++) {
		if (gpus & 1u << gpu) {
			look_at(d, gpu, only, after_ns, now);
		}
	}
}

/* Sends each latency tenant whether to report its requests as they open. */
static void settle(struct daemon *d, uint64_t now)
{
	for (unsigned i = 0; i < PROTO_MAX_LC; i++) {
		struct daemon_session *s = d->sessions.lc[i];
		bool tell = s && now < s->preempt.report_until_ns;

		if (s && s->state == DAEMON_SESSION_READY && !s->dying &&
		    s->preempt.reports != tell) {
			s->preempt.reports = tell;
			daemon_session_send_settings(s);
		}
	}
}

void daemon_preempt_tick(struct daemon *d, uint64_t now)
{
	look_on(d, UINT32_MAX, NULL, DAEMON_PREEMPT_AFTER_NS, now);
	settle(d, now);
}

void daemon_preempt_between(struct daemon *d, uint32_t gpus, uint64_t now)
{
	look_on(d, gpus, NULL, 0, now);
}

/* A latency tenant reports that a request has opened or ended: runs the hook at once, and ends what
 * was in force for a request that has ended. */
static bool take_request(struct daemon_session *s, struct daemon_received *r)
{
	uint64_t now = clock_now_ns();

	(void)r;
	if (s->preempt.reports && !daemon_policy_is_off(s->d) &&
	    rate_allow(&s->preempt.rate, REPORTS_PER_SECOND, now)) {
		look_on(s->d, s->gpu_mask, s, 0, now);
		(void)daemon_hw_tick(s->d, now);
	}
	return true;
}

const struct daemon_feature daemon_preempt_feature = {
	.messages = { { PROTO_REQUEST, 1u << DAEMON_SESSION_READY, take_request } },
};
