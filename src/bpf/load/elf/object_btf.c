/* Reads the types of an object. The parser of libbpf checks only the shape of the type section, so
 * this file checks every type id and name, and limits every walk over types. */
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/elf/object_int.h"

static int silent(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	return 0;
}

int ebpf_obj_read_btf(struct ebpf_obj_parse *p)
{
	const struct ebpf_obj_section *s = NULL;
	int err;

	for (uint32_t i = 1; i < p->n_secs && !s; i++) {
		if (strcmp(p->secs[i].name, ".BTF") == 0) {
			s = &p->secs[i];
		}
	}
	if (!s || !s->data) {
		report_hint(p->r, "compile with -g");
		return ebpf_obj_refuse(p, -EINVAL, NULL, 0, "no BTF type information");
	}
	if (s->size > OBJ_MAX_BTF_BYTES) {
		return ebpf_obj_refuse(p, -E2BIG, s->name, 0, "%zu bytes of BTF (limit %u)",
				       s->size, OBJ_MAX_BTF_BYTES);
	}
	libbpf_set_print(silent);
	p->btf = btf__new(s->data, (uint32_t)s->size);
	err = p->btf ? 0 : -errno;
	if (err == -ENOMEM) {
		return err;
	}
	if (err) {
		return ebpf_obj_refuse(p, -EINVAL, s->name, 0, "broken BTF (%s)", strerror(-err));
	}
	p->n_types = btf__type_cnt(p->btf);
	return 0;
}

const char *ebpf_obj_btf_name(const struct ebpf_obj_parse *p, uint32_t off)
{
	const char *name = btf__name_by_offset(p->btf, off);

	return name ? name : "";
}

const struct btf_type *ebpf_obj_btf_resolve(const struct ebpf_obj_parse *p, uint32_t id)
{
	for (int depth = 0; depth < 32 && id != 0; depth++) {
		const struct btf_type *t = btf__type_by_id(p->btf, id);

		if (!t || !(btf_is_mod(t) || btf_is_typedef(t))) {
			return t;
		}
		id = t->type;
	}
	return NULL;
}

static int compare_var(const struct ebpf_obj_parse *p, uint32_t symbol, uint32_t section,
		       const char *name)
{
	const Elf64_Sym *s = &p->syms[symbol];

	if (s->st_shndx != section) {
		return s->st_shndx < section ? -1 : 1;
	}
	return strcmp(ebpf_obj_symbol_name(p, s), name);
}

static int var_order(const void *a, const void *b, void *arg)
{
	const struct ebpf_obj_parse *p = arg;
	const Elf64_Sym *other = &p->syms[*(const uint32_t *)b];

	return compare_var(p, *(const uint32_t *)a, other->st_shndx,
			   ebpf_obj_symbol_name(p, other));
}

static int collect_variables(struct ebpf_obj_parse *p)
{
	p->vars = malloc((p->n_syms + 1u) * sizeof(*p->vars));
	if (!p->vars) {
		return -ENOMEM;
	}
	for (uint32_t i = 1; i < p->n_syms; i++) {
		const Elf64_Sym *sym = &p->syms[i];
		enum ebpf_obj_role role =
			ebpf_obj_symbol_defined(sym) ? p->secs[sym->st_shndx].role : OBJ_OTHER;

		if ((role == OBJ_DATA || role == OBJ_MAPS || role == OBJ_OPS) &&
		    ELF64_ST_TYPE(sym->st_info) != STT_SECTION) {
			p->vars[p->n_vars++] = i;
		}
	}
	qsort_r(p->vars, p->n_vars, sizeof(*p->vars), var_order, p);
	return 0;
}

/* Returns the first symbol at or after (section, name) in the sorted order. */
static uint32_t var_from(const struct ebpf_obj_parse *p, uint32_t section, const char *name)
{
	uint32_t lo = 0, hi = p->n_vars;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (compare_var(p, p->vars[mid], section, name) < 0) {
			lo = mid + 1;
		} else {
			hi = mid;
		}
	}
	return lo;
}

