/* Merges variables in shared memory. Three walks over what the entry reaches: its functions and
 * variables; how these are used; and the uses are replaced. The last two resolve names by the
 * scopes of PTX: a declaration holds in its list and hides outer ones of its name. */
#include "ptx/probe_shared.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/strmap.h"
#include "ptx/block_facts.h"
#include "ptx/stem.h"

#define VARS_MAX 1024u
#define BYTES_MAX ((uint64_t)1 << 20) /* of all; more than any GPU has */
#define ALIGN_MIN 16u		      /* of the variable, so that vectors at its beginning are */
#define STEM "shared"

struct var {
	struct ptx_variable *v;
	struct ptx_list *list; /* that declares it */
	bool used;
	bool kept; /* a use of it cannot be a place in another variable */
	uint64_t bytes, offset;
};

/* What a name means in the innermost scope that declares it. */
struct meaning {
	struct var *var; /* NULL: something else */
	const char *name;
	struct meaning *outer; /* of the same name, around it */
	struct meaning *below; /* declared before */
};

struct work {
	struct ptx_module *m;
	struct strmap functions; /* with bodies, by name; struct ptx_function */
	struct strmap reached;	 /* of these */
	struct strmap meanings;	 /* struct meaning; of names that mean a variable somewhere */
	struct meaning *top;
	struct var *vars; /* of the arena; in the order of the text */
	uint32_t n_vars;
	struct var dynamic; /* stands for all dynamic ones */
	const char *merged; /* NULL: uses are looked at and not changed */
	bool impossible;
	int err;
};

/* ---- what the entry reaches ---- */

static bool is_dynamic(const struct ptx_variable *v)
{
	return v->space == PTX_SHARED && (v->open_array || strcmp(v->linkage, ".extern") == 0);
}

static void add_var(struct work *w, struct ptx_list *list, struct ptx_variable *v)
{
	uint64_t bytes = 0;

	if (v->space != PTX_SHARED || is_dynamic(v) || v->has_range || v->init || *v->attributes ||
	    strcmp(v->linkage, ".common") == 0 || ptx_variable_bytes(v, &bytes) < 0 || !bytes ||
	    bytes > BYTES_MAX) {
		return;
	}
	if (w->n_vars == VARS_MAX) {
		w->impossible = true;
		return;
	}
	w->vars[w->n_vars++] = (struct var){ .v = v, .list = list, .bytes = bytes };
}

static void reach(struct work *w, const char *name)
{
	struct ptx_function *f = strmap_get(&w->functions, name);

	if (f && strmap_add(&w->reached, name, f) == -ENOMEM) {
		w->err = -ENOMEM;
	}
}

/* A call through a pointer reaches functions that are not known here. */
static void reach_call(struct work *w, const struct ptx_insn *insn)
{
	const struct ptx_operand *callee = ptx_block_callee(insn);

	if (strcmp(insn->opcode, "call") != 0) {
		return;
	}
	if (callee && ptx_module_function(w->m, callee->name)) {
		reach(w, callee->name);
	} else {
		w->impossible = true;
	}
}

/* Recursion is bounded by the parser's limit on scopes, here and below. */
static void find_list(struct work *w, struct ptx_list *list)
{
	ptx_each (list, it) {
		if (it->kind == PTX_VARIABLE) {
			add_var(w, list, (struct ptx_variable *)it);
		} else if (it->kind == PTX_SCOPE) {
			find_list(w, &((struct ptx_scope *)it)->body);
		} else if (it->kind == PTX_INSN) {
			reach_call(w, (const struct ptx_insn *)it);
		}
	}
}

/* Functions that are reached are appended while the map is read. */
static void find_all(struct work *w, const char *entry)
{
	ptx_each (&w->m->items, it) {
		struct ptx_function *f = (struct ptx_function *)it;

		if (it->kind == PTX_VARIABLE) {
			add_var(w, &w->m->items, (struct ptx_variable *)it);
		} else if (it->kind == PTX_FUNCTION && f->has_body &&
			   strmap_add(&w->functions, f->name, f) == -ENOMEM) {
			w->err = -ENOMEM;
		}
	}
	reach(w, entry);
	for (size_t i = 0; i < w->reached.n && !w->impossible && !w->err; i++) {
		find_list(w, &((struct ptx_function *)w->reached.entries[i].value)->body);
	}
}

/* ---- names ---- */

static struct var *var_of(struct work *w, const struct ptx_item *it)
{
	if (is_dynamic((const struct ptx_variable *)it)) {
		return &w->dynamic;
	}
	for (uint32_t i = 0; i < w->n_vars; i++) {
		if (&w->vars[i].v->item == it) {
			return &w->vars[i];
		}
	}
	return NULL;
}

