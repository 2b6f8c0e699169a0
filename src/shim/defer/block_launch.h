/* Launches at block level: a launch of f becomes one of its twin, whose blocks stop being started
 * when a latency tenant asks. Until its last block has been started whatever else goes on the
 * stream is kept back. */
#ifndef GBPF_SHIM_DEFER_BLOCK_LAUNCH_H
#define GBPF_SHIM_DEFER_BLOCK_LAUNCH_H

#include "shim/object/kernel_handle.h"
#include "shim/object/stream_queue.h"
#include "shim/object/clone.h"

/* What the gate keeps of a launch while the scheduler decides. */
struct shim_block_call {
	struct shim_clone *clone; /* NULL: it cannot go at block level */
	uint32_t grid[3], block[3], smem;
	void **params, **extra;
};

/* Whether the launch could go at block level, as far as its arguments say: fills l->block_ok and
 * l->resident. b is filled but for twin. */
void shim_block_check(struct shim_block_call *b, const struct shim_thread_kernel *k,
		      struct sched_launch *l);
/* The reason why a launch of a function that has a twin goes without, for `gbpf ps --why`. */
void shim_block_note_reason(const struct shim_thread_kernel *k, enum proto_block_why why);
/* Attributes of cuLaunchKernelEx that mean the same when they are left away. */
bool shim_block_attributes_ok(const CUlaunchConfig *config);

/* Launches the twin. The queue's context is current. CUDA_ERROR_NOT_SUPPORTED: nothing was
 * launched, and nothing of the queue is unfinished: f can be. */
CUresult shim_block_launch(struct shim_queue *q, const struct shim_block_call *b,
			   const struct sched_launch *l);

/* The current context is to have what its chains need, before the first launch. */
void shim_block_prepare_context(void);
/* The queue's too, and for its chains, which its first launch needs: whoever calls holds nothing,
 * since the driver may make him wait for what the program has on the device. */
void shim_block_prepare_queue(struct shim_queue *q);
/* The context's queues are closed, and it ends. */
void shim_block_context_end(CUcontext ctx);

/* Bookkeeping of unfinished chains: what is seen of one before and after asking about it. */
uint32_t shim_block_unfinished(const struct gpu_queue *dev);
void shim_block_finished(struct gpu_queue *dev, uint32_t seen);
/* The queue is closed. */
void shim_block_close(struct shim_queue *q);

/* The process exits: its unfinished launches get a moment, as the driver gives its own. */
void shim_block_exit(void);

#endif
