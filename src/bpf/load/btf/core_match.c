/* Paths through types: parses them from an access string ("0:2:1") and finds them by name in other
 * types, even if these have other members in between. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/btf/core.h"

#define MAX_ACCESS 1024u /* maximum length of an access string */
#define MAX_NESTING 32u	 /* nesting of anonymous members, and of arrays in comparisons */

const struct btf_type *ebpf_core_resolve(const struct btf *btf, uint32_t id, uint32_t *ret_id)
{
	for (int depth = 0; depth < 32 && id != 0; depth++) {
		const struct btf_type *t = btf__type_by_id(btf, id);

		if (!t || !(btf_is_mod(t) || btf_is_typedef(t))) {
			*ret_id = id;
			return t;
		}
		id = t->type;
	}
	return NULL;
}

const char *ebpf_core_name(const struct btf *btf, uint32_t off)
{
	const char *name = btf__name_by_offset(btf, off);

	return name ? name : "";
}

static int is_enum(const struct btf_type *t)
{
	return btf_is_enum(t) || btf_is_enum64(t);
}

static int is_enum_kind(uint32_t kind)
{
	return kind == CORE_ENUMVAL_EXISTS || kind == CORE_ENUMVAL_VALUE;
}

static int is_type_kind(uint32_t kind)
{
	return kind >= CORE_TYPE_ID_LOCAL && kind <= CORE_TYPE_SIZE;
}

/* Parses "0:2:1". */
static int parse_numbers(const char *text, uint32_t out[CORE_MAX_PATH], uint32_t *ret_n)
{
	uint32_t n = 0;

	while (*text) {
		uint64_t v = 0;

		if (n == CORE_MAX_PATH || *text < '0' || *text > '9') {
			return -EINVAL;
		}
		for (; *text >= '0' && *text <= '9'; text++) {
			v = v * 10 + (uint64_t)(*text - '0');
			if (v > UINT32_MAX) {
				return -EINVAL;
			}
		}
		out[n++] = (uint32_t)v;
		if (*text == ':' && text[1]) {
			text++;
		} else if (*text) {
			return -EINVAL;
		}
	}
	*ret_n = n;
	return n ? 0 : -EINVAL;
}

static int push(struct ebpf_core_path *p, uint32_t type, uint32_t idx, const char *name)
{
	if (p->n == CORE_MAX_PATH) {
		return -EINVAL;
	}
	p->steps[p->n++] = (struct ebpf_core_step){ type, idx, name };
	return 0;
}

static const char *enumerator(const struct btf *btf, const struct btf_type *t, uint32_t i)
{
	return ebpf_core_name(btf,
			      btf_is_enum(t) ? btf_enum(t)[i].name_off : btf_enum64(t)[i].name_off);
}

/* Returns whether the array is a flexible array member: the last of its struct, with 0 elements.
 * Any index is valid for it. */
static int is_flexible(const struct ebpf_core_path *p, const struct btf_type *array)
{
	const struct ebpf_core_step *last = &p->steps[p->n - 1];
	const struct btf_type *in = btf__type_by_id(p->btf, last->type);

	return last->name && btf_array(array)->nelems == 0 && in && btf_is_composite(in) &&
	       last->idx + 1 == btf_vlen(in);
}

static int add_bits(struct ebpf_core_path *p, uint64_t count, int64_t bytes)
{
	uint64_t bits;

	if (bytes < 0 || checked_mul(count, (uint64_t)bytes * 8, &bits) ||
	    checked_add(p->bits, bits, &p->bits) || p->bits / 8 > UINT32_MAX) {
		return -EINVAL;
	}
	return 0;
}

/* Extends the path by element idx of array t. */
static int into_array(struct ebpf_core_path *p, const struct btf_type *t, uint32_t idx,
		      uint32_t *id)
{
	const struct btf_type *of = ebpf_core_resolve(p->btf, btf_array(t)->type, id);

	if (!of || (!is_flexible(p, t) && idx >= btf_array(t)->nelems)) {
		return -EINVAL;
	}
	if (push(p, *id, idx, NULL) < 0) {
		return -EINVAL;
	}
	return add_bits(p, idx, btf__resolve_size(p->btf, *id));
}

