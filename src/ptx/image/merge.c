/* Merging: symbols are collected as modules are added; ptx_merge_finish renames, checks that
 * nothing is undefined, and writes what is kept. */
#include "ptx/merge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "ptx/block_facts.h"
#include "ptx/image/merge_int.h"

#define UNDEFINED_TOLD 16u /* names listed in a report */

void ptx_merge_init(struct ptx_merge *m, struct report *r)
{
	*m = (struct ptx_merge){ .report = r };
	strmap_init(&m->symbols);
	strmap_init(&m->taken);
	ptx_arena_init(&m->arena);
}

void ptx_merge_free(struct ptx_merge *m)
{
	for (uint32_t i = 0; i < m->n; i++) {
		ptx_module_free(m->units[i].module);
		strmap_finish(&m->units[i].names);
	}
	free(m->units);
	strmap_finish(&m->symbols);
	strmap_finish(&m->taken);
	ptx_arena_finish(&m->arena);
	ptx_merge_init(m, m->report);
}

static int no_memory(struct ptx_merge *m)
{
	return report_set(m->report, -ENOMEM, "link", "no memory for merging");
}

static const char *linkage_of(const struct ptx_item *it)
{
	return it->kind == PTX_FUNCTION ? ((const struct ptx_function *)it)->linkage
					: ((const struct ptx_variable *)it)->linkage;
}

static enum ptx_merge_strength strength_of(const struct ptx_item *it)
{
	const char *linkage = linkage_of(it);

	if (it->kind == PTX_FUNCTION && !((const struct ptx_function *)it)->has_body) {
		return PTX_MERGE_UNDEFINED;
	}
	return strcmp(linkage, ".extern") == 0	 ? PTX_MERGE_UNDEFINED
	       : strcmp(linkage, ".common") == 0 ? PTX_MERGE_COMMON
	       : strcmp(linkage, ".weak") == 0	 ? PTX_MERGE_WEAK
						 : PTX_MERGE_STRONG;
}

/* Returns 0 if unknown. */
static uint64_t bytes_of(const struct ptx_variable *v)
{
	uint64_t bytes = 0;

	return v->open_array || ptx_variable_bytes(v, &bytes) < 0 ? 0 : bytes;
}

static bool same_params(const struct ptx_variable *a, const struct ptx_variable *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (bytes_of(&a[i]) != bytes_of(&b[i])) {
			return false;
		}
	}
	return true;
}

/* Returns why two declarations cannot be of the same object; NULL: they can. */
static const char *mismatch(const struct ptx_item *x, const struct ptx_item *y)
{
	if (x->kind != y->kind) {
		return "Memory space doesn't match";
	}
	if (x->kind == PTX_VARIABLE) {
		const struct ptx_variable *a = (const struct ptx_variable *)x;
		const struct ptx_variable *b = (const struct ptx_variable *)y;
		uint64_t p = bytes_of(a), q = bytes_of(b);

		return a->space != b->space ? "Memory space doesn't match"
		       : p && q && p != q && strcmp(a->linkage, ".common") != 0 &&
				       strcmp(b->linkage, ".common") != 0
			       ? "Size doesn't match"
			       : NULL;
	} else {
		const struct ptx_function *a = (const struct ptx_function *)x;
		const struct ptx_function *b = (const struct ptx_function *)y;
		bool same = a->is_entry == b->is_entry && a->n_params == b->n_params &&
			    a->n_returns == b->n_returns &&
			    same_params(a->params, b->params, a->n_params) &&
			    same_params(a->returns, b->returns, a->n_returns);

		return same ? NULL : "Prototype doesn't match";
	}
}

static int conflict(struct ptx_merge *m, const char *what, const struct ptx_merge_symbol *s,
		    uint32_t unit, const struct ptx_item *it)
{
	const struct ptx_item *first = s->def ? s->def : s->seen;
	uint32_t first_unit = s->def ? s->def_unit : s->seen_unit;

	report_place(m->report, "%s:%u", m->units[unit].module->name, it->line);
	return report_set(m->report, -EEXIST, "link", "%s for '%s', first seen in %s:%u", what,
			  s->name, m->units[first_unit].module->name, first->line);
}

static bool larger(const struct ptx_item *a, const struct ptx_item *b)
{
	return a->kind == PTX_VARIABLE && b->kind == PTX_VARIABLE &&
	       bytes_of((const struct ptx_variable *)a) > bytes_of((const struct ptx_variable *)b);
}

