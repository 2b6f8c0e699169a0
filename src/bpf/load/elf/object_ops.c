/* Reads structs of programs (.struct_ops). A member that points to a function fills a hook; the
 * other members describe the policy. Members are identified by name, not by offset, and unknown
 * members must be zero. */
#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/btf/core.h"
#include "bpf/load/elf/object_int.h"

/* The hook that a member fills; hook NULL: not offered by this version. */
static const struct {
	const char *table;
	const char *member;
	const char *hook;
} members[] = {
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) { "gbpf_ops", #name, #name },
#define GBPF_OPS(table, member, hook) { #table, #member, #hook },
#define GBPF_OPS_LATER(table, member) { #table, #member, NULL },
#include "gbpf/hooks.def"
};

/* A variable whose type is a struct of programs. */
struct ops {
	struct ebpf_obj_parse *p;
	struct ebpf_obj_section *s;
	const char *table; /* name of the table in members[] */
	const char *var;   /* name of the variable */
	const struct btf_type *type;
	uint32_t base;	/* offset in the section */
	uint32_t taken; /* number of relocations used */
};

static int refuse(const struct ops *o, uint32_t off, const char *member, const char *what)
{
	return ebpf_obj_refuse(o->p, -EINVAL, o->s->name, o->base + off, "%s.%s: %s", o->var,
			       member, what);
}

/* Returns the hook of a member, -ENOENT if it is not in members[], or -EOPNOTSUPP if it is not
 * offered. */
static int hook_of(const char *table, const char *member)
{
	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		if (!strcmp(members[i].table, table) && !strcmp(members[i].member, member)) {
			return members[i].hook ? ebpf_obj_hook_by_name(members[i].hook)
					       : -EOPNOTSUPP;
		}
	}
	return -ENOENT;
}

static const char *table_of(const char *type)
{
	size_t n = ebpf_core_essential(type);

	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		if (strlen(members[i].table) == n && !memcmp(members[i].table, type, n)) {
			return members[i].table;
		}
	}
	return NULL;
}

static const Elf64_Rel *reloc_in(const struct ops *o, uint32_t off, uint32_t bytes)
{
	uint32_t i = ebpf_obj_reloc_from(o->s, o->base + off);

	return i < o->s->n_rels && o->s->rels[i].r_offset < (uint64_t)o->base + off + bytes
		       ? &o->s->rels[i]
		       : NULL;
}

static int is_zero(const struct ops *o, uint32_t off, uint32_t bytes)
{
	for (uint32_t i = 0; o->s->data && i < bytes; i++) {
		if (o->s->data[o->base + off + i]) {
			return 0;
		}
	}
	return 1;
}

/* Returns whether bits are zero; for bitfields, which share bytes with other members. */
static int is_zero_bits(const struct ops *o, uint64_t first, uint32_t bits)
{
	for (uint64_t i = first; o->s->data && i < first + bits; i++) {
		if (o->s->data[o->base + i / 8] >> (i % 8) & 1) {
			return 0;
		}
	}
	return 1;
}

/* Checks that the function is in a section allowed for members and belongs to this hook. */
static int check_program(const struct ops *o, uint32_t off, const char *member,
			 const struct ebpf_obj_func *f, int hook)
{
	const struct ebpf_obj_section *s = &o->p->secs[f->section];
	char what[160];

	if (s->code == OBJ_TEXT || s->code == OBJ_FOREIGN) {
		report_hint(o->p->r, "write SEC(\"struct_ops/%s\") before it", member);
		snprintf(what, sizeof(what), "%.64s in section '%.32s' is no program", f->name,
			 s->name);
		return refuse(o, off, member, what);
	}
	if (s->code == OBJ_HOOK || s->code == OBJ_DEVICE) {
		report_hint(o->p->r, "write SEC(\"%s%s\"), or leave it out of the struct",
			    s->code == OBJ_DEVICE ? "struct_ops/" : "?",
			    s->code == OBJ_DEVICE ? member : s->name);
		snprintf(what, sizeof(what), "%.64s fills the hook %s already, by its section",
			 f->name, ebpf_obj_hook_name(s->hook));
		return refuse(o, off, member, what);
	}
	if (s->hook >= 0 && s->hook != hook) {
		snprintf(what, sizeof(what), "%.64s is a program of the hook %s, not of %s",
			 f->name, ebpf_obj_hook_name(s->hook), ebpf_obj_hook_name(hook));
		return refuse(o, off, member, what);
	}
	return 0;
}

