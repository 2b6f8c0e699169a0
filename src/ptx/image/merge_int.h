/* Shared by the files of merging. */
#ifndef GBPF_PTX_IMAGE_MERGE_INT_H
#define GBPF_PTX_IMAGE_MERGE_INT_H

#include "ptx/merge.h"

enum ptx_merge_strength { PTX_MERGE_UNDEFINED, PTX_MERGE_COMMON, PTX_MERGE_WEAK, PTX_MERGE_STRONG };

/* A name that several modules use. */
struct ptx_merge_symbol {
	struct ptx_item *seen; /* the first declaration of the name */
	struct ptx_item *def;  /* its definition; NULL while undefined */
	uint32_t seen_unit, def_unit;
	enum ptx_merge_strength strength;
	bool used;     /* an item that is kept uses it */
	bool declared; /* its prototype has been written */
	const char *name;
};

/* Meaning of a name at one module's top level. */
struct ptx_merge_name {
	struct ptx_merge_symbol *symbol; /* NULL: local to the module */
	const char *renamed;		 /* or NULL */
	unsigned hidden;		 /* number of enclosing declarations that hide the name */
};

struct ptx_merge_unit {
	struct ptx_module *module; /* owned */
	struct strmap names;	   /* struct ptx_merge_name, of merge.arena */
	bool no_memory;		   /* a name could not be renamed */
};

/* Returns the name of a function or variable; NULL for other items. */
const char *ptx_merge_item_name(const struct ptx_item *it);

/* merge_names.c: renames the names in an item, notes which symbols it uses, removes line
 * information. */
void ptx_merge_visit(struct ptx_merge_unit *u, struct ptx_item *it);
/* The same for both names of ".alias a, b;". Returns 0; -EINVAL if it is something else; -ENOMEM.
 */
int ptx_merge_visit_alias(struct ptx_merge_unit *u, struct ptx_directive *d);
/* Renames local names that several modules use, except in the first. */
int ptx_merge_rename_locals(struct ptx_merge *m);

#endif
