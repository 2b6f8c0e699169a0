/* Functions that an object declares but does not define: the helpers of gBPF, matched by name. A
 * weak function that this gBPF does not offer has address 0; any other unknown function is refused
 * where it is used. */
#include <bpf/btf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"
#include "bpf/load/elf/object_int.h"

enum arg { NONE, ANY_ARG };
#define SCALAR ANY_ARG
#define CONST_MAP ANY_ARG
#define MAP_KEY ANY_ARG
#define MAP_VALUE ANY_ARG
#define MAP_OUT ANY_ARG
#define MEM ANY_ARG
#define MEM_UNINIT ANY_ARG
#define SIZE ANY_ARG
#define SIZE_OR_ZERO ANY_ARG
#define CONST_SIZE ANY_ARG
#define CTX ANY_ARG
#define FUNC ANY_ARG
#define ANY ANY_ARG
#define RECORD ANY_ARG
#define ITER_NEW ANY_ARG
#define ITER ANY_ARG
#define ITER_END ANY_ARG
#define LOCK ANY_ARG
#define OUT64 ANY_ARG
#define CONST ANY_ARG
#define PRINTED ANY_ARG
#define TEXT ANY_ARG

static const struct {
	int32_t id;
	int params;
	const char *name;
} helpers[] = {
#define GBPF_HELPER(id, name, type, params, ret, a1, a2, a3, a4, a5, sides, cost, doc)             \
	{ id, (a1 != NONE) + (a2 != NONE) + (a3 != NONE) + (a4 != NONE) + (a5 != NONE), #name },
#include "gbpf/hooks.def"
};

static int find_helper(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(helpers); i++) {
		if (strcmp(helpers[i].name, name) == 0) {
			return (int)i;
		}
	}
	return -ENOENT;
}

static int name_order(const void *a, const void *b)
{
	return strcmp(((const struct ebpf_obj_extern *)a)->name,
		      ((const struct ebpf_obj_extern *)b)->name);
}

static int symbol_order(const void *a, const void *b)
{
	uint32_t x = ((const struct ebpf_obj_extern *)a)->symbol;
	uint32_t y = ((const struct ebpf_obj_extern *)b)->symbol;

	return x < y ? -1 : x > y;
}

/* Finds an extern by name. Requires the table to be sorted by name. */
static struct ebpf_obj_extern *by_name(struct ebpf_obj_parse *p, const char *name)
{
	struct ebpf_obj_extern key = { .name = name };

	return bsearch(&key, p->externs, p->n_externs, sizeof(key), name_order);
}

static int collect(struct ebpf_obj_parse *p)
{
	for (uint32_t i = 1; i < p->n_syms; i++) {
		const Elf64_Sym *sym = &p->syms[i];
		const char *name = ebpf_obj_symbol_name(p, sym);

		if (sym->st_shndx != SHN_UNDEF || ELF64_ST_TYPE(sym->st_info) == STT_SECTION ||
		    ELF64_ST_TYPE(sym->st_info) == STT_FILE || !*name) {
			continue;
		}
		if (p->n_externs == OBJ_MAX_EXTERNS) {
			return ebpf_obj_refuse(p, -E2BIG, ".symtab", 0, "more than %u externs",
					       OBJ_MAX_EXTERNS);
		}
		if (!p->externs) {
			p->externs = calloc(OBJ_MAX_EXTERNS, sizeof(*p->externs));
			if (!p->externs) {
				return -ENOMEM;
			}
		}
		p->externs[p->n_externs++] =
			(struct ebpf_obj_extern){ .symbol = i,
						  .name = name,
						  .weak = ELF64_ST_BIND(sym->st_info) == STB_WEAK,
						  .params = -1,
						  .section = "" };
	}
	return 0;
}

static bool is_variadic(const struct btf_type *proto)
{
	unsigned n = btf_vlen(proto);

	return n && !btf_params(proto)[n - 1].type && !btf_params(proto)[n - 1].name_off;
}

/* Reads the BTF of an extern: the number of parameters of a function, or a variable. */
static void describe(struct ebpf_obj_parse *p, const struct btf_type *t)
{
	struct ebpf_obj_extern *x;
	const struct btf_type *proto;

	if (!t || (!btf_is_func(t) && !btf_is_var(t))) {
		return;
	}
	x = by_name(p, ebpf_obj_btf_name(p, t->name_off));
	if (!x) {
		return;
	}
	x->in_btf = 1;
	x->is_var = btf_is_var(t);
	proto = btf_is_func(t) ? ebpf_obj_btf_resolve(p, t->type) : NULL;
	x->params = proto && btf_is_func_proto(proto) && !is_variadic(proto) ? (int)btf_vlen(proto)
									     : -1;
}

