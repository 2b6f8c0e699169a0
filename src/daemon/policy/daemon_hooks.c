/* The hooks admit and tick. tick runs on the loop: the verifier bounds its programs (a million
 * instructions at worst, about a millisecond), and overruns are counted. While no tenant is active
 * there is no tick; as processes do not notify gbpfd when they become active again, it checks their
 * pages every 10 ms. */
#include "daemon/policy/daemon_hooks.h"

#include <errno.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "daemon/consts.h"
#include "daemon/hw/hw_control.h"
#include "daemon/hw/mps_crash.h"
#include "daemon/hw/preempt.h"
#include "daemon/hw/sharing_mode.h"
#include "daemon/policy/policies.h"
#include "daemon/policy/policy_failures.h"
#include "daemon/session/peer.h"

#define TICK_NS 1000000u
#define IDLE_USEC 10000u
#define ACTIVE_NS 100000000u /* how long ticks continue after the last activity */

struct daemon_ticker {
	struct daemon *d;
	sd_event_source *source;
	uint64_t last_active_ns, due_usec;
	bool on;
};

/* ---- admit ---- */

static void count_tenants(const struct daemon *d, const struct daemon_session *but, uint32_t gpu,
			  struct daemon_ctx_admit *ctx)
{
	daemon_session_each(d, s)
	{
		bool there =
			s->state == DAEMON_SESSION_READY || s->state == DAEMON_SESSION_WELCOMED;

		if (s != but && there && !s->dying && (!s->gpu_mask || s->gpu_mask & 1u << gpu)) {
			ctx->tenants++;
			ctx->latency_tenants += s->class_id == GBPF_CLASS_LATENCY;
			ctx->batch_tenants += s->class_id == GBPF_CLASS_BATCH;
		}
	}
}

static bool verdict_is_sane(const struct daemon_ctx_admit *ctx, uint64_t verdict)
{
	return verdict <= GBPF_REJECT && ctx->class_id <= GBPF_CLASS_BATCH && ctx->weight &&
	       ctx->weight <= DAEMON_MAX_WEIGHT && ctx->lane <= GBPF_LANE_SHARED &&
	       ctx->slice_us <= DAEMON_LANE_MAX_SLICE_US && ctx->sm_percent >= 1 &&
	       ctx->sm_percent <= 100 && ctx->priority >= 0 && ctx->priority <= 1 &&
	       ctx->restart <= DAEMON_RESTARTS_MAX && ctx->rhythm <= 1 &&
	       ctx->lead_us <= DAEMON_MAX_LEAD_US;
}

/* Stores the verdict. A lane that is not available is not an error: policies may ask for what they
 * prefer. */
static void take_verdict(struct daemon_session *s, const struct daemon_ctx_admit *ctx,
			 uint64_t version)
{
	s->class_id = ctx->class_id;
	s->weight = ctx->weight;
	s->grant.slice_us = ctx->slice_us;
	s->grant.slice_version = version;
	s->grant.restart = ctx->restart;
	s->grant.rhythm = ctx->rhythm;
	s->grant.lead_us = ctx->lead_us;
	if (s->grant.lanes & 1u << ctx->lane) {
		s->grant.lane = ctx->lane;
	}
	s->grant.sm_percent = s->grant.lane == ctx->lane ? ctx->sm_percent : 100;
	s->grant.priority = s->grant.lane == GBPF_LANE_SHARED ? ctx->priority : 0;
}

