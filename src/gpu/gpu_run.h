/* Resumable runs: the launches at block level on one stream, of preemptible clones and of kernels
 * with an entry stub. All launches of a run draw tickets from one counter, one after the other, so
 * any number may be queued on the device. (Blocks with an entry stub have an index and draw none:
 * their launch moves the counter when it is through.) When one is interrupted, those behind it find
 * the counter short of their first ticket and leave. The stream
 * then becomes idle; gpu_run_step notices that tickets are missing and launches the missing blocks
 * of the first launch, and the launches behind it, again. Nothing on the GPU waits for the host.
 * Other work on the stream must wait until the last ticket of the run has been drawn
 * (gpu_run_busy): it would run although work before it is missing. docs/PREEMPTION.md argues why
 * order is kept and why no deadlock is possible. */
#ifndef GBPF_GPU_GPU_RUN_H
#define GBPF_GPU_GPU_RUN_H

#include "gpu/gpu.h"
#include "ptx/block.h"
#include "ptx/block_gate.h"

struct gpu_run;
struct gpu_flag;

#define GPU_RUN_DEPTH 64u /* unfinished launches and events; a further one waits for room */

#define GPU_BLOCK_ATTRS_MAX 4u /* launch attributes that are kept */

struct gpu_block_launch {
	CUfunction clone;  /* f$gbpf, or its CUkernel; with gate f itself */
	uint64_t id;	   /* identifies the clone; a handle may be reused for another function */
	uint32_t resident; /* blocks of it that the device holds at once; 0: unknown */
	uint32_t grid[3], block[3], smem; /* of f's launch */
	uint32_t piece_blocks;		  /* blocks of each launch to the driver; 0: chosen here */
	uint64_t block_ns;     /* learned duration of one block, for that choice; 0: unknown */
	const void *params;    /* f's parameters in one buffer; copied */
	uint32_t params_bytes; /* offset of struct ptx_block_arg (ptx_block_entry.arg_offset) or,
				  with gate, of struct ptx_gate_arg; a multiple of 8 */
	/* f has an entry stub (ptx/block_gate.h). Its grid cannot be divided: each launch to the
	 * driver has all blocks, of which those that have run leave at once. At most 2^24 blocks in
	 * x. */
	bool gate;
	uint32_t wave;	  /* gate: ptx_gate_arg.wave */
	uint32_t n_attrs; /* gate: attributes of each launch, at most GPU_BLOCK_ATTRS_MAX; copied */
	const CUlaunchAttribute *attrs;
};

/* Allocates what runs need in the queue's context, before the first launch. The driver may block
 * the caller, which must hold no lock. If a kernel of the program occupies the device, the memory
 * becomes ready later, and launches are refused until then. */
void gpu_run_prepare(struct gpu_device *d, const struct gpu_queue *q);
/* Appends the launch to the run of the queue's stream (q->ctx is current). Returns the driver's
 * status; CUDA_ERROR_NOT_SUPPORTED: no run is possible here and none is busy; launch f instead.
 * Blocks while the run is full, and steps it meanwhile. Any thread. */
CUresult gpu_run_launch(struct gpu_device *d, struct gpu_queue *q,
			const struct gpu_block_launch *l);
/* Records an event behind the run's launches, without waiting for them. After an interruption the
 * event is recorded again, so it is meaningful only once gpu_run_look reports *ret_seq launches
 * done; no other stream may wait for it before. *ret_seq 0: recorded at once. The context is
 * current, and the caller has the queue to itself, as for launches. */
CUresult gpu_run_record(struct gpu_device *d, struct gpu_queue *q, CUevent event,
			uint64_t *ret_seq);
/* As in sched_device_ops. */
int gpu_run_busy(void *dev, void *dev_queue);
uint64_t gpu_run_step(void *dev, void *dev_queue, bool may_run, bool force);
int gpu_run_look(void *dev, void *dev_queue, struct sched_run_progress *ret);
uint64_t gpu_run_took(void *dev, void *dev_queue, uint64_t launch);
/* Frees the queue's run, which has finished or is given up. */
void gpu_run_close(struct gpu_device *d, struct gpu_queue *q);

/* Sets the flag page that runs of the context read, and how many of its words (board slots) are in
 * use. f NULL: no leases. The page is borrowed until gpu_context_forget. */
void gpu_run_set_flag(struct gpu_device *d, CUcontext ctx, const struct gpu_flag *f,
		      uint32_t slots);

struct gpu_run_counts {
	uint64_t launches, interruptions, resumed_blocks, forced, hung;
};
/* Sets a function to be called with each clone that was repeatedly found waiting for blocks of
 * higher index; its launches should go without block level from then on. f is called by the thread
 * that calls gpu_run_step, with the run locked, and must not call back. Set before the first
 * launch. */
void gpu_run_on_hung(struct gpu_device *d, void (*f)(void *arg, CUfunction clone), void *arg);
void gpu_run_counts(const struct gpu_device *d, struct gpu_run_counts *ret);

#endif