static int symbol_note(struct ptx_merge *m, struct ptx_merge_symbol *s, uint32_t unit,
		       struct ptx_item *it)
{
	enum ptx_merge_strength strength = strength_of(it);
	const char *wrong = s->seen ? mismatch(s->def ? s->def : s->seen, it) : NULL;

	if (wrong) {
		return conflict(m, wrong, s, unit, it);
	}
	if (strength == PTX_MERGE_STRONG && s->strength == PTX_MERGE_STRONG) {
		return conflict(m, "Multiple definition", s, unit, it);
	}
	if (!s->seen) {
		s->seen = it;
		s->seen_unit = unit;
	}
	if (strength > s->strength || (strength == PTX_MERGE_COMMON &&
				       s->strength == PTX_MERGE_COMMON && larger(it, s->def))) {
		s->strength = strength;
		s->def = it;
		s->def_unit = unit;
	}
	return 0;
}

static struct ptx_merge_symbol *symbol_get(struct ptx_merge *m, const char *name)
{
	struct ptx_merge_symbol *s = strmap_get(&m->symbols, name);

	if (!s) {
		s = ptx_arena_alloc(&m->arena, sizeof(*s));
		if (s) {
			s->name = name;
			s = strmap_add(&m->symbols, name, s) < 0 ? NULL : s;
		}
	}
	return s;
}

static struct ptx_merge_name *name_get(struct ptx_merge *m, struct ptx_merge_unit *u,
				       const char *name)
{
	struct ptx_merge_name *n = strmap_get(&u->names, name);

	if (!n) {
		n = ptx_arena_alloc(&m->arena, sizeof(*n));
		n = n && strmap_add(&u->names, name, n) == 0 ? n : NULL;
		if (n && strmap_add(&m->taken, name, n) == -ENOMEM) {
			n = NULL;
		}
	}
	return n;
}

/* A name is global if any declaration in the module makes it global. */
static int note_names(struct ptx_merge *m, struct ptx_merge_unit *u)
{
	ptx_each (&u->module->items, it) {
		const char *name = ptx_merge_item_name(it);
		struct ptx_merge_name *n;

		if (!name) {
			continue;
		}
		n = name_get(m, u, name);
		if (n && *linkage_of(it) && !n->symbol) {
			n->symbol = symbol_get(m, name);
			n = n->symbol ? n : NULL;
		}
		if (!n) {
			return no_memory(m);
		}
	}
	return 0;
}

/* ".alias a, b;" defines a, which has been declared. */
static void note_alias(struct ptx_merge *m, struct ptx_merge_unit *u, const struct ptx_directive *d)
{
	const char *p = d->text + strlen(".alias");
	struct ptx_merge_name *n;

	p += strspn(p, " \t");
	n = strmap_get_n(&u->names, p, strcspn(p, " \t,"));
	if (n && n->symbol && !n->symbol->def) {
		n->symbol->def = n->symbol->seen;
		n->symbol->def_unit = (uint32_t)(u - m->units);
		n->symbol->strength = PTX_MERGE_STRONG;
	}
}

static bool is_alias(const struct ptx_item *it)
{
	return it->kind == PTX_DIRECTIVE &&
	       strncmp(((const struct ptx_directive *)it)->text, ".alias", 6) == 0;
}

static int note_symbols(struct ptx_merge *m, struct ptx_merge_unit *u)
{
	ptx_each (&u->module->items, it) {
		const char *name = ptx_merge_item_name(it);
		struct ptx_merge_name *n = name ? strmap_get(&u->names, name) : NULL;
		int err = n && n->symbol ? symbol_note(m, n->symbol, (uint32_t)(u - m->units), it)
					 : 0;

		if (err < 0) {
			return err;
		}
	}
	ptx_each (&u->module->items, it) {
		if (is_alias(it)) {
			note_alias(m, u, (struct ptx_directive *)it);
		}
	}
	return 0;
}

int ptx_merge_add(struct ptx_merge *m, const char *text, size_t len, const char *name)
{
	struct ptx_merge_unit *grown, *u;
	int err;

	if (m->n == PTX_MERGE_MAX) {
		return report_set(m->report, -EFBIG, "link", "more than %u modules", PTX_MERGE_MAX);
	}
	if ((m->n & (m->n - 1)) == 0) {
		grown = realloc(m->units, (m->n ? m->n * 2 : 1) * sizeof(*grown));
		if (!grown) {
			return no_memory(m);
		}
		m->units = grown;
	}
	u = &m->units[m->n];
	*u = (struct ptx_merge_unit){ 0 };
	err = ptx_module_parse(&u->module, text, len, name, m->report);
	if (err < 0) {
		return err;
	}
	m->n++;
	strmap_init(&u->names);
	if (u->module->address_size != m->units[0].module->address_size) {
		report_place(m->report, "%s", name);
		return report_set(m->report, -EINVAL, "link",
				  "its .address_size is not that of the other modules");
	}
	err = note_names(m, u);
	return err ? err : note_symbols(m, u);
}