/* Notes the meaning of names that mean a variable here or around. */
static void declare(struct work *w, const char *name, struct var *var)
{
	struct meaning *outer = strmap_get(&w->meanings, name), *n;

	if (!var && !outer) {
		return;
	}
	n = ptx_arena_alloc(&w->m->arena, sizeof(*n));
	if (!n) {
		w->err = -ENOMEM;
		return;
	}
	*n = (struct meaning){ .var = var, .name = name, .outer = outer, .below = w->top };
	(void)strmap_del(&w->meanings, name);
	w->top = n;
	if (strmap_add(&w->meanings, name, n) < 0) {
		w->err = -ENOMEM;
	}
}

static void leave(struct work *w, const struct meaning *top)
{
	while (w->top != top) {
		(void)strmap_del(&w->meanings, w->top->name);
		if (w->top->outer && strmap_add(&w->meanings, w->top->name, w->top->outer) < 0) {
			w->err = -ENOMEM;
		}
		w->top = w->top->below;
	}
}

static void enter(struct work *w, const struct ptx_list *list)
{
	ptx_each (list, it) {
		const struct ptx_variable *v = (const struct ptx_variable *)it;

		if (it->kind == PTX_VARIABLE) {
			declare(w, v->name, v->space == PTX_SHARED ? var_of(w, it) : NULL);
		} else if (it->kind == PTX_LABEL) {
			declare(w, ((const struct ptx_label *)it)->name, NULL);
		}
	}
}

/* ---- uses ---- */

/* Returns the meaning of an operand's name, without the element behind its dot. */
static struct meaning *meaning_of(const struct work *w, const char *name)
{
	return strmap_get_n(&w->meanings, name, strcspn(name, "."));
}

/* Instructions that take the address of a variable plus a number, wherever ptxas takes one. */
static bool takes_place(const struct ptx_insn *insn, const struct ptx_operand *o)
{
	static const char *const opcodes[] = { "mov", "cvta", "mapa", NULL };

	return o->kind == PTX_ADDRESS ||
	       (o->kind == PTX_NAME && ptx_is_one_of(insn->opcode, opcodes));
}

static void use(struct work *w, const struct ptx_insn *insn, struct ptx_operand *o, bool inner)
{
	static const char *const sizes[] = { "%total_smem_size", "%aggr_smem_size", NULL };
	struct meaning *n = o->name ? meaning_of(w, o->name) : NULL;

	if (o->name && ptx_is_one_of(o->name, sizes)) {
		w->impossible = true;
	}
	if (n && n->var && w->merged && !n->var->kept) {
		o->name = w->merged;
		o->offset += (int64_t)n->var->offset;
	} else if (n && n->var) {
		n->var->used = true;
		n->var->kept =
			n->var->kept || inner || strchr(o->name, '.') || !takes_place(insn, o);
	}
	for (uint32_t i = 0; i < o->n_args; i++) {
		use(w, insn, &o->args[i], true);
	}
}

/* A variable that an initial value names stays. */
static void keep_named(struct work *w, const struct ptx_operand *o)
{
	struct meaning *n = o->name ? meaning_of(w, o->name) : NULL;

	if (n && n->var) {
		n->var->kept = true;
	}
	for (uint32_t i = 0; i < o->n_args; i++) {
		keep_named(w, &o->args[i]);
	}
}

static void keep_initial(struct work *w, const struct ptx_item *it)
{
	if (it->kind == PTX_VARIABLE && ((const struct ptx_variable *)it)->init) {
		keep_named(w, ((const struct ptx_variable *)it)->init);
	}
}

static void use_list(struct work *w, struct ptx_list *list)
{
	const struct meaning *top = w->top;

	enter(w, list);
	ptx_each (list, it) {
		struct ptx_insn *insn = (struct ptx_insn *)it;

		for (unsigned i = 0; it->kind == PTX_INSN && i < insn->n_operands; i++) {
			use(w, insn, &insn->operands[i], false);
		}
		keep_initial(w, it);
		if (it->kind == PTX_SCOPE) {
			use_list(w, &((struct ptx_scope *)it)->body);
		}
	}
	leave(w, top);
}

static void use_function(struct work *w, struct ptx_function *f)
{
	const struct meaning *top = w->top;

	for (uint32_t i = 0; i < f->n_params; i++) {
		declare(w, f->params[i].name, NULL);
	}
	for (uint32_t i = 0; i < f->n_returns; i++) {
		declare(w, f->returns[i].name, NULL);
	}
	use_list(w, &f->body);
	leave(w, top);
}

