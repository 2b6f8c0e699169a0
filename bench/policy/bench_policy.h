/* What the parts of `gbpf bench policy` share: settings, a loaded program with both code
 * generators, and how a loop is timed. */
#ifndef GBPF_BENCH_POLICY_BENCH_POLICY_H
#define GBPF_BENCH_POLICY_BENCH_POLICY_H

#include <jansson.h>

#include "base/report.h"
#include "bench/control/contexts.h"
#include "bpf/load/policy.h"

#define POLICY_CONTEXTS 256u
#define POLICY_TENANTS 8u

struct policy_settings {
	const char *policies; /* folder of the shipped policies' objects */
	const char *set;      /* folder of the benchmark's objects and native code */
	unsigned repeat;
	unsigned budget_ms; /* of one measurement of one loop, about */
	int json;
};

/* Big enough for every context; now_ns is the first member of each. */
union policy_ctx {
	struct gbpf_submit_ctx submit;
	struct gbpf_retire_ctx retire;
	struct gbpf_dispatch_ctx dispatch;
	struct gbpf_tick_ctx tick;
	struct gbpf_admit_ctx admit;
	uint64_t now_ns;
};

/* One policy with memory of its own, opened as gbpfd and as the tenant at once. */
struct policy_place {
	struct ebpf_policy p;
	int fds[EBPF_REGIONS];
	void *mem[EBPF_REGIONS];
	size_t bytes[EBPF_REGIONS];
	uint8_t *tenants; /* owned: regions of POLICY_TENANTS tenants */
	struct ebpf_tenant_ops ops;
};

int policy_place_open(struct policy_place *pl, const struct ebpf_built *b, unsigned flags);
void policy_place_close(struct policy_place *pl);
/* Reads a file and builds it. 0 or what ebpf_policy_build gives. */
int policy_build_file(struct ebpf_built *b, const char *path, struct report *r);

/* Contexts as they occur, and the contents of the maps "inputs", "texts" and "sorted"; the same at
 * each call. */
void policy_fill_contexts(union policy_ctx c[POLICY_CONTEXTS], unsigned hook);
void policy_fill_maps(struct policy_place *pl);

/* ns a call of fn (NULL: the loop alone), over the contexts. */
double policy_time(ebpf_entry fn, struct ebpf_env *env, union policy_ctx c[POLICY_CONTEXTS],
		   unsigned calls);
/* The same for the interpreter. */
double policy_time_interpreted(const struct ebpf_code *code, struct ebpf_env *env,
			       union policy_ctx c[POLICY_CONTEXTS], unsigned calls);

/* Median with quartiles, sorted in place. */
struct policy_figure {
	double low, median, high;
};
struct policy_figure policy_figure(double *v, unsigned n);
json_t *policy_figure_json(const struct policy_figure *f);
/* A goal in a report: what was measured, the limit, whether it is kept. Prints a line, or adds to
 * the document. */
void policy_goal(const struct policy_settings *s, json_t *goals, const char *what,
		 const struct policy_figure *f, const char *unit, double limit);

/* The parts: print, or add to the document. 0 or -errno. */
int policy_bench_set(const struct policy_settings *s, json_t *document);     /* policy_set.c */
int policy_bench_lookups(const struct policy_settings *s, json_t *document); /* policy_lookup.c */
int policy_bench_load(const struct policy_settings *s, json_t *document);    /* policy_load.c */

#endif