/* ---- writing ---- */

static bool is_dynamic(const struct ptx_item *it)
{
	const struct ptx_variable *v = (const struct ptx_variable *)it;

	return it->kind == PTX_VARIABLE && v->space == PTX_SHARED;
}

static bool is_kept(const struct ptx_merge_unit *u, const struct ptx_item *it)
{
	const char *name = ptx_merge_item_name(it);
	struct ptx_merge_name *n = name ? strmap_get(&u->names, name) : NULL;

	if (!n || !n->symbol) {
		return true;
	}
	if (n->symbol->def) {
		return n->symbol->def == it;
	}
	return n->symbol->seen == it && (is_dynamic(it) || ptx_block_is_harmless(name));
}

/* Returns true for a prototype of a function that some module defines; these are written first. */
static bool is_prototype(const struct ptx_item *it)
{
	return it->kind == PTX_FUNCTION && !((const struct ptx_function *)it)->has_body;
}

static int bad_alias(struct ptx_merge *m, const struct ptx_merge_unit *u, const struct ptx_item *it)
{
	report_place(m->report, "%s:%u", u->module->name, it->line);
	return report_set(m->report, -EINVAL, "link", "'.alias name, other;' expected");
}

static int visit_all(struct ptx_merge *m)
{
	for (uint32_t i = 0; i < m->n; i++) {
		struct ptx_merge_unit *u = &m->units[i];

		ptx_each (&u->module->items, it) {
			if (is_alias(it)) {
				int err = ptx_merge_visit_alias(u, (struct ptx_directive *)it);

				if (err < 0) {
					return err == -ENOMEM ? no_memory(m) : bad_alias(m, u, it);
				}
			} else if (!is_prototype(it)) {
				ptx_merge_visit(u, it);
			}
		}
		if (u->no_memory) {
			return no_memory(m);
		}
	}
	return 0;
}

static int check_undefined(struct ptx_merge *m)
{
	unsigned n = 0;
	struct buf text;
	int err = 0;

	buf_init(&text);
	strmap_each (&m->symbols, e) {
		struct ptx_merge_symbol *s = e->value;

		if (!s->used || s->def || is_dynamic(s->seen) || ptx_block_is_harmless(s->name)) {
			continue;
		}
		if (n < UNDEFINED_TOLD) {
			buf_printf(&text, "%sUndefined reference to '%s' in '%s'", n ? "\n" : "",
				   s->name, m->units[s->seen_unit].module->name);
		}
		n++;
	}
	if (n) {
		err = report_set(m->report, -ENOENT, "link", "%s", buf_text(&text));
	}
	buf_finish(&text);
	return err;
}

static int append_text(struct ptx_merge *m, struct ptx_list *list, const char *text)
{
	struct ptx_directive *d = ptx_arena_alloc(&m->arena, sizeof(*d));

	if (!d) {
		return no_memory(m);
	}
	d->item.kind = PTX_DIRECTIVE;
	d->text = text;
	ptx_list_append(list, &d->item);
	return 0;
}

/* Returns the number of sm_NUMBER, 0 for anything else. */
static unsigned long target_number(const char *target)
{
	return strncmp(target, "sm_", 3) == 0 ? strtoul(target + 3, NULL, 10) : 0;
}

static int append_header(struct ptx_merge *m, struct ptx_list *list)
{
	const struct ptx_module *first = m->units[0].module;
	uint32_t major = 0, minor = 0;
	const char *target = "sm_52";
	struct buf text;
	const char *copy;

	for (uint32_t i = 0; i < m->n; i++) {
		const struct ptx_module *p = m->units[i].module;

		if (p->version_major > major ||
		    (p->version_major == major && p->version_minor > minor)) {
			major = p->version_major;
			minor = p->version_minor;
		}
		target = target_number(p->target) > target_number(target) ? p->target : target;
	}
	buf_init(&text);
	buf_printf(&text, ".version %u.%u\n.target %.*s\n.address_size %u", major, minor,
		   (int)(3 + strspn(target + 3, "0123456789af")), target, first->address_size);
	copy = text.failed ? NULL : ptx_arena_text(&m->arena, text.data, text.len);
	buf_finish(&text);
	return copy ? append_text(m, list, copy) : no_memory(m);
}

