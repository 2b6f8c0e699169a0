/* Opening an object: what each section is for, then maps, lines and programs, in an order in which
 * each step can rely on the one before. */
#include "bpf/load/object.h"

#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/object_int.h"

static const struct {
	int id;
	const char *name;
} hooks[] = {
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) { id, #name },
#include "gbpf/hooks.def"
};

int obj_hook_by_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(hooks); i++) {
		if (strcmp(hooks[i].name, name) == 0) {
			return hooks[i].id;
		}
	}
	return -ENOENT;
}

const char *obj_hook_name(int hook)
{
	for (size_t i = 0; i < ARRAY_SIZE(hooks); i++) {
		if (hooks[i].id == hook) {
			return hooks[i].name;
		}
	}
	return "?";
}

void obj_hook_names(struct buf *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(hooks); i++) {
		buf_printf(out, "%s%s", i ? ", " : "", hooks[i].name);
	}
}

int obj_name_ok(const char *name, size_t bytes)
{
	size_t n = strnlen(name, bytes);

	return n > 0 && n < bytes &&
	       strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.$") >=
		       n;
}

int obj_refuse(struct obj_parse *p, int err, const char *section, uint64_t offset, const char *fmt,
	       ...)
{
	struct buf text;
	va_list ap;

	buf_init(&text);
	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	for (size_t i = 0; i < text.len; i++) {
		text.data[i] = (unsigned char)text.data[i] < ' ' || text.data[i] == 127
				       ? '?'
				       : text.data[i];
	}
	if (section) {
		report_place(p->r, "%s section %.64s+0x%llx", p->o->name, section,
			     (unsigned long long)offset);
	} else {
		report_place(p->r, "%s", p->o->name);
	}
	report_set(p->r, err, "elf", "%.400s", buf_text(&text));
	buf_finish(&text);
	return err;
}

static int hook_section(struct obj_parse *p, struct obj_section *s)
{
	s->hook = obj_hook_by_name(s->name + strlen("gbpf/"));
	if (s->hook < 0) {
		struct buf names;

		buf_init(&names);
		obj_hook_names(&names);
		report_hint(p->r, "hooks: %s", buf_text(&names));
		buf_finish(&names);
		return obj_refuse(p, -EINVAL, s->name, 0, "there is no hook '%s'",
				  s->name + strlen("gbpf/"));
	}
	return 0;
}

static int code_section(struct obj_parse *p, struct obj_section *s)
{
	s->role = OBJ_CODE;
	if (s->size % 8 || !s->data) {
		return obj_refuse(p, -EINVAL, s->name, 0, "%zu bytes are not whole instructions",
				  s->size);
	}
	if (s->size / 8 > EBPF_MAX_INSNS) {
		return obj_refuse(p, -E2BIG, s->name, 0, "%zu instructions (limit %u)", s->size / 8,
				  EBPF_MAX_INSNS);
	}
	if (strncmp(s->name, "gbpf/", 5) == 0) {
		return hook_section(p, s);
	}
	if (strncmp(s->name, ".text", 5) != 0) {
		report_hint(p->r, "write SEC(\"gbpf/<hook>\"); subprograms need no SEC");
		return obj_refuse(p, -EINVAL, s->name, 0, "programs of type '%s' are not gBPF's",
				  s->name);
	}
	return 0;
}

static int is_data_name(const char *name)
{
	static const char *const plain[] = { ".data", ".bss", ".rodata", ".data.tenant",
					     ".bss.tenant" };

	for (size_t i = 0; i < ARRAY_SIZE(plain); i++) {
		if (strcmp(name, plain[i]) == 0) {
			return 1;
		}
	}
	return strncmp(name, ".rodata.", 8) == 0;
}

static int license_section(struct obj_parse *p, const struct obj_section *s)
{
	size_t n = s->data ? strnlen((const char *)s->data, s->size) : 0;

	if (n == s->size || n >= sizeof(p->o->license)) {
		return obj_refuse(p, -EINVAL, s->name, 0,
				  "not a zero-terminated text of at most %zu bytes",
				  sizeof(p->o->license) - 1);
	}
	memcpy(p->o->license, s->data, n);
	return 0;
}

