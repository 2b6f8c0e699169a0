/* A model of the gate (ptx/block_gate.h), explored state by state: the words in device memory, the
 * blocks of the launches on a run's stream and on the bypass stream, the leases, and the host.
 * Every access to memory is one step, and any block may make the next one.
 *
 * model_block.c has the rules of the entry stub and of a clone's prologue, in the order of their
 * PTX; model_host.c those of gpu/cuda; model_explore.c tries all orders of steps. */
#ifndef GBPF_TESTS_GATE_MODEL_H
#define GBPF_TESTS_GATE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

enum {
	MODEL_BLOCKS = 4,   /* of a launch, at most */
	MODEL_LAUNCHES = 2, /* of a scenario */
	MODEL_NONE = 0xff,
	MODEL_TAKEN = -64, /* value of a counter that was taken: before all tickets */
	MODEL_ATTEMPTS = 3 /* interruptions after which the host ignores leases */
};

/* Planted faults: each breaks one rule. */
#define MODEL_FAULTS(X)                                                                            \
	X(NONE, "no fault")                                                                        \
	X(CLOSED_LEAVES, "a closed gate is left without comparing the bound")                      \
	X(NO_CLOSE, "a block that finds a lease leaves without closing the gate")                  \
	X(CLOSER_RUNS, "a block that closes the gate runs although it has not raised it")          \
	X(BOUND_MOVES, "a closed gate is still raised")                                            \
	X(OR_FOR_MAX, "the gate is raised by an or, not by a maximum")                             \
	X(NO_READY, "the progress word is not checked")                                            \
	X(CLONE_NO_READY, "a clone does not check the progress word")                              \
	X(FIRST_PUBLISHES, "the first block publishes")                                            \
	X(EACH_PUBLISHES, "each block of the last cluster publishes")                              \
	X(DONE_FIRST, "the number is stored before the progress word")                             \
	X(COUNTER_STAYS, "the counter is not moved to the launch's end")                           \
	X(PUBLISH_TAKEN, "a launch's end is published although its counter was taken")             \
	X(BLOCK_INDEX, "the blocks of a cluster decide by their own index")                        \
	X(GRID_BLOCKS, "the last cluster is taken for one with an index like its last block's")    \
	X(ASK_IGNORES_GATE, "a block that leases do not stop ignores the gate, too")               \
	X(FROM_MISSING, "a repeated launch begins with block 0")                                   \
	X(FROM_FORGOTTEN, "the host takes the bound alone for what has run")                       \
	X(BASE_STAYS, "the gate is opened with its old value")                                     \
	X(BASE_FALLS, "the gate is opened with a lower base than an earlier run's")                \
	X(BASE_OVERLAPS, "launches of a run share a base")                                         \
	X(NOT_OPENED, "the gate is not opened after an interruption")                              \
	X(BYPASS_OPEN, "missing blocks bypass an open gate")                                       \
	X(BYPASS_ALL, "bypass blocks begin with block 0")                                          \
	X(BYPASS_BEHIND, "launches behind a bypassed one do not wait for its blocks")              \
	X(GATE_OF_NEXT, "the host expects no value of the launch behind in the gate")              \
	X(HANG_BEHIND, "a launch behind one that was not published is taken for hung")             \
	X(NO_UNPUBLISHED, "the host expects no launch that has run without publishing its end")    \
	X(RESTORE_MIDDLE, "the counter is restored to the middle of a launch")

enum model_fault {
#define X(name, text) FAULT_##name,
	MODEL_FAULTS(X)
#undef X
		MODEL_N_FAULTS
};

extern const char *const model_fault_names[];

/* For what the bodies of a launch's blocks wait before they end. */
enum model_wait { WAIT_NOTHING, WAIT_LOWER, WAIT_HIGHER };

struct model_plan {
	uint8_t blocks;	 /* 0: no such launch */
	uint8_t cluster; /* blocks of a cluster */
	uint8_t wave;	 /* ptx_gate_arg.wave */
	bool clone;	 /* a clone draws tickets instead */
	enum model_wait wait;
};

struct model_scenario {
	const char *name;
	struct model_plan launch[MODEL_LAUNCHES];
	uint8_t rises; /* times that leases are raised */
	uint8_t takes; /* times that the host suspects a hang wrongly; 0: it never does */
	uint8_t ask;   /* blocks that pass leases in the attempt before the last */
	bool late;     /* launches are submitted one by one, at any time */
	bool reuse;    /* the second launch is another run's, on another stream, which gets the
			  line when the first one's number has been stored */
};

