/* The launches of a resumable run and their pieces on the device. */
#ifndef GBPF_GPU_CUDA_GPU_RUN_SUBMIT_INT_H
#define GBPF_GPU_CUDA_GPU_RUN_SUBMIT_INT_H

#include <pthread.h>

#include "gpu/gpu_run.h"
#include "gpu/gpu_int.h"

/* How a large grid is cut, and how much of it is on the device. A piece costs its end: 1-2 us to
 * the next, and a part of the time of a block, in which multiprocessors run dry. So it is
 *  - whole waves (as many blocks as are resident): the 17th wave of 16384 blocks is half empty, 3
 * %;
 *  - at least 24 waves, and, up to 16384 blocks, 240 us: then the end is a few per cent of it;
 *  - 5 ms at most, where 24 waves are less: the share that a stopped launch gets is made of pieces;
 *  - as large as can be dropped in a quarter of a block's time: blocks that have not begun when a
 *    lease comes must all begin and leave, 0.3 us a thousand (H200), and that much later than
 *    needed a request begins.
 * The next piece or launch comes when what is there will be done in 300 us (200 where pieces are
 * long): the host takes 30 to 60 us to react and looks when 80 are left, so it looks some four
 * times a millisecond; what comes earlier would only have to be dropped. Where durations are not
 * known, and above that, a budget of blocks counts. */
#define CHAIN_BUDGET 32768u /* on the device that may not have begun yet */
#define CHAIN_PIECE 16384u  /* of a large grid whose blocks' duration is unknown */
#define CHAIN_AHEAD_NS 300000u
#define CHAIN_LONG_NS 400000u /* pieces of this duration are long */
#define CHAIN_AHEAD_LONG_NS 200000u
#define CHAIN_RESERVE_NS 80000u
#define CHAIN_SMALL 4096u /* each chain may have so many, however many others there are */
#define CHAIN_WAVES 24u
#define CHAIN_PIECE_NS 240000u
#define CHAIN_PIECE_LONG_NS 5000000u
#define CHAIN_PIECE_MOST 65536u
#define CHAIN_PIECES 128u /* of one run on the device */
#define GPU_RUN_TICKETS_MAX                                                                        \
	(1u << 30) /* tickets that unfinished launches may have: signed differences */
#define CHAIN_LINE 64u
#define CHAIN_LINES 512u /* of a slab */

struct gpu_run_entry {
	CUfunction clone; /* NULL: an event; total is 0 then */
	uint64_t id;	  /* the clone's; a handle may be reused for another function */
	CUevent event;
	bool recorded;
	uint32_t block[3], smem;
	uint32_t total, first; /* number of tickets, first ticket */
	uint32_t covered;      /* blocks that were submitted or have run */
	uint32_t piece;	       /* blocks of a piece; 0: chosen here */
	uint32_t resident;     /* blocks that the device holds at once; 0: unknown */
	uint32_t out;	       /* pieces of it on the device */
	uint32_t params_bytes, room;
	uint64_t block_ps; /* device time of one block, ps: its duration / resident; 0: unknown */
	uint64_t used_ns;  /* observed time in which blocks of it ran, */
	uint32_t ran;	   /* and the number of these blocks */
	uint8_t *params;   /* owned; struct ptx_block_arg at params_bytes */
};

/* Unfinished entries in order: [tail, head), of which those from `next` on have something to
 * submit. Indices are taken modulo GPU_RUN_DEPTH. */
struct gpu_run_interval {
	uint64_t from, to;
};

struct gpu_run_piece {
	uint32_t launch, number, blocks;
	uint32_t start; /* blocks of its launch before it */
	uint64_t est_ns;
};

/* Memory of chains in one context: a line of device memory and one of pinned host memory each. */
struct gpu_run_slab {
	struct gpu_run_slab *next;
	CUdeviceptr counters, done; /* as kernels see them */
	uint8_t *host;
	uint32_t n; /* lines that were ever used */
	uint32_t n_free;
	uint16_t free[CHAIN_LINES];
	struct {
		uint32_t ticket, number;
	} last[CHAIN_LINES];
};

