/* The hooks init and exit, at the beginning and the end of a version. Both run on the loop; the
 * verifier bounds them to about a millisecond. */
#include "daemon/policy/daemon_hooks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/point.h"
#include "bpf/run/ctx_bound.h"
#include "daemon/consts.h"
#include "daemon/policy/policies.h"
#include "daemon/policy/policy_failures.h"
#include "daemon/policy/policy_prints.h"
#include "daemon/policy/vgpu_maps.h"

/* Processor time, so that a loaded machine refuses nothing: ten times what the worst program that
 * the verifier accepts takes. */
#define INIT_LIMIT_NS 10000000u
#define SLOW_NS 1000000u /* processor time; the period of a tick */

void daemon_version_publish(struct daemon_version *l)
{
	(void)ebpf_maps_publish(l->run.env.maps, l->run.env.n_maps);
}

uint64_t daemon_hook_run(struct daemon_version *l, unsigned hook, void *ctx)
{
	uint64_t errors = load_relaxed(&l->run.env.helper_errors), begin = clock_cpu_ns(), verdict;

	ebpf_ctx_bound(hook, ctx);
	verdict = ebpf_policy_run(&l->run, hook, ctx);
	l->last_hook = hook;
	daemon_version_publish(l);
	daemon_prints_take(l, hook);
	if (load_relaxed(&l->run.env.helper_errors) != errors) {
		daemon_failures_count(l, hook, PROTO_FAILED_HELPER);
	}
	/* A program of bounded cost takes about the same time in each call, so one slow call may be
	 * due to the machine (time that a hypervisor takes counts as processor time): two in a row
	 * are counted. */
	if (clock_cpu_ns() - begin <= SLOW_NS) {
		l->slow &= ~(UINT64_C(1) << hook);
	} else if (l->slow & UINT64_C(1) << hook) {
		daemon_failures_count(l, hook, PROTO_FAILED_SLOW);
	} else {
		l->slow |= UINT64_C(1) << hook;
	}
	return verdict;
}

int daemon_hook_init(struct daemon_version *l, uint32_t kept_maps, const char *name,
		     struct report *r)
{
	struct daemon_ctx_init ctx = { .now_ns = clock_now_ns(),
				       .version = l->version,
				       .gpu = l->gpu,
				       .kept_maps = kept_maps };
	uint64_t begin = clock_cpu_ns(), took;
	const char *word;
	int verdict;

	daemon_vgpu_maps_write(l);
	if (!daemon_version_has_hook(l, HOOK_init)) {
		return 0;
	}
	verdict = (int)(uint32_t)daemon_hook_run(l, HOOK_init, &ctx);
	took = clock_cpu_ns() - begin;
	if (took > INIT_LIMIT_NS) {
		report_hint(r, "Reduce the work of init; tick can do the rest");
		return report_set(r, -ETIME, "init",
				  "init of policy '%s' took %llu us, more than %u us", name,
				  (unsigned long long)took / 1000, INIT_LIMIT_NS / 1000);
	}
	if (!verdict) {
		return 0;
	}
	word = verdict < 0 && verdict >= -4095 ? strerrorname_np(-verdict) : NULL;
	report_hint(r, "The policy itself refused to start; the previous policy stays active");
	if (!word) {
		return report_set(r, -EINVAL, "init",
				  "init of policy '%s' returned %d, which is not an errno", name,
				  verdict);
	}
	return report_set(r, verdict, "init", "init of policy '%s' returned -%s (%d): %s", name,
			  word, verdict, strerror(-verdict));
}

void daemon_version_run_exit(struct daemon_version *l, uint32_t reason)
{
	struct daemon_ctx_exit ctx = {
		.now_ns = clock_now_ns(), .version = l->version, .gpu = l->gpu, .reason = reason
	};

	if (l->activated && daemon_version_has_hook(l, HOOK_exit)) {
		daemon_prints_flush(l); /* makes room for its lines */
		daemon_hook_run(l, HOOK_exit, &ctx);
		POINT("daemon.exit.ran");
	}
	l->activated = false;
	daemon_prints_flush(l);
}
