/* Maps: those that the program declares in .maps (read from BTF alone) and one for each data
 * section. libbpf's BTF parser checks the shape of the type section only, so every type id and name
 * is looked up with care. */
#include "bpf/load/object_int.h"

#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
#define GBPF_CONST(name, value, doc) name = value,
#include "gbpf/hooks.def"
#define GBPF_MAP_TYPE(id, name, ops, doc) MAP_##name = id,
#include "gbpf/hooks.def"
};

#define KNOWN_FLAGS (GBPF_F_TENANT | GBPF_F_DAEMON | GBPF_F_RDONLY)

static int silent(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	return 0;
}

int obj_read_btf(struct obj_parse *p)
{
	const struct obj_section *s = NULL;
	int err;

	for (uint32_t i = 1; i < p->n_secs && !s; i++) {
		if (strcmp(p->secs[i].name, ".BTF") == 0) {
			s = &p->secs[i];
		}
	}
	if (!s || !s->data) {
		report_hint(p->r, "compile with -g");
		return obj_refuse(p, -EINVAL, NULL, 0, "no BTF type information");
	}
	if (s->size > OBJ_MAX_BTF_BYTES) {
		return obj_refuse(p, -E2BIG, s->name, 0, "%zu bytes of BTF (limit %u)", s->size,
				  OBJ_MAX_BTF_BYTES);
	}
	libbpf_set_print(silent);
	p->btf = btf__new(s->data, (uint32_t)s->size);
	err = p->btf ? 0 : -errno;
	if (err == -ENOMEM) {
		return err;
	}
	return err ? obj_refuse(p, -EINVAL, s->name, 0, "broken BTF (%s)", strerror(-err)) : 0;
}

static const char *name_of(const struct obj_parse *p, uint32_t off)
{
	const char *name = btf__name_by_offset(p->btf, off);

	return name ? name : "";
}

/* The type behind typedefs and qualifiers; NULL for void, broken ids and chains without end. */
static const struct btf_type *resolve(const struct obj_parse *p, uint32_t id)
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

/* __uint(name, value): a pointer to an array whose length is the value. */
static int uint_member(struct obj_parse *p, const char *map, const struct btf_member *m,
		       uint32_t *out)
{
	const struct btf_type *t = resolve(p, m->type);

	t = t && btf_is_ptr(t) ? resolve(p, t->type) : NULL;
	if (!t || !btf_is_array(t)) {
		return obj_refuse(p, -EINVAL, ".maps", 0,
				  "map %s: member %s is not written with __uint()", map,
				  name_of(p, m->name_off));
	}
	*out = btf_array(t)->nelems;
	return 0;
}

/* __type(name, T): a pointer to T. */
static int type_member(struct obj_parse *p, const char *map, const struct btf_member *m,
		       uint32_t *out)
{
	const struct btf_type *t = resolve(p, m->type);
	int64_t size = t && btf_is_ptr(t) ? btf__resolve_size(p->btf, t->type) : -1;

	if (size <= 0 || size > UINT32_MAX) {
		return obj_refuse(p, -EINVAL, ".maps", 0,
				  "map %s: %s is not written with __type() or has no size", map,
				  name_of(p, m->name_off));
	}
	if (*out && *out != (uint32_t)size) {
		return obj_refuse(p, -EINVAL, ".maps", 0,
				  "map %s: %s has %lld bytes but %s_size says %u", map,
				  name_of(p, m->name_off), (long long)size, name_of(p, m->name_off),
				  *out);
	}
	*out = (uint32_t)size;
	return 0;
}

static int map_member(struct obj_parse *p, struct ebpf_map_def *d, const struct btf_member *m)
{
	const char *name = name_of(p, m->name_off);
	const struct {
		const char *name;
		uint32_t *field;
	} numbers[] = {
		{ "type", &d->type },
		{ "max_entries", &d->max_entries },
		{ "map_flags", &d->flags },
		{ "key_size", &d->key_bytes },
		{ "value_size", &d->value_bytes },
	};

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		if (strcmp(name, numbers[i].name) == 0) {
			return uint_member(p, d->name, m, numbers[i].field);
		}
	}
	if (strcmp(name, "key") == 0) {
		return type_member(p, d->name, m, &d->key_bytes);
	}
	if (strcmp(name, "value") == 0) {
		return type_member(p, d->name, m, &d->value_bytes);
	}
	report_hint(p->r,
		    "known are type, max_entries, map_flags, key, value, key_size and value_size");
	return obj_refuse(p, -EINVAL, ".maps", 0,
			  "map %s: member %s is not supported by this version", d->name, name);
}

