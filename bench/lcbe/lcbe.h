/* `gbpf bench lcbe`: settings, conditions and their measurements. */
#ifndef GBPF_BENCH_LCBE_LCBE_H
#define GBPF_BENCH_LCBE_LCBE_H

#include <jansson.h>

#include "bench/common/statistics.h"
#include "bench/common/testbed.h"

#define LCBE_ROUNDS 64u
#define LCBE_BATCH 16u
#define LCBE_CONDITIONS 10u
#define LCBE_CONFIDENCE 0.95

struct bench_lcbe_settings {
	unsigned requests; /* of each kind, all rounds together */
	unsigned rounds, batch_clients, streams, depth, grid, threads, kernels, hint_us;
	double block_us, lc_us, seconds;
	bool kind[PAGE_KINDS], default_stream, restart;
	const char *policy, *policy_name, *conditions, *save, *svg, *lc_cmd, *be_cmd;
};

/* A way of sharing the GPU. */
struct bench_lcbe_def {
	const char *name, *doc;
	enum bench_testbed_lane lane;
	bool batch;    /* with batch clients */
	bool priority; /* streams have priorities */
	bool brief;    /* batch has time slices of a microsecond */
	bool hint;     /* requests are announced */
};
extern const struct bench_lcbe_def lcbe_defs[LCBE_CONDITIONS];

/* One window: a kind in one condition in one round. */
struct bench_lcbe_cell {
	double *us; /* owned */
	unsigned n;
	double seconds, begun; /* duration of the window; batch work that ended in it */
};

enum bench_lcbe_state { LCBE_OUT, LCBE_IN, LCBE_NOT_AVAILABLE, LCBE_BROKEN };

struct bench_lcbe_condition {
	const struct bench_lcbe_def *def;
	enum bench_lcbe_state state;
	char why[512];
	struct bench_testbed_daemon *daemon;
	bool started;
	bool shared; /* its latency client shares the hardware context */
	struct bench_testbed_client lc, be[LCBE_BATCH];
	unsigned rounds;	   /* completed rounds */
	double alone[LCBE_ROUNDS]; /* batch without requests, kernels a second */
	struct bench_lcbe_cell cell[PAGE_KINDS][LCBE_ROUNDS];
	uint64_t wrong, checked;
	double cpu_ns[2];   /* of the threads that do not belong to the application: latency, batch,
			     */
	double cpu_seconds; /* duration in which cpu_ns was used */
	json_t *tenants;    /* owned: gbpfd's latest statistics of its clients; NULL: no gBPF */
};

/* Result of a condition and a kind. */
struct bench_lcbe_result {
	unsigned n;
	double *us;					 /* sorted, owned */
	double q[3];					 /* P50, P99, P99.9 */
	struct bench_stats_range interval[3], spread[3]; /* 95 %; smallest and largest round */
	bool sure[3];					 /* the interval has both ends */
	double ratio[3];				 /* to alone; 0: not measured */
	double batch_rate, busy; /* kernels a second; share of time of requests */
	double share;		 /* batch work as a share of the remaining time; 0: not known */
	struct bench_stats_range share_interval, share_spread;
};

struct bench_lcbe {
	struct bench_lcbe_settings set;
	struct bench_testbed testbed;
	struct bench_lcbe_condition condition[LCBE_CONDITIONS];
	struct bench_lcbe_result result[LCBE_CONDITIONS][PAGE_KINDS];
	char device[64];
	unsigned sms;
	int iterations[2];
	double block_us[2];
	uint64_t begun_ns;
	unsigned windows, windows_done;
	bool failed;
};

extern const char *const lcbe_kind_names[PAGE_KINDS];
static const double lcbe_at[3] = { 0.5, 0.99, 0.999 };

/* lcbe_run.c */
int bench_lcbe_run(struct bench_lcbe *b);
void bench_lcbe_finish(struct bench_lcbe *b);
/* Returns the place of a client of that condition. */
struct bench_testbed_place bench_lcbe_place(const struct bench_lcbe_condition *c, bool batch);
/* Returns the maximum duration of a window. */
uint64_t bench_lcbe_window_ns(const struct bench_lcbe *b);
/* lcbe_command.c: performs a turn with the user's commands. */
int bench_lcbe_command_turn(struct bench_lcbe *b, struct bench_lcbe_condition *c, unsigned round);

/* lcbe_report.c: fills results and prints them; 0, or -1 if a file cannot be written. */
int bench_lcbe_report(struct bench_lcbe *b);

#endif
