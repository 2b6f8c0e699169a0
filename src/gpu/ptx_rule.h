/* Which PTX the driver's devices execute. */
#ifndef GBPF_GPU_PTX_RULE_H
#define GBPF_GPU_PTX_RULE_H

#include "cuabi/table.h"
#include "ptx/choose.h"

enum ptx_rule gpu_ptx_rule(const struct cuabi_table *real);

#endif