/* .ksyms and .kconfig exist in BTF only. */
static void describe_section(struct ebpf_obj_parse *p, const struct btf_type *sec)
{
	const char *name = ebpf_obj_btf_name(p, sec->name_off);
	int known = !strcmp(name, ".kconfig") || !strcmp(name, ".ksyms");

	for (uint32_t i = 0; known && i < btf_vlen(sec); i++) {
		const struct btf_type *t = btf__type_by_id(p->btf, btf_var_secinfos(sec)[i].type);
		struct ebpf_obj_extern *x = t && (btf_is_var(t) || btf_is_func(t))
						    ? by_name(p, ebpf_obj_btf_name(p, t->name_off))
						    : NULL;

		if (x) {
			x->section = name;
		}
	}
}

static int decide(struct ebpf_obj_parse *p, struct ebpf_obj_extern *x)
{
	int k = x->is_var ? -ENOENT : find_helper(x->name);

	if (k < 0) {
		x->kind = x->weak && strcmp(x->section, ".kconfig") != 0 ? OBJ_EXTERN_ABSENT
									 : OBJ_EXTERN_WRONG;
		return 0;
	}
	if (x->params >= 0 && x->params != helpers[k].params) {
		return ebpf_obj_refuse(p, -EINVAL, ".ksyms", 0,
				       "extern %s is declared with %d parameters, gBPF's has %d",
				       x->name, x->params, helpers[k].params);
	}
	x->kind = OBJ_EXTERN_HELPER;
	x->helper = helpers[k].id;
	return 0;
}

int ebpf_obj_read_externs(struct ebpf_obj_parse *p)
{
	int err = collect(p);

	if (err || !p->n_externs) {
		return err;
	}
	qsort(p->externs, p->n_externs, sizeof(*p->externs), name_order);
	for (uint32_t id = 1; id < p->n_types; id++) {
		const struct btf_type *t = btf__type_by_id(p->btf, id);

		describe(p, t);
		if (t && btf_is_datasec(t)) {
			describe_section(p, t);
		}
	}
	for (uint32_t i = 0; err == 0 && i < p->n_externs; i++) {
		err = decide(p, &p->externs[i]);
	}
	qsort(p->externs, p->n_externs, sizeof(*p->externs), symbol_order);
	return err;
}

/* Sets the hint of an unknown function: the helper that was perhaps meant. */
static void hint_helper(struct ebpf_obj_parse *p, const char *name)
{
	struct nearest n;

	nearest_init(&n, name);
	for (size_t i = 0; i < ARRAY_SIZE(helpers); i++) {
		nearest_offer(&n, helpers[i].name);
	}
	if (nearest_best(&n)) {
		report_hint(p->r, "did you mean %s?", nearest_best(&n));
	} else {
		report_hint(p->r,
			    "define it in one of the policy's objects; a function that only some "
			    "versions of gBPF have is declared __weak");
	}
}

static int refuse_extern(struct ebpf_obj_parse *p, const char *section, uint64_t off,
			 const struct ebpf_obj_extern *x)
{
	if (!strcmp(x->section, ".kconfig")) {
		report_hint(p->r,
			    "gBPF has no kernel configuration; make it a const volatile variable");
		return ebpf_obj_refuse(p, -EINVAL, section, off,
				       "%s is a value of .kconfig, which is not supported",
				       x->name);
	}
	if (x->is_var) {
		report_hint(p->r, "define %s in one of the policy's objects", x->name);
		return ebpf_obj_refuse(p, -EINVAL, section, off, "variable %s is extern", x->name);
	}
	hint_helper(p, x->name);
	return ebpf_obj_refuse(p, -EINVAL, section, off,
			       "%s is extern, and gBPF has no helper of that name", x->name);
}

const struct ebpf_obj_extern *ebpf_obj_extern_of(struct ebpf_obj_parse *p, const char *section,
						 uint64_t off, const Elf64_Sym *sym)
{
	struct ebpf_obj_extern key = { .symbol = (uint32_t)(sym - p->syms) };
	const struct ebpf_obj_extern *x = NULL;

	if (p->n_externs) {
		x = bsearch(&key, p->externs, p->n_externs, sizeof(key), symbol_order);
	}
	if (!x) {
		ebpf_obj_refuse(p, -EINVAL, section, off, "a relocation against no symbol");
		return NULL;
	}
	if (x->kind == OBJ_EXTERN_WRONG) {
		refuse_extern(p, section, off, x);
		return NULL;
	}
	return x;
}