struct gpu_run_context {
	struct gpu_run_context *next;
	CUcontext ctx;	 /* NULL: free */
	uint64_t leases; /* [atomic] address of the flag page */
	uint32_t groups; /* index in the list */
	uint32_t out;	 /* [atomic] blocks of all chains on the device */
	CUstream io;	 /* for reading counters */
	CUstream beside; /* and for blocks that a hung kernel waits for */
	CUmodule module; /* of take; goes with the context */
	CUfunction take; /* NULL: cannot be had */
	struct gpu_run_slab *slabs;
	bool making; /* under gpu_chains.lock: somebody makes the next slab, and what follows */
	struct gpu_run_slab *unset; /* begun, but the device has not set its words yet */
	CUfunction taking;	    /* take, which has not run once yet */
};

struct gpu_runs {
	pthread_mutex_t lock; /* contexts, slabs; after a chain's */
	struct gpu_run_context *contexts;
	struct gpu_run_counts counts; /* [atomic] */
	void (*on_hung)(void *arg, CUfunction clone);
	void *on_hung_arg;
};

enum chain_state {
	CHAIN_RUN,    /* pieces go to the device as there is room */
	CHAIN_READ,   /* interrupted; the counter is being read */
	CHAIN_HALT,   /* interrupted; it is known what is missing */
	CHAIN_FORCED, /* one piece goes although the rest waits */
	CHAIN_TAKE,   /* a kernel seems to wait for blocks that left: chain_beside.c */
	CHAIN_WATCH,
	CHAIN_BESIDE,
	CHAIN_BACK,
};

/* Pieces on the device: [tail, head), modulo GPU_RUN_PIECES_MAX. */
struct gpu_run {
	pthread_mutex_t lock;
	struct gpu_device *d;
	struct gpu_run_context *home;
	struct gpu_run_slab *slab;
	uint32_t line;
	CUdeviceptr counter, done_device;
	volatile uint32_t *done; /* word; the counter's copy is in the next one */

	uint32_t newest; /* [atomic] number of the last piece put */
	uint32_t unput;	 /* [atomic] blocks of unfinished launches that were not put */
	uint32_t dead;	 /* [atomic] the context's error: nothing goes any more */
	/* [atomic] for chain_look */
	uint64_t launched, finished, end_ns;
	uint32_t interruptions, state, error;
	uint32_t span; /* tickets of unfinished launches */

	uint32_t number; /* of the last piece */
	uint32_t ticket; /* the next launch's first */
	uint32_t head, tail;
	uint32_t next;			/* the first that has blocks to put */
	uint32_t p_head, p_tail;	/* pieces on the device */
	uint32_t out;			/* their blocks */
	uint64_t out_ns;		/* and how long those take, as far as is known */
	bool force_all;			/* of the last piece that was submitted */
	uint32_t stopped_at, fruitless; /* of all pieces on the device */
	uint64_t vain_ns;		/* their expected duration */
	uint64_t front_ns;		/* since when the oldest piece runs, about */
	uint64_t query_ns, halt_ns;
	bool fresh;		       /* that began on an empty stream */
	bool first;		       /* nothing was through since the stream ran empty */
	struct gpu_run_interval front; /* front_ns is between these */
	struct gpu_run_interval
		mark;	    /* of the pace that is being measured: since then, without a pause, */
	uint64_t marked;    /* so many blocks, of the twin that is learned; to 0: none */
	uint64_t looked_ns; /* nothing new then */
	uint64_t empty_ns;  /* the stream ran empty before its time, about */
	uint64_t stop_ns;   /* a request was first seen then; 0: there is none */
	/* [atomic] of the launches that finished last, by number: ns << 16 | low bits of it */
	uint64_t took[GPU_RUN_DEPTH];
	uint64_t leased_ns;   /* a lease was seen then, */
	uint32_t leased_upto; /* the front piece began on an empty stream */
	bool probing;
	uint32_t probe, put_back;
	uint32_t beats; /* of our own kernels while a suspect is watched */
	uint64_t watch_ns, beat_ns;
	uint64_t suspect; /* twin that was found hung, by its id, */
	uint32_t strikes; /* so often in a row */
	uint64_t probe_ns, probe_since_ns;
	uint64_t learned;  /* the twin that ran last, by its id, */
	uint64_t block_ps; /* and what was learned of it */
	struct gpu_run_entry
		launch[GPU_RUN_DEPTH]; /* no piece has finished since the stream ran empty */
	struct gpu_run_piece piece[CHAIN_PIECES];
};

