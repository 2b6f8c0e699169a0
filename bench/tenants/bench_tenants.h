/* `gbpf bench tenants`: two latency and four batch processes, each with several streams. */
#ifndef GBPF_BENCH_TENANTS_BENCH_TENANTS_H
#define GBPF_BENCH_TENANTS_BENCH_TENANTS_H

#include <jansson.h>

#include "bench/common/statistics.h"
#include "bench/common/testbed.h"

#define TENANTS_ROUNDS 32u
#define TENANTS_MAX 16u
#define TENANTS_CONDITIONS 6u

enum { TENANT_LC, TENANT_BE, TENANT_CLASSES };
enum { TENANT_CALL, TENANT_START, TENANT_END, TENANT_WHATS };

struct bench_tenants_def {
	const char *name, *doc;
	enum bench_testbed_lane lane;
	bool slices, alone; /* alone: the latency processes only */
};

/* A class in a condition: samples of all rounds. */
struct bench_tenants_cell {
	double *us[TENANT_WHATS]; /* owned; sorted by the report */
	unsigned n;
	double round_p99[TENANT_WHATS][TENANTS_ROUNDS];
	double rate[TENANTS_ROUNDS]; /* kernels per second of all processes of the class */
};

struct bench_tenants_condition {
	const struct bench_tenants_def *def;
	bool chosen, available, broken;
	char why[512];
	struct bench_testbed_daemon *daemon;
	unsigned rounds;
	struct bench_tenants_cell cell[TENANT_CLASSES];
};

struct bench_tenants {
	struct bench_testbed testbed;
	unsigned rounds, processes[TENANT_CLASSES], streams, kernels, threads, grid;
	unsigned slice_us[TENANT_CLASSES];
	double kernel_ms, gap_ms;
	const char *policy, *policy_name, *conditions, *save;
	char device[64];
	int iterations;
	struct bench_tenants_condition condition[TENANTS_CONDITIONS];
	bool failed;
};

/* Returns the number of a class's processes in a condition. */
static inline unsigned bench_tenants_processes(const struct bench_tenants *b,
					       const struct bench_tenants_condition *c, unsigned k)
{
	return c->def->alone && k == TENANT_BE ? 0 : b->processes[k];
}

extern const char *const tenants_whats[TENANT_WHATS];
int bench_tenants_report(struct bench_tenants *b);

#endif