static int into_member(struct ebpf_core_path *p, const struct btf_type *t, uint32_t idx,
		       uint32_t *id)
{
	const struct btf_member *m = &btf_members(t)[idx];
	const char *name;

	if (idx >= btf_vlen(t)) {
		return -EINVAL;
	}
	p->bits += btf_member_bit_offset(t, idx);
	name = ebpf_core_name(p->btf, m->name_off);
	if (*name && push(p, *id, idx, name) < 0) {
		return -EINVAL;
	}
	*id = m->type;
	return 0;
}

int ebpf_core_parse(struct ebpf_core_path *p, const struct btf *btf, uint32_t type,
		    const char *access, uint32_t kind)
{
	uint32_t raw[CORE_MAX_PATH], n, id = 0;
	const struct btf_type *t = ebpf_core_resolve(btf, type, &id);
	int err;

	*p = (struct ebpf_core_path){ .btf = btf, .root = type };
	if (!t || strnlen(access, MAX_ACCESS) == MAX_ACCESS || parse_numbers(access, raw, &n) < 0) {
		return -EINVAL;
	}
	if (is_type_kind(kind)) {
		return n == 1 && raw[0] == 0 ? 0 : -EINVAL;
	}
	if (is_enum_kind(kind)) {
		if (!is_enum(t) || n != 1 || raw[0] >= btf_vlen(t)) {
			return -EINVAL;
		}
		return push(p, id, raw[0], enumerator(btf, t, raw[0]));
	}
	push(p, id, raw[0], NULL);
	err = add_bits(p, raw[0], btf__resolve_size(btf, id));
	for (uint32_t i = 1; err == 0 && i < n; i++) {
		t = ebpf_core_resolve(btf, id, &id);
		if (t && btf_is_composite(t)) {
			err = into_member(p, t, raw[i], &id);
		} else {
			err = t && btf_is_array(t) ? into_array(p, t, raw[i], &id) : -EINVAL;
		}
	}
	return err;
}

size_t ebpf_core_essential(const char *name)
{
	size_t n = strnlen(name, CORE_MAX_NAME);

	for (size_t i = 1; i + 3 <= n; i++) {
		if (memcmp(name + i, "___", 3) == 0) {
			return i;
		}
	}
	return n;
}

static int same_essential(const char *a, const char *b)
{
	size_t n = ebpf_core_essential(a);

	return n == ebpf_core_essential(b) && memcmp(a, b, n) == 0;
}

/* Returns whether a field of one type can be read as the other type. Structs may differ inside;
 * sizes of integers are adjusted later. */
static int compatible(const struct btf *lb, uint32_t local, const struct btf *hb, uint32_t here)
{
	for (uint32_t depth = 0; depth < MAX_NESTING; depth++) {
		const struct btf_type *l = ebpf_core_resolve(lb, local, &local);
		const struct btf_type *h = ebpf_core_resolve(hb, here, &here);
		const char *a, *b;

		if (!l || !h) {
			return l == h;
		}
		if (btf_is_composite(l) && btf_is_composite(h)) {
			return 1;
		}
		if (is_enum(l) && is_enum(h)) {
			a = ebpf_core_name(lb, l->name_off);
			b = ebpf_core_name(hb, h->name_off);
			return !*a || !*b || same_essential(a, b);
		}
		if (btf_kind(l) != btf_kind(h)) {
			return 0;
		}
		switch (btf_kind(l)) {
		case BTF_KIND_PTR:
		case BTF_KIND_FLOAT:
			return 1;
		case BTF_KIND_INT:
			return btf_int_offset(l) == 0 && btf_int_offset(h) == 0;
		case BTF_KIND_ARRAY:
			local = btf_array(l)->type;
			here = btf_array(h)->type;
			break;
		default:
			return 0;
		}
	}
	return 0;
}