static int check_map(struct obj_parse *p, const struct ebpf_map_def *d)
{
	const char *at = d->is_data ? d->name : ".maps";

	if (d->type != MAP_ARRAY) {
		report_hint(p->r, "this version has GBPF_MAP_ARRAY");
		return obj_refuse(p, -EINVAL, at, 0,
				  "map %s: type %u is not supported by this version", d->name,
				  d->type);
	}
	if (d->key_bytes != 4) {
		return obj_refuse(p, -EINVAL, at, 0,
				  "map %s: the key of an array has 4 bytes, not %u", d->name,
				  d->key_bytes);
	}
	if (d->value_bytes == 0 || d->value_bytes > EBPF_MAX_VALUE_BYTES) {
		return obj_refuse(p, d->value_bytes ? -E2BIG : -EINVAL, at, 0,
				  "map %s: value of %u bytes (1 to %u)", d->name, d->value_bytes,
				  EBPF_MAX_VALUE_BYTES);
	}
	if (d->max_entries == 0 || d->max_entries > EBPF_MAX_ENTRIES) {
		return obj_refuse(p, d->max_entries ? -E2BIG : -EINVAL, at, 0,
				  "map %s: max_entries %u (1 to %u)", d->name, d->max_entries,
				  EBPF_MAX_ENTRIES);
	}
	if (d->flags & ~(uint32_t)KNOWN_FLAGS) {
		return obj_refuse(p, -EINVAL, at, 0, "map %s: unknown map_flags 0x%x", d->name,
				  d->flags & ~(uint32_t)KNOWN_FLAGS);
	}
	if ((d->flags & GBPF_F_TENANT) && (d->flags & (GBPF_F_DAEMON | GBPF_F_RDONLY))) {
		return obj_refuse(p, -EINVAL, at, 0,
				  "map %s: GBPF_F_TENANT goes with no other flag", d->name);
	}
	if (ebpf_map_check(d) != 0) {
		return obj_refuse(p, -EINVAL, at, 0, "map %s: sizes or flags are out of range",
				  d->name);
	}
	return 0;
}

/* Appends a definition; the caller fills the rest. NULL: the report says why. */
static struct ebpf_map_def *new_map(struct obj_parse *p, const char *name, int *err)
{
	struct ebpf_object *o = p->o;
	struct ebpf_map_def *d;

	if (o->n_maps == EBPF_MAX_MAPS) {
		*err = obj_refuse(p, -E2BIG, NULL, 0, "more than %u maps and data sections",
				  EBPF_MAX_MAPS);
		return NULL;
	}
	if (!obj_name_ok(name, sizeof(d->name))) {
		*err = obj_refuse(p, -EINVAL, NULL, 0,
				  "map name '%.64s': 1 to %zu letters, digits, underscores and "
				  "dots are allowed",
				  name, sizeof(d->name) - 1);
		return NULL;
	}
	for (uint32_t i = 0; i < o->n_maps; i++) {
		if (strcmp(o->maps[i].name, name) == 0) {
			*err = obj_refuse(p, -EINVAL, NULL, 0,
					  "two maps or data sections are called %s", name);
			return NULL;
		}
	}
	d = &o->maps[o->n_maps];
	memset(d, 0, sizeof(*d));
	snprintf(d->name, sizeof(d->name), "%s", name);
	return d;
}

/* Where a map lies in .maps: its symbol says it. (clang leaves the offsets of BTF's section
 * description to be relocated, so they are all zero in an object that no linker has touched.) */
static int map_offset(struct obj_parse *p, const char *name, uint32_t *ret_offset)
{
	for (uint32_t i = 1; i < p->n_syms; i++) {
		const Elf64_Sym *sym = &p->syms[i];

		if (sym->st_shndx < p->n_secs && p->secs[sym->st_shndx].role == OBJ_MAPS &&
		    ELF64_ST_TYPE(sym->st_info) != STT_SECTION &&
		    !strcmp(obj_symbol_name(p, sym), name)) {
			*ret_offset = (uint32_t)sym->st_value;
			return 0;
		}
	}
	return obj_refuse(p, -EINVAL, ".maps", 0, "map %s has no symbol", name);
}