/* ---- chain_memory.c ---- */

/* The context is gone; the device ends. No driver is called. */
void gpu_runs_forget(struct gpu_device *d, CUcontext ctx);
void gpu_runs_destroy(struct gpu_device *d);
struct gpu_runs *gpu_runs_of(struct gpu_device *d);
struct gpu_run_context *gpu_run_context_of(struct gpu_device *d, CUcontext ctx);
/* A line for the chain, with what goes with it. The context is current (gpu_begin). */
CUresult gpu_run_line_take(struct gpu_run *c);
void gpu_run_line_return(struct gpu_run *c);

/* ---- chain_put.c; the lock is held and the context current ---- */

/* Puts what there is room for; at most `most` pieces. CUDA_SUCCESS, or why a launch was refused;
 * it is out of the chain then (*ret_refused: its index), or the chain is dead. */
CUresult gpu_run_submit(struct gpu_run *c, const struct gpu_queue *q, uint32_t most, bool forced,
			uint32_t *ret_refused);
/* Returns the size of a piece in blocks where the policy gives none. resident: blocks that the
 * device holds at once; block_ps: device time of one block; each 0: unknown. */
uint32_t gpu_run_piece_blocks(uint32_t resident, uint64_t block_ps);
/* Updates the number of tickets of unfinished launches. */
void gpu_run_count_tickets(struct gpu_run *c);
/* Removes what has finished from the list. */
void gpu_run_retire(struct gpu_run *c, uint64_t now);
/* Gives the run up with the driver's error: nothing is submitted any more. */
void gpu_run_fail(struct gpu_run *c, CUresult e);
/* Marks what is missing for submission again: the stream is idle and the counter says how far the
 * blocks came. False: the counter's value is impossible. */
bool gpu_run_rewind(struct gpu_run *c, uint32_t counter);
/* The stream ran empty, and the counter says how far the blocks came: what they took. Before
 * chain_rewind. */
void chain_learn_stopped(struct gpu_run *c, uint32_t counter);
/* When what is seen now happened, about: after the last look that did not see it. */
static inline uint64_t chain_between(uint64_t before, uint64_t now)
{
	return now > before ? now - (now - before) / 2 : now;
}
/* The launch to which the counter has come (c->head: past all), and how many blocks of it began. */
bool gpu_run_locate(const struct gpu_run *c, uint32_t counter, uint32_t *ret_i, uint32_t *ret_ran);

/* ---- chain_beside.c; likewise ---- */

/* The kernel that takes counters: loaded, and put on a stream of our own for the first time, where
 * it sets a counter of the slab to what it is. */
void gpu_run_bypass_prepare(struct gpu_device *d, struct gpu_run_context *x,
			    const struct gpu_run_slab *s, uint32_t ticket);
void gpu_run_bypass_watch(struct gpu_run *c, bool may_run, uint64_t now);
void gpu_run_bypass_step(struct gpu_run *c, const struct gpu_queue *q, uint64_t now);

static inline bool gpu_run_unfinished(const struct gpu_run *c)
{
	return c->head != c->tail;
}

#endif