static int admit_on(struct daemon_session *s, uint32_t gpu, const struct daemon_peer_share *share)
{
	struct daemon *d = s->d;
	struct daemon_version *l = daemon_policy_active_on(d, gpu);
	uint64_t now = clock_now_ns(), verdict;
	struct daemon_ctx_admit ctx = { .now_ns = now,
					.waited_ns =
						s->hello.queued_sent ? now - s->connected_ns : 0,
					.tenant = (uint32_t)s->tenant,
					.uid = s->peer.uid,
					.pid = (uint32_t)s->peer.pid,
					.gpu = gpu,
					.class_id = s->class_id,
					.weight = s->weight,
					.lanes = s->grant.lanes,
					.lane = s->grant.lane,
					.slice_us = s->grant.slice_us,
					.sm_percent = s->grant.sm_percent,
					.nice = share->nice,
					.cpu_weight = share->cpu_weight,
					.priority = s->grant.priority,
					.restart = s->grant.restart,
					.rhythm = s->grant.rhythm,
					.lead_us = s->grant.lead_us,
					.command = share->command };

	if (!l || !daemon_version_has_hook(l, HOOK_admit) ||
	    daemon_version_add_tenant(l, (uint32_t)s->tenant) < 0) {
		return GBPF_ADMIT;
	}
	count_tenants(d, s, gpu, &ctx);
	verdict = daemon_hook_run(l, HOOK_admit, &ctx);
	if (!verdict_is_sane(&ctx, verdict)) {
		d->counters.verdict_errors++;
		daemon_failures_count(l, HOOK_admit, PROTO_FAILED_VERDICT);
		daemon_session_event(
			s, "verdict",
			"admit of policy version %llu gave verdict %llu, class %u, weight "
			"%u, lane %u, slice %u us, SMs %u %%, priority %d, restart %u, "
			"rhythm %u, lead %u us: the built-in answer is used",
			(unsigned long long)l->version, (unsigned long long)verdict, ctx.class_id,
			ctx.weight, ctx.lane, ctx.slice_us, ctx.sm_percent, ctx.priority,
			ctx.restart, ctx.rhythm, ctx.lead_us);
		return GBPF_ADMIT;
	}
	take_verdict(s, &ctx, l->version);
	return (int)verdict;
}

/* An early hello does not name its GPUs yet, so this runs admit for the first GPU, and for the
 * others when the devices are known. */
int daemon_hook_admit(struct daemon_session *s)
{
	uint32_t mask = s->gpu_mask ? s->gpu_mask : 1u << daemon_gpus_first(&s->d->devices);
	struct daemon_peer_share share = daemon_peer_share_of(s->peer.pid, s->pidfd);
	int strictest = GBPF_ADMIT;

	if (s->hello.early && s->hello.has_devices) {
		mask &= ~s->hello.asked_mask;
	}
	for (uint32_t gpu = 0; gpu < PROTO_MAX_GPUS && strictest != GBPF_REJECT; gpu++) {
		if (mask & 1u << gpu) {
			int verdict = admit_on(s, gpu, &share);

			strictest = MAX(strictest, verdict);
		}
	}
	if (strictest == GBPF_ADMIT) {
		s->hello.asked_mask |= mask;
	}
	return strictest;
}

/* The process runs already, so of the verdict only the time slice applies, which ended with the
 * previous gbpfd. The hook runs nevertheless, because the policy's memory is new and it must learn
 * of the tenant. */
void daemon_hook_readmit(struct daemon_session *s)
{
	uint32_t class_id = s->class_id, weight = s->weight;

	(void)daemon_hook_admit(s);
	s->class_id = class_id;
	s->weight = weight;
	s->grant.sm_percent = 100;
	s->grant.priority = 0;
}

/* ---- tick ---- */

static bool does_something(struct daemon_session *s, uint64_t now)
{
	struct proto_stats *st = s->stats.map;
	struct proto_board *b = s->board.map;
	uint64_t launches;

	if (s->state != DAEMON_SESSION_READY || s->dying) {
		return false;
	}
	launches = load_relaxed(&st->launches) + load_relaxed(&st->copies);
	if (launches != s->ticked_launches || load_relaxed(&st->inflight)) {
		s->ticked_launches = launches;
		return true;
	}
	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		if ((s->gpu_mask ? s->gpu_mask & 1u << i : i == 0) && proto_board_open(b, i, now)) {
			return true;
		}
	}
	return false;
}

static bool anybody_active(struct daemon *d, uint64_t now)
{
	struct daemon_ticker *t = d->ticker;
	bool any = false;

	daemon_session_each(d, s)
	{
		any |= does_something(s, now);
	}
	t->last_active_ns = any ? now : t->last_active_ns;
	return now - t->last_active_ns < ACTIVE_NS;
}

