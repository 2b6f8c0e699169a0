/* Which memory a kernel accesses: the words of its arguments from which all addresses that it uses
 * are computed. It is known only if no address comes from memory, a variable or a number. An
 * address may contain a number that was loaded from memory or is another argument, as an index or a
 * distance: the caller checks that a word of the access is an address. */
#ifndef GBPF_PTX_PROBE_POINTERS_H
#define GBPF_PTX_PROBE_POINTERS_H

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

/* Fills *ret for the entry of that name. Returns 0; -ENOENT: no such entry; -ENOTSUP: the words are
 * not known, with the reason in the report; -ENOMEM. */
int ptx_pointers_find(const struct ptx_module *m, const char *entry, struct ptx_pointers *ret,
		      struct report *r);

#endif
