/* The hook admit: for a tenant that starts, and for one that reattaches after a restart of gbpfd. */
#include "daemon/policy/daemon_hooks.h"

#include "base/clock.h"
#include "daemon/consts.h"
#include "daemon/hw/mps_crash.h"
#include "daemon/hw/sharing_mode.h"
#include "daemon/policy/policies.h"
#include "daemon/policy/policy_failures.h"
#include "daemon/session/peer.h"

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