/* Finds a static variable of a function, whose symbol is called function.name. */
static const Elf64_Sym *local_variable(const struct ebpf_obj_parse *p, uint32_t section,
				       const char *name)
{
	const Elf64_Sym *found = NULL;
	uint32_t at = var_from(p, section, ""), end = MIN(p->n_vars, at + 256);

	for (; at < end && p->syms[p->vars[at]].st_shndx == section; at++) {
		const Elf64_Sym *sym = &p->syms[p->vars[at]];
		const char *dot = strchr(ebpf_obj_symbol_name(p, sym), '.');

		if (dot && strcmp(dot + 1, name) == 0) {
			if (found) {
				return NULL;
			}
			found = sym;
		}
	}
	return found;
}

const Elf64_Sym *ebpf_obj_variable(const struct ebpf_obj_parse *p, uint32_t section,
				   const char *name)
{
	uint32_t at = var_from(p, section, name);

	if (at < p->n_vars && compare_var(p, p->vars[at], section, name) == 0) {
		return &p->syms[p->vars[at]];
	}
	return local_variable(p, section, name);
}

static int secinfo_order(const void *a, const void *b)
{
	const struct btf_var_secinfo *x = a, *y = b;

	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Sets the offset of a variable from its symbol. Without a symbol it gets size 0 at the end of the
 * section. */
static void place_variable(const struct ebpf_obj_parse *p, uint32_t section, int linked,
			   struct btf_var_secinfo *v)
{
	const struct ebpf_obj_section *s = &p->secs[section];
	const struct btf_type *var = btf__type_by_id(p->btf, v->type);
	const Elf64_Sym *sym =
		var && btf_is_var(var)
			? ebpf_obj_variable(p, section, ebpf_obj_btf_name(p, var->name_off))
			: NULL;

	if (sym) {
		v->offset = (uint32_t)sym->st_value;
	}
	if ((!sym && !linked) || v->offset > s->size || v->size > s->size - v->offset) {
		v->offset = (uint32_t)s->size;
		v->size = 0;
	}
}

static int place_section(struct ebpf_obj_parse *p, uint32_t section, uint32_t id,
			 struct btf_type *t)
{
	struct btf_var_secinfo *v = btf_var_secinfos(t);
	int linked = t->size != 0;

	if (btf_vlen(t) > OBJ_MAX_SYMBOLS - p->n_placed) {
		return ebpf_obj_refuse(p, -E2BIG, ".BTF", 0, "more than %u variables",
				       OBJ_MAX_SYMBOLS);
	}
	p->n_placed += btf_vlen(t);
	for (uint32_t k = 0; k < btf_vlen(t); k++) {
		place_variable(p, section, linked, &v[k]);
	}
	qsort(v, btf_vlen(t), sizeof(*v), secinfo_order);
	t->size = (uint32_t)p->secs[section].size;
	p->secs[section].datasec = id;
	return 0;
}

int ebpf_obj_place_variables(struct ebpf_obj_parse *p)
{
	uint32_t sections = 0;
	int err = collect_variables(p);

	for (uint32_t id = 1; err == 0 && id < p->n_types; id++) {
		/* p->btf is a private, writable copy */
		struct btf_type *t = (struct btf_type *)(uintptr_t)btf__type_by_id(p->btf, id);

		if (!t || !btf_is_datasec(t)) {
			continue;
		}
		if (++sections > OBJ_MAX_DATASECS) {
			return ebpf_obj_refuse(p, -E2BIG, ".BTF", 0, "more than %u data sections",
					       OBJ_MAX_DATASECS);
		}
		for (uint32_t i = 1; i < p->n_secs; i++) {
			const struct ebpf_obj_section *s = &p->secs[i];

			if (s->role >= OBJ_DATA && !s->datasec &&
			    !strcmp(s->name, ebpf_obj_btf_name(p, t->name_off))) {
				err = place_section(p, i, id, t);
				break;
			}
		}
	}
	return err;
}
