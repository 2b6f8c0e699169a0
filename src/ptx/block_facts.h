/* What the block pass knows of names and instructions, for the passes that change its clones. */
#ifndef GBPF_PTX_BLOCK_FACTS_H
#define GBPF_PTX_BLOCK_FACTS_H

#include "ptx/module.h"

/* Special registers that clones read from the grid that they stand for. */
enum ptx_block_sreg {
	PTX_BLOCK_SREG_NONE,
	PTX_BLOCK_SREG_CTAID, /* the vector */
	PTX_BLOCK_SREG_CTAID_X,
	PTX_BLOCK_SREG_CTAID_Y,
	PTX_BLOCK_SREG_CTAID_Z,
	PTX_BLOCK_SREG_NCTAID,
	PTX_BLOCK_SREG_NCTAID_X,
	PTX_BLOCK_SREG_NCTAID_Y,
	PTX_BLOCK_SREG_NCTAID_Z,
	PTX_BLOCK_SREG_ZERO, /* .w of both */
	PTX_BLOCK_SREG_GRID, /* differs between launches */
	PTX_BLOCK_SREG_CLUSTER,
	PTX_BLOCK_SREG_SHARED, /* sizes of shared memory */
};
enum ptx_block_sreg ptx_block_sreg_of(const char *name);

/* Returns the operand of a call that names the callee; NULL: none. */
struct ptx_operand *ptx_block_callee(const struct ptx_insn *insn);
/* Returns true for functions of the driver that depend on nothing that a clone changes. */
bool ptx_block_is_harmless(const char *name);
/* Returns true for functions of the driver's device runtime; no other names begin like this. */
bool ptx_block_is_device_runtime(const char *name);
/* Returns the max bytes of a kernel's parameters in the module's version. */
uint32_t ptx_block_params_max(const struct ptx_module *m);

#endif
