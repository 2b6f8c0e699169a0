/* What merging's files share. */
#ifndef GBPF_PTX_IMAGE_MERGE_INT_H
#define GBPF_PTX_IMAGE_MERGE_INT_H

#include "ptx/merge.h"

enum merge_strength { MERGE_UNDEFINED, MERGE_COMMON, MERGE_WEAK, MERGE_STRONG };

/* A name that modules share. */
struct merge_symbol {
	struct ptx_item *seen; /* how the name was first declared */
	struct ptx_item *def;  /* what stands for it; NULL while it is undefined */
	uint32_t seen_unit, def_unit;
	enum merge_strength strength;
	bool used;     /* something that is kept names it */
	bool declared; /* its prototype has been written */
	const char *name;
};

/* What a module-scope name of one module means. */
struct merge_name {
	struct merge_symbol *symbol; /* NULL: local to the module */
	const char *renamed;	     /* or NULL */
	unsigned hidden;	     /* declarations in bodies around here that take the name */
};

struct merge_unit {
	struct ptx_module *module; /* owned */
	struct strmap names;	   /* struct merge_name, of merge.arena */
	bool no_memory;		   /* a name could not be renamed */
};

/* The name of a function or variable; NULL for other items. */
const char *merge_item_name(const struct ptx_item *it);

/* merge_names.c: renames what an item names, notes which symbols it uses, takes line information
 * away. */
void merge_visit(struct merge_unit *u, struct ptx_item *it);
/* The same for the two names of ".alias a, b;". 0, -EINVAL when it is not that, -ENOMEM. */
int merge_visit_alias(struct merge_unit *u, struct ptx_directive *d);
/* Names of local things that two modules use: the later ones get names of their own. */
int merge_rename_locals(struct ptx_merge *m);

#endif
