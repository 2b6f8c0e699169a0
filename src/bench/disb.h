/* `gbpf bench disb`: the workloads of DISB, with kernels of the models' lengths. */
#ifndef GBPF_BENCH_DISB_H
#define GBPF_BENCH_DISB_H

#include <jansson.h>

#include "bench/schedule.h"
#include "bench/stats.h"
#include "bench/world.h"

#define DISB_MODELS 7u
#define DISB_TASKS 16u /* of a workload */
#define DISB_WORKLOADS 9u
#define DISB_CONDITIONS 6u
#define DISB_ROUNDS 16u

/* A model: its time of one inference alone (RTX 3080, TensorRT: what the published loads are made
 * for) and how many kernels it is here. */
struct disb_model {
	const char *name, *doc;
	double ms;
	unsigned kernels;
	unsigned trace; /* of the workload REAL */
};
extern const struct disb_model disb_models[DISB_MODELS];

struct disb_task {
	unsigned model;
	enum schedule_kind load;
	double rate;
	bool rt;
};

struct disb_workload {
	const char *name;
	struct disb_task task[DISB_TASKS];
	unsigned tasks;
};
/* periodic: batch tasks come periodically, as in GPreempt's copy, instead of in a closed loop. 0,
 * or -1: no such workload. */
int disb_workload(const char *name, bool periodic, struct disb_workload *ret);
extern const char *const disb_names[DISB_WORKLOADS];

/* Start of each task: those periodic ones that have the same whole frequency begin one after the
 * other, in the order of their names, each after the times alone of those before. */
void disb_offsets(const struct disb_workload *w, const double *alone_ms, uint64_t *ret_ns);

struct disb_def {
	const char *name, *doc;
	enum world_lane lane;
	bool batch;
};
extern const struct disb_def disb_defs[DISB_CONDITIONS];

/* A task in a condition, over all rounds. */
struct disb_row {
	double *us; /* owned, sorted by the report */
	unsigned n, cap;
	uint64_t dropped;
	double seconds;
	double round_mean[DISB_ROUNDS], round_p99[DISB_ROUNDS], round_rate[DISB_ROUNDS];
};

struct disb_condition {
	const struct disb_def *def;
	bool chosen, available;
	char why[512];
	struct world_daemon *daemon;
	/* of the workload that is being measured */
	unsigned rounds;
	bool broken;
	struct disb_row row[DISB_TASKS];
};

struct disb {
	struct world world;
	unsigned rounds, threads, blocks; /* blocks: of a kernel, a multiprocessor */
	double seconds;			  /* of a measurement */
	const char *policy, *policy_name, *workloads, *conditions, *save;
	bool periodic, soft;
	unsigned divide; /* kernels by that: a launch costs more on the soft GPU */
	char device[64];
	unsigned sms, grid;
	int iterations[DISB_MODELS];
	double alone_ms[DISB_MODELS]; /* measured */
	struct disb_condition condition[DISB_CONDITIONS];
	json_t *document, *results; /* owned; results: borrowed, in document */
	bool failed;
};

int disb_run(struct disb *b);
void disb_finish(struct disb *b);
/* One workload, after its rounds. */
int disb_report(struct disb *b, const struct disb_workload *w);

#endif
