/* Chains: the launches at block level on one stream. All of them draw tickets from one counter, one
 * after the other, so any number may be queued on the device: when one is interrupted, those behind
 * it find the counter short of their first ticket and leave. The stream then runs empty; chain_step
 * sees that it is idle while tickets are missing, and launches the missing blocks of the first, and
 * the others behind it, again. Nothing on the GPU waits for the host.
 * Whatever else goes on the stream must wait until the last ticket of the chain has been drawn
 * (chain_busy), since it would run although work before it is missing. docs/PREEMPTION.md argues
 * why order is kept and why it cannot lock up. */
#ifndef GBPF_GPU_GPU_RUN_H
#define GBPF_GPU_GPU_RUN_H

#include "gpu/gpu.h"
#include "ptx/block.h"

struct gpu_run;
struct gpu_flag;

#define GPU_RUN_DEPTH 64u /* unfinished launches; a further one waits for room */

struct gpu_block_launch {
	CUfunction clone;  /* f$gbpf, or its CUkernel */
	uint64_t id;	   /* the twin's; a handle may be used again for another */
	uint32_t resident; /* blocks of it that the device holds at once, 0 unknown */
	uint32_t grid[3], block[3], smem; /* of f's launch */
	uint32_t piece_blocks; /* blocks that one launch to the driver has; 0: chosen here */
	uint64_t block_ns;     /* learned duration of one block, 0 unknown: for the choice */
	const void *params;    /* f's parameters as one buffer: copied */
	uint32_t params_bytes; /* arg_offset of the entry: where struct ptx_block_arg goes */
};

/* What chains need in the queue's context is made, before the first launch: the driver may make the
 * caller wait meanwhile, who holds nothing. Where something of the program's stays on the device it
 * is ready later, and launches get no chain until then. */
void gpu_run_prepare(struct gpu_device *d, const struct gpu_queue *q);
/* Puts the launch on the queue's stream (q->ctx is current), behind what the chain has. What the
 * driver says; CUDA_ERROR_NOT_SUPPORTED: no chain can be had here, launch f instead (then the chain
 * is not busy). Waits while the chain is full; helps it on meanwhile. Any thread. */
CUresult gpu_run_launch(struct gpu_device *d, struct gpu_queue *q,
			const struct gpu_block_launch *l);
/* Records an event behind what the chain has, without waiting for it. Where the chain is
 * interrupted it is recorded again, so it means something only when gpu_chain_look says that
 * *ret_seq launches are done; until then nobody else may wait for it. *ret_seq 0: at once. The
 * context is current, and the queue is the caller's, as for launches. */
CUresult gpu_run_record(struct gpu_device *d, struct gpu_queue *q, CUevent event,
			uint64_t *ret_seq);
/* As sched_device_ops. */
int gpu_run_busy(void *dev, void *dev_queue);
uint64_t gpu_run_step(void *dev, void *dev_queue, bool may_run, bool force);
int gpu_run_look(void *dev, void *dev_queue, struct sched_run_progress *ret);
uint64_t gpu_run_took(void *dev, void *dev_queue, uint64_t launch);
/* The queue is closed, and its chain finished or given up. */
void gpu_run_close(struct gpu_device *d, struct gpu_queue *q);

/* Flag page that chains of that context read, and how many of its words (board slots) are in use;
 * f NULL: no leases. The page is borrowed until the context is gone. */
void gpu_run_set_flag(struct gpu_device *d, CUcontext ctx, const struct gpu_flag *f,
		      uint32_t slots);

struct gpu_run_counts {
	uint64_t launches, interruptions, resumed_blocks, forced, hung;
};
/* f is told each twin that was found waiting for blocks of higher index; NULL: nobody. Its launches
 * are to go without block level from then on. From whoever calls chain_step, with the chain locked:
 * must not call back. Set before the first launch. */
void gpu_run_on_hung(struct gpu_device *d, void (*f)(void *arg, CUfunction clone), void *arg);
void gpu_run_counts(const struct gpu_device *d, struct gpu_run_counts *ret);

#endif
