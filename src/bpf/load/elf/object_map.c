/* Reads the maps that a program declares in .maps. Their shape comes from BTF alone. */
#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/elf/object_int.h"
#include "bpf/run/kernel_places.h"

enum {
#define GBPF_CONST(name, value, doc) name = value,
#include "gbpf/hooks.def"
};

/* A map declaration. */
struct declared {
	struct ebpf_obj_parse *p;
	const char *name; /* name of the map, for messages */
	struct ebpf_map_def *def;
	uint32_t key_type, value_type;
	uint32_t values;	      /* byte offset of the entries; 0: none */
	const struct btf_type *inner; /* struct that declares the shape of the entries */
};

/* __uint(name, value): a pointer to an array whose length is the value. */
static int uint_member(const struct declared *d, const struct btf_member *m, uint32_t *out)
{
	const struct btf_type *t = ebpf_obj_btf_resolve(d->p, m->type);

	t = t && btf_is_ptr(t) ? ebpf_obj_btf_resolve(d->p, t->type) : NULL;
	if (!t || !btf_is_array(t)) {
		return ebpf_obj_refuse(d->p, -EINVAL, ".maps", 0,
				       "map %s: member %s is not written with __uint()", d->name,
				       ebpf_obj_btf_name(d->p, m->name_off));
	}
	*out = btf_array(t)->nelems;
	return 0;
}

/* __type(name, T): a pointer to T. */
static int type_member(const struct declared *d, const struct btf_member *m, uint32_t *out,
		       uint32_t *ret_type)
{
	const struct btf_type *t = ebpf_obj_btf_resolve(d->p, m->type);
	int64_t size = t && btf_is_ptr(t) ? btf__resolve_size(d->p->btf, t->type) : -1;
	const char *name = ebpf_obj_btf_name(d->p, m->name_off);

	if (size <= 0 || size > UINT32_MAX) {
		return ebpf_obj_refuse(d->p, -EINVAL, ".maps", 0,
				       "map %s: %s is not written with __type() or has no size",
				       d->name, name);
	}
	if (*out && *out != (uint32_t)size) {
		return ebpf_obj_refuse(d->p, -EINVAL, ".maps", 0,
				       "map %s: %s has %lld bytes but %s_size says %u", d->name,
				       name, (long long)size, name, *out);
	}
	*out = (uint32_t)size;
	*ret_type = t->type;
	return 0;
}

/* __array(values, struct { ... }) or __array(values, int (void *)): pointers, as many as are
 * initialized. */
static int values_member(struct declared *d, const struct btf_type *in, uint32_t i)
{
	const struct btf_type *t = ebpf_obj_btf_resolve(d->p, btf_members(in)[i].type);
	uint32_t bits = btf_member_bit_offset(in, i);

	t = t && btf_is_array(t) ? ebpf_obj_btf_resolve(d->p, btf_array(t)->type) : NULL;
	t = t && btf_is_ptr(t) ? ebpf_obj_btf_resolve(d->p, t->type) : NULL;
	if (!t || !(btf_is_struct(t) || btf_is_func_proto(t)) || bits % 64 || bits == 0) {
		report_hint(d->p->r, "__array(values, struct { ... }), or for programs "
				     "__array(values, int (void *)), as the last member");
		return ebpf_obj_refuse(d->p, -EINVAL, ".maps", 0,
				       "map %s: values is not written with __array()", d->name);
	}
	d->values = bits / 8;
	d->inner = btf_is_struct(t) ? t : NULL;
	return 0;
}

