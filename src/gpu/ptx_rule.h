/* Which PTX the driver's devices execute, and for which architecture it is chosen. */
#ifndef GBPF_GPU_PTX_RULE_H
#define GBPF_GPU_PTX_RULE_H

#include "cuabi/table.h"
#include "ptx/choose.h"

enum ptx_rule gpu_ptx_rule(const struct cuabi_table *real);
/* Returns the architecture that the options of a load ask for (CU_JIT_TARGET), without the bits of
 * variants such as sm_90a; 0: none. */
unsigned gpu_ptx_target(unsigned n, const CUjit_option *options, void *const *values);

#endif
