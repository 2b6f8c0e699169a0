/* Calling a hook of the version in force. The caller fills the hook's context, and interprets and
 * checks the verdict; this file only finds and runs the program, so every plane can use it. */
#ifndef GBPF_POLICY_HOOK_H
#define GBPF_POLICY_HOOK_H

#include "policy/ctx.h"
#include "policy/versions.h"

/* A verdict that is worth nothing, and why. */
enum policy_failure {
	POLICY_FINE,
	POLICY_HELPER_FAILED,
	POLICY_OUTLIVED, /* the epoch arrays that it read were overwritten meanwhile */
};

/* No hook is to run: GBPF_OFF=1 or `gbpf off`. Inside a read-side section. */
static inline bool policy_is_off(const struct policy *p)
{
	return load_relaxed(&p->off) || load_relaxed(&load_acquire(&p->dir)->off);
}

/* The slow way of policy_current: the version word has changed since the last call. */
struct policy_version *policy_find(struct policy *p, uint32_t gpu, uint32_t index,
				   uint64_t version);

/* Returns the version in force on a GPU (device ordinal), or NULL if there is none. A version that
 * is not prepared here yet leaves the one in use in force. Inside a read-side section; valid until
 * that is left. The directory's word is read once, so code, constants and maps belong together. */
static inline struct policy_version *policy_current(struct policy *p, uint32_t gpu)
{
	uint32_t index = load_relaxed(&p->gpu[gpu].index);
	struct policy_version *v;
	uint64_t version;

	if (unlikely(index >= PROTO_MAX_GPUS)) {
		return NULL;
	}
	version = load_acquire(&load_acquire(&p->dir)->version[index]);
	v = &p->prepared[load_relaxed(&p->gpu[gpu].hint)];
	/* Pairs with the release in policy_prepare: the entry is filled before its number is. A
	 * hint may be that of an entry which was dropped and is another GPU's now. */
	if (likely(load_acquire(&v->version) == version)) {
		if (unlikely(!version)) {
			return NULL;
		}
		if (likely(load_relaxed(&v->gpus) & 1u << gpu)) {
			return v;
		}
	}
	return policy_find(p, gpu, index, version);
}

/* The version has a program for that hook (POLICY_HOOK_*). */
static inline bool policy_fills(const struct policy_version *v, unsigned hook)
{
	return v->policy.insns[hook] != NULL;
}

/* Runs a hook that the version fills, and returns its verdict, which is worth nothing if
 * *ret_failed is not POLICY_FINE. Inside a read-side section. */
uint64_t policy_hook_run(struct policy_version *v, unsigned hook, void *ctx,
			 enum policy_failure *ret_failed);

/* One whole call: enters a read-side section, finds the version in force on the GPU and runs the
 * hook. Returns false if the process is off, no version is in force, or it does not fill the hook;
 * then *ret is untouched. */
struct policy_result {
	uint64_t version, verdict;
	enum policy_failure failed;
};
bool policy_hook_call(struct policy *p, uint32_t gpu, unsigned hook, void *ctx,
		      struct policy_result *ret);

/* Runs a tool's program of a hook that it has. It observes: what it returns is not used, and ctx is
 * its own copy of the context. Inside a read-side section. */
void policy_observe(struct ebpf_policy *tool, unsigned hook, void *ctx);

/* Tools whose programs of hooks run beside those of the version in force. Two for each that can be
 * attached: one may end while another begins. */
#define POLICY_OBSERVERS 32u
#define POLICY_OBSERVED_BYTES 256u  /* of a context, at most */
extern uint32_t policy_n_observers; /* [atomic] */
/* Calls of add are serialized by the caller. remove returns false if a thread may still run one of
 * the tool's programs: it must stay. Not inside a read-side section. */
void policy_observer_add(struct ebpf_policy *tool); /* borrowed until it is removed */
bool policy_observer_remove(const struct ebpf_policy *tool);
/* In the child after fork: there are none. */
void policy_observers_forget(void);
/* Runs the programs of that hook, each with its own copy of the context. Inside a read-side
 * section.
 */
void policy_observe_all(unsigned hook, const void *ctx, size_t bytes);

/* The verdict was out of range: counts it for the version, if that is still prepared. */
void policy_count_verdict(struct policy *p, uint64_t version, unsigned hook);

#endif
