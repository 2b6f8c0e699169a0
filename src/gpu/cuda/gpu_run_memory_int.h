/* Memory of resumable runs: what all runs of a device and of a context share, and the words that
 * one run uses. */
#ifndef GBPF_GPU_CUDA_GPU_RUN_MEMORY_INT_H
#define GBPF_GPU_CUDA_GPU_RUN_MEMORY_INT_H

#include "base/lock.h"
#include "gpu/gpu_int.h"
#include "gpu/gpu_run.h"

#define GPU_RUN_LINE_BYTES 64u
#define GPU_RUN_LINES 512u /* of one slab */

/* Two allocations that are divided into lines: device memory for the ticket counters, pinned host
 * memory for the words that kernels and copies store to. */
struct gpu_run_slab {
	struct gpu_run_slab *next;
	CUdeviceptr counters, done; /* addresses as kernels use them */
	uint8_t *host;		    /* the processor's address of done */
	CUdevice counted;	    /* device that has the memory; -1: it is not counted */
	uint32_t n;		    /* number of lines that have been used */
	uint32_t n_free;	    /* of which these are listed in free[] */
	uint16_t free[GPU_RUN_LINES];
	struct {
		uint32_t ticket, number;
		uint64_t base;
	} last[GPU_RUN_LINES]; /* values at which the next run of a line continues */
};

/* Of one CUDA context. Freed with the device only; an entry is reused after its context has ended.
 * gpu_runs.lock guards it, except for what is marked [atomic]. */
struct gpu_run_context {
	struct gpu_run_context *next;
	CUcontext ctx;	 /* NULL: free entry */
	uint32_t ended;	 /* number of contexts of this entry that have ended */
	uint64_t leases; /* [atomic] device address of the flag page */
	uint32_t groups; /* [atomic] groups of four lease words that kernels read */
	uint32_t out;	 /* [atomic] blocks of all runs on the device */
	CUstream io;	 /* [atomic] reads and sets counters */
	struct gpu_run_slab *slabs;
	struct gpu_run_slab *unset; /* allocated, but the device has not set its words yet */
	bool making;		    /* a thread is allocating the next slab, without the lock */
	struct {
		CUstream stream;	 /* for the blocks that a hung kernel waits for */
		CUmodule module;	 /* of the take kernel; ends with the context */
		CUfunction take;	 /* takes a counter; NULL: not available */
		CUfunction take_pending; /* take, while its first launch has not completed */
		CUfunction close;	 /* closes a gate; to be used only if take is available */
	} bypass;
};

/* Of one device: all contexts and the counts. */
struct gpu_runs {
	struct lock lock; /* contexts and slabs; taken after a run's lock */
	struct gpu_run_context *contexts;
	struct gpu_run_counts counts; /* [atomic] */
	void (*on_hung)(void *arg, CUfunction clone);
	void *on_hung_arg;
};

/* The words of one run; constant while the run exists. Words in host memory: 0 the number of the
 * last piece whose tickets are all drawn; 1 a copy of the counter; 2 the counter's value when it
 * was taken; 3 written by bypass blocks, and never read; 4 the number of the last but one kernel of
 * our own that shows progress; 5 written by warming up, and never read; 6 and 7 a copy of the gate.
 */
struct gpu_run_line {
	struct gpu_run_slab *slab;
	uint32_t index;		  /* in the slab */
	CUdeviceptr counter;	  /* ticket counter in device memory */
	CUdeviceptr words_device; /* the words' address as kernels use it */
	volatile uint32_t *words; /* the words' address here */
};

/* Forget a context, or all contexts, without calling the driver. */
void gpu_runs_forget(struct gpu_device *d, CUcontext ctx);
void gpu_runs_destroy(struct gpu_device *d);
struct gpu_runs *gpu_runs_of(struct gpu_device *d); /* NULL: out of memory */
struct gpu_run_context *gpu_run_context_of(struct gpu_device *d, CUcontext ctx);
/* Takes a line for the run and sets its list.ticket and pieces.number to continue there. The
 * context is current (gpu_scope_enter). CUDA_ERROR_NOT_READY: the slab is being set; try later. */
CUresult gpu_run_line_take(struct gpu_run *run);
void gpu_run_line_return(struct gpu_run *run);

#endif
