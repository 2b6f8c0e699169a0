/* Structural comparison of types. Walks are bounded in depth and in number, because types of a
 * broken or hostile object may refer to each other in any way. */
#include "bpf/load/btf/btf_equal.h"

#include <bpf/btf.h>
#include <errno.h>
#include <string.h>

#include "base/compiler.h"

#define MAX_DEPTH 24
#define MAX_VISITS 20000u

struct walk {
	const struct btf *a, *b;
	unsigned visits;
};

/* Returns the type after typedefs and qualifiers; NULL for void and broken types. */
static const struct btf_type *resolve(const struct btf *btf, uint32_t id)
{
	for (int depth = 0; depth < 32 && id; depth++) {
		const struct btf_type *t = btf__type_by_id(btf, id);

		if (!t || !(btf_is_mod(t) || btf_is_typedef(t))) {
			return t;
		}
		id = t->type;
	}
	return NULL;
}

static const char *name_of(const struct btf *btf, uint32_t off)
{
	const char *name = btf__name_by_offset(btf, off);

	return name ? name : "";
}

static int equal(struct walk *w, uint32_t ia, uint32_t ib, int depth);

static int names_equal(struct walk *w, const struct btf_member *a, const struct btf_member *b)
{
	const char *name = name_of(w->a, a->name_off);

	w->visits += (unsigned)(strlen(name) / 64); /* names may be megabytes long */
	return strcmp(name, name_of(w->b, b->name_off)) == 0;
}

static int members_equal(struct walk *w, const struct btf_type *a, const struct btf_type *b,
			 int depth)
{
	if (btf_vlen(a) != btf_vlen(b) || btf_kflag(a) != btf_kflag(b)) {
		return 0;
	}
	for (uint32_t i = 0; i < btf_vlen(a); i++) {
		const struct btf_member *ma = &btf_members(a)[i], *mb = &btf_members(b)[i];

		if (ma->offset != mb->offset || !names_equal(w, ma, mb) ||
		    !equal(w, ma->type, mb->type, depth + 1)) {
			return 0;
		}
	}
	return 1;
}

static int equal(struct walk *w, uint32_t ia, uint32_t ib, int depth)
{
	const struct btf_type *a = resolve(w->a, ia), *b = resolve(w->b, ib);

	if (depth > MAX_DEPTH || ++w->visits > MAX_VISITS || !a || !b ||
	    btf_kind(a) != btf_kind(b)) {
		return 0;
	}
	switch (btf_kind(a)) {
	case BTF_KIND_INT:
		return a->size == b->size &&
		       *(const uint32_t *)(a + 1) == *(const uint32_t *)(b + 1);
	case BTF_KIND_ENUM:
	case BTF_KIND_ENUM64:
	case BTF_KIND_FLOAT:
		return a->size == b->size && btf_kflag(a) == btf_kflag(b);
	case BTF_KIND_PTR:
		return 1; /* 8 bytes for any target type */
	case BTF_KIND_ARRAY:
		return btf_array(a)->nelems == btf_array(b)->nelems &&
		       equal(w, btf_array(a)->type, btf_array(b)->type, depth + 1);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return a->size == b->size && members_equal(w, a, b, depth);
	default:
		return 0; /* no bytes in a value */
	}
}

int ebpf_types_equal_within(const struct btf *a, uint32_t type_a, const struct btf *b,
			    uint32_t type_b, unsigned *visits)
{
	struct walk w = { a, b, MAX_VISITS - MIN(*visits, MAX_VISITS) };
	unsigned before = w.visits;
	int same;

	if (!type_a || !type_b) {
		return type_a == type_b;
	}
	same = a && b && equal(&w, type_a, type_b, 0);
	*visits -= MIN(*visits, w.visits - before);
	return same;
}

int ebpf_types_equal(const struct btf *a, uint32_t type_a, const struct btf *b, uint32_t type_b)
{
	unsigned visits = MAX_VISITS;

	return ebpf_types_equal_within(a, type_a, b, type_b, &visits);
}

int ebpf_variable_at(const struct btf *btf, uint32_t section, uint32_t section_bytes, uint32_t i,
		     struct ebpf_variable *ret)
{
	const struct btf_type *t = btf && section ? btf__type_by_id(btf, section) : NULL, *var;
	const struct btf_var_secinfo *at;
	int64_t size;

	if (!t || !btf_is_datasec(t)) {
		return -EINVAL;
	}
	if (i >= btf_vlen(t)) {
		return -ENOENT;
	}
	at = &btf_var_secinfos(t)[i];
	var = btf__type_by_id(btf, at->type);
	size = var && btf_is_var(var) ? btf__resolve_size(btf, var->type) : -1;
	if (size <= 0 || size > section_bytes || at->offset > section_bytes - size) {
		return -EINVAL;
	}
	*ret = (struct ebpf_variable){ name_of(btf, var->name_off), var->type, at->offset,
				       (uint32_t)size };
	return 0;
}
