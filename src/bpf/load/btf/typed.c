/* Safe lookup of types: ids, names, sizes and members of an untrusted BTF, and the parts of a value
 * that they describe. */
#include "bpf/load/btf/typed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/load/btf/typed_btf.h"

const char *ebpf_typed_name(const struct btf *btf, uint32_t off)
{
	const char *name = btf__name_by_offset(btf, off);

	return name ? name : "";
}

const struct btf_type *ebpf_typed_resolve(const struct btf *btf, uint32_t id)
{
	for (int depth = 0; btf && depth < 32 && id; depth++) {
		const struct btf_type *t = btf__type_by_id(btf, id);

		if (!t || !(btf_is_mod(t) || btf_is_typedef(t) || btf_is_var(t))) {
			return t;
		}
		id = t->type;
	}
	return NULL;
}

size_t ebpf_typed_size(const struct btf *btf, uint32_t id)
{
	const struct btf_type *t = ebpf_typed_resolve(btf, id);
	int64_t size;

	if (!t) {
		return 0;
	}
	if (btf_is_datasec(t)) {
		return t->size;
	}
	size = btf__resolve_size(btf, id);
	return size > 0 && size <= INT32_MAX ? (size_t)size : 0;
}

bool ebpf_typed_is_scalar(const struct btf_type *t)
{
	return t && (btf_is_int(t) || btf_is_any_enum(t)) && t->size >= 1 && t->size <= 8 &&
	       (t->size & (t->size - 1)) == 0;
}

bool ebpf_typed_is_signed(const struct btf_type *t)
{
	return btf_is_int(t) ? (btf_int_encoding(t) & BTF_INT_SIGNED) != 0 : btf_kflag(t);
}

bool ebpf_typed_is_bool(const struct btf_type *t)
{
	return btf_is_int(t) && (btf_int_encoding(t) & BTF_INT_BOOL);
}

bool ebpf_typed_is_char(const struct btf *btf, uint32_t id)
{
	const struct btf_type *t = ebpf_typed_resolve(btf, id);

	return t && btf_is_int(t) && t->size == 1 && !ebpf_typed_is_bool(t) &&
	       strcmp(ebpf_typed_name(btf, t->name_off), "char") == 0;
}

static int checked_part(const struct btf *btf, struct ebpf_typed_part *p, size_t n)
{
	const struct btf_type *t = ebpf_typed_resolve(btf, p->type);

	if (!t || p->offset > n || p->bytes > n - p->offset) {
		return -EINVAL;
	}
	if (p->bits && (!ebpf_typed_is_scalar(t) || p->bits > p->bytes * 8 || p->bits > 64)) {
		return -EINVAL;
	}
	return 0;
}

int ebpf_typed_member(const struct btf *btf, const struct btf_type *t, uint32_t i, size_t n,
		      struct ebpf_typed_part *ret, const char **ret_name)
{
	memset(ret, 0, sizeof(*ret));
	if (btf_is_datasec(t)) {
		const struct btf_var_secinfo *v = &btf_var_secinfos(t)[i];
		const struct btf_type *var = btf__type_by_id(btf, v->type);

		if (!var || !btf_is_var(var)) {
			return -EINVAL;
		}
		*ret_name = ebpf_typed_name(btf, var->name_off);
		ret->type = v->type;
		ret->offset = v->offset;
		ret->bytes = ebpf_typed_size(btf, v->type);
	} else {
		const struct btf_member *m = &btf_members(t)[i];
		uint32_t at = btf_member_bit_offset(t, i), bits = btf_member_bitfield_size(t, i);

		*ret_name = ebpf_typed_name(btf, m->name_off);
		ret->type = m->type;
		ret->offset = at / 8;
		ret->bytes = ebpf_typed_size(btf, m->type);
		if (bits) {
			ret->bits = bits;
			ret->bit = at % 8;
			/* Only the bytes that contain the bits, not those of the declared type. */
			ret->bytes = (ret->bit + bits + 7) / 8;
			if (bits > 64 || ret->bit + bits > 64) {
				return -EINVAL;
			}
		} else if (at % 8) {
			return -EINVAL;
		}
	}
	return checked_part(btf, ret, n);
}

