/* The gate of all stream-ordered calls: the functions that the generated entry points call while
 * the scheduler is not idle. */
#ifndef GBPF_SHIM_ENTRY_GATE_H
#define GBPF_SHIM_ENTRY_GATE_H

#include "shim/launch/shim_launch.h"
#include "shim/object/queue_drain.h"

CUresult shim_gate_launch(const struct shim_call *c, uint64_t *a, uint64_t bytes);
CUresult shim_gate_order(const struct shim_call *c, uint64_t *a);
CUresult shim_gate_kernel(const struct shim_call *c, uint64_t *a);
CUresult shim_gate_kernel_ex(const struct shim_call *c, uint64_t *a);
CUresult shim_gate_legacy(const struct shim_call *c, uint64_t *a);
CUresult shim_gate_graph(const struct shim_call *c, uint64_t *a);

/* Submits a launch: now, at block level, or as a deferred call. */
CUresult shim_gate_submit(const struct shim_call *c, uint64_t *a, struct shim_launch *l);

#endif
