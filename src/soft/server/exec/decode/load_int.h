/* Shared by the files that load a module. Functions return 0 or a negative error that has been
 * reported. */
#ifndef GBPF_SOFT_SERVER_EXEC_DECODE_LOAD_INT_H
#define GBPF_SOFT_SERVER_EXEC_DECODE_LOAD_INT_H

#include "soft/server/exec/decode/decode_kernel.h"

struct exec_loader {
	struct exec_module *m;
	struct ptx_module *ptx;
	struct report *report;
	struct strmap functions; /* struct ptx_function */
	struct strmap shared;	 /* struct ptx_variable */
	struct strmap reached;
	struct strmap inner;  /* variables inside functions: address of the ptx_variable ->
				 exec_variable, owned */
	struct buf variables; /* struct ptx_variable *: those in device memory */
	uint32_t n_outer;     /* the first ones: those at module scope */
	struct exec_taken_addresses taken;
	struct buf taken_list;
	struct buf relocs; /* struct exec_init_reloc */
	uint32_t line;
};

int exec_load_no_memory(struct exec_loader *l);
void exec_load_function_free(struct exec_function *f); /* accepts NULL */

/* code_origin.c: notes which lines belong to programs that were inserted. */
int exec_load_origins(struct exec_loader *l);

/* module_kernels.c: decodes all kernels, and adds them to the module in the order of the text. */
int exec_load_kernels(struct exec_loader *l);
/* Validates functions that no kernel calls. */
int exec_load_unreached(struct exec_loader *l);

#endif
