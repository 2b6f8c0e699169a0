/* The hook admit: for a tenant that starts, and, with rejoin = 1, for one that runs already when a
 * version becomes active or gbpfd has restarted. */
#include "daemon/policy/daemon_hooks.h"

#include <errno.h>

#include "base/clock.h"
#include "base/point.h"
#include "daemon/consts.h"
#include "daemon/hw/mps_crash.h"
#include "daemon/hw/sharing_mode.h"
#include "daemon/policy/policies.h"
#include "daemon/policy/policy_failures.h"
#include "daemon/session/peer.h"
#include "daemon/vgpu/vgpu_list.h"

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

static void tell_vgpu(const struct daemon_session *s, uint32_t gpu, struct daemon_ctx_admit *ctx)
{
	struct daemon_vgpu_entry v;

	ctx->vgpu = daemon_vgpu_place(s);
	ctx->mem_free = daemon_vgpu_free_memory(s->d, gpu, &ctx->mem_size);
	if (daemon_vgpu_at(s->d, ctx->vgpu, gpu, &v)) {
		ctx->mem_limit = v.limit;
		ctx->mem_reserve = v.config->reserve;
		ctx->mem_used = v.used;
		ctx->compute = v.config->compute;
		ctx->copy = v.config->copy;
		ctx->prio = v.config->prio;
		ctx->burst = (v.config->flags & PROTO_VGPU_BURST) != 0;
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

/* Runs admit of a version, whose answer is in *ctx. Returns the verdict; -ENOENT: the version has
 * no admit, or no memory for this tenant; -EINVAL: the answer is invalid, which is reported. */
static int ask(struct daemon_session *s, struct daemon_version *l, uint32_t gpu,
	       const struct daemon_peer_share *share, struct daemon_ctx_admit *ctx)
{
	struct daemon *d = s->d;
	uint64_t verdict;

	if (!l || !daemon_version_has_hook(l, HOOK_admit) ||
	    daemon_version_add_tenant(l, (uint32_t)s->tenant) < 0) {
		return -ENOENT;
	}
	ctx->now_ns = clock_now_ns();
	ctx->waited_ns = s->hello.queued_sent ? ctx->now_ns - s->connected_ns : 0;
	ctx->tenant = (uint32_t)s->tenant;
	ctx->uid = s->peer.uid;
	ctx->pid = (uint32_t)s->peer.pid;
	ctx->gpu = gpu;
	ctx->class_id = s->class_id;
	ctx->lane = s->grant.lane;
	ctx->sm_percent = s->grant.sm_percent;
	ctx->nice = share->nice;
	ctx->cpu_weight = share->cpu_weight;
	ctx->priority = s->grant.priority;
	ctx->restart = s->grant.restart;
	ctx->rhythm = s->grant.rhythm;
	ctx->lead_us = s->grant.lead_us;
	ctx->command = share->command;
	tell_vgpu(s, gpu, ctx);
	count_tenants(d, s, gpu, ctx);
	verdict = daemon_hook_run(l, HOOK_admit, ctx);
	POINT("daemon.admit.ran");
	if (verdict_is_sane(ctx, verdict)) {
		return (int)verdict;
	}
	d->counters.verdict_errors++;
	daemon_failures_count(l, HOOK_admit, PROTO_FAILED_VERDICT);
	daemon_session_event(s, "verdict",
			     "admit of policy version %llu gave verdict %llu, class %u, weight "
			     "%u, lane %u, slice %u us, SMs %u %%, priority %d, restart %u, "
			     "rhythm %u, lead %u us: the built-in answer is used",
			     (unsigned long long)l->version, (unsigned long long)verdict,
			     ctx->class_id, ctx->weight, ctx->lane, ctx->slice_us, ctx->sm_percent,
			     ctx->priority, ctx->restart, ctx->rhythm, ctx->lead_us);
	return -EINVAL;
}

/* Stores the answer. A lane that is not available is not an error: policies may ask for what they
 * prefer. */
static void take_answer(struct daemon_session *s, const struct daemon_ctx_admit *ctx,
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
	struct daemon_version *l = daemon_policy_active_on(s->d, gpu);
	struct daemon_ctx_admit ctx = { .weight = s->weight,
					.lanes = s->grant.lanes,
					.slice_us = s->grant.slice_us };
	int verdict = ask(s, l, gpu, share, &ctx);

	if (verdict < 0) {
		return GBPF_ADMIT;
	}
	take_answer(s, &ctx, l->version);
	return verdict;
}

static uint32_t gpus_of(const struct daemon_session *s)
{
	return s->gpu_mask ? s->gpu_mask : 1u << daemon_gpus_first(&s->d->devices);
}

/* An early hello does not name its GPUs yet, so this runs admit for the first GPU, and for the
 * others when the devices are known. The answers of a call that does not admit the tenant are
 * dropped, so that the next call sees again what the tenant asked for. */
int daemon_hook_admit(struct daemon_session *s)
{
	uint32_t mask = gpus_of(s), class_id = s->class_id, weight = s->weight;
	struct daemon_peer_share share = daemon_peer_share_of(s->peer.pid, s->pidfd);
	struct daemon_session_grant grant = s->grant;
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
	} else {
		s->class_id = class_id;
		s->weight = weight;
		s->grant = grant;
	}
	return strictest;
}

int daemon_hook_rejoin(struct daemon_session *s, uint64_t version, uint32_t gpus,
		       struct daemon_rejoin_answer *ret)
{
	struct daemon_peer_share share = daemon_peer_share_of(s->peer.pid, s->pidfd);
	uint32_t mask = gpus_of(s) & gpus;
	int answers = 0;

	*ret = (struct daemon_rejoin_answer){ .weight = s->weight_asked };
	for (uint32_t gpu = 0; gpu < PROTO_MAX_GPUS; gpu++) {
		struct daemon_version *l = version ? daemon_version_on(s->d, version, gpu)
						   : daemon_policy_active_on(s->d, gpu);
		struct daemon_ctx_admit ctx = { .weight = ret->weight,
						.lanes = 1u << s->grant.lane,
						.slice_us = ret->slice_us,
						.rejoin = 1 };

		if (!(mask & 1u << gpu) || ask(s, l, gpu, &share, &ctx) < 0) {
			continue;
		}
		answers++;
		*ret = (struct daemon_rejoin_answer){ ctx.weight, ctx.slice_us, l->version };
	}
	return mask ? answers : -ENOENT;
}

/* Class, lane and what depends on the lane were fixed when the process started. */
void daemon_hook_readmit(struct daemon_session *s)
{
	struct daemon_rejoin_answer a;

	(void)daemon_hook_rejoin(s, 0, UINT32_MAX, &a);
	s->weight = a.weight;
	s->grant.slice_us = a.slice_us;
	s->grant.slice_version = a.version;
	s->hello.asked_mask |= gpus_of(s);
}