static void move(struct ptx_list *from, struct ptx_list *to, struct ptx_item *it)
{
	ptx_list_remove(from, it);
	ptx_list_append(to, it);
}

/* Writes one prototype of each function; a symbol's prototype is that of its definition. */
static void move_prototypes(struct ptx_merge_unit *u, struct ptx_list *to)
{
	struct ptx_item *next;

	for (struct ptx_item *it = u->module->items.first; it; it = next) {
		struct ptx_function *f = (struct ptx_function *)it;
		struct ptx_merge_name *n;

		next = it->next;
		if (!is_prototype(it)) {
			continue;
		}
		n = strmap_get(&u->names, f->name);
		if (!n->symbol) {
			f->name = n->renamed ? n->renamed : f->name;
			move(&u->module->items, to, it);
		} else if (!n->symbol->declared &&
			   (n->symbol->def || ptx_block_is_harmless(f->name))) {
			n->symbol->declared = true;
			f->linkage = n->symbol->def ? linkage_of(n->symbol->def) : f->linkage;
			move(&u->module->items, to, it);
		}
	}
}

/* Gives all declarations of a dynamic shared array the largest alignment: they name the same bytes.
 */
static void align_dynamic(struct ptx_merge *m)
{
	for (uint32_t i = 0; i < m->n; i++) {
		ptx_each (&m->units[i].module->items, it) {
			const char *name = ptx_merge_item_name(it);
			struct ptx_merge_name *n =
				name ? strmap_get(&m->units[i].names, name) : NULL;

			if (n && n->symbol && !n->symbol->def && is_dynamic(n->symbol->seen)) {
				struct ptx_variable *kept = (struct ptx_variable *)n->symbol->seen;
				struct ptx_variable *v = (struct ptx_variable *)it;

				kept->align = MAX(ptx_variable_align(kept), ptx_variable_align(v));
			}
		}
	}
}

static bool is_dropped_directive(const struct ptx_item *it)
{
	static const char *const words[] = { ".version", ".target",  ".address_size",
					     ".file",	 ".section", ".loc",
					     NULL };

	return ptx_begins_with(((const struct ptx_directive *)it)->text, words);
}

static void move_items(struct ptx_merge_unit *u, struct ptx_list *to, enum ptx_item_kind kind)
{
	struct ptx_item *next;

	for (struct ptx_item *it = u->module->items.first; it; it = next) {
		next = it->next;
		if (it->kind == kind && !is_prototype(it) &&
		    (kind != PTX_DIRECTIVE || !is_dropped_directive(it))) {
			move(&u->module->items, to, it);
		}
	}
}

/* To be called before renaming: is_kept looks names up as modules write them. */
static void drop_others(struct ptx_merge_unit *u)
{
	struct ptx_item *next;

	for (struct ptx_item *it = u->module->items.first; it; it = next) {
		next = it->next;
		if (!is_prototype(it) && !is_kept(u, it)) {
			ptx_list_remove(&u->module->items, it);
		}
	}
}

int ptx_merge_finish(struct ptx_merge *m, struct buf *out)
{
	struct ptx_module merged = { .address_size = 64 };
	int err;

	if (m->n == 0) {
		return report_set(m->report, -EINVAL, "link", "there is nothing to merge");
	}
	align_dynamic(m);
	err = ptx_merge_rename_locals(m) < 0 ? no_memory(m) : 0;
	for (uint32_t i = 0; i < m->n; i++) {
		drop_others(&m->units[i]);
	}
	err = err ? err : append_header(m, &merged.items);
	for (uint32_t i = 0; i < m->n && err == 0; i++) {
		move_prototypes(&m->units[i], &merged.items);
	}
	err = err ? err : visit_all(m);
	err = err ? err : check_undefined(m);
	for (uint32_t i = 0; i < m->n && err == 0; i++) {
		move_items(&m->units[i], &merged.items, PTX_VARIABLE);
	}
	for (uint32_t i = 0; i < m->n && err == 0; i++) {
		move_items(&m->units[i], &merged.items, PTX_FUNCTION);
		move_items(&m->units[i], &merged.items, PTX_DIRECTIVE);
	}
	if (err == 0 && ptx_module_print(&merged, out) < 0) {
		err = no_memory(m);
	}
	return err;
}
