/* Runs the programs of a policy in a tenant, and counts their failures. The only file that does;
 * must not interpret what they answer. */
#include "policy/hook.h"

#include <string.h>

#include "base/clock.h"
#include "bpf/run/ctx_bound.h"

static inline void count_failure(struct policy_version *v, unsigned hook, enum proto_failure what)
{
	_Static_assert(POLICY_HOOK_retire < PROTO_HOOKS, "every local hook has its counters");
	(void)add_relaxed(&v->failures[hook][what], 1u);
}

uint64_t policy_hook_run(struct policy_version *v, unsigned hook, void *ctx,
			 enum policy_failure *ret_failed)
{
	uint64_t errors = load_relaxed(&v->policy.env.helper_errors);
	uint64_t verdict;

	ebpf_ctx_bound(hook, ctx);
	verdict = ebpf_policy_run(&v->policy, hook, ctx);
	*ret_failed = POLICY_FINE;
	if (unlikely(v->policy.epoch) && ebpf_latch.outlived) {
		*ret_failed = POLICY_OUTLIVED;
		count_failure(v, hook, PROTO_FAILED_EPOCH);
	} else if (unlikely(load_relaxed(&v->policy.env.helper_errors) != errors)) {
		*ret_failed = POLICY_HELPER_FAILED;
		count_failure(v, hook, PROTO_FAILED_HELPER);
	}
	return verdict;
}

bool policy_hook_call(struct policy *p, uint32_t gpu, unsigned hook, void *ctx,
		      struct policy_result *ret)
{
	struct policy_reader *reader = policy_read_enter();
	struct policy_version *v = policy_is_off(p) ? NULL : policy_current(p, gpu);
	bool called = v && policy_fills(v, hook);

	if (called) {
		ret->version = v->policy.version;
		ret->verdict = policy_hook_run(v, hook, ctx, &ret->failed);
	}
	policy_read_leave(reader);
	return called;
}

/* ---- tools ---- */

static struct ebpf_policy *observers[POLICY_OBSERVERS]; /* [section] NULL: free */
uint32_t policy_n_observers;

void policy_observer_add(struct ebpf_policy *tool)
{
	for (unsigned i = 0; i < POLICY_OBSERVERS; i++) {
		if (!load_relaxed(&observers[i])) {
			/* Pairs with the acquire in policy_observe_all(): the tool is complete. */
			store_release(&observers[i], tool);
			(void)add_acqrel(&policy_n_observers, 1u);
			return;
		}
	}
}

bool policy_observer_remove(const struct ebpf_policy *tool)
{
	for (unsigned i = 0; i < POLICY_OBSERVERS; i++) {
		if (load_relaxed(&observers[i]) == tool) {
			store_release(&observers[i], (struct ebpf_policy *)NULL);
			(void)sub_acqrel(&policy_n_observers, 1u);
		}
	}
	return policy_synchronize();
}

void policy_observers_forget(void)
{
	memset(observers, 0, sizeof(observers));
	policy_n_observers = 0;
}

void policy_observe(struct ebpf_policy *tool, unsigned hook, void *ctx)
{
	ebpf_ctx_bound(hook, ctx);
	(void)ebpf_policy_run(tool, hook, ctx);
}

void policy_observe_all(unsigned hook, const void *ctx, size_t bytes)
{
	uint64_t own[POLICY_OBSERVED_BYTES / sizeof(uint64_t)];

	for (unsigned i = 0; i < POLICY_OBSERVERS; i++) {
		struct ebpf_policy *tool = load_acquire(&observers[i]);

		if (tool && tool->insns[hook] && bytes <= sizeof(own)) {
			memcpy(own, ctx, bytes);
			policy_observe(tool, hook, own);
		}
	}
}

void policy_count_verdict(struct policy *p, uint64_t version, unsigned hook)
{
	struct policy_reader *reader = policy_read_enter();

	for (uint32_t i = 0, n = policy_entries(p); i < n; i++) {
		if (load_acquire(&p->prepared[i].version) == version) {
			count_failure(&p->prepared[i], hook, PROTO_FAILED_VERDICT);
			break;
		}
	}
	policy_read_leave(reader);
}
