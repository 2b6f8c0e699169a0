/* The maxima of context fields (GBPF_CTX_MAX of hooks.def), on which the proofs of programs rely.
 */
#ifndef GBPF_BPF_RUN_CTX_BOUND_H
#define GBPF_BPF_RUN_CTX_BOUND_H

#include <stdint.h>

/* Reduces the fields of a hook's context that exceed their maxima to these. Call it before each run
 * of a program that was verified. The fields of a program inside a kernel are computed there,
 * within their maxima. */
void ebpf_ctx_bound(unsigned hook, void *ctx);

/* Returns the maximum of the u32 field of a hook's context at that offset, or UINT32_MAX if it has
 * none. */
uint32_t ebpf_ctx_max(unsigned hook, uint32_t offset);

#endif