static int place_map(struct obj_parse *p, const char *name, size_t section_bytes,
		     uint32_t *ret_offset)
{
	int err = map_offset(p, name, ret_offset);

	if (err) {
		return err;
	}
	if (*ret_offset >= section_bytes) {
		return obj_refuse(p, -EINVAL, ".maps", *ret_offset,
				  "map %s lies outside the section's %zu bytes", name,
				  section_bytes);
	}
	for (uint32_t i = 0; i < p->n_map_at; i++) {
		if (p->map_at[i].offset == *ret_offset) {
			return obj_refuse(p, -EINVAL, ".maps", *ret_offset,
					  "map %s lies where another map begins", name);
		}
	}
	return 0;
}

static int declared_map(struct obj_parse *p, const struct btf_var_secinfo *at, size_t section_bytes)
{
	const struct btf_type *var = btf__type_by_id(p->btf, at->type);
	const struct btf_type *t = var && btf_is_var(var) ? resolve(p, var->type) : NULL;
	struct ebpf_map_def *d;
	uint32_t offset = 0;
	int err = 0;

	if (!t || !btf_is_struct(t)) {
		return obj_refuse(p, -EINVAL, ".maps", at->offset,
				  "%s is not a map definition (an anonymous struct)",
				  var ? name_of(p, var->name_off) : "type");
	}
	err = place_map(p, name_of(p, var->name_off), section_bytes, &offset);
	if (err) {
		return err;
	}
	d = new_map(p, name_of(p, var->name_off), &err);
	if (!d) {
		return err;
	}
	for (uint32_t i = 0; err == 0 && i < btf_vlen(t); i++) {
		err = map_member(p, d, &btf_members(t)[i]);
	}
	if (err == 0) {
		err = check_map(p, d);
	}
	if (err == 0) {
		p->map_at[p->n_map_at++] = (struct obj_map_at){ offset, p->o->n_maps++ };
	}
	return err;
}

static int declared_maps(struct obj_parse *p, const struct obj_section *s)
{
	uint32_t n = btf__type_cnt(p->btf);

	for (uint32_t id = 1; id < n; id++) {
		const struct btf_type *t = btf__type_by_id(p->btf, id);

		if (!t || !btf_is_datasec(t) || strcmp(name_of(p, t->name_off), ".maps") != 0) {
			continue;
		}
		for (uint32_t i = 0; i < btf_vlen(t); i++) {
			int err = declared_map(p, &btf_var_secinfos(t)[i], s->size);

			if (err) {
				return err;
			}
		}
		return 0;
	}
	return obj_refuse(p, -EINVAL, s->name, 0, "BTF has no description of the maps");
}

static uint32_t data_flags(const char *name)
{
	if (strncmp(name, ".rodata", 7) == 0) {
		return GBPF_F_RDONLY;
	}
	if (strcmp(name, ".data.tenant") == 0 || strcmp(name, ".bss.tenant") == 0) {
		return GBPF_F_TENANT;
	}
	return 0;
}

static int data_map(struct obj_parse *p, struct obj_section *s)
{
	struct ebpf_map_def *d;
	int err = 0;

	if (s->n_rels) {
		report_hint(p->r, "fill the pointers in code, or use an index instead");
		return obj_refuse(p, -EINVAL, s->name, s->rels[0].r_offset,
				  "initialized pointers in data are not supported by this version");
	}
	d = new_map(p, s->name, &err);
	if (!d) {
		return err;
	}
	d->type = MAP_ARRAY;
	d->key_bytes = 4;
	d->value_bytes = s->size > UINT32_MAX ? UINT32_MAX : (uint32_t)s->size;
	d->max_entries = 1;
	d->flags = data_flags(s->name);
	d->is_data = 1;
	err = check_map(p, d);
	if (err) {
		return err;
	}
	p->o->init[p->o->n_maps] = calloc(1, s->size);
	if (!p->o->init[p->o->n_maps]) {
		return -ENOMEM;
	}
	if (s->data) {
		memcpy(p->o->init[p->o->n_maps], s->data, s->size);
	}
	s->map = (int)p->o->n_maps++;
	return 0;
}

int obj_read_maps(struct obj_parse *p)
{
	int err = 0, seen = 0;

	for (uint32_t i = 1; err == 0 && i < p->n_secs; i++) {
		if (p->secs[i].role == OBJ_MAPS) {
			err = seen++ ? obj_refuse(p, -EINVAL, ".maps", 0,
						  "a second section of maps")
				     : declared_maps(p, &p->secs[i]);
		}
	}
	for (uint32_t i = 1; err == 0 && i < p->n_secs; i++) {
		if (p->secs[i].role == OBJ_DATA && p->secs[i].size) {
			err = data_map(p, &p->secs[i]);
		}
	}
	return err;
}
