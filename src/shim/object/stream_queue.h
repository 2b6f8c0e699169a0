/* Streams as the scheduler's queues. A stream gets its queue when it is created or, if that was not
 * seen, when it is first used. The legacy default stream is one queue for each context, the
 * per-thread default stream one for each context and thread. */
#ifndef GBPF_SHIM_OBJECT_STREAM_QUEUE_H
#define GBPF_SHIM_OBJECT_STREAM_QUEUE_H

#include "shim/object/driver_device.h"
#include "shim/object/thread_cache.h"
#include "shim/part.h"

enum shim_queue_kind { SHIM_QUEUE_LEGACY, SHIM_QUEUE_PER_THREAD, SHIM_QUEUE_CREATED };

/* Memory is type-stable: closed queues are reused, never freed. A thread that took a queue from a
 * table before it was closed may still read the first two members. */
struct shim_queue {
	struct sched_queue *sched; /* [atomic] constant while the queue is open; NULL: closed */
	uint32_t reported_error;   /* [atomic] last error of a deferred call, already in shim.error;
				      0: none */

	/* Set when the queue is opened, constant until it is closed. */
	const uint8_t *touched; /* the scheduler's flag: launches are not known to be complete */
	struct gpu_queue dev;	/* stream and context */
	enum shim_queue_kind kind;
	bool blocking;	   /* ordered with the legacy default stream of its context */
	const void *owner; /* thread of a SHIM_QUEUE_PER_THREAD queue or of a green context's
			      default stream; NULL: any thread may use the stream */
	CUgreenCtx green;  /* the program's green context of the stream; NULL: none */

	struct {
		bool prepared;	     /* [atomic] gpu_run_prepare() has been called for it */
		uint32_t launches;   /* [atomic] launches at block level, times 2 */
		uint32_t unfinished; /* [atomic] id of the last launch that may be unfinished; 0:
					none */
	} block;		     /* block_launch.c, queue_drain.c */
	struct {
		bool destroy_pending; /* closed; the stream is destroyed when nothing is deferred */
		struct shim_queue *next; /* next in its bucket, or in the free list */
		struct shim_queue *next_live;
	} table; /* table_mutex of stream_queue.c */
};

/* Returns the queue of a stream handle as the application passed it; per_thread: meaning of the
 * handle 0. NULL if the driver refuses the stream or there are too many: the call passes through.
 */
static inline struct shim_queue *shim_queue_of(struct shim_thread *t, CUstream stream,
					       bool per_thread);

/* Opens the queue of a newly created stream, so that the policy's queue_create hook runs now. */
void shim_queue_created(CUstream stream);
/* Closes the queue of a stream that is being destroyed. Returns true if it still has deferred
 * calls: it is removed from the table, and shim_queue_reap_all() closes it and destroys the stream
 * when they have been submitted. */
bool shim_queue_close_stream(CUstream stream);
/* Destroys the streams whose destruction was postponed and whose queues have nothing deferred. */
void shim_queue_reap_all(void);
/* Drains and closes the queues of a thread that exits. */
void shim_queue_close_thread(const struct shim_thread *t);
/* With a context that ends its queues are drained and closed. */
extern const struct shim_part shim_queue_part;
/* Drains and closes the queues of a green context; ctx: what it was converted to, or NULL. */
void shim_queue_close_green(CUgreenCtx green, CUcontext ctx);
/* Returns the percentage of the multiprocessors that queue_create has chosen for a stream; 100 if
 * unknown. */
uint32_t shim_queue_sm_percent(CUstream stream);
/* Moves the queue of stream old, which has not been used yet, to stream new. Returns false if old
 * has no queue. */
bool shim_queue_replace(CUstream old, CUstream new);
/* Reports to the scheduler that the context has been synchronized, so its queues are drained. */
void shim_queue_context_synchronized(CUcontext ctx);
/* Returns another queue that is ordered with q through the legacy default stream and has deferred
 * calls; or NULL. */
struct shim_queue *shim_queue_sibling_deferred(struct shim_queue *q);
/* Stores at most max such queues in list. Returns how many. */
unsigned shim_queue_siblings_deferred(struct shim_queue *q, struct shim_queue **list, unsigned max);
/* Returns true if such a queue has a call that was deferred before that sequence number, or a run
 * with blocks that have not started. Does not block: also returns true if the table is locked. */
bool shim_queue_sibling_before(const struct shim_queue *q, uint64_t number);
/* Returns true if a deferred call of some queue has failed with that error, which is then already
 * in shim.error; clears the mark. */
bool shim_queue_error_reported(uint32_t error);

struct shim_queue *shim_queue_find(struct shim_thread *t, CUstream stream);
struct shim_queue *shim_queue_find_default(struct shim_thread *t, enum shim_queue_kind kind,
					   CUcontext ctx);
void shim_queue_refresh(struct shim_thread *t);

static inline struct shim_queue *shim_queue_of(struct shim_thread *t, CUstream stream,
					       bool per_thread)
{
	uintptr_t h = (uintptr_t)stream;
	enum shim_queue_kind kind;
	CUcontext ctx = NULL;

	if (unlikely(t->queue_generation != load_acquire(&shim.queue_generation))) {
		shim_queue_refresh(t);
	}
	if (h > (uintptr_t)CU_STREAM_PER_THREAD) {
		unsigned slot = (h >> 4 ^ h >> 9 ^ h >> 14) % SHIM_THREAD_QUEUES;

		return likely(t->queues[slot].key == h) ? t->queues[slot].q
							: shim_queue_find(t, stream);
	}
	kind = (h ? stream == CU_STREAM_PER_THREAD : per_thread) ? SHIM_QUEUE_PER_THREAD
								 : SHIM_QUEUE_LEGACY;
	if (shim_real.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx) {
		return NULL;
	}
	return likely(t->fallback[kind].ctx == ctx && t->fallback[kind].q)
		       ? t->fallback[kind].q
		       : shim_queue_find_default(t, kind, ctx);
}

#endif