static int fill(const struct ops *o, uint32_t off, const char *member, struct ebpf_obj_func *f)
{
	int hook = hook_of(o->table, member);
	char what[200];
	int err;

	if (hook == -EOPNOTSUPP) {
		return refuse(o, off, member, "this gBPF does not offer that hook yet");
	}
	if (hook < 0) {
		snprintf(what, sizeof(what), "this gBPF's struct %s has no such member", o->table);
		return refuse(o, off, member, what);
	}
	err = check_program(o, off, member, f, hook);
	if (err) {
		return err;
	}
	if (o->p->slots[hook].func) {
		snprintf(what, sizeof(what), "the hook %s is filled twice, by %.64s and %.64s",
			 ebpf_obj_hook_name(hook), o->p->slots[hook].func->name, f->name);
		return refuse(o, off, member, what);
	}
	o->p->slots[hook].func = f;
	return 0;
}

static int pointer_member(struct ops *o, uint32_t off, const char *member,
			  const struct btf_type *to)
{
	const Elf64_Rel *r = reloc_in(o, off, 8);
	const Elf64_Sym *sym = r ? &o->p->syms[ELF64_R_SYM(r->r_info)] : NULL;
	struct ebpf_obj_func *f = NULL;

	if (!r) {
		return is_zero(o, off, 8) ? 0 : refuse(o, off, member, "an address by number");
	}
	if (r->r_offset == (uint64_t)o->base + off && ELF64_R_TYPE(r->r_info) == OBJ_R_64_ABS64 &&
	    ebpf_obj_symbol_defined(sym) && o->p->secs[sym->st_shndx].role == OBJ_CODE) {
		uint64_t where = sym->st_value + ebpf_obj_word_at(o->s, r->r_offset);

		f = where % 8 ? NULL : ebpf_obj_func_at(o->p, sym->st_shndx, where / 8);
	}
	if (!f || !to || !btf_is_func_proto(to)) {
		return refuse(o, off, member,
			      "a pointer to something that is no program of this object");
	}
	o->taken++;
	return fill(o, off, member, f);
}

/* Reads a char array member; the text must be printable and terminated. */
static int text_member(const struct ops *o, uint32_t off, const char *member, uint32_t bytes,
		       char *out, size_t cap)
{
	const char *text = o->s->data ? (const char *)o->s->data + o->base + off : "";
	size_t n = strnlen(text, bytes);
	char what[80];

	if (n == 0) {
		return 0;
	}
	if (n == bytes || n >= cap) {
		snprintf(what, sizeof(what), "longer than %zu characters", MIN(cap, bytes) - 1);
		return refuse(o, off, member, what);
	}
	for (size_t i = 0; i < n; i++) {
		if (text[i] < ' ' || text[i] > '~') {
			return refuse(o, off, member, "not a printable text");
		}
	}
	if (!strcmp(member, "name") && !ebpf_obj_name_ok(text, cap)) {
		return refuse(o, off, member,
			      "letters, digits, underscores, dots and dollars are allowed");
	}
	if (*out && (strlen(out) != n || memcmp(out, text, n) != 0)) {
		return refuse(o, off, member, "another struct of programs says something else");
	}
	memcpy(out, text, n);
	out[n] = 0;
	return 0;
}

static int other_member(const struct ops *o, uint32_t off, const char *member,
			const struct btf_type *t, uint32_t bytes)
{
	const struct btf_type *of =
		t && btf_is_array(t) ? ebpf_obj_btf_resolve(o->p, btf_array(t)->type) : NULL;

	if (reloc_in(o, off, bytes)) {
		return refuse(o, off, member, "a pointer where none is known");
	}
	if (of && btf_is_int(of) && of->size == 1 && !strcmp(member, "name")) {
		return text_member(o, off, member, bytes, o->p->ops_name, sizeof(o->p->ops_name));
	}
	if (of && btf_is_int(of) && of->size == 1 && !strcmp(member, "version")) {
		return text_member(o, off, member, bytes, o->p->ops_version,
				   sizeof(o->p->ops_version));
	}
	if (is_zero(o, off, bytes)) {
		return 0;
	}
	return refuse(o, off, member,
		      !strcmp(member, "flags") ? "no flags are known in this version"
					       : "not known in this version, and not zero");
}

