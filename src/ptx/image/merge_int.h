/* What merging's files share. */
#ifndef GBPF_PTX_IMAGE_MERGE_INT_H
#define GBPF_PTX_IMAGE_MERGE_INT_H

#include "ptx/merge.h"

enum ptx_merge_strength { PTX_MERGE_UNDEFINED, PTX_MERGE_COMMON, PTX_MERGE_WEAK, PTX_MERGE_STRONG };

/* A name that modules share. */
struct ptx_merge_symbol {
	struct ptx_item *seen; /* how the name was first declared */
	struct ptx_item *def;  /* what stands for it; NULL while it is undefined */
	uint32_t seen_unit, def_unit;
	enum ptx_merge_strength strength;
	bool used;     /* something that is kept names it */
	bool declared; /* its prototype has been written */
	const char *name;
};

/* What a module-scope name of one module means. */
struct ptx_merge_name {
	struct ptx_merge_symbol *symbol; /* NULL: local to the module */
	const char *renamed;		 /* or NULL */
	unsigned hidden;		 /* declarations in bodies around here that take the name */
};

struct ptx_merge_unit {
	struct ptx_module *module; /* owned */
	struct strmap names;	   /* struct merge_name, of merge.arena */
	bool no_memory;		   /* a name could not be renamed */
};

/* The name of a function or variable; NULL for other items. */
const char *ptx_merge_item_name(const struct ptx_item *it);

/* merge_names.c: renames what an item names, notes which symbols it uses, takes line information
 * away. */
void ptx_merge_visit(struct ptx_merge_unit *u, struct ptx_item *it);
/* The same for the two names of ".alias a, b;". 0, -EINVAL when it is not that, -ENOMEM. */
int ptx_merge_visit_alias(struct ptx_merge_unit *u, struct ptx_directive *d);
/* Names of local things that two modules use: the later ones get names of their own. */
int ptx_merge_rename_locals(struct ptx_merge *m);

#endif
