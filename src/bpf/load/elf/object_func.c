/* Reads the functions of an object: their positions, and the context type of their first parameter.
 */
#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/btf/core.h"
#include "bpf/load/elf/object_int.h"

static int func_order(const void *a, const void *b)
{
	const struct ebpf_obj_func *x = a, *y = b;

	if (x->section != y->section) {
		return x->section < y->section ? -1 : 1;
	}
	return x->start < y->start ? -1 : x->start > y->start;
}

static uint32_t func_type(const struct ebpf_obj_section *s, uint64_t off)
{
	uint32_t lo = 0, hi = s->n_func_info;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (s->func_info[mid].off < off) {
			lo = mid + 1;
		} else {
			hi = mid;
		}
	}
	return lo < s->n_func_info && s->func_info[lo].off == off ? s->func_info[lo].type : 0;
}

static int add_func(struct ebpf_obj_parse *p, const Elf64_Sym *sym)
{
	const struct ebpf_obj_section *s = &p->secs[sym->st_shndx];
	const char *name = ebpf_obj_symbol_name(p, sym);

	if (s->role != OBJ_CODE) {
		return ebpf_obj_refuse(p, -EINVAL, s->name, sym->st_value,
				       "function %s is not in a code section", name);
	}
	if (!ebpf_obj_name_ok(name, sizeof(p->o->progs[0].name))) {
		return ebpf_obj_refuse(
			p, -EINVAL, s->name, sym->st_value,
			"function name '%.64s': 1 to %zu letters, digits, underscores "
			"and dots are allowed",
			name, sizeof(p->o->progs[0].name) - 1);
	}
	if (sym->st_value % 8 || sym->st_size % 8 || sym->st_size == 0) {
		return ebpf_obj_refuse(p, -EINVAL, s->name, sym->st_value,
				       "function %s (%llu bytes) is not made of whole instructions",
				       name, (unsigned long long)sym->st_size);
	}
	if (p->n_funcs == OBJ_MAX_FUNCS) {
		return ebpf_obj_refuse(p, -E2BIG, s->name, 0, "more than %u functions",
				       OBJ_MAX_FUNCS);
	}
	p->funcs[p->n_funcs++] = (struct ebpf_obj_func){
		.name = name,
		.section = sym->st_shndx,
		.start = (uint32_t)(sym->st_value / 8),
		.n = (uint32_t)(sym->st_size / 8),
		.btf = func_type(s, sym->st_value),
		.global = ELF64_ST_BIND(sym->st_info) != STB_LOCAL,
	};
	return 0;
}

static int check_overlaps(struct ebpf_obj_parse *p)
{
	for (uint32_t i = 1; i < p->n_funcs; i++) {
		const struct ebpf_obj_func *a = &p->funcs[i - 1], *b = &p->funcs[i];

		if (a->section == b->section && a->start + a->n > b->start) {
			return ebpf_obj_refuse(p, -EINVAL, p->secs[b->section].name,
					       b->start * 8ull, "functions %s and %s overlap",
					       a->name, b->name);
		}
	}
	return 0;
}

int ebpf_obj_read_funcs(struct ebpf_obj_parse *p)
{
	int err = 0;

	p->funcs = calloc(OBJ_MAX_FUNCS, sizeof(*p->funcs));
	if (!p->funcs) {
		return -ENOMEM;
	}
	for (uint32_t i = 1; err == 0 && i < p->n_syms; i++) {
		const Elf64_Sym *sym = &p->syms[i];

		if (ELF64_ST_TYPE(sym->st_info) == STT_FUNC && ebpf_obj_symbol_defined(sym)) {
			err = add_func(p, sym);
		}
	}
	if (err == 0) {
		qsort(p->funcs, p->n_funcs, sizeof(*p->funcs), func_order);
		err = check_overlaps(p);
	}
	return err;
}

struct ebpf_obj_func *ebpf_obj_func_at(const struct ebpf_obj_parse *p, uint32_t section,
				       uint64_t start)
{
	struct ebpf_obj_func key = { .section = section, .start = (uint32_t)start };

	if (start > UINT32_MAX) {
		return NULL;
	}
	return bsearch(&key, p->funcs, p->n_funcs, sizeof(key), func_order);
}

/* Returns the name of the struct that the first parameter points to, or NULL. */
static const char *context_of(const struct ebpf_obj_parse *p, const struct ebpf_obj_func *f)
{
	const struct btf_type *t = f->btf ? btf__type_by_id(p->btf, f->btf) : NULL;

	t = t && btf_is_func(t) ? ebpf_obj_btf_resolve(p, t->type) : NULL;
	if (!t || !btf_is_func_proto(t) || btf_vlen(t) == 0) {
		return NULL;
	}
	t = ebpf_obj_btf_resolve(p, btf_params(t)[0].type);
	t = t && btf_is_ptr(t) ? ebpf_obj_btf_resolve(p, t->type) : NULL;
	return t && (btf_is_struct(t) || btf_is_fwd(t)) ? ebpf_obj_btf_name(p, t->name_off) : NULL;
}

int ebpf_obj_check_context(struct ebpf_obj_parse *p, const struct ebpf_obj_func *f, int hook)
{
	const char *have = context_of(p, f);
	char want[64];
	size_t n = have ? ebpf_core_essential(have) : 0;

	snprintf(want, sizeof(want), "gbpf_%s_ctx", ebpf_obj_hook_name(hook));
	if (!have || strncmp(have, "gbpf_", 5) != 0 ||
	    (strlen(want) == n && !memcmp(want, have, n))) {
		return 0;
	}
	report_hint(p->r, "its parameter is a struct %s *", want);
	return ebpf_obj_refuse(p, -EINVAL, p->secs[f->section].name, f->start * 8ull,
			       "%s is a program of the hook %s, but takes a struct %s", f->name,
			       ebpf_obj_hook_name(hook), have);
}
