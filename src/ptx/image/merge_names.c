/* Names inside modules: those that a body's declarations hide, those that are renamed, those that
 * are used. */
#include "ptx/image/merge_int.h"

#include <errno.h>
#include <string.h>

const char *ptx_merge_item_name(const struct ptx_item *it)
{
	return it->kind == PTX_FUNCTION	  ? ((const struct ptx_function *)it)->name
	       : it->kind == PTX_VARIABLE ? ((const struct ptx_variable *)it)->name
					  : NULL;
}

/* v.x is an element of v. */
static struct ptx_merge_name *find(struct ptx_merge_unit *u, const char *name)
{
	struct ptx_merge_name *n = strmap_get(&u->names, name);
	size_t len = strcspn(name, ".");

	return n || !name[len] ? n : strmap_get_n(&u->names, name, len);
}

static const char *joined(struct ptx_merge_unit *u, const char *name, const char *element)
{
	size_t a = strlen(name), b = strlen(element);
	char *text = ptx_arena_alloc(&u->module->arena, a + b + 1);

	if (!text) {
		u->no_memory = true;
		return name;
	}
	memcpy(text, name, a);
	memcpy(text + a, element, b + 1);
	return text;
}

static void visit_name(struct ptx_merge_unit *u, const char **name)
{
	struct ptx_merge_name *n = *name ? find(u, *name) : NULL;
	const char *element;

	if (!n || n->hidden) {
		return;
	}
	if (n->symbol) {
		n->symbol->used = true;
	}
	if (!n->renamed) {
		return;
	}
	element = strchr(*name, '.');
	*name = element ? joined(u, n->renamed, element) : n->renamed;
}

static void visit_operand(struct ptx_merge_unit *u, struct ptx_operand *o)
{
	visit_name(u, &o->name);
	for (uint32_t i = 0; i < o->n_args; i++) {
		visit_operand(u, &o->args[i]);
	}
}

static void hide(struct ptx_merge_unit *u, const char *name, int by)
{
	struct ptx_merge_name *n = strmap_get(&u->names, name);

	if (n) {
		n->hidden += (unsigned)by;
	}
}

static void hide_list(struct ptx_merge_unit *u, const struct ptx_list *list, int by)
{
	ptx_each (list, it) {
		if (it->kind == PTX_VARIABLE) {
			hide(u, ((struct ptx_variable *)it)->name, by);
		} else if (it->kind == PTX_LABEL) {
			hide(u, ((struct ptx_label *)it)->name, by);
		}
	}
}

/* Recursion is bounded by the parser's limit on scopes. */
static void visit_list(struct ptx_merge_unit *u, struct ptx_list *list)
{
	struct ptx_item *next;

	hide_list(u, list, 1);
	for (struct ptx_item *it = list->first; it; it = next) {
		struct ptx_insn *insn = (struct ptx_insn *)it;
		struct ptx_targets *t = (struct ptx_targets *)it;
		struct ptx_variable *v = (struct ptx_variable *)it;

		next = it->next;
		switch (it->kind) {
		case PTX_INSN:
			for (unsigned i = 0; i < insn->n_operands; i++) {
				visit_operand(u, &insn->operands[i]);
			}
			break;
		case PTX_TARGETS:
			for (uint32_t i = 0; i < t->n; i++) {
				visit_name(u, &t->names[i]);
			}
			break;
		case PTX_VARIABLE:
			if (v->init) {
				visit_operand(u, v->init);
			}
			break;
		case PTX_SCOPE:
			visit_list(u, &((struct ptx_scope *)it)->body);
			break;
		case PTX_DIRECTIVE:
			if (strncmp(((struct ptx_directive *)it)->text, ".loc", 4) == 0) {
				ptx_list_remove(list, it);
			}
			break;
		default:
			break;
		}
	}
	hide_list(u, list, -1);
}

static void hide_params(struct ptx_merge_unit *u, const struct ptx_function *f, int by)
{
	for (uint32_t i = 0; i < f->n_params; i++) {
		hide(u, f->params[i].name, by);
	}
	for (uint32_t i = 0; i < f->n_returns; i++) {
		hide(u, f->returns[i].name, by);
	}
}

void ptx_merge_visit(struct ptx_merge_unit *u, struct ptx_item *it)
{
	const char *own = ptx_merge_item_name(it);
	struct ptx_merge_name *n = own ? strmap_get(&u->names, own) : NULL;

	if (it->kind == PTX_FUNCTION) {
		struct ptx_function *f = (struct ptx_function *)it;

		f->name = n && n->renamed ? n->renamed : f->name;
		hide_params(u, f, 1);
		visit_list(u, &f->body);
		hide_params(u, f, -1);
	} else if (it->kind == PTX_VARIABLE) {
		struct ptx_variable *v = (struct ptx_variable *)it;

		v->name = n && n->renamed ? n->renamed : v->name;
		if (v->init) {
			visit_operand(u, v->init);
		}
	}
}

int ptx_merge_visit_alias(struct ptx_merge_unit *u, struct ptx_directive *d)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789_$%";
	const char *p = d->text + strlen(".alias"), *names[2] = { NULL, NULL };
	struct buf text;

	for (int i = 0; i < 2; i++) {
		size_t len;

		p += strspn(p, " \t\r\n");
		len = strspn(p, letters);
		if (len == 0) {
			return -EINVAL;
		}
		names[i] = ptx_arena_text(&u->module->arena, p, len);
		if (!names[i]) {
			return -ENOMEM;
		}
		p += len;
		p += strspn(p, " \t\r\n");
		if (*p++ != (i ? ';' : ',')) {
			return -EINVAL;
		}
		visit_name(u, &names[i]);
	}
	buf_init(&text);
	buf_printf(&text, ".alias %s, %s;", names[0], names[1]);
	d->text = text.failed ? NULL : ptx_arena_text(&u->module->arena, text.data, text.len);
	buf_finish(&text);
	return d->text ? 0 : -ENOMEM;
}

/* Returns a name that no module uses at its top level; compilers do not use the prefix in bodies. A
 * name may have % as its first character only. */
static const char *free_name(struct ptx_merge *m, const char *name, uint32_t unit)
{
	const char *ret = NULL;
	struct buf text;

	buf_init(&text);
	for (unsigned i = 0; !ret && i < 1000; i++) {
		buf_clear(&text);
		buf_printf(&text, "$__part%u_%u$%s", unit + 1, i, name + strspn(name, "%"));
		if (text.failed) {
			break;
		}
		if (!strmap_get(&m->taken, text.data)) {
			ret = ptx_arena_text(&m->arena, text.data, text.len);
		}
	}
	buf_finish(&text);
	return ret;
}

int ptx_merge_rename_locals(struct ptx_merge *m)
{
	for (uint32_t i = 0; i < m->n; i++) {
		strmap_each (&m->units[i].names, e) {
			struct ptx_merge_name *n = e->value;
			bool first = strmap_get_n(&m->taken, e->key, e->key_len) == n;

			if (n->symbol ||
			    (first && !strmap_get_n(&m->symbols, e->key, e->key_len))) {
				continue;
			}
			n->renamed = free_name(m, e->key, i);
			if (!n->renamed || strmap_add(&m->taken, n->renamed, n) == -ENOMEM) {
				return -ENOMEM;
			}
		}
	}
	return 0;
}
