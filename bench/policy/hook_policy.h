/* One policy as a tenant's process has it, compiled and interpreted, with maps as gbpfd fills them.
 */
#ifndef GBPF_BENCH_POLICY_HOOK_POLICY_H
#define GBPF_BENCH_POLICY_HOOK_POLICY_H

#include "base/report.h"
#include "bpf/load/policy.h"

#define HOOK_TENANT 3u /* the tenant number in all contexts */

struct bench_hook_policy {
	char name[EBPF_NAME_BYTES];
	struct ebpf_policy compiled, interpreted;
	uint32_t n_insns[EBPF_MAX_HOOKS]; /* 0: no program */
	uint32_t cost[EBPF_MAX_HOOKS];
};

/* Loads an object file. Returns 0, or -EINVAL, -EACCES ... with r. */
int bench_hook_policy_load(struct bench_hook_policy *p, const char *path, const char *name,
			   struct report *r);
/* Loads a submit program that only returns GO. */
int bench_hook_policy_empty(struct bench_hook_policy *p, struct report *r);
void bench_hook_policy_close(struct bench_hook_policy *p);

#endif
