/* Launches with an entry stub in a resumable run: their gate, and how far an interrupted one came.
 */
#ifndef GBPF_GPU_CUDA_GPU_RUN_GATE_INT_H
#define GBPF_GPU_CUDA_GPU_RUN_GATE_INT_H

#include "gpu/gpu_run.h"

struct gpu_run;
struct gpu_run_entry;

#define GPU_RUN_GATE_COPY 24u /* offset of the gate's copy in the host's words */
#define GPU_RUN_GATE_FIRST 1u /* both halves of a gate's first value, */
#define GPU_RUN_GATE_MAX                                                                           \
	0x7fffffffu /* and of the last before they begin again; the next is closed */

struct gpu_run_gate {
	bool used;     /* the run has submitted such a launch */
	uint64_t base; /* of the next submission; no block has had a higher value */
};

/* A gate's value with equal halves: one memset sets it. */
static inline uint64_t gpu_run_gate_base(uint32_t half)
{
	return (uint64_t)half << 32 | half;
}

/* All of these: the run's lock is held, and the context is current. */

/* Copies the launch, which has at most GPU_BLOCK_ATTRS_MAX attributes. */
void gpu_run_gate_copy(struct gpu_run_entry *l, const struct gpu_block_launch *b);
/* Launches what is missing of the entry. Leases do not stop the next `forced` blocks. */
CUresult gpu_run_gate_launch(struct gpu_run *run, struct gpu_run_entry *l, CUstream stream,
			     uint32_t forced);
/* Launches what is missing behind the first `ran` blocks on the bypass stream. counter: of bypass
 * blocks. done: address of a word that nobody reads. */
CUresult gpu_run_gate_bypass(struct gpu_run *run, struct gpu_run_entry *l, uint32_t ran,
			     uint64_t counter, uint64_t done);
/* Copies the gate to the host's words, behind what is on the io stream, and then opens it if
 * `reopen`. */
CUresult gpu_run_gate_read(struct gpu_run *run, bool reopen);
/* Opens the gate, behind what is on the io stream. Nothing of the run is on the device. */
CUresult gpu_run_gate_reopen(struct gpu_run *run);
/* Returns the copy. */
uint64_t gpu_run_gate_value(const struct gpu_run *run);
/* Adds to the counter what has run of a launch with an entry stub, which moves the counter only
 * when it is through. idle: the stream is idle; else the gate was closed by gpu_run_bypass.c.
 * False: the values are impossible. */
bool gpu_run_gate_progress(const struct gpu_run *run, uint32_t *counter, bool idle);

#endif