static void use_all(struct work *w)
{
	enter(w, &w->m->items);
	ptx_each (&w->m->items, it) {
		keep_initial(w, it);
	}
	strmap_each (&w->reached, e) {
		use_function(w, e->value);
	}
	leave(w, NULL);
}

/* ---- the variable ---- */

/* The greatest alignment first, so that there is next to no space between variables. */
static int by_align(const void *x, const void *y)
{
	const struct var *const *a = x, *const *b = y;
	uint32_t p = ptx_variable_align((*a)->v), q = ptx_variable_align((*b)->v);

	return p != q ? (p < q) - (p > q) : (*a > *b) - (*a < *b);
}

/* Gives places. Returns the number of variables; 0: there is nothing to gain, or not in bounds. */
static uint32_t place(struct work *w, uint64_t *ret_bytes, uint32_t *ret_align)
{
	struct var **order = ptx_arena_array(&w->m->arena, w->n_vars + 1u, sizeof(struct var *));
	uint64_t bytes = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->n_vars && order; i++) {
		if (w->vars[i].used && !w->vars[i].kept) {
			order[n++] = &w->vars[i];
		}
	}
	if (!order) {
		w->err = -ENOMEM;
		return 0;
	}
	if (n < 2) {
		return 0;
	}
	qsort(order, n, sizeof(struct var *), by_align);
	*ret_align = MAX(ALIGN_MIN, ptx_variable_align(order[0]->v));
	for (uint32_t i = 0; i < n; i++) {
		uint32_t align = ptx_variable_align(order[i]->v);

		order[i]->offset = align ? (bytes + align - 1) / align * align : bytes;
		bytes = order[i]->offset + order[i]->bytes;
		if (bytes > BYTES_MAX) {
			return 0;
		}
	}
	*ret_bytes = bytes;
	return n;
}

static void add_merged(struct work *w, uint64_t bytes, uint32_t align)
{
	uint32_t number = ptx_stem_number(&w->m->items, STEM);
	struct ptx_variable *v = ptx_arena_array(&w->m->arena, 1, sizeof(*v));
	struct ptx_item *at = w->m->items.first;
	char text[32];

	snprintf(text, sizeof(text), STEM "%u_all", number);
	w->merged = ptx_arena_text(&w->m->arena, text, strlen(text));
	if (!v || !w->merged) {
		w->err = -ENOMEM;
		return;
	}
	*v = (struct ptx_variable){ .item = { .kind = PTX_VARIABLE },
				    .space = PTX_SHARED,
				    .linkage = "",
				    .attributes = "",
				    .align = align,
				    .type = ".b8",
				    .name = w->merged,
				    .n_dims = 1,
				    .dims = { bytes } };
	while (at && at->next && at->next->kind == PTX_DIRECTIVE) {
		at = at->next;
	}
	ptx_list_insert(&w->m->items, at && at->kind == PTX_DIRECTIVE ? at : NULL, &v->item);
}

/* Replaces the uses and removes the declarations. */
static void merge(struct work *w, uint64_t bytes, uint32_t align)
{
	add_merged(w, bytes, align);
	if (w->err) {
		return;
	}
	use_all(w);
	for (uint32_t i = 0; i < w->n_vars && !w->err; i++) {
		if (w->vars[i].used && !w->vars[i].kept) {
			ptx_list_remove(w->vars[i].list, &w->vars[i].v->item);
		}
	}
}

static uint32_t run(struct work *w, const char *entry)
{
	uint64_t bytes = 0;
	uint32_t align = 0, n;

	w->vars = ptx_arena_array(&w->m->arena, VARS_MAX, sizeof(w->vars[0]));
	if (!w->vars) {
		w->err = -ENOMEM;
		return 0;
	}
	find_all(w, entry);
	if (w->err || w->impossible || w->n_vars < 2 ||
	    ptx_stem_number(&w->m->items, STEM) > PTX_STEM_MAX) {
		return 0;
	}
	use_all(w);
	n = w->err || w->impossible || w->dynamic.used ? 0 : place(w, &bytes, &align);
	if (n) {
		merge(w, bytes, align);
	}
	return n;
}

int ptx_shared_merge(struct ptx_module *m, const char *entry, uint32_t *ret_n, struct report *r)
{
	struct work w = { .m = m };
	uint32_t n;

	strmap_init(&w.functions);
	strmap_init(&w.reached);
	strmap_init(&w.meanings);
	n = run(&w, entry);
	if (ret_n) {
		*ret_n = n;
	}
	strmap_finish(&w.functions);
	strmap_finish(&w.reached);
	strmap_finish(&w.meanings);
	return w.err ? report_set(r, w.err, "probe", "no memory for the probed form") : 0;
}
