/* The launches of a resumable run and their pieces on the device. */
#ifndef GBPF_GPU_CUDA_GPU_RUN_SUBMIT_INT_H
#define GBPF_GPU_CUDA_GPU_RUN_SUBMIT_INT_H

#include "gpu/gpu_run.h"

/* How a large grid is divided, and how much of it is on the device. A piece costs its end: 1-2 us
 * until the next begins, and part of a block's duration in which multiprocessors run dry. So it has
 *  - whole waves (as many blocks as are resident): the 17th wave of 16384 blocks is half empty, 3
 * %;
 *  - at least 24 waves, and, up to 16384 blocks, 240 us: then the end is a few per cent of it;
 *  - at most 5 ms, where 24 waves are less: the share that a stopped launch gets is made of pieces;
 *  - at most what can be dropped in a quarter of a block's duration: blocks that have not begun
 * when a lease is raised must all begin and leave, 0.3 us per 1000 (H200), and the request begins
 * that much later than needed. The next piece or launch is submitted 300 us before the work on the
 * device ends (200 us where pieces are long): the host takes 30 to 60 us to react and steps when 80
 * us are left, some four times per ms; work submitted earlier would only have to be dropped. Where
 * durations are unknown, and as an upper limit, a budget of blocks applies. */
#define GPU_RUN_BUDGET_BLOCKS 32768u /* on the device that may not have begun yet */
#define GPU_RUN_PIECE_BLOCKS 16384u  /* of a large grid whose blocks' duration is unknown */
#define GPU_RUN_PIECE_MAX_BLOCKS 65536u
#define GPU_RUN_LONG_NS 400000u	       /* pieces of this duration are long */
#define GPU_RUN_PIECES_MAX 128u	       /* of one run on the device */
#define GPU_RUN_TICKETS_MAX (1u << 30) /* of unfinished launches: differences are signed */

/* One launch, or one event to be recorded. */
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
	uint8_t *params;   /* owned; struct ptx_block_arg or ptx_gate_arg at params_bytes */
	bool gate;	   /* it has an entry stub */
	uint32_t grid[3], wave;
	uint32_t from; /* covered before its last submission, */
	uint64_t base; /* and base of that */
	uint32_t n_attrs;
	CUlaunchAttribute attrs[GPU_BLOCK_ATTRS_MAX];
};

/* Unfinished entries in order: [tail, head), of which those from `next` on have something to
 * submit. Indices are taken modulo GPU_RUN_DEPTH. */
struct gpu_run_list {
	uint32_t head, tail, next;
	uint32_t ticket; /* the next launch's first */
	struct gpu_run_entry entry[GPU_RUN_DEPTH];
};

struct gpu_run_piece {
	uint32_t entry; /* index in the list */
	uint32_t number, blocks;
	uint32_t start;	 /* blocks of its launch before it */
	uint64_t est_ns; /* expected duration; 0: unknown */
};

/* Pieces on the device: [tail, head), modulo GPU_RUN_PIECES_MAX. */
struct gpu_run_pieces {
	uint32_t head, tail;
	uint32_t number;   /* of the last piece that was submitted */
	uint32_t n_blocks; /* of all pieces on the device */
	uint64_t est_ns;   /* their expected duration */
	uint64_t front_ns; /* estimated time at which the front piece began */
	bool from_idle;	   /* the front piece began on an empty stream */
	bool none_done;	   /* no piece has finished since the stream ran empty */
	struct gpu_run_piece piece[GPU_RUN_PIECES_MAX];
};

/* All of these: the run's lock is held, and the context is current. */

/* Submits entries while there is room, at most max pieces. CUDA_SUCCESS; else why the driver
 * refused a launch: that entry has been removed (*ret_refused: its index), or the run has failed
 * (UINT32_MAX). forced: leases do not stop these pieces. */
CUresult gpu_run_submit(struct gpu_run *run, const struct gpu_queue *q, uint32_t max, bool forced,
			uint32_t *ret_refused);
/* Returns the size of a piece in blocks where the policy gives none. resident: blocks that the
 * device holds at once; block_ps: device time of one block; each 0: unknown. */
uint32_t gpu_run_piece_blocks(uint32_t resident, uint64_t block_ps);
/* Updates the number of tickets of unfinished launches. */
void gpu_run_count_tickets(struct gpu_run *run);
/* Removes what has finished from the list. */
void gpu_run_retire(struct gpu_run *run, uint64_t now);
/* Gives the run up with the driver's error: nothing is submitted any more. */
void gpu_run_fail(struct gpu_run *run, CUresult e);
/* Marks what is missing for submission again: the stream is idle and the counter says how far the
 * blocks came. False: the counter's value is impossible. */
bool gpu_run_rewind(struct gpu_run *run, uint32_t counter);
/* Finds the entry that the counter has reached (list.head: past all) and how many of its blocks
 * have drawn a ticket. False: the counter's value is impossible. */
bool gpu_run_locate(const struct gpu_run *run, uint32_t counter, uint32_t *ret_i,
		    uint32_t *ret_ran);

#endif
