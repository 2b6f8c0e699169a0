/* `gbpf bench preempt`: settings, conditions and their measurements. */
#ifndef GBPF_BENCH_LCBE_LCBE_H
#define GBPF_BENCH_LCBE_LCBE_H

#include <jansson.h>

#include "bench/common/program.h"
#include "base/buf.h"
#include "bench/common/testbed.h"

#define LCBE_ROUNDS 64u
#define LCBE_BATCH 16u
#define LCBE_DEFS 10u
/* With PTX and with machine code, each also with a probe; and with memory of batch that fits, and
 * that moves. */
#define LCBE_VARIANTS 6u
#define LCBE_CONDITIONS (LCBE_VARIANTS * LCBE_DEFS)

struct bench_lcbe_settings {
	unsigned requests; /* of each kind, all rounds together */
	unsigned rounds, batch_clients, streams, depth, grid, threads, kernels, hint_us, think_us;
	double block_us, lc_us, seconds;
	bool default_stream, restart, machine_code;
	const char *conditions, *kinds, *lc_cmd, *be_cmd;
	const char *probe; /* file of a tool, NULL: none */
	const char *swap;  /* bytes; NULL: no memory moves */
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
extern const struct bench_lcbe_def lcbe_defs[LCBE_DEFS];

enum bench_lcbe_state { LCBE_OUT, LCBE_IN, LCBE_NOT_AVAILABLE, LCBE_BROKEN };

struct bench_lcbe_condition {
	const struct bench_lcbe_def *def;
	char name[32];
	bool machine_code; /* its programs load machine code and have no PTX */
	bool probe;	   /* the tool is attached to its batch clients */
	bool moving;	   /* its batch clients have memory in a vGPU with a limit, */
	bool swaps;	   /* which makes it move */
	enum bench_lcbe_state state;
	char why[512];
	struct bench_testbed_daemon *daemon;
	bool started;
	bool shared; /* its latency client, of the present round, shares the hardware context */
	struct bench_testbed_client lc, be[LCBE_BATCH];
	unsigned rounds; /* completed rounds */
	uint64_t wrong, checked;
	double cpu_ns[2];   /* of the threads that do not belong to the application: latency, batch,
			     */
	double cpu_seconds; /* duration in which cpu_ns was used */
	json_t *tenants;    /* owned: gbpfd's latest statistics of its clients; NULL: no gBPF */
};

struct bench_lcbe {
	struct bench_lcbe_settings set;
	struct bench_testbed testbed;
	struct bench_lcbe_condition condition[LCBE_CONDITIONS];
	char device[64];
	char image[TESTBED_IMAGE]; /* file of machine code */
	struct buf tool;	   /* the object of set.probe */
	unsigned sms;
	int iterations[2];
	double block_us[2];
	uint64_t begun_ns;
	unsigned windows, windows_done;
	bool failed;
};

extern const char *const lcbe_kind_names[PAGE_KINDS];

/* lcbe_conditions.c */
/* Chooses the conditions of the run; one that cannot be had gets the reason. */
void bench_lcbe_choose(struct bench_lcbe *b);
/* Returns whether its latency client shares the hardware context with others. */
bool bench_lcbe_shared(const struct bench_lcbe_condition *c);
/* Writes the record of a condition. Returns 0; -1 with error. */
int bench_lcbe_record_condition(struct bench_lcbe *b, const struct bench_lcbe_condition *c);

/* lcbe_run.c */
int bench_lcbe_run(struct bench_lcbe *b);
void bench_lcbe_finish(struct bench_lcbe *b);
/* Returns the place of a client of that condition. */
struct bench_testbed_place bench_lcbe_place(const struct bench_lcbe_condition *c, bool batch);
/* Returns the maximum duration of a window. */
uint64_t bench_lcbe_window_ns(const struct bench_lcbe *b);
/* Writes the record of a window: batch work that ended without requests, or a kind's requests,
 * whose array it releases. lc_busy_ns: GPU time of the latency command by gbpfd; 0: unknown, or the
 * requests are those of the bench. Returns 0; -1 with error. */
int bench_lcbe_record_alone(struct bench_lcbe *b, const struct bench_lcbe_condition *c,
			    unsigned round, double per_s);
int bench_lcbe_record_window(struct bench_lcbe *b, const struct bench_lcbe_condition *c,
			     const char *kind, unsigned round, double seconds, double batch,
			     uint64_t lc_busy_ns, json_t *us);
/* lcbe_probe.c */
/* Reads the tool, if one is to be attached. Returns 0; -1 with error. */
int bench_lcbe_read_tool(struct bench_lcbe *b);
/* Attaches it to a batch client of the condition. Returns 0; -1 with error. */
int bench_lcbe_attach(struct bench_lcbe *b, const struct bench_lcbe_condition *c,
		      const struct bench_testbed_client *batch);
/* Waits until the kernels of n batch clients run it. Returns 0; -1 with error: gbpfd refused one,
 * or the time is over. */
int bench_lcbe_await_tool(struct bench_lcbe *b, const struct bench_lcbe_condition *c, unsigned n);

/* lcbe_command.c: performs a turn with the user's commands. */
int bench_lcbe_command_turn(struct bench_lcbe *b, struct bench_lcbe_condition *c, unsigned round);

#endif
