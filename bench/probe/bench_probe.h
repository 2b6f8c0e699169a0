/* `gbpf bench probe`: cost of programs inside kernels, and of attaching them. The bench is itself
 * the program whose kernels are probed: it loads the shim and the driver's library, launches by
 * either, and attaches to itself by calls to a gbpfd of its own. */
#ifndef GBPF_BENCH_PROBE_BENCH_PROBE_H
#define GBPF_BENCH_PROBE_BENCH_PROBE_H

#include "base/buf.h"
#include "bench/common/testbed.h"
#include "bench/probe/bench_probe_gpu.h"

#define BENCH_PROBE_ROUNDS_MAX 1000u
#define BENCH_PROBE_ATTACHES_MAX 1000u
#define BENCH_PROBE_CYCLES_MAX 100000u

struct bench_probe {
	struct bench_testbed testbed;
	const char *shim, *objects, *tracers; /* the library; folders of programs */
	const char *parts, *rows, *samples;   /* lists; NULL: all */
	unsigned rounds, attaches, cycles;    /* 0: the device's default */
	struct bench_testbed_daemon *daemon;
	struct bench_probe_gpu gpu;
};

/* An attached tool. */
struct bench_probe_tool {
	uint32_t id;
	const char *map;     /* that it counts in; NULL: none */
	unsigned kernels;    /* that are to run it; 0: as 1 */
	uint32_t budget_ppm; /* 0: none */
};

/* All functions return 0, or -1 with the testbed's error. */

/* ---- bench_probe_tool.c ---- */
/* Reads an object of the bench's folder. Caller finishes b, also after a failure. */
int bench_probe_object(struct bench_probe *p, const char *name, struct buf *b);
/* The same of a tool of `gbpf trace`. */
int bench_probe_tracer(struct bench_probe *p, const char *name, struct buf *b);
/* Attaches an object to kernels of that name; replace: number of a tool, 0: none. */
int bench_probe_attach(struct bench_probe *p, const struct buf *object, const char *kernel,
		       uint32_t replace, struct bench_probe_tool *t);
/* *ret becomes true if a kernel runs the tool and none waits for it. Fails if one is refused. */
int bench_probe_is_running(struct bench_probe *p, const struct bench_probe_tool *t, bool *ret);
/* What gbpfd says of a tool, as the program has told it last. */
struct bench_probe_state {
	bool cost_known;
	uint32_t cost_ppm;
	uint64_t launches, probed; /* of kernels with the tool; that have run it */
};
int bench_probe_get_state(struct bench_probe *p, const struct bench_probe_tool *t,
			  struct bench_probe_state *ret);
/* Returns when no kernel runs the tool any more. If gbpfd has stopped waiting for that before, it
 * increments *late, or fails if late is NULL. */
int bench_probe_detach(struct bench_probe *p, const struct bench_probe_tool *t, unsigned *late);
/* Stores how many tools gbpfd lists. */
int bench_probe_count(struct bench_probe *p, size_t *ret);
/* Stores the sum of the shards in the tool's map, as they are now. */
int bench_probe_sum(struct bench_probe *p, const struct bench_probe_tool *t, uint64_t *ret);
/* Stores how many accesses by lanes memtrace has counted; how many lanes have returned by
 * kernelretsnoop. */
int bench_probe_accesses(struct bench_probe *p, const struct bench_probe_tool *t, uint64_t *ret);
int bench_probe_returns(struct bench_probe *p, const struct bench_probe_tool *t, uint64_t *ret);
/* Stores the times of n warps in the map of exit_timer, as they are now. */
int bench_probe_times(struct bench_probe *p, const struct bench_probe_tool *t, const uint64_t *warp,
		      unsigned n, uint64_t *v);

/* ---- bench_probe_cost.c ---- */
/* Measures launches with and without each program. */
int bench_probe_cost(struct bench_probe *p);

/* ---- bench_probe_budget.c ---- */
/* Measures launches with programs that have a budget. */
int bench_probe_budget(struct bench_probe *p);

/* ---- bench_samples.c ---- */
/* Measures known kernels with and without each program. */
int bench_probe_samples(struct bench_probe *p);

/* ---- bench_probe_delay.c, bench_probe_cycles.c ---- */
/* Measures how long an attachment takes, and what it delays. */
int bench_probe_delay(struct bench_probe *p);
/* Attaches, swaps and detaches under load. */
int bench_probe_cycles(struct bench_probe *p);

#endif
