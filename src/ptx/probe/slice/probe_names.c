/* Names of a module: what they mean at the top level, where a body hides them, and a prefix that
 * none of them has. */
#include "ptx/probe/slice/probe_slice.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ptx/stem.h"

#define STEM "probe"

static struct ptx_probe_name *add_name(struct ptx_probe_slice *p, const char *text)
{
	struct ptx_probe_name *n = strmap_get(&p->names, text);

	if (n) {
		return n;
	}
	n = ptx_arena_alloc(p->arena, sizeof(*n));
	if (!n || strmap_add(&p->names, text, n) < 0) {
		return NULL;
	}
	n->name = text;
	n->place = PTX_PROBE_NO_PLACE;
	return n;
}

static int twice(struct ptx_probe_slice *p, const char *name, uint32_t line)
{
	report_place(p->report, "%s:%u", p->m->name, line);
	return report_set(p->report, -ENOTSUP, "probe", "%s is defined twice", name);
}

static int add_function(struct ptx_probe_slice *p, struct ptx_function *f)
{
	struct ptx_probe_name *n = add_name(p, f->name);

	if (!n) {
		return -ENOMEM;
	}
	if (n->v || (n->f && n->f->has_body && f->has_body)) {
		return twice(p, f->name, f->item.line);
	}
	n->f = f->has_body || !n->f ? f : n->f;
	return 0;
}

static int add_variable(struct ptx_probe_slice *p, struct ptx_variable *v)
{
	struct ptx_probe_name *n = add_name(p, v->name);

	if (!n) {
		return -ENOMEM;
	}
	if (n->f ||
	    (n->v && strcmp(n->v->linkage, ".extern") != 0 && strcmp(v->linkage, ".extern") != 0)) {
		return twice(p, v->name, v->item.line);
	}
	n->v = !n->v || strcmp(v->linkage, ".extern") != 0 ? v : n->v;
	return 0;
}

/* ".alias name, other;" */
static void note_alias(struct ptx_probe_slice *p, const char *text)
{
	const char *at = text + strlen(".alias");
	struct ptx_probe_name *n;

	at += strspn(at, " \t\r\n");
	n = strmap_get_n(&p->names, at, strcspn(at, " \t\r\n,;"));
	if (n) {
		n->alias = true;
	}
}

static int choose_stem(struct ptx_probe_slice *p)
{
	uint32_t n = ptx_stem_number(&p->m->items, STEM);
	struct buf text;

	ptx_probe_each (p->read, g) {
		n = MAX(n, ptx_stem_number(&g->module->items, STEM));
	}
	if (n > PTX_STEM_MAX) {
		return ptx_probe_refuse(p, 0, "names take all numbers behind \"%s\"", STEM);
	}
	buf_init(&text);
	buf_printf(&text, STEM "%u_", n);
	p->stem = text.failed ? NULL : ptx_arena_text(p->arena, text.data, text.len);
	buf_finish(&text);
	return p->stem ? 0 : -ENOMEM;
}

/* ".file 1 "name" ..." */
static int note_file(struct ptx_probe_slice *p, const char *text)
{
	const char *at = text + strlen(".file");
	size_t len;
	int err;

	at += strspn(at, " \t");
	len = strspn(at, "0123456789");
	err = len ? strmap_add_n(&p->files, at, len, unqual(at + len)) : 0;
	return err == -EEXIST ? 0 : err;
}

int ptx_probe_collect(struct ptx_probe_slice *p)
{
	int err = 0;

	strmap_init(&p->names);
	strmap_init(&p->files);
	for (struct ptx_item *it = p->m->items.first; it && err == 0; it = it->next) {
		if (it->kind == PTX_FUNCTION) {
			err = add_function(p, (struct ptx_function *)it);
		} else if (it->kind == PTX_VARIABLE) {
			err = add_variable(p, (struct ptx_variable *)it);
		}
	}
	ptx_each (&p->m->items, it) {
		const struct ptx_directive *d = (const struct ptx_directive *)it;

		if (it->kind == PTX_DIRECTIVE && strncmp(d->text, ".alias", 6) == 0) {
			note_alias(p, d->text);
		} else if (it->kind == PTX_DIRECTIVE && strncmp(d->text, ".file", 5) == 0) {
			err = err ? err : note_file(p, d->text);
		}
	}
	return err ? err : choose_stem(p);
}

void ptx_probe_names_finish(struct ptx_probe_slice *p)
{
	strmap_finish(&p->names);
	strmap_finish(&p->files);
}

struct ptx_probe_name *ptx_probe_find(const struct ptx_probe_slice *p, const char *name)
{
	struct ptx_probe_name *n = strmap_get(&p->names, name);

	return n && !n->hidden ? n : NULL;
}

static void hide(const struct ptx_probe_slice *p, const char *name, int by)
{
	struct ptx_probe_name *n = strmap_get(&p->names, name);

	if (n) {
		n->hidden += (unsigned)by;
	}
}

void ptx_probe_hide_list(const struct ptx_probe_slice *p, const struct ptx_list *list, int by)
{
	ptx_each (list, it) {
		if (it->kind == PTX_VARIABLE) {
			hide(p, ((struct ptx_variable *)it)->name, by);
		} else if (it->kind == PTX_LABEL) {
			hide(p, ((struct ptx_label *)it)->name, by);
		}
	}
}

void ptx_probe_hide_params(const struct ptx_probe_slice *p, const struct ptx_function *f, int by)
{
	for (uint32_t i = 0; i < f->n_params; i++) {
		hide(p, f->params[i].name, by);
	}
	for (uint32_t i = 0; i < f->n_returns; i++) {
		hide(p, f->returns[i].name, by);
	}
}

const char *ptx_probe_file_name(const struct ptx_probe_slice *p, uint32_t n, size_t *ret_len)
{
	char key[16];
	const char *name, *end;

	snprintf(key, sizeof(key), "%u", n);
	name = p ? strmap_get(&p->files, key) : NULL;
	name = name ? strchr(name, '"') : NULL;
	end = name ? strchr(name + 1, '"') : NULL;
	*ret_len = end ? (size_t)(end - name - 1) : 0;
	return end ? name + 1 : NULL;
}
