/* Launches at block level: a launch of f is replaced by a resumable run of its preemptible clone
 * or, if its machine code has an entry stub, of f with the stub's argument, which stops starting
 * blocks when a latency tenant asks for the GPU. Until the last block has been started, other calls
 * on the stream are deferred. */
#ifndef GBPF_SHIM_DEFER_BLOCK_LAUNCH_H
#define GBPF_SHIM_DEFER_BLOCK_LAUNCH_H

#include "gpu/gpu_run.h"
#include "shim/kernel/kernel_handle.h"
#include "shim/object/stream_queue.h"
#include "shim/kernel/clone.h"

struct shim_probe_form;

/* A launch's arguments, kept until the scheduler has decided. */
struct shim_block_call {
	struct shim_clone *clone; /* NULL: it cannot run at block level */
	/* Set by the entry point for the gate, which decides: a function with a clone or an entry
	 * stub, NULL for others; and its attributes, if any. */
	const struct shim_thread_kernel *kernel;
	struct shim_probe_form *form; /* held over the decision; NULL: f has no probed form */
	const CUlaunchConfig *config;
	uint32_t grid[3], block[3], smem;
	void **params, **extra;
	/* Machine code: what is kept of the launch's attributes. */
	uint32_t cluster; /* blocks of a cluster; 1: none */
	uint32_t n_attrs;
	CUlaunchAttribute attrs[GPU_BLOCK_ATTRS_MAX];
};

/* Returns true if every device accepts these numbers of blocks and threads (CUDA C++ Programming
 * Guide, technical specifications). A launch that may be refused must not be submitted later or as
 * a clone: its caller is owed the error. */
bool shim_shape_fits(const uint32_t grid[3], const uint32_t block[3]);
/* Decides whether a launch of a function can run at block level by this clone, k's or its probed
 * form's. If so, sets b->clone, l->block_ok and l->resident, else b->clone = NULL and the reason in
 * the statistics. The other fields of b are filled by the caller. */
void shim_block_check(struct shim_block_call *b, const struct shim_thread_kernel *k,
		      struct shim_clone *t, struct sched_launch *l);
/* Records why launches of a function with a clone run without it, for `gbpf ps --why`. */
void shim_block_note_reason(const struct shim_thread_kernel *k, enum proto_block_why why);
/* The same for a launch that shim_block_check() has found able to run at block level. */
void shim_block_refuse(struct shim_block_call *b, struct sched_launch *l, enum proto_block_why why);
/* Sets b->attrs and b->cluster for a launch of k without and with attributes. Returns
 * PROTO_BLOCK_OK, or why a launch with these cannot run at block level. */
enum proto_block_why shim_block_no_attributes(struct shim_block_call *b,
					      const struct shim_clone *t);
enum proto_block_why shim_block_attributes(struct shim_block_call *b, const struct shim_clone *t,
					   const CUlaunchConfig *config);

/* Launches the clone, or f with the gate. The queue's context is current. CUDA_ERROR_NOT_SUPPORTED:
 * nothing was launched and the queue has no unfinished run, so the caller can launch f. */
CUresult shim_block_launch(struct shim_queue *q, const struct shim_block_call *b,
			   const struct sched_launch *l);
/* Called when the driver has taken a launch of a probed form's clone, which was handed to it at
 * that time. smem: what the kernel's launch would have had. Set before the first launch. */
extern void (*shim_block_taken)(const struct shim_block_call *b, uint32_t smem, uint64_t now_ns);
/* Returns the number of a launch whose clone has `numbered`. Set before the first launch. */
extern uint64_t (*shim_block_number)(void);

/* Creates what runs in the current context need, before its first launch. */
void shim_block_prepare_context(void);
/* Creates what runs in the queue's context and on the queue need, before its first launch. The
 * caller must hold no lock: the driver may block until work of the program on the device has
 * finished. */
void shim_block_prepare_queue(struct shim_queue *q);
/* Forgets a context that ends and whose queues are closed. */
void shim_block_context_end(CUcontext ctx);

/* Gives unfinished runs a limited time at process exit, as the driver does with its own work. */
void shim_block_exit(void);

#endif
