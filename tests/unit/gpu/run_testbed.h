/* A process: the scheduler, runs and a gate as the shim's, on a driver in memory, with an agent and
 * another tenant whose requests raise leases. */
#ifndef GBPF_TESTS_GPU_RUN_TESTBED_H
#define GBPF_TESTS_GPU_RUN_TESTBED_H

#include "../sched/fake.h"
#include "fake_driver.h"

#define QUEUES 40

struct line { /* a stream as the program uses it */
	struct gpu_queue dev;
	struct sched_queue *q;
	struct track track;
	uint32_t ordinal; /* under lock when threads share it */
	pthread_mutex_t lock;
	struct work *all;
	struct work *after; /* operation that the next one must follow */
	CUevent event;
};

struct testbed {
	struct rig r;
	struct gpu_device *d;
	unsigned n, threads, programs;
	bool share; /* threads submit to the same streams */
	struct line line[QUEUES];
	struct sched_kernel *kernel;
	uint32_t stop_lc;
	pthread_t lc;
	uint64_t seed, requests, joined;
};

struct testbed *world_new(bool share);
/* limit_ns 0: the default. agent, device: start their threads. */
void testbed_init(struct testbed *w, unsigned n, const struct drv_options *o, uint64_t limit_ns);
/* Waits for everything, and checks that each work was done. */
void testbed_finish(struct testbed *w);
void start_latency(struct testbed *w);
void stop_latency(struct testbed *w);
/* Begins a request of the other tenant, with its lease. */
void request_begins(struct testbed *w);
void request_ends(struct testbed *w);

/* Launches a kernel. block: it has a clone; keepable: it can be copied. Returns the work. */
struct work *launch(struct testbed *w, struct line *x, uint32_t blocks, bool block, bool keepable,
		    uint32_t piece);
void synchronize(struct testbed *w, struct line *x);
/* Orders y's later operations after x's earlier ones. */
void order(struct testbed *w, struct line *x, struct line *y);

#endif
