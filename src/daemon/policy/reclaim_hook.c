/* The hook reclaim: how much of a vGPU's memory is taken for another one. */
#include "daemon/policy/daemon_hooks.h"

#include "base/clock.h"
#include "daemon/consts.h"
#include "daemon/policy/policies.h"
#include "daemon/policy/policy_failures.h"
#include "daemon/vgpu/vgpu.h"

#define MIB_MAX 1048576u /* largest verdict */

static struct daemon_ctx_reclaim context_of(const struct daemon_vgpu_claim *c)
{
	return (struct daemon_ctx_reclaim){ .now_ns = clock_now_ns(),
					    .need = c->need,
					    .mem_used = c->used,
					    .mem_reserve = c->of->reserve,
					    .above = c->above,
					    .swap_left = c->swap_left,
					    .vgpu = c->place,
					    .for_vgpu = c->for_place,
					    .gpu = c->gpu,
					    .full = c->full,
					    .prio = c->of->prio,
					    .for_prio = c->by->prio,
					    .compute = c->of->compute,
					    .copy = c->of->copy,
					    .attempts = c->attempts };
}

static bool ask(struct daemon *d, const struct daemon_vgpu_claim *c, uint64_t *ret_bytes)
{
	struct daemon_version *l = daemon_policy_active_on(d, c->gpu);
	struct daemon_ctx_reclaim ctx;
	uint64_t verdict;

	if (!l || !daemon_version_has_hook(l, HOOK_reclaim) || l->copying) {
		return false;
	}
	ctx = context_of(c);
	verdict = daemon_hook_run(l, HOOK_reclaim, &ctx);
	if (verdict > MIB_MAX) {
		d->counters.verdict_errors++;
		daemon_failures_count(l, HOOK_reclaim, PROTO_FAILED_VERDICT);
		return false;
	}
	*ret_bytes = verdict << 20;
	return true;
}

const struct daemon_feature daemon_reclaim_feature = { .reclaim = ask };
