/* The pipelined plan: copies between pageable host memory and the device by way of pinned pieces. A
 * copy is cut into pieces, which are issued in order on the program's stream by the thread that
 * makes the copy. The bytes between pieces and the program's memory are moved by that thread and by
 * a pool of helpers, in units of MEM_COPY_UNIT. docs/MEMORY-INTERNALS.md says why this keeps CUDA's
 * order.
 *
 * Must not touch the program's memory without having populated it (MADV_POPULATE_*): a page that
 * cannot be accessed ends the plan, and the rest of the copy is the driver's. */
#ifndef GBPF_MEM_COPY_PLAN_H
#define GBPF_MEM_COPY_PLAN_H

#include <pthread.h>
#include <stdbool.h>

#include "base/lock.h"
#include "mem/mem_device.h"
#include "mem/numa.h"

#define MEM_PIECE_BYTES ((size_t)4 << 20)
#define MEM_COPY_UNIT ((size_t)256 << 10)
#define MEM_COPY_PIECES_MAX 8u	   /* of one copy */
#define MEM_CONTEXT_PIECES_MAX 16u /* of one context */
#define MEM_COPY_THREADS_MAX 16u
/* Bytes that a context has to copy for each piece that it makes. A piece of 4 MiB takes 2 ms
 * (H200), and the driver copies that many bytes in 2 ms: a program that copies little must not pay
 * for pieces.
 */
#define MEM_PIECE_CREDIT ((uint64_t)16 << 20)

/* ---- helpers ---- */

struct mem_copy_job;

struct mem_copy_pool {
	struct lock lock;
	pthread_cond_t work;	   /* a unit can be started */
	pthread_cond_t left;	   /* a helper has left a job */
	struct mem_copy_job *jobs; /* lock; list */
	uint32_t n_jobs;	   /* [atomic], written under lock */
	uint32_t n_helpers;	   /* [atomic], written under lock */
	uint32_t n_asleep;	   /* [atomic] helpers that wait for work */
	uint32_t max_helpers;	   /* constant */
	uint64_t idle_ns;	   /* a helper ends after being idle for this time; constant */
};

/* Initializes a pool for copies by `threads` threads, the caller's included (0: as many as the
 * cores that the process may use allow, see mem_copy_threads()). Starts none. */
void mem_copy_pool_init(struct mem_copy_pool *pool, unsigned threads);
/* Returns the default: half of the cores that the calling thread may use, at least 1, at most 8. */
unsigned mem_copy_threads(void);
/* Ends the helpers and returns when they have left. No copy is running or begins. For tests: a
 * process ends with its helpers asleep. */
void mem_copy_pool_finish(struct mem_copy_pool *pool);

/* ---- pieces of a context ---- */

struct mem_pieces {
	struct lock lock;
	struct mem_piece *free; /* lock; their latest copies may be unfinished */
	unsigned made;		/* lock; pieces that exist or are being made */
	uint64_t copied;	/* lock; bytes of the copies that have asked for pieces */
	struct mem_numa numa;	/* of the pieces; not changed while a copy uses them */
};

/* The pieces are of no node until the caller sets it. */
void mem_pieces_init(struct mem_pieces *p);
/* Takes up to n pieces for a copy of that many bytes: those whose latest copies have finished, and
 * new ones while the context has fewer than MEM_CONTEXT_PIECES_MAX and has copied enough for them.
 * Never waits for a copy. Returns how many. */
unsigned mem_pieces_take(struct mem_pieces *p, const struct mem_device_ops *ops, void *dev,
			 uint64_t bytes, struct mem_piece **ret, unsigned n);
/* Gives pieces back, whose latest copies may be unfinished. */
void mem_pieces_give(struct mem_pieces *p, struct mem_piece **pieces, unsigned n);
/* Frees the bookkeeping. ops NULL: the context has ended, and its pinned memory with it. */
void mem_pieces_finish(struct mem_pieces *p, const struct mem_device_ops *ops, void *dev);

/* ---- copies ---- */

struct mem_copy {
	const struct mem_device_ops *ops;
	void *dev;
	void *queue;		     /* for ops->issue */
	const struct mem_numa *numa; /* where helpers run for it; NULL: anywhere */
	enum mem_copy_way way;
	uint64_t device;
	unsigned char *host;
	size_t bytes;
	size_t piece_bytes; /* a multiple of MEM_COPY_UNIT, at most MEM_PIECE_BYTES */
	struct mem_piece *piece[MEM_COPY_PIECES_MAX];
	unsigned n_pieces; /* at least 1 */
	bool wait;	   /* upwards: return when the data has arrived on the device */
	/* Asked before each piece is issued, and while the caller waits. Returns 0, or an error
	 * with which the copy ends. May be NULL. */
	int (*may_go_on)(void *arg);
	/* Asked before a piece is issued, when everything else allows it; left: bytes from it to
	 * the end of the copy, unfinished: bytes of pieces that are issued and have not finished.
	 * Returns false if it must wait: then it is asked again, soon and while the units of other
	 * pieces are moved. Must not block. May be NULL. */
	bool (*is_turn)(void *arg, size_t left, size_t unfinished);
	void *arg;
};

/* Copies. Upwards it returns when the source may be reused, and with `wait` when the data is on the
 * device; downwards when the data is there. Returns 0 or the error of an operation; then no further
 * piece is issued. *ret_done: the bytes from the beginning that are copied, or issued and ordered
 * before what the caller issues on the queue next. With 0 that is less than c->bytes if a page of
 * the program's memory cannot be accessed. The pieces are not in use by the host when it returns.
 */
int mem_copy_run(struct mem_copy_pool *pool, const struct mem_copy *c, size_t *ret_done);

/* Returns the size of pieces with which a copy of that many bytes is cut. */
static inline size_t mem_copy_piece_bytes(size_t bytes)
{
	return bytes <= 4 * MEM_PIECE_BYTES ? MEM_PIECE_BYTES / 4 : MEM_PIECE_BYTES;
}

#endif