static bool has_members(const struct btf_type *t)
{
	return t && (btf_is_composite(t) || btf_is_datasec(t));
}

static const char *member_name(const struct btf *btf, const struct btf_type *t, uint32_t i)
{
	const struct btf_type *var;

	if (!btf_is_datasec(t)) {
		return ebpf_typed_name(btf, btf_members(t)[i].name_off);
	}
	var = btf__type_by_id(btf, btf_var_secinfos(t)[i].type);
	return var ? ebpf_typed_name(btf, var->name_off) : "";
}

int ebpf_typed_member_named(const struct btf *btf, const struct btf_type *t, size_t n,
			    const char *name, size_t len, int depth, uint32_t *looks,
			    struct ebpf_typed_part *ret)
{
	for (uint32_t i = 0; has_members(t) && depth < TYPED_DEPTH && i < btf_vlen(t) && *looks;
	     i++) {
		struct ebpf_typed_part in;
		const char *at = member_name(btf, t, i);
		bool same = len && strncmp(at, name, len) == 0 && !at[len];

		--*looks;
		if ((at[0] && !same) || ebpf_typed_member(btf, t, i, n, ret, &at) < 0) {
			continue;
		}
		if (same) {
			return 0;
		}
		*looks -= MIN(*looks, 16u); /* account for the lookups of sizes */
		if (btf_is_composite(ebpf_typed_resolve(btf, ret->type)) &&
		    ebpf_typed_member_named(btf, ebpf_typed_resolve(btf, ret->type), ret->bytes,
					    name, len, depth + 1, looks, &in) == 0) {
			in.offset += ret->offset;
			*ret = in;
			return 0;
		}
	}
	return -ENOENT;
}

static int64_t enum_at(const struct btf_type *t, uint32_t i)
{
	if (btf_is_enum64(t)) {
		return (int64_t)btf_enum64_value(&btf_enum64(t)[i]);
	}
	return btf_kflag(t) ? btf_enum(t)[i].val : (int64_t)(uint32_t)btf_enum(t)[i].val;
}

static const char *enum_name_at(const struct btf *btf, const struct btf_type *t, uint32_t i)
{
	return ebpf_typed_name(btf, btf_is_enum64(t) ? btf_enum64(t)[i].name_off
						     : btf_enum(t)[i].name_off);
}

const char *ebpf_typed_enum_name(const struct btf *btf, const struct btf_type *t, uint64_t value)
{
	for (uint32_t i = 0; btf_is_any_enum(t) && i < btf_vlen(t); i++) {
		if ((uint64_t)enum_at(t, i) == value) {
			return enum_name_at(btf, t, i);
		}
	}
	return NULL;
}

int ebpf_typed_enum_value(const struct btf *btf, const struct btf_type *t, const char *name,
			  size_t len, int64_t *ret)
{
	for (uint32_t i = 0; btf_is_any_enum(t) && i < btf_vlen(t); i++) {
		const char *at = enum_name_at(btf, t, i);

		if (strlen(at) == len && memcmp(at, name, len) == 0) {
			*ret = enum_at(t, i);
			return 0;
		}
	}
	return -ENOENT;
}

int ebpf_typed_enum(const struct btf *btf, const char *name, int64_t *ret)
{
	for (uint32_t id = 1; btf && id < btf__type_cnt(btf); id++) {
		const struct btf_type *t = btf__type_by_id(btf, id);

		if (t && ebpf_typed_enum_value(btf, t, name, strlen(name), ret) == 0) {
			return 0;
		}
	}
	return -ENOENT;
}

static uint64_t mask_of(uint32_t bits)
{
	return bits >= 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
}

int ebpf_typed_read(const struct btf *btf, const struct ebpf_typed_part *part, const void *base,
		    uint64_t *ret, bool *ret_signed)
{
	const struct btf_type *t = ebpf_typed_resolve(btf, part->type);
	uint32_t bits = part->bits ? part->bits : (uint32_t)part->bytes * 8;
	uint64_t v = 0;

	if (!ebpf_typed_is_scalar(t) || part->bytes > 8) {
		return -EINVAL;
	}
	memcpy(&v, (const uint8_t *)base + part->offset, part->bytes);
	v = (v >> part->bit) & mask_of(bits);
	*ret_signed = ebpf_typed_is_signed(t);
	if (*ret_signed && bits < 64 && (v >> (bits - 1))) {
		v |= ~mask_of(bits);
	}
	*ret = v;
	return 0;
}

