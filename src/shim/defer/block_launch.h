/* Launches at block level: a launch of f is replaced by a resumable run of its preemptible clone
 * or, if its machine code has an entry stub, of f with the stub's argument, which stops starting
 * blocks when a latency tenant asks for the GPU. Until the last block has been started, other calls
 * on the stream are deferred. */
#ifndef GBPF_SHIM_DEFER_BLOCK_LAUNCH_H
#define GBPF_SHIM_DEFER_BLOCK_LAUNCH_H

#include "shim/launch/shim_launch.h"
#include "shim/object/stream_queue.h"
#include "shim/part.h"

extern const struct shim_part shim_block_part;

/* Returns true if every device accepts these numbers of blocks and threads (CUDA C++ Programming
 * Guide, technical specifications). A launch that may be refused must not be submitted later or as
 * a clone: its caller is owed the error. */
bool shim_shape_fits(const uint32_t grid[3], const uint32_t block[3]);
/* Decides whether a launch of a function can run at block level by this clone, its own or that of
 * its probed form. If so, sets clone, block_ok and resident, else clone = NULL and the reason in
 * the statistics. */
void shim_block_check(struct shim_launch *l, struct shim_clone *t);
/* Records in the clone of the program's function why its launches run without it, or that they do
 * not, for `gbpf ps --why`. */
void shim_block_note_reason(const struct shim_launch *l, enum proto_block_why why);
/* The same for a launch that shim_block_check() has found able to run at block level. */
void shim_block_refuse(struct shim_launch *l, enum proto_block_why why);
/* Sets attrs and cluster. Returns PROTO_BLOCK_OK, or why a launch with its attributes cannot run at
 * block level. */
enum proto_block_why shim_block_attributes(struct shim_launch *l, const struct shim_clone *t);

/* Launches the clone, or f with the gate. The queue's context is current. CUDA_ERROR_NOT_SUPPORTED:
 * nothing was launched and the queue has no unfinished run, so the caller can launch f. */
CUresult shim_block_launch(struct shim_queue *q, const struct shim_launch *l);
/* Called when the driver has taken a launch of a probed form's clone, which was handed to it at
 * that time. Set before the first launch. */
extern void (*shim_block_taken)(const struct shim_launch *l, uint64_t now_ns);
/* Returns the number of a launch whose clone has `numbered`. Set before the first launch. */
extern uint64_t (*shim_block_number)(void);

/* Creates what runs in the current context need, before its first launch. */
void shim_block_prepare_context(void);
/* Creates what runs in the queue's context and on the queue need, before its first launch. The
 * caller must hold no lock: the driver may block until work of the program on the device has
 * finished. */
void shim_block_prepare_queue(struct shim_queue *q);

/* Gives unfinished runs a limited time at process exit, as the driver does with its own work. */
void shim_block_exit(void);

#endif