static int read_member(struct ops *o, uint32_t i)
{
	const struct btf_member *m = &btf_members(o->type)[i];
	const struct btf_type *t = ebpf_obj_btf_resolve(o->p, m->type);
	uint32_t bits = btf_member_bitfield_size(o->type, i);
	uint64_t first = btf_member_bit_offset(o->type, i);
	int64_t bytes = bits ? (int64_t)((first % 8 + bits + 7) / 8)
			     : btf__resolve_size(o->p->btf, m->type);
	const char *name = ebpf_obj_btf_name(o->p, m->name_off);
	uint32_t off = (uint32_t)(first / 8);

	if (bytes < 0 || off > o->type->size || bytes > o->type->size - off ||
	    (first % 8 && !bits)) {
		return refuse(o, 0, name, "broken BTF");
	}
	if (bits) {
		return is_zero_bits(o, first, bits)
			       ? 0
			       : refuse(o, off, name, "not known in this version, and not zero");
	}
	if (t && btf_is_ptr(t) && bytes == 8) {
		return pointer_member(o, off, name, ebpf_obj_btf_resolve(o->p, t->type));
	}
	return other_member(o, off, name, t, (uint32_t)bytes);
}

static int read_variable(struct ebpf_obj_parse *p, struct ebpf_obj_section *s,
			 const struct btf_var_secinfo *v, uint32_t *taken)
{
	const struct btf_type *var = btf__type_by_id(p->btf, v->type);
	struct ops o = { .p = p, .s = s, .base = v->offset };
	int err = 0;

	o.type = var && btf_is_var(var) ? ebpf_obj_btf_resolve(p, var->type) : NULL;
	o.var = var ? ebpf_obj_btf_name(p, var->name_off) : "?";
	o.table = o.type && btf_is_struct(o.type) ? table_of(ebpf_obj_btf_name(p, o.type->name_off))
						  : NULL;
	if (!o.table) {
		report_hint(
			p->r,
			"known are struct gbpf_ops, gdrv_sched_ops, gdrv_mem_ops, gdev_sched_ops "
			"and gdev_mem_ops");
		return ebpf_obj_refuse(p, -EINVAL, s->name, v->offset,
				       "%s: struct %s is no struct of programs that gBPF knows",
				       o.var,
				       o.type ? ebpf_obj_btf_name(p, o.type->name_off) : "?");
	}
	if (v->size != o.type->size || v->offset > s->size || v->size > s->size - v->offset) {
		return ebpf_obj_refuse(p, -EINVAL, s->name, v->offset,
				       "%s lies outside the section", o.var);
	}
	for (uint32_t i = 0; err == 0 && i < btf_vlen(o.type); i++) {
		err = read_member(&o, i);
	}
	*taken += o.taken;
	return err;
}

static int read_section(struct ebpf_obj_parse *p, struct ebpf_obj_section *s)
{
	const struct btf_type *t = s->datasec ? btf__type_by_id(p->btf, s->datasec) : NULL;
	uint32_t taken = 0;
	int err = 0;

	if (!t) {
		return ebpf_obj_refuse(p, -EINVAL, s->name, 0,
				       "BTF has no description of the structs");
	}
	for (uint32_t i = 0; err == 0 && i < btf_vlen(t); i++) {
		err = read_variable(p, s, &btf_var_secinfos(t)[i], &taken);
	}
	if (err == 0 && taken != s->n_rels) {
		err = ebpf_obj_refuse(p, -EINVAL, s->name, 0, "pointers that belong to no member");
	}
	return err;
}

int ebpf_obj_read_ops(struct ebpf_obj_parse *p)
{
	int err = 0;

	for (uint32_t i = 1; err == 0 && i < p->n_secs; i++) {
		err = p->secs[i].role == OBJ_OPS ? read_section(p, &p->secs[i]) : 0;
	}
	if (err == 0 && p->ops_name[0]) {
		memcpy(p->o->name, p->ops_name, sizeof(p->o->name));
	}
	if (err == 0 && p->ops_version[0]) {
		memcpy(p->o->version, p->ops_version, sizeof(p->o->version));
	}
	return err;
}