static int member(struct declared *d, const struct btf_type *in, uint32_t i)
{
	const struct btf_member *m = &btf_members(in)[i];
	const char *name = ebpf_obj_btf_name(d->p, m->name_off);
	const struct {
		const char *name;
		uint32_t *field;
	} numbers[] = {
		{ "type", &d->def->type },
		{ "max_entries", &d->def->max_entries },
		{ "map_flags", &d->def->flags },
		{ "key_size", &d->def->key_bytes },
		{ "value_size", &d->def->value_bytes },
	};

	for (size_t k = 0; k < ARRAY_SIZE(numbers); k++) {
		if (strcmp(name, numbers[k].name) == 0) {
			return uint_member(d, m, numbers[k].field);
		}
	}
	if (strcmp(name, "key") == 0) {
		return type_member(d, m, &d->def->key_bytes, &d->key_type);
	}
	if (strcmp(name, "value") == 0) {
		return type_member(d, m, &d->def->value_bytes, &d->value_type);
	}
	if (strcmp(name, "values") == 0) {
		return values_member(d, in, i);
	}
	report_hint(d->p->r, "known are type, max_entries, map_flags, key, value, key_size, "
			     "value_size and values; gBPF keeps no maps in a file system");
	return ebpf_obj_refuse(d->p, -EINVAL, ".maps", 0, "map %s: member %s is not supported",
			       d->name, name);
}

#define BPFTIME_MMAPABLE 0x400u

/* Map types of bpftime for programs on GPUs, and the type of ours that takes their place. Its flag
 * for maps that the kernel shares (BPF_F_MMAPABLE) has no meaning here. docs/MAPS.md states the
 * differences. */
static void from_bpftime(struct declared *d)
{
	static const struct {
		uint32_t theirs, ours, place;
	} types[] = {
		{ 1501, GBPF_MAP_HASH, 0 },
		{ 1502, GBPF_MAP_WARP_ARRAY, 0 },
		{ 1503, GBPF_MAP_ARRAY, 0 },
		{ 1504, GBPF_MAP_ARRAY, 0 },
		{ 1512, GBPF_MAP_WARP_ARRAY, (uint32_t)GBPF_F_HOST },
		{ 1513, GBPF_MAP_ARRAY, (uint32_t)GBPF_F_HOST },
		{ 1527, GBPF_MAP_SM_RING, 0 },
	};
	struct ebpf_map_def *def = d->def;
	size_t i = 0;

	while (i < ARRAY_SIZE(types) && types[i].theirs != def->type) {
		i++;
	}
	if (i == ARRAY_SIZE(types)) {
		return;
	}
	def->type = types[i].ours;
	def->flags = (def->flags & ~BPFTIME_MMAPABLE) | (uint32_t)GBPF_F_DEVICE | types[i].place;
	if (def->type == GBPF_MAP_SM_RING) {
		uint32_t entries = 1;

		while (entries < def->max_entries && entries <= UINT32_MAX / 2) {
			entries *= 2;
		}
		def->max_entries = entries;
		def->key_bytes = 0;
		d->key_type = 0;
	}
}

/* Completes the sizes that a declaration may leave out because its type determines them. */
static void complete(struct declared *d)
{
	struct ebpf_map_def *def = d->def;
	const struct ebpf_map_type *t = ebpf_map_type_of(def->type);

	if (!t) {
		return;
	}
	if (t->traits & (EBPF_MAP_MAPS | EBPF_MAP_PROGRAMS)) {
		def->value_bytes = def->value_bytes ? def->value_bytes : 4;
	} else if (t->traits & EBPF_MAP_RECORDS) {
		/* only tools use the value type, to print records */
		def->key_bytes = def->value_bytes = 0;
	} else if (t->traits & EBPF_MAP_COUNTERS) {
		def->key_bytes = def->key_bytes ? def->key_bytes : 4;
		def->value_bytes = def->value_bytes ? def->value_bytes : 64 * 8;
	}
}

static int refuse_map(struct ebpf_obj_parse *p, const struct ebpf_map_def *d, int err,
		      const char *what)
{
	const char *known = ebpf_map_type_name(d->type);

	return ebpf_obj_refuse(p, err, d->is_data ? d->name : ".maps", 0,
			       "map %s: %s (%s%s, key %u, value "
			       "%u bytes, max_entries %u, map_flags 0x%x)",
			       d->name, what, known ? "GBPF_MAP_" : "type ",
			       known ? known : "not known", d->key_bytes, d->value_bytes,
			       d->max_entries, d->flags);
}

