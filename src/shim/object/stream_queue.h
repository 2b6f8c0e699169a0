/* Streams as the scheduler's queues. A stream becomes a queue when it is created or, if that was
 * not seen, when it is first used. The legacy default stream is one queue a context, the per-thread
 * default stream one a context and thread. */
#ifndef GBPF_SHIM_OBJECT_STREAM_QUEUE_H
#define GBPF_SHIM_OBJECT_STREAM_QUEUE_H

#include "shim/object/driver_device.h"
#include "shim/object/thread_cache.h"

enum shim_queue_kind { SHIM_QUEUE_LEGACY, SHIM_QUEUE_PER_THREAD, SHIM_QUEUE_CREATED };

/* Memory is type-stable: closed ones are used again, never freed, so a stale pointer is harmless.
 */
struct shim_queue {
	struct sched_queue *sched; /* NULL: closed */
	const uint8_t *touched;	   /* sched's: there is something to drain */
	struct gpu_queue dev;	   /* stream and context */
	enum shim_queue_kind kind;
	bool doomed;	     /* its stream is destroyed when nothing is left */
	bool prepared;	     /* [atomic] block.c: its context has what chains need, or not yet */
	uint32_t launches;   /* [atomic] block.c: at block level, times 2 */
	uint32_t unfinished; /* [atomic] block.c: the last of them that may be unfinished, or 0 */
	uint32_t reported_error; /* [atomic] last error of a kept call: remembered already */
	bool blocking;		 /* ordered with the legacy default stream of its context */
	const void *owner;	 /* thread of a QUEUE_OWN, or of a green context's default stream */
	CUgreenCtx green;	 /* the program's, that it belongs to; NULL: none */
	struct shim_queue *next; /* in its bucket, or free */
	struct shim_queue *next_live;
};

/* The queue of a stream handle as an application passed it; per_thread: what 0 means. NULL: none
 * (the driver refuses the stream, or there are too many): the call passes through. */
static inline struct shim_queue *shim_queue_of(struct shim_thread *t, CUstream stream,
					       bool per_thread);

/* A new stream: its queue, so that queue_create runs now. */
void shim_queue_created(CUstream stream);
/* Closes that of a stream which is destroyed. True: not yet, since it keeps something back; nobody
 * finds it any more, and when that is through it is closed and the driver destroys the stream. */
bool shim_queue_close_stream(CUstream stream);
/* The streams that are to be destroyed and have nothing left. */
void shim_queue_reap_all(void);
/* Issue what they keep back and close them: of a thread that ends. */
void shim_queue_close_thread(const struct shim_thread *t);
/* Those of one context; NULL: of the current one. */
void shim_queue_close_context(CUcontext ctx);
/* Those of a green context; ctx: what it was converted to, or NULL. */
void shim_queue_close_green(CUgreenCtx green, CUcontext ctx);
/* What queue_create has chosen for a stream; 100 when it is not known. */
uint32_t shim_queue_sm_percent(CUstream stream);
/* Nobody has used old yet: from now on its queue is that of new. False: it has none. */
bool shim_queue_replace(CUstream old, CUstream new);
/* A synchronization of the context has returned. */
void shim_queue_context_synchronized(CUcontext ctx);
/* Another queue of q's context that is ordered with q through the legacy default stream and keeps
 * calls back; or NULL. */
struct shim_queue *shim_queue_sibling_deferred(struct shim_queue *q);
/* All of them, but at most so many. */
unsigned shim_queue_siblings_deferred(struct shim_queue *q, struct shim_queue **list, unsigned max);
/* Such a queue still has a call that was kept before that number, or blocks that have not begun.
 * Waits for nobody: true also when it cannot look now. */
bool shim_queue_sibling_before(const struct shim_queue *q, uint64_t number);
/* Some queue's kept calls have met that error, and it is remembered; forgets that it is. */
bool shim_queue_error_reported(uint32_t error);
/* fork: the table belongs to the parent. */
void shim_queue_forget_all(void);

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
