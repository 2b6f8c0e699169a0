/* Places of a kernel at which programs run, and what its text says of them. */
#ifndef GBPF_PTX_PROBE_SITE_PROBE_SITE_H
#define GBPF_PTX_PROBE_SITE_PROBE_SITE_H

#include "ptx/probe/slice/probe_slice.h"

struct ptx_probe_site {
	uint32_t hook, number;
	const struct ptx_function *in; /* NULL: an entry stub or a bracket */
	uint32_t file, line;	       /* of the source; 0: not known */
	const struct ptx_insn *insn;   /* instruction at the site; NULL: the site is a place */
	const char *guard; /* predicate of the lanes that are at the site; NULL: all active lanes */
	bool guard_not;
	uint32_t op, space, bytes; /* of an access */
	const char *size;	   /* register that holds the size, instead of bytes; NULL: none */
	const struct ptx_operand *address; /* of an access */
	uint32_t lanes;			   /* lanes that have an address, from lane 0 on */
	struct {
		uint32_t line;		 /* adjacent bytes of a line; 0: not an access of wmma */
		uint32_t elements, bits; /* elements of a line; bits of an element */
		const struct ptx_operand
			*stride; /* distance of lines in elements; NULL: that of adjacent lines */
	} matrix;
	uint32_t scope;	      /* of a fence */
	uint32_t after, kind; /* of a barrier */
};

/* probe_match_site.c: returns true if the filter lets the program run there. */
bool ptx_probe_matches(const struct ptx_probe_slice *p, const struct ptx_probe_program *g,
		       const struct ptx_probe_site *s);

/* probe_access.c: returns true for an access, and fills in its part of s. */
bool ptx_probe_access(const struct ptx_insn *insn, struct ptx_probe_site *s);
/* Returns whether an instruction may access memory, other than parameters and what prefetches,
 * mbarriers and tensor maps concern. */
bool ptx_probe_accesses(const struct ptx_insn *insn);
bool ptx_probe_is_bulk(const struct ptx_probe_site *s);
bool ptx_probe_is_shared(const struct ptx_probe_site *s);
/* Returns true if the addresses of its space have 32 bits. */
bool ptx_probe_is_narrow(const struct ptx_probe_site *s);
/* probe_known.c: returns whether this version knows what the instruction does. */
bool ptx_probe_is_known(const struct ptx_insn *insn);

/* probe_regs.c: the declarations of the scopes around a place, innermost last. Those that fail
 * return -ENOMEM; entering has to be undone even then. */
struct ptx_probe_scopes {
	struct strmap at[PTX_NESTING_MAX + 2];
	unsigned n;
};
void ptx_probe_enter(struct ptx_probe_scopes *p);
/* Adds to the innermost scope. */
int ptx_probe_declare(struct ptx_probe_scopes *p, const struct ptx_variable *v);
int ptx_probe_enter_params(struct ptx_probe_scopes *p, const struct ptx_function *f);
int ptx_probe_enter_list(struct ptx_probe_scopes *p, const struct ptx_list *list);
void ptx_probe_leave_scope(struct ptx_probe_scopes *p);
/* Returns the declaration of a body's name here, a range for a register of it; NULL: none. */
const struct ptx_variable *ptx_probe_declared(const struct ptx_probe_scopes *p, const char *name);
/* Returns true if the operand is an address of memory, and not of a parameter. */
bool ptx_probe_has_address(const struct ptx_probe_scopes *p, const struct ptx_probe_slice *slice,
			   const struct ptx_operand *o);

/* probe_wmma.c: wmma.load and wmma.store. Takes shape and type; false: neither, or not known. */
bool ptx_probe_wmma(const struct ptx_insn *insn, struct ptx_probe_site *s);
/* Returns whether the distance of lines can be read here. */
bool ptx_probe_wmma_known(const struct ptx_probe_scopes *p, const struct ptx_probe_site *s);

/* probe_place.c: returns the item of the entry's body in front of which programs of its hooks
 * are printed; NULL: at its beginning. */
const struct ptx_item *ptx_probe_entry_place(const struct ptx_probe_read *p,
					     const struct ptx_function *f);

#define PTX_PROBE_LOOPS_MAX 64u

/* Lines of the text between which an entry's loops lie. */
struct ptx_probe_loops {
	uint32_t n, first[PTX_PROBE_LOOPS_MAX], last[PTX_PROBE_LOOPS_MAX];
	bool many; /* there are more loops than fit; then every place counts as inside a loop */
};
/* probe_loop.c */
void ptx_probe_find_loops(struct ptx_probe_loops *l, const struct ptx_function *f);
bool ptx_probe_in_loop(const struct ptx_probe_loops *l, uint32_t line);

#endif