/* Refuses common mistakes with a specific message each; ebpf_map_check() refuses the rest. */
static int check_numbers(struct ebpf_obj_parse *p, const struct ebpf_map_def *d)
{
	unsigned traits = ebpf_map_type_of(d->type)->traits;

	if ((traits & EBPF_MAP_INDEXED) && d->key_bytes != 4) {
		return refuse_map(p, d, -EINVAL, "the key of an array has 4 bytes");
	}
	if ((traits & EBPF_MAP_KEYLESS) && d->key_bytes) {
		return refuse_map(p, d, -EINVAL, "queues, stacks and rings have no keys");
	}
	if (d->value_bytes == 0 && !(traits & EBPF_MAP_RECORDS)) {
		return refuse_map(p, d, -EINVAL, "no value type");
	}
	if (d->value_bytes > EBPF_MAX_VALUE_BYTES) {
		return refuse_map(p, d, -E2BIG, "values have at most 65536 bytes");
	}
	if (d->max_entries == 0) {
		return refuse_map(p, d, -EINVAL, "no max_entries");
	}
	if (!(traits & EBPF_MAP_RECORDS) && d->max_entries > EBPF_MAX_ENTRIES) {
		return refuse_map(p, d, -E2BIG, "a map has at most 1000000 entries");
	}
	return 0;
}

#define KNOWN_FLAGS                                                                                \
	(GBPF_F_TENANT | GBPF_F_DAEMON | GBPF_F_RDONLY | GBPF_F_EPOCH | GBPF_F_DEVICE |            \
	 GBPF_F_DEFER | GBPF_F_HOST | GBPF_F_ALL_GPUS)

/* Refuses GBPF_F_HOST where it has no meaning. */
static int check_host(struct ebpf_obj_parse *p, const struct ebpf_map_def *d)
{
	if (!(d->flags & (uint32_t)GBPF_F_HOST)) {
		return 0;
	}
	if (!(d->flags & (uint32_t)GBPF_F_DEVICE)) {
		report_hint(p->r, "write GBPF_F_DEVICE | GBPF_F_HOST; maps of programs outside of "
				  "kernels are in host memory anyway");
		return refuse_map(p, d, -EINVAL, "GBPF_F_HOST without GBPF_F_DEVICE");
	}
	if (d->flags & (uint32_t)GBPF_F_DEFER) {
		report_hint(p->r, "drop GBPF_F_DEFER to see values of a running kernel, else "
				  "GBPF_F_HOST");
		return refuse_map(p, d, -EINVAL,
				  "deferred additions are not visible while the kernel runs");
	}
	return 0;
}

/* Refuses GBPF_F_ALL_GPUS for what processes other than gbpfd reach, and for ring buffers. */
static int check_all_gpus(struct ebpf_obj_parse *p, const struct ebpf_map_def *d)
{
	if (!(d->flags & (uint32_t)GBPF_F_ALL_GPUS)) {
		return 0;
	}
	if (ebpf_map_type_has(d->type, EBPF_MAP_RECORDS)) {
		report_hint(p->r, "drop GBPF_F_ALL_GPUS, and watch that of each GPU with --gpu");
		return refuse_map(p, d, -EINVAL, "each GPU has its own ring buffer");
	}
	if (d->flags != ((uint32_t)GBPF_F_DAEMON | (uint32_t)GBPF_F_ALL_GPUS)) {
		report_hint(p->r, "write GBPF_F_DAEMON | GBPF_F_ALL_GPUS, and publish what local "
				  "programs need in a map of each GPU");
		return refuse_map(p, d, -EINVAL,
				  "only gbpfd's programs can share a map of all GPUs");
	}
	return 0;
}