int ebpf_typed_write(const struct btf *btf, const struct ebpf_typed_part *part, void *base,
		     uint64_t value)
{
	const struct btf_type *t = ebpf_typed_resolve(btf, part->type);
	uint32_t bits = part->bits ? part->bits : (uint32_t)part->bytes * 8;
	uint64_t v = 0, mask = mask_of(bits), high = value & ~mask;

	if (!ebpf_typed_is_scalar(t) || part->bytes > 8) {
		return -EINVAL;
	}
	if (high && high != ~mask) {
		return -ERANGE;
	}
	if (!high && bits < 64 && (value >> (bits - 1)) && ebpf_typed_is_signed(t)) {
		return -ERANGE; /* it would read back as a negative number */
	}
	memcpy(&v, (const uint8_t *)base + part->offset, part->bytes);
	v = (v & ~(mask << part->bit)) | ((value & mask) << part->bit);
	memcpy((uint8_t *)base + part->offset, &v, part->bytes);
	return 0;
}

static int no_such_member(const struct btf *btf, uint32_t type, const char *name, size_t len,
			  struct report *r)
{
	struct buf text = { 0 };

	ebpf_typed_describe(&text, btf, type);
	report_hint(r, "The type is %s", buf_text(&text));
	buf_finish(&text);
	return report_set(r, -EINVAL, "value", "there is no member '%.*s'", (int)MIN(len, 60u),
			  name);
}

static int step_index(const struct btf *btf, const char **path, struct ebpf_typed_part *at,
		      struct report *r)
{
	const struct btf_type *t = ebpf_typed_resolve(btf, at->type);
	char *end;
	unsigned long long i = strtoull(*path + 1, &end, 0);
	size_t each;

	if (!t || !btf_is_array(t)) {
		return report_set(r, -EINVAL, "value", "'%.40s': this is not an array", *path);
	}
	each = ebpf_typed_size(btf, btf_array(t)->type);
	if (end == *path + 1 || *end != ']') {
		return report_set(r, -EINVAL, "value", "'%.40s' is not an index, as in [3]", *path);
	}
	if (i >= btf_array(t)->nelems || !each || i >= at->bytes / each) {
		return report_set(r, -EINVAL, "value", "index %llu: the array has %u elements", i,
				  btf_array(t)->nelems);
	}
	at->type = btf_array(t)->type;
	at->offset += (size_t)i * each;
	at->bytes = each;
	*path = end + 1;
	return 0;
}

static int step_name(const struct btf *btf, const char **path, struct ebpf_typed_part *at,
		     struct report *r)
{
	const struct btf_type *t = ebpf_typed_resolve(btf, at->type);
	struct ebpf_typed_part in;
	uint32_t looks = TYPED_LOOKS;
	size_t len;

	*path += **path == '.';
	len = strcspn(*path, ".[");
	if (!has_members(t)) {
		return report_set(r, -EINVAL, "value", "'%.*s': this is not a struct", (int)len,
				  *path);
	}
	if (ebpf_typed_member_named(btf, t, at->bytes, *path, len, 0, &looks, &in) < 0) {
		return no_such_member(btf, at->type, *path, len, r);
	}
	in.offset += at->offset;
	*at = in;
	*path += len;
	return 0;
}

int ebpf_typed_find(const struct btf *btf, uint32_t type, size_t n, const char *path,
		    struct ebpf_typed_part *ret, struct report *r)
{
	*ret = (struct ebpf_typed_part){ .type = type, .bytes = n };
	for (int steps = 0; *path; steps++) {
		int err = steps >= 64	 ? report_set(r, -EINVAL, "value", "too many members")
			  : *path == '[' ? step_index(btf, &path, ret, r)
					 : step_name(btf, &path, ret, r);

		if (err) {
			return err;
		}
	}
	return 0;
}