/* Where a block is. Steps that access memory, in the order of the stub; ASK: several accesses are
 * in flight at once and happen in any order. */
enum model_at {
	AT_LEFT, /* exited before the body, or its index is below `from` */
	AT_ASK,
	AT_LOOK,    /* load of the gate under a lease */
	AT_CLOSE,   /* atom.or */
	AT_RAISE,   /* atom.max, flag first */
	AT_DRAW,    /* atom.inc of a clone */
	AT_COUNTER, /* atom.cas of the counter, by the last block */
	AT_READY,   /* store of the progress word */
	AT_DONE,    /* store of the number */
	AT_BODY,
	AT_ENDED
};

enum { ASK_LEASE = 1, ASK_READY = 2, ASK_GATE = 4 };

struct model_block {
	uint8_t at, asks; /* asks: accesses in flight */
	uint8_t leased, behind;
	uint8_t old, closed; /* of the gate */
	uint8_t number;	     /* in the grid; of a clone once it has drawn */
};

/* A stream. The arguments are those of the launch whose blocks it runs. */
struct model_stream {
	uint8_t launch; /* index; MODEL_NONE: idle */
	uint8_t line, from, base, ask, groups, number;
	struct model_block block[MODEL_BLOCKS];
};

struct model_line {
	int8_t counter, ready;
	uint8_t gate, closed;
	uint8_t done;
};

struct model_launch {
	uint8_t covered;	     /* blocks that have run, as the host knows */
	uint8_t from, base, out;     /* of its last submission; out: it is on the device */
	uint8_t ask, groups, number; /* likewise */
	uint8_t begun, ended;	     /* bits by block */
	uint8_t published;	     /* times, on the run's line */
	uint8_t bypassed;
};

enum model_phase {
	HOST_ACTIVE,
	HOST_SUSPECTING,
	HOST_TAKING,
	HOST_WATCHING,
	HOST_WAITING,
	HOST_ENDED
};

struct model_host {
	uint8_t phase, attempts, takes;
	uint8_t next; /* first launch that is not submitted */
	uint8_t first_number, number;
	uint8_t base;
	uint8_t run; /* the stream of the run */
	int8_t taken;
	uint8_t hung, ran; /* launch that the take found, and how much of it had run */
};

/* Bytes only, so that there is no padding. */
struct model_state {
	uint8_t lease, rises;
	struct model_line line[2]; /* of the run, of bypass blocks */
	struct model_stream stream[2];
	struct model_launch launch[MODEL_LAUNCHES];
	struct model_host host;
};

/* One exploration. */
struct model {
	const struct model_scenario *scenario;
	enum model_fault fault;
	const char *violation; /* NULL: none */
	bool stands;	       /* nothing else is possible: a suspicion is right */
	uint64_t n_states;
	unsigned n_steps;   /* of the order that is being tried */
	uint8_t steps[512]; /* its steps: stream << 4 | block << 2 | access; or 64 and more */
};

/* ---- used by the parts ---- */

static inline unsigned model_total(const struct model *m, unsigned launch)
{
	return m->scenario->launch[launch].blocks;
}

/* First ticket of a launch; that of the next one is its end. */
static inline int model_first(const struct model *m, unsigned launch)
{
	int first = 0;

	for (unsigned i = 0; i < launch; i++) {
		first += (int)model_total(m, i);
	}
	return first;
}

static inline unsigned model_launches(const struct model *m)
{
	return m->scenario->launch[1].blocks ? 2 : 1;
}

void model_violated(struct model *m, const char *what);
/* Puts the blocks of the stream's launch at their beginning. */
void model_blocks_begin(struct model *m, struct model_state *s, struct model_stream *x);
/* Makes an access (0-2) of the block. Returns false if there is no such step. */
bool model_block_step(struct model *m, struct model_state *s, struct model_stream *x,
		      struct model_block *b, unsigned access);
bool model_stream_idle(const struct model_stream *x);
void model_host_begin(struct model *m, struct model_state *s);
/* Makes step `choice` of the host. Returns false if there is no such step. */
bool model_host_step(struct model *m, struct model_state *s, unsigned choice);
enum { MODEL_STEP_LEASE = 64, MODEL_HOST_CHOICES = 3 };

void model_begin(struct model *m, struct model_state *s);
/* Makes step `which`: of a block, of the leases or of the host (model.steps). Returns false if
 * there is none. */
enum { MODEL_STEPS = MODEL_STEP_LEASE + 1 + MODEL_HOST_CHOICES };
bool model_step(struct model *m, struct model_state *s, unsigned which);

/* Tries all orders of steps, up to the first violation. */
void model_explore(struct model *m);

#endif