static int check_device(struct ebpf_obj_parse *p, const struct ebpf_map_def *d)
{
	if (!(d->flags & GBPF_F_DEVICE) || ebpf_map_type_has(d->type, EBPF_MAP_ON_DEVICE)) {
		return 0;
	}
	report_hint(p->r, "types for memory of the GPU: GBPF_MAP_ARRAY, GBPF_MAP_HASH, "
			  "GBPF_MAP_LRU_HASH, GBPF_MAP_HISTOGRAM, GBPF_MAP_SM_ARRAY, "
			  "GBPF_MAP_WARP_ARRAY, GBPF_MAP_SM_RING, GBPF_MAP_BLOCK_ARRAY, "
			  "GBPF_MAP_GPU_THREAD_ARRAY");
	return refuse_map(p, d, -EINVAL, "maps of this type cannot lie in memory of the GPU");
}

int ebpf_obj_check_map(struct ebpf_obj_parse *p, const struct ebpf_map_def *d)
{
	const struct ebpf_map_type *type = ebpf_map_type_of(d->type);
	struct ebpf_map_def whole;
	int err;

	if (!type) {
		struct buf names;

		buf_init(&names);
		for (uint32_t i = 0; ebpf_map_type_name_at(i); i++) {
			buf_printf(&names, "%sGBPF_MAP_%s", i ? ", " : "",
				   ebpf_map_type_name_at(i));
		}
		report_hint(p->r, "types: %s", buf_text(&names));
		buf_finish(&names);
		return ebpf_obj_refuse(p, -EINVAL, ".maps", 0, "map %s: type %u is not supported",
				       d->name, d->type);
	}
	if (d->flags & ~(uint32_t)KNOWN_FLAGS) {
		report_hint(p->r, "flags: GBPF_F_TENANT, GBPF_F_DAEMON, GBPF_F_RDONLY, "
				  "GBPF_F_EPOCH, GBPF_F_DEVICE, GBPF_F_DEFER, GBPF_F_HOST, "
				  "GBPF_F_ALL_GPUS");
		return refuse_map(p, d, -EINVAL, "unknown map_flags");
	}
	err = check_numbers(p, d);
	err = err ? err : check_device(p, d);
	err = err ? err : check_host(p, d);
	err = err ? err : check_all_gpus(p, d);
	if (err) {
		return err;
	}
	whole = *d;
	whole.inner_1 =
		!!(type->traits & EBPF_MAP_MAPS); /* object_entries.c determines which map */
	err = ebpf_map_check(&whole);
	if (err) {
		report_hint(p->r, "%s", type->hint);
		return refuse_map(p, d, err, "sizes or flags do not suit the type");
	}
	return 0;
}

struct ebpf_map_def *ebpf_obj_new_map(struct ebpf_obj_parse *p, const char *name, int *err)
{
	struct ebpf_object *o = p->o;
	struct ebpf_map_def *d;

	if (o->n_maps == EBPF_MAX_MAPS) {
		*err = ebpf_obj_refuse(p, -E2BIG, NULL, 0, "more than %u maps and data sections",
				       EBPF_MAX_MAPS);
		return NULL;
	}
	if (!ebpf_obj_name_ok(name, sizeof(d->name))) {
		*err = ebpf_obj_refuse(
			p, -EINVAL, NULL, 0,
			"map name '%.64s': 1 to %zu letters, digits, underscores and "
			"dots are allowed",
			name, sizeof(d->name) - 1);
		return NULL;
	}
	for (uint32_t i = 0; i < o->n_maps; i++) {
		if (strcmp(o->maps[i].name, name) == 0) {
			*err = ebpf_obj_refuse(p, -EINVAL, NULL, 0,
					       "two maps or data sections are called %s", name);
			return NULL;
		}
	}
	d = &o->maps[o->n_maps];
	memset(d, 0, sizeof(*d));
	snprintf(d->name, sizeof(d->name), "%s", name);
	return d;
}

