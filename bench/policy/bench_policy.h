/* Shared parts of `gbpf bench dev policy`: settings, a loaded program with both code generators,
 * and timed loops. */
#ifndef GBPF_BENCH_POLICY_BENCH_POLICY_H
#define GBPF_BENCH_POLICY_BENCH_POLICY_H

#include "base/report.h"
#include "bench/common/program.h"
#include "bench/control/contexts.h"
#include "bpf/load/policy.h"

#define POLICY_CONTEXTS 256u
#define POLICY_TENANTS 8u

struct bench_policy_settings {
	const char *policies; /* folder of the shipped policies' objects */
	const char *set;      /* folder of the benchmark's objects and native code */
	unsigned repeat;
	unsigned budget_ms; /* approximate time of one measurement of one loop */
};

/* Large enough for every context; now_ns is the first member of each. */
union bench_policy_ctx {
	struct gbpf_submit_ctx submit;
	struct gbpf_retire_ctx retire;
	struct gbpf_dispatch_ctx dispatch;
	struct gbpf_tick_ctx tick;
	struct gbpf_admit_ctx admit;
	uint64_t now_ns;
};

/* One policy with memory of its own, opened both as gbpfd and as the tenant. */
struct bench_policy_place {
	struct ebpf_policy p;
	int fds[EBPF_REGIONS];
	void *mem[EBPF_REGIONS];
	size_t bytes[EBPF_REGIONS];
	uint8_t *tenants; /* owned: regions of POLICY_TENANTS tenants */
	struct ebpf_tenant_ops ops;
};

int bench_policy_place_open(struct bench_policy_place *pl, const struct ebpf_built *b,
			    unsigned flags);
void bench_policy_place_close(struct bench_policy_place *pl);
/* Reads a file and builds it. Returns 0 or the error of ebpf_policy_build. */
int bench_policy_build_file(struct ebpf_built *b, const char *path, struct report *r);

/* Fills realistic contexts, and the maps "inputs", "texts" and "sorted"; the same at each call. */
void bench_policy_fill_contexts(union bench_policy_ctx c[POLICY_CONTEXTS], unsigned hook);
void bench_policy_fill_maps(struct bench_policy_place *pl);

/* Returns ns per call of fn (NULL: the loop alone), over the contexts. */
double bench_policy_time(ebpf_entry fn, struct ebpf_env *env,
			 union bench_policy_ctx c[POLICY_CONTEXTS], unsigned calls);
/* Same for the interpreter. */
double bench_policy_time_interpreted(const struct ebpf_code *code, struct ebpf_env *env,
				     union bench_policy_ctx c[POLICY_CONTEXTS], unsigned calls);

/* Writes the record of a goal: its values, one a repeat, and the limit of their median. Returns 0;
 * -1 if it could not be written. */
int bench_policy_goal(const struct bench_policy_settings *s, const char *what, const double *v,
		      const char *unit, double limit);

/* The parts. Return 0 or another number. */
int bench_policy_bench_set(const struct bench_policy_settings *s);     /* program_set.c */
int bench_policy_bench_lookups(const struct bench_policy_settings *s); /* time_lookup.c */
int bench_policy_bench_load(const struct bench_policy_settings *s);    /* time_load.c */

#endif
