/* `gbpf bench disb`: the workloads of DISB, with kernels of the models' lengths, or PyTorch's. */
#ifndef GBPF_BENCH_DISB_DISB_H
#define GBPF_BENCH_DISB_DISB_H

#include <jansson.h>

#include "bench/common/schedule.h"
#include "bench/common/statistics.h"
#include "bench/common/testbed.h"

#define DISB_MODELS 7u
#define DISB_TASKS 16u /* of a workload */
#define DISB_WORKLOADS 9u
#define DISB_CONDITIONS 8u
#define DISB_ROUNDS 16u

/* A model: the time of one inference alone (RTX 3080, TensorRT: the basis of the published loads)
 * and its number of kernels here. */
struct bench_disb_model {
	const char *name, *doc;
	double ms;
	unsigned kernels;
	unsigned trace; /* of the workload REAL */
};
extern const struct bench_disb_model disb_models[DISB_MODELS];

struct bench_disb_task {
	unsigned model;
	enum bench_schedule_kind load;
	double rate;
	bool rt;
};

struct bench_disb_workload {
	const char *name;
	struct bench_disb_task task[DISB_TASKS];
	unsigned tasks;
};
/* Returns 0, or -1 if there is no such workload. periodic: batch tasks are periodic, as in
 * GPreempt's copy, instead of in a closed loop. */
int bench_disb_workload(const char *name, bool periodic, struct bench_disb_workload *ret);
extern const char *const disb_names[DISB_WORKLOADS];

/* Computes the start of each task: periodic tasks with the same integral frequency begin one after
 * the other, in the order of their names, each after the stand-alone times of those before. */
void bench_disb_offsets(const struct bench_disb_workload *w, const double *alone_ms,
			uint64_t *ret_ns);

struct bench_disb_def {
	const char *name, *doc;
	enum bench_testbed_lane lane;
	bool batch;
	bool again; /* repeats another condition, to show the difference between two measurements of
		       the same */
};
extern const struct bench_disb_def disb_defs[DISB_CONDITIONS];

/* Parts of a request's time. All but the first add up to its duration. */
enum bench_disb_part {
	PART_LATE,  /* from when it was due to its beginning */
	PART_FIRST, /* to the beginning of its first kernel on the device */
	PART_FRONT, /* to the beginning of the PAGE_FRONT-th kernel after it */
	PART_REST,
	DISB_PARTS
};
/* Concurrent requests. */
enum bench_disb_met {
	MET_NOBODY, /* no other real-time task had a request open when it began */
	MET_OTHERS,
	DISB_METS
};
struct bench_disb_parts {
	unsigned n, stamped;		/* requests; those whose parts except the first are known */
	double took_us, us[DISB_PARTS]; /* sums */
};

/* gbpfd's statistics of a task at the end of a round: sums over rounds. */
struct bench_disb_tenant {
	unsigned rounds;
	double launches, block_launches, interruptions, holds, held_ns, limit_hits, forced;
	double requests;
	json_t *kernels; /* owned: of the last round */
};

/* A task in a condition, over all rounds. */
struct bench_disb_row {
	double *us; /* owned: by round, sorted within each round */
	unsigned n;
	unsigned from[DISB_ROUNDS + 1]; /* where each round begins */
	uint64_t dropped;
	double seconds;
	double round_mean[DISB_ROUNDS], round_p99[DISB_ROUNDS], round_rate[DISB_ROUNDS];
	struct bench_disb_parts parts[DISB_METS];
	double step_us[PAGE_STEPS];
	unsigned steps;
	struct bench_disb_tenant tenant;
};

struct bench_disb_condition {
	const struct bench_disb_def *def;
	bool chosen, available;
	char why[512];
	struct bench_testbed_daemon *daemon;
	/* of the current workload */
	unsigned rounds;
	bool broken;
	struct bench_disb_row row[DISB_TASKS];
};

struct bench_disb {
	struct bench_testbed testbed;
	unsigned rounds, threads, blocks; /* blocks: of a kernel per multiprocessor */
	double seconds;			  /* duration of a measurement */
	const char *policy, *policy_name, *workloads, *conditions, *save;
	bool periodic, soft;
	const char *torch,
		*python; /* torch: the program of PyTorch's tasks; NULL: kernels of the bench */
	bool graphs;	 /* PyTorch's networks as CUDA graphs */
	unsigned divide; /* divisor of the number of kernels: a launch costs more on the soft GPU */
	char device[64];
	unsigned sms, grid;
	int iterations[DISB_MODELS];
	double alone_ms[DISB_MODELS]; /* measured */
	struct bench_disb_condition condition[DISB_CONDITIONS];
	json_t *document, *results; /* owned; results: borrowed, in document */
	bool failed;
};

int bench_disb_run(struct bench_disb *b);
/* disb_models.c: measures how long each model takes alone, and calibrates the bench's kernels. */
int bench_disb_models_fit(struct bench_disb *b, const bool *used);
/* The client's role and its options for a model. */
const char *bench_disb_role(const struct bench_disb *b);
void bench_disb_model_options(const struct bench_disb *b, unsigned model,
			      struct bench_testbed_command *k);
/* disb_parts.c: after a turn, records the parts of its requests' time, and gbpfd's statistics of
 * its tasks. client: one per task; those that did not run have no page. */
void bench_disb_note_parts(const struct bench_disb_workload *w, struct bench_disb_condition *c,
			   const struct bench_testbed_client *client);
void bench_disb_note_tenants(const struct bench_disb_workload *w, struct bench_disb_condition *c,
			     const struct bench_testbed_client *client, const json_t *tenants);
json_t *bench_disb_parts_json(const struct bench_disb_row *r);
void bench_disb_finish(struct bench_disb *b);
/* Reports one workload, after its rounds. */
int bench_disb_report(struct bench_disb *b, const struct bench_disb_workload *w);

/* disb_figures.c. Returns the condition without gBPF, in the lane of c or else in the other: the
 * real-time tasks alone, or all. NULL: not measured. */
const struct bench_disb_condition *
bench_disb_plain(const struct bench_disb *b, const struct bench_disb_condition *c, bool batch);
struct bench_disb_figures {
	double mean, q[3], mean_ratio, p99_ratio, rate;
	struct bench_stats_range mean_interval;
};
struct bench_disb_figures bench_disb_figures(const struct bench_disb_condition *c,
					     const struct bench_disb_condition *base,
					     unsigned task);
/* Over the real-time tasks: means of the ratios, with intervals from a bootstrap over rounds, and
 * requests per second. */
struct bench_disb_summary {
	double mean_ratio, p99_ratio, rt_rate, be_rate, total_share;
	struct bench_stats_range mean_range, p99_range, total_range;
	double round_mean_ratio[DISB_ROUNDS], round_p99_ratio[DISB_ROUNDS];
	unsigned rounds; /* rounds with a ratio */
	uint64_t dropped;
};
struct bench_disb_summary bench_disb_summary(const struct bench_disb *b,
					     const struct bench_disb_workload *w,
					     const struct bench_disb_condition *c);

#endif
