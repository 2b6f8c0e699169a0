/* Opens an object. Each step relies on the checks of the steps before it. */
#include "bpf/load/elf/object.h"

#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/elf/object_int.h"
#include "bpf/load/elf/source_line.h"

int ebpf_obj_name_ok(const char *name, size_t bytes)
{
	size_t n = strnlen(name, bytes);

	return n > 0 && n < bytes &&
	       strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.$") >=
		       n;
}

static void make_printable(char *text, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)text[i];

		text[i] = c < ' ' || c >= 127 ? '?' : text[i];
	}
}

/* Sets the place of the report, and its detail if the source line is known. */
static void set_place(struct ebpf_obj_parse *p, const char *section, uint64_t offset)
{
	struct ebpf_source_line line;
	struct buf source;
	char name[65];

	snprintf(name, sizeof(name), "%s", section);
	make_printable(name, strlen(name));
	if (p->r->message.len || !ebpf_obj_line_at(p, section, offset, &line)) {
		report_place(p->r, "%s section %s+0x%llx", p->o->name, name,
			     (unsigned long long)offset);
		return;
	}
	buf_init(&source);
	ebpf_source_line_place(&line, &source);
	report_place(p->r, "%s section %s+0x%llx (%s)", p->o->name, name,
		     (unsigned long long)offset, buf_text(&source));
	buf_finish(&source);
	ebpf_source_line_show(&line, &p->r->detail);
}

int ebpf_obj_refuse(struct ebpf_obj_parse *p, int err, const char *section, uint64_t offset,
		    const char *fmt, ...)
{
	struct buf text;
	va_list ap;

	buf_init(&text);
	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	make_printable(text.data, text.len);
	if (section) {
		set_place(p, section, offset);
	} else {
		report_place(p->r, "%s", p->o->name);
	}
	report_set(p->r, err, "elf", "%.400s", buf_text(&text));
	buf_finish(&text);
	return err;
}

const char *ebpf_obj_keep_text(struct ebpf_obj_parse *p, const char *fmt, ...)
{
	struct ebpf_obj_text *t;
	char text[400];
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	n = strlen(text);
	t = p->n_texts < OBJ_MAX_POISONS ? malloc(sizeof(*t) + n + 1) : NULL;
	if (!t) {
		return NULL;
	}
	make_printable(text, n);
	memcpy(t->text, text, n + 1);
	t->next = p->texts;
	p->texts = t;
	p->n_texts++;
	return t->text;
}

/* Sets the policy's name: that given in the object, else the file name without folders and
 * ".bpf.o". */
static void set_name(struct ebpf_object *o, const char *name)
{
	const char *slash = strrchr(name, '/'), *dot;

	name = slash ? slash + 1 : name;
	dot = strstr(name, ".bpf.o");
	snprintf(o->name, sizeof(o->name), "%.*s",
		 (int)(dot ? dot - name : (ptrdiff_t)MIN(strlen(name), 64u)), name);
	make_printable(o->name, strlen(o->name));
}

static void free_texts(struct ebpf_obj_text *t)
{
	while (t) {
		struct ebpf_obj_text *next = t->next;

		free(t);
		t = next;
	}
}

void ebpf_obj_finish_parse(struct ebpf_obj_parse *p)
{
	for (uint32_t i = 0; i < p->n_secs; i++) {
		free(p->secs[i].rels);
		free(p->secs[i].lines);
		free(p->secs[i].core);
		free(p->secs[i].func_info);
	}
	for (uint32_t i = 0; i < p->n_map_at; i++) {
		free(p->map_at[i].inner);
	}
	free(p->secs);
	free(p->syms);
	free(p->vars);
	free(p->funcs);
	free(p->tails);
	free(p->externs);
	free_texts(p->texts);
	btf__free(p->here);
	btf__free(p->btf);
}

/* Data that programs borrow from an open object. It does not move when struct ebpf_object is
 * copied. */
struct kept {
	struct btf *btf; /* owns the strings of the lines */
	struct ebpf_obj_text *texts;
	const void *init[EBPF_MAX_MAPS];
};

static int keep(struct ebpf_obj_parse *p)
{
	struct kept *k = calloc(1, sizeof(*k));

	if (!k) {
		ebpf_object_finish(p->o);
		return report_set(p->r, -ENOMEM, "elf", "out of memory");
	}
	k->btf = p->btf;
	p->btf = NULL;
	k->texts = p->texts;
	p->texts = NULL;
	p->o->priv = k;
	for (uint32_t i = 0; i < p->o->n_maps; i++) {
		k->init[i] = p->o->init[i];
	}
	for (uint32_t i = 0; i < p->o->n_progs; i++) {
		p->o->progs[i].init = k->init;
	}
	return 0;
}

const struct btf *ebpf_object_btf(const struct ebpf_object *o)
{
	return o->priv ? ((const struct kept *)o->priv)->btf : NULL;
}

/* Clears the object except for unused programs, which make up most of the struct. */
static void clear(struct ebpf_object *o)
{
	memset(o, 0, offsetof(struct ebpf_object, progs));
	memset(o->progs, 0, o->n_progs * sizeof(o->progs[0]));
	memset(&o->n_progs, 0, sizeof(*o) - offsetof(struct ebpf_object, n_progs));
}

int ebpf_object_open(struct ebpf_object *o, const void *elf, size_t bytes, const char *name,
		     struct report *r)
{
	static int (*const steps[])(struct ebpf_obj_parse *) = {
		ebpf_obj_classify,   ebpf_obj_read_btf,	     ebpf_obj_place_variables,
		ebpf_obj_read_maps,  ebpf_obj_read_data,     ebpf_obj_read_ext,
		ebpf_obj_read_funcs, ebpf_obj_read_externs,  ebpf_obj_read_entries,
		ebpf_obj_read_ops,   ebpf_obj_read_programs,
	};
	struct ebpf_obj_parse p = { .o = o, .r = r };
	int err;

	o->n_progs = 0;
	clear(o);
	set_name(o, name);
	err = ebpf_obj_read_elf(&p, elf, bytes);
	for (size_t i = 0; err == 0 && i < ARRAY_SIZE(steps); i++) {
		err = steps[i](&p);
	}
	if (err) {
		report_set(r, err, "elf", "out of memory");
		ebpf_object_finish(o);
	} else {
		err = keep(&p);
	}
	ebpf_obj_finish_parse(&p);
	return err;
}

void ebpf_object_finish(struct ebpf_object *o)
{
	for (uint32_t i = 0; i < o->n_progs; i++) {
		free(o->progs[i].insns);
		free(o->progs[i].lines);
		free(o->progs[i].tails);
		free(o->progs[i].poisons);
		free(o->progs[i].texts);
	}
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++) {
		free(o->init[i]);
	}
	if (o->priv) {
		btf__free(((struct kept *)o->priv)->btf);
		free_texts(((struct kept *)o->priv)->texts);
		free(o->priv);
	}
	clear(o);
}
