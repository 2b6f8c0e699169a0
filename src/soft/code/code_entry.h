/* The machine code of one entry. Internal to the room. */
#ifndef GBPF_SOFT_CODE_CODE_ENTRY_H
#define GBPF_SOFT_CODE_CODE_ENTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "ptx/module.h"

#define SOFT_ENTRY_REGISTERS_MAX 255u

struct soft_entry_param {
	uint32_t offset, bytes;
	const char *name; /* the module's; NULL: of a stub's argument */
};

struct soft_entry {
	const char *name; /* the module's */
	struct buf code;
	struct soft_entry_param *params; /* the module's arena */
	uint32_t n_params;
	uint32_t param_bytes;
	uint32_t registers;
	uint32_t threads[3]; /* of .maxntid or .reqntid; [0] is 0: not stated */
	bool required;	     /* .reqntid */
	bool barriers;
	bool weak;
};

/* Compiles entry f of m. Returns 0; -ENOTSUP: it has no machine code, since the place of its
 * parameters is not known; -ENOMEM. Afterwards f may only be freed. Finish ret always. */
int soft_entry_compile(struct soft_entry *ret, struct ptx_module *m, struct ptx_function *f);
void soft_entry_finish(struct soft_entry *e);

/* Returns the number of 32-bit registers that a body needs, at most SOFT_ENTRY_REGISTERS_MAX
 * (code_registers.c). *barriers becomes true if it has a barrier, else keeps its value. */
uint32_t soft_entry_registers(const struct ptx_list *body, bool *barriers);

/* Returns true if a body has only what that of a stub may have: registers, labels, scopes, and
 * instructions other than calls. */
bool soft_entry_is_plain(const struct ptx_list *body);

#endif
