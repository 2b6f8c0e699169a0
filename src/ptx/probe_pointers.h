/* Which memory a kernel accesses: the words of its arguments from which all addresses that it uses
 * are computed. It is known only if no address comes from memory, a variable or a number. An
 * address may contain a number that was loaded from memory or is another argument, as an index or a
 * distance: the caller checks that a word of the access is an address. */
#ifndef GBPF_PTX_PROBE_POINTERS_H
#define GBPF_PTX_PROBE_POINTERS_H

#include "base/strmap.h"
#include "ptx/module.h"

#define PTX_POINTERS_MAX 48u
#define PTX_POINTER_PARAMS_MAX 64u
#define PTX_POINTER_SETS_MAX 64u

struct ptx_pointers {
	uint32_t n, n_params, n_sets;
	struct ptx_pointer {
		uint32_t param, offset; /* of 8 bytes in a parameter */
		bool written;		/* the kernel may write to addresses computed from it */
	} at[PTX_POINTERS_MAX];
	/* Of each access of the kernel, without repetition. */
	struct ptx_pointer_set {
		uint64_t words;	  /* of at[], by bit: those that its address may come from */
		bool from_memory; /* it may contain an index that was loaded from memory */
	} set[PTX_POINTER_SETS_MAX];
	uint32_t bytes[PTX_POINTER_PARAMS_MAX]; /* of each parameter */
};

/* The names of a module, for questions about many of its entries. */
struct ptx_pointer_names {
	struct strmap variables; /* name > struct ptx_variable */
	struct strmap functions; /* name > struct ptx_function */
	bool shares_registers;	 /* the module has registers, which functions share */
};

/* Collects the names of a module, which is borrowed until they are closed. Returns 0, or -ENOMEM:
 * there is nothing to close. */
int ptx_pointer_names_open(struct ptx_pointer_names *n, const struct ptx_module *m);
void ptx_pointer_names_close(struct ptx_pointer_names *n);
/* Fills *ret for the entry of that name. names: of the module. Returns 0; -ENOENT: no such entry;
 * -ENOTSUP: the words are not known, with the reason in the report; -ENOMEM. */
int ptx_pointers_of(const struct ptx_module *m, const struct ptx_pointer_names *names,
		    const char *entry, struct ptx_pointers *ret, struct report *r);
/* The same for one question about a module. */
int ptx_pointers_find(const struct ptx_module *m, const char *entry, struct ptx_pointers *ret,
		      struct report *r);

#endif