static void tick(struct daemon *d, struct daemon_version *l, uint64_t now)
{
	struct daemon_ctx_tick ctx = { .now_ns = now,
				       .period_ns =
					       l->last_tick_ns ? now - l->last_tick_ns : TICK_NS,
				       .epoch = l->epoch };
	uint64_t took;

	for (uint32_t i = 0; i < PROTO_MAX_TENANTS; i++) {
		if (d->sessions.tenant[i]) {
			ctx.tenants = i + 1;
			ctx.active++;
		}
	}
	daemon_hook_run(l, HOOK_tick, &ctx);
	l->last_tick_ns = now;
	l->epoch++;
	took = clock_now_ns() - now;
	d->counters.ticks++;
	d->counters.tick_overruns += took > TICK_NS;
	d->counters.tick_max_ns = MAX(d->counters.tick_max_ns, took);
}

/* Ticks are also needed for latency tenants alone, to detect their exit
 * (daemon_sessions_reap_dying). */
static bool wanted(struct daemon *d)
{
	bool any = daemon_lc_any(d);

	for (struct daemon_version *l = daemon_policy_next_active(d, NULL); l;
	     l = daemon_policy_next_active(d, l)) {
		any |= daemon_version_has_hook(l, HOOK_tick) ||
		       daemon_version_has_hook(l, HOOK_preempt);
	}
	if (!any || !daemon_policy_next_active(d, NULL) || daemon_policy_is_off(d)) {
		return false;
	}
	daemon_session_each(d, s)
	{
		if (s->state == DAEMON_SESSION_READY && !s->dying) {
			return true;
		}
	}
	return false;
}

static int on_tick(sd_event_source *src, uint64_t usec, void *arg)
{
	struct daemon *d = arg;
	struct daemon_ticker *t = d->ticker;
	uint64_t now = clock_now_ns(), now_usec;

	(void)usec;
	if (!wanted(d)) {
		t->on = false;
		daemon_hw_release_levels(d);
		return 0;
	}
	daemon_sessions_reap_dying(d);
	if (daemon_hw_tick(d, now) || anybody_active(d, now)) {
		for (struct daemon_version *l = daemon_policy_next_active(d, NULL); l;
		     l = daemon_policy_next_active(d, l)) {
			if (daemon_version_has_hook(l, HOOK_tick) && !l->copying) {
				tick(d, l, now);
			}
		}
		daemon_preempt_tick(d, now);
		t->due_usec += TICK_NS / 1000;
	} else {
		t->due_usec += IDLE_USEC;
	}
	now_usec = clock_now_ns() / 1000;
	if (t->due_usec <= now_usec) { /* missed ticks are skipped; the policy sees period_ns */
		t->due_usec = now_usec + TICK_NS / 1000;
	}
	sd_event_source_set_time(src, t->due_usec);
	sd_event_source_set_enabled(src, SD_EVENT_ONESHOT);
	return 0;
}

void daemon_ticker_wake(struct daemon *d)
{
	struct daemon_ticker *t = d->ticker;

	if (t && !t->on && wanted(d)) {
		t->on = true;
		t->last_active_ns = clock_now_ns();
		t->due_usec = t->last_active_ns / 1000 + TICK_NS / 1000;
		sd_event_source_set_time(t->source, t->due_usec);
		sd_event_source_set_enabled(t->source, SD_EVENT_ONESHOT);
	}
}

int daemon_ticker_open(struct daemon *d)
{
	int err;

	d->ticker = calloc(1, sizeof(*d->ticker));
	if (!d->ticker) {
		return -ENOMEM;
	}
	d->ticker->d = d;
	err = sd_event_add_time(d->loop, &d->ticker->source, CLOCK_MONOTONIC, UINT64_MAX, 1,
				on_tick, d);
	if (err >= 0) {
		err = sd_event_source_set_enabled(d->ticker->source, SD_EVENT_OFF);
	}
	return err < 0 ? err : 0;
}

void daemon_ticker_close(struct daemon *d)
{
	if (d->ticker) {
		sd_event_source_disable_unref(d->ticker->source);
		free(d->ticker);
		d->ticker = NULL;
	}
}