static int classify(struct obj_parse *p, struct obj_section *s)
{
	if (!(s->flags & SHF_ALLOC) || s->size == 0) {
		return 0;
	}
	if (s->flags & SHF_EXECINSTR) {
		return code_section(p, s);
	}
	if (strcmp(s->name, ".maps") == 0) {
		s->role = OBJ_MAPS;
		return 0;
	}
	if (strcmp(s->name, "license") == 0) {
		return license_section(p, s);
	}
	if (is_data_name(s->name)) {
		s->role = OBJ_DATA;
		return 0;
	}
	if (strncmp(s->name, ".eh_frame", 9) == 0 || strcmp(s->name, "version") == 0) {
		return 0;
	}
	if (strncmp(s->name, ".struct_ops", 11) == 0) {
		report_hint(p->r, "write one SEC(\"gbpf/<hook>\") function per hook");
		return obj_refuse(p, -EINVAL, s->name, 0,
				  "struct_ops is not supported by this version");
	}
	report_hint(p->r,
		    "known are .maps, .data, .bss, .rodata, .data.tenant, .bss.tenant and license");
	return obj_refuse(p, -EINVAL, s->name, 0,
			  "data section '%s' is not supported by this version", s->name);
}

/* The policy's name is the file's, without folders and ".bpf.o". */
static void set_name(struct ebpf_object *o, const char *name)
{
	const char *slash = strrchr(name, '/'), *dot;

	name = slash ? slash + 1 : name;
	dot = strstr(name, ".bpf.o");
	snprintf(o->name, sizeof(o->name), "%.*s",
		 (int)(dot ? dot - name : (ptrdiff_t)MIN(strlen(name), 64u)), name);
}

static void finish_parse(struct obj_parse *p)
{
	for (uint32_t i = 0; i < p->n_secs; i++) {
		free((void *)p->secs[i].rels);
		free(p->secs[i].lines);
	}
	free(p->secs);
	free(p->syms);
	free(p->funcs);
	if (p->elf) {
		elf_end(p->elf);
	}
	free(p->copy);
	btf__free(p->btf);
}

/* What programs borrow from an open object. It does not move when the object's struct is copied. */
struct kept {
	struct btf *btf; /* its strings are the lines' */
	const void *init[EBPF_MAX_MAPS];
};

static int keep(struct obj_parse *p)
{
	struct kept *k = calloc(1, sizeof(*k));

	if (!k) {
		ebpf_object_finish(p->o);
		return report_set(p->r, -ENOMEM, "elf", "out of memory");
	}
	k->btf = p->btf;
	p->btf = NULL;
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

int ebpf_object_open(struct ebpf_object *o, const void *elf, size_t bytes, const char *name,
		     struct report *r)
{
	struct obj_parse p = { .o = o, .r = r };
	int err;

	memset(o, 0, sizeof(*o));
	set_name(o, name);
	err = obj_read_elf(&p, elf, bytes);
	for (uint32_t i = 1; err == 0 && i < p.n_secs; i++) {
		err = classify(&p, &p.secs[i]);
	}
	err = err ? err : obj_read_btf(&p);
	err = err ? err : obj_read_maps(&p);
	err = err ? err : obj_read_lines(&p);
	err = err ? err : obj_read_programs(&p);
	if (err) {
		report_set(r, err, "elf", "out of memory");
		ebpf_object_finish(o);
	} else {
		err = keep(&p);
	}
	finish_parse(&p);
	return err;
}

void ebpf_object_finish(struct ebpf_object *o)
{
	for (uint32_t i = 0; i < o->n_progs; i++) {
		free(o->progs[i].insns);
		free(o->progs[i].lines);
		free(o->progs[i].tails);
	}
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++) {
		free(o->init[i]);
	}
	if (o->priv) {
		btf__free(((struct kept *)o->priv)->btf);
		free(o->priv);
	}
	memset(o, 0, sizeof(*o));
}