/* Finds a member by name in t, also within anonymous members. */
static int find_member(struct ebpf_core_path *p, const struct btf *lb,
		       const struct ebpf_core_step *want, const struct btf_type *t, uint32_t id,
		       uint32_t depth, uint32_t *ret_next)
{
	const struct btf_type *lt = btf__type_by_id(lb, want->type);

	if (!lt || depth == MAX_NESTING) {
		return -EINVAL;
	}
	for (uint32_t i = 0; i < btf_vlen(t); i++) {
		const struct btf_member *m = &btf_members(t)[i];
		const char *name = ebpf_core_name(p->btf, m->name_off);
		uint64_t before = p->bits;
		uint32_t inner_id = 0;

		p->bits += btf_member_bit_offset(t, i);
		if (*name && strcmp(name, want->name) == 0) {
			*ret_next = m->type;
			return push(p, id, i, name) == 0 &&
			       compatible(lb, btf_members(lt)[want->idx].type, p->btf, m->type);
		}
		if (!*name) {
			const struct btf_type *in = ebpf_core_resolve(p->btf, m->type, &inner_id);
			int found = in && btf_is_composite(in)
					    ? find_member(p, lb, want, in, inner_id, depth + 1,
							  ret_next)
					    : 0;

			if (found) {
				return found;
			}
		}
		p->bits = before;
	}
	return 0;
}

static int match_enumerator(const struct ebpf_core_path *local, const struct btf_type *t,
			    uint32_t id, struct ebpf_core_path *ret)
{
	const char *want = local->steps[0].name;

	for (uint32_t i = 0; is_enum(t) && i < btf_vlen(t); i++) {
		const char *name = enumerator(ret->btf, t, i);

		if (same_essential(want, name)) {
			return push(ret, id, i, name) == 0;
		}
	}
	return 0;
}

int ebpf_core_match(const struct ebpf_core_path *local, const struct btf *btf, uint32_t root,
		    uint32_t kind, struct ebpf_core_path *ret)
{
	uint32_t id = root;
	const struct btf_type *t = ebpf_core_resolve(btf, root, &id);
	int found = 1;

	*ret = (struct ebpf_core_path){ .btf = btf, .root = root };
	if (!t) {
		return -EINVAL;
	}
	if (is_type_kind(kind)) {
		return 1;
	}
	if (is_enum_kind(kind)) {
		return match_enumerator(local, t, id, ret);
	}
	push(ret, id, local->steps[0].idx, NULL);
	if (add_bits(ret, local->steps[0].idx, btf__resolve_size(btf, id)) < 0) {
		return -EINVAL;
	}
	for (uint32_t i = 1; found > 0 && i < local->n; i++) {
		const struct ebpf_core_step *s = &local->steps[i];

		t = ebpf_core_resolve(btf, id, &id);
		if (t && s->name) {
			found = btf_is_composite(t) ? find_member(ret, local->btf, s, t, id, 0, &id)
						    : 0;
		} else {
			found = t && btf_is_array(t) && into_array(ret, t, s->idx, &id) == 0;
		}
	}
	return found;
}

void ebpf_core_describe(const struct ebpf_core_path *p, struct buf *out)
{
	const struct btf_type *t = btf__type_by_id(p->btf, p->root);

	if (t && (btf_is_composite(t) || btf_is_enum(t))) {
		buf_puts(out, btf_is_struct(t) ? "struct " : btf_is_union(t) ? "union " : "enum ");
	}
	buf_printf(out, "%.64s", t ? ebpf_core_name(p->btf, t->name_off) : "?");
	for (uint32_t i = 0; i < p->n; i++) {
		if (p->steps[i].name) {
			buf_printf(out, ".%.64s", p->steps[i].name);
		} else if (i > 0) {
			buf_printf(out, "[%u]", p->steps[i].idx);
		}
	}
}