const struct ebpf_obj_map_at *ebpf_obj_map_at(const struct ebpf_obj_parse *p, uint64_t offset)
{
	for (uint32_t i = 0; i < p->n_map_at; i++) {
		if (p->map_at[i].offset == offset) {
			return &p->map_at[i];
		}
	}
	return NULL;
}

static int read_members(struct declared *d, const struct btf_type *t)
{
	for (uint32_t i = 0; i < btf_vlen(t); i++) {
		int err = member(d, t, i);

		if (err) {
			return err;
		}
	}
	from_bpftime(d);
	complete(d);
	return 0;
}

/* Reads the declared shape of the members of an array of maps; no map needs to have that shape yet.
 */
static int read_inner(const struct declared *outer, struct ebpf_obj_map_at *at)
{
	struct declared d = { .p = outer->p, .name = outer->name };
	int err;

	if (!outer->inner) {
		return 0;
	}
	if (!ebpf_map_type_has(outer->def->type, EBPF_MAP_MAPS)) {
		return refuse_map(d.p, outer->def, -EINVAL,
				  "only an array of maps has maps for values");
	}
	at->inner = d.def = calloc(1, sizeof(*at->inner));
	if (!d.def) {
		return -ENOMEM;
	}
	err = read_members(&d, outer->inner);
	if (err) {
		return err;
	}
	err = ebpf_obj_find_lock(d.p, d.def, d.value_type, &d.def->lock_1);
	if (err) {
		return err;
	}
	if (ebpf_map_type_has(d.def->type, EBPF_MAP_IN_BLOCK)) {
		return refuse_map(d.p, outer->def, -EINVAL,
				  "a map in shared memory cannot be in an array of maps");
	}
	if (d.values || ebpf_map_type_has(d.def->type, EBPF_MAP_MAPS) ||
	    ebpf_map_type_has(d.def->type, EBPF_MAP_PROGRAMS)) {
		return refuse_map(d.p, outer->def, -EINVAL,
				  "the maps in an array of maps hold values, no maps or programs");
	}
	return 0;
}

static int check_values(const struct declared *d)
{
	uint32_t type = d->def->type;

	if (d->values && type != GBPF_MAP_ARRAY_OF_MAPS && type != GBPF_MAP_PROG_ARRAY) {
		return refuse_map(d->p, d->def, -EINVAL,
				  "values are initialized in arrays of maps and programs only");
	}
	if (type == GBPF_MAP_ARRAY_OF_MAPS && !d->inner) {
		report_hint(d->p->r,
			    "__array(values, struct { __uint(type, GBPF_MAP_ARRAY); ... })");
		return refuse_map(d->p, d->def, -EINVAL, "the shape of its maps is not declared");
	}
	return 0;
}

/* Checks the definition of a standard map: these maps are the same in every policy. */
static int check_standard(struct ebpf_obj_parse *p, const struct ebpf_map_def *def)
{
	static const char *const names[] = { "TENANT_CREDITS", "JOB_META",	  "VSLICE_SET",
					     "MEMPOOL",	       "IO_BUDGETS",	  "PLACEMENT",
					     "OBS_CTRL",       EBPF_KERNEL_PLACES };
	struct ebpf_map_def want = { 0 };
	struct declared d = { .name = def->name, .def = &want };
	struct ebpf_obj_parse own = { .o = p->o, .r = p->r };
	const struct btf_type *var;
	bool of_tool = strcmp(def->name, EBPF_KERNEL_PLACES) == 0;
	size_t i = 0;
	int id, err;

	while (i < ARRAY_SIZE(names) && strcmp(names[i], def->name) != 0) {
		i++;
	}
	err = i < ARRAY_SIZE(names) ? ebpf_obj_core_types(p) : 1;
	if (err) {
		return err < 0 ? err : 0;
	}
	own.btf = p->here;
	d.p = &own;
	id = btf__find_by_name_kind(p->here, def->name, BTF_KIND_VAR);
	var = id > 0 ? btf__type_by_id(p->here, (uint32_t)id) : NULL;
	err = var ? read_members(&d, ebpf_obj_btf_resolve(&own, var->type)) : -EINVAL;
	if (err == 0 && (def->type != want.type || def->key_bytes != want.key_bytes ||
			 def->value_bytes != want.value_bytes || def->flags != want.flags ||
			 (of_tool ? def->max_entries < want.max_entries ||
					    def->max_entries > EBPF_KERNEL_PLACES_MAX
				  : def->max_entries != want.max_entries))) {
		report_hint(p->r,
			    of_tool ? "write GBPF_%s(N), N from 2 to 16384, or choose another name"
				    : "write GBPF_STANDARD_MAP(%s), or choose another name",
			    def->name);
		err = refuse_map(p, def, -EINVAL, "it is a standard map and has another shape");
	}
	return err;
}

