/* `gbpf bench dev disb`: the workloads of DISB, with kernels of the models' lengths, or PyTorch's.
 */
#ifndef GBPF_BENCH_DISB_DISB_H
#define GBPF_BENCH_DISB_DISB_H

#include <jansson.h>

#include "bench/common/program.h"
#include "bench/common/schedule.h"
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

struct bench_disb_condition {
	const struct bench_disb_def *def;
	bool chosen, available;
	char why[512];
	struct bench_testbed_daemon *daemon;
	/* of the current workload */
	unsigned rounds;
	bool broken;
};

struct bench_disb {
	struct bench_testbed testbed;
	unsigned rounds, threads, blocks; /* blocks: of a kernel per multiprocessor */
	double seconds;			  /* duration of a measurement */
	const char *workloads, *conditions;
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
	bool failed;
};

int bench_disb_run(struct bench_disb *b);
/* disb_models.c: measures how long each model takes alone, and calibrates the bench's kernels. */
int bench_disb_models_fit(struct bench_disb *b, const bool *used);
/* Writes the record of the device and the models that were measured. Returns 0; -1 with error. */
int bench_disb_record_models(struct bench_disb *b);
/* The client's role and its options for a model. */
const char *bench_disb_role(const struct bench_disb *b);
void bench_disb_model_options(const struct bench_disb *b, unsigned model,
			      struct bench_testbed_command *k);
#endif