static int declared_map(struct ebpf_obj_parse *p, uint32_t section, const struct btf_var_secinfo *v)
{
	const struct btf_type *var = btf__type_by_id(p->btf, v->type);
	const struct btf_type *t =
		var && btf_is_var(var) ? ebpf_obj_btf_resolve(p, var->type) : NULL;
	const char *name = var ? ebpf_obj_btf_name(p, var->name_off) : "type";
	const Elf64_Sym *sym;
	struct declared d = { .p = p, .name = name };
	struct ebpf_obj_map_at *at = &p->map_at[p->n_map_at];
	int err = 0;

	if (!t || !btf_is_struct(t)) {
		return ebpf_obj_refuse(p, -EINVAL, ".maps", v->offset,
				       "%s is not a map definition (an anonymous struct)", name);
	}
	sym = ebpf_obj_variable(p, section, name);
	if (!sym || ebpf_obj_map_at(p, sym->st_value)) {
		return ebpf_obj_refuse(p, -EINVAL, ".maps", v->offset,
				       sym ? "map %s lies where another map begins"
					   : "map %s has no symbol",
				       name);
	}
	d.def = ebpf_obj_new_map(p, name, &err);
	if (!d.def) {
		return err;
	}
	err = read_members(&d, t);
	if (err == 0) {
		p->n_map_at++;
		*at = (struct ebpf_obj_map_at){ (uint32_t)sym->st_value, (uint32_t)sym->st_size,
						p->o->n_maps, d.values, NULL };
		err = check_values(&d);
	}
	err = err ? err : ebpf_obj_check_map(p, d.def);
	err = err ? err : check_standard(p, d.def);
	err = err ? err : read_inner(&d, at);
	err = err ? err : ebpf_obj_find_lock(p, d.def, d.value_type, &d.def->lock_1);
	if (err == 0) {
		p->o->key_type[p->o->n_maps] = d.key_type;
		p->o->value_type[p->o->n_maps] = d.value_type;
		p->o->n_maps++;
	}
	return err;
}

int ebpf_obj_read_maps(struct ebpf_obj_parse *p)
{
	const struct btf_type *t;
	int err = 0, seen = 0;

	for (uint32_t i = 1; err == 0 && i < p->n_secs; i++) {
		if (p->secs[i].role != OBJ_MAPS) {
			continue;
		}
		if (seen++) {
			return ebpf_obj_refuse(p, -EINVAL, ".maps", 0, "a second section of maps");
		}
		if (!p->secs[i].datasec) {
			return ebpf_obj_refuse(p, -EINVAL, ".maps", 0,
					       "BTF has no description of the maps");
		}
		t = btf__type_by_id(p->btf, p->secs[i].datasec);
		for (uint32_t k = 0; err == 0 && k < btf_vlen(t); k++) {
			err = declared_map(p, i, &btf_var_secinfos(t)[k]);
		}
	}
	return err;
}
