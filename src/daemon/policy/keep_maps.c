/* --keep-maps: finds the maps that match, and copies them. */
#include "daemon/policy/keep_maps.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "bpf/load/btf/btf_equal.h"
#include "daemon/consts.h"

/* Bound for matching, which runs on the loop: some milliseconds. Maps not matched by then are not
 * kept. */
#define MAX_LOOKS 200000u
#define LOOK_VARIABLE 4u

/* ---- matching ---- */

static int find_map(const struct ebpf_object *o, const char *name)
{
	for (uint32_t i = 0; i < o->n_maps; i++) {
		if (strcmp(o->maps[i].name, name) == 0) {
			return (int)i;
		}
	}
	return -1;
}

static const char *never_kept(const struct ebpf_map_def *d)
{
	if (d->flags & GBPF_F_RDONLY) {
		return "is constant: the new version's values apply";
	}
	if (ebpf_map_type_has(d->type, EBPF_MAP_PROGRAMS)) {
		return "holds programs, which belong to their version";
	}
	if (ebpf_map_type_has(d->type, EBPF_MAP_MAPS)) {
		return "holds maps, which belong to their version";
	}
	return ebpf_map_type_has(d->type, EBPF_MAP_RECORDS)
		       ? "records belong to their version; read them before it ends"
		       : NULL;
}

static const char *definitions_differ(const struct ebpf_map_def *a, const struct ebpf_map_def *b,
				      char detail[64])
{
	const struct {
		uint32_t old, new;
		const char *what;
	} rows[] = {
		{ a->type, b->type, "has another type" },
		{ a->flags, b->flags, "has other flags" },
		{ a->key_bytes, b->key_bytes, "has keys of another size" },
		{ a->value_bytes, b->value_bytes, "has values of another size" },
		{ a->max_entries, b->max_entries, "has another max_entries" },
		{ a->lock_1, b->lock_1, "has its lock at another offset" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rows[i].old != rows[i].new) {
			snprintf(detail, 64, "%u, was %u", rows[i].new, rows[i].old);
			return rows[i].what;
		}
	}
	return NULL;
}

/* Finds the old version's variable of that name and type, from *at to end or the end of the
 * section. */
static int find_between(struct daemon_keep *k, const struct ebpf_variable *v, uint32_t from_map,
			uint32_t *at, uint32_t end, struct ebpf_variable *ret)
{
	const struct ebpf_object *o = &k->old->object;

	for (; *at < end && k->looks &&
	       ebpf_variable_at(ebpf_object_btf(o), o->value_type[from_map],
				o->maps[from_map].value_bytes, *at, ret) == 0;
	     ++*at) {
		k->looks -= MIN(k->looks, LOOK_VARIABLE);
		if (strcmp(ret->name, v->name) == 0 &&
		    ebpf_types_equal_within(ebpf_object_btf(o), ret->type,
					    ebpf_object_btf(&k->new->object), v->type, &k->looks)) {
			++*at;
			return 0;
		}
	}
	return -ENOENT;
}

/* Searches after the variable found last first, where it usually is. */
static int find_variable(struct daemon_keep *k, const struct ebpf_variable *v, uint32_t from_map,
			 uint32_t *at, struct ebpf_variable *ret)
{
	uint32_t begin = *at;

	if (find_between(k, v, from_map, at, UINT32_MAX, ret) == 0) {
		return 0;
	}
	*at = 0;
	return find_between(k, v, from_map, at, begin, ret);
}

/* Plans a data section: each variable that has the same name and type in the old section. A section
 * without type information is kept as a whole if its layout cannot have changed. */
static void plan_data(struct daemon_keep *k, uint32_t i, int from)
{
	const struct ebpf_object *o = &k->new->object;
	struct daemon_keep_map *m = &k->map[i];
	struct ebpf_variable v, was;
	uint32_t n = 0, at = 0;
	int err = 0;

	m->span = k->n_spans;
	while (k->looks && (err = ebpf_variable_at(ebpf_object_btf(o), o->value_type[i],
						   o->maps[i].value_bytes, n, &v)) == 0) {
		k->looks -= MIN(k->looks, LOOK_VARIABLE);
		n++;
		if (k->n_spans < DAEMON_KEEP_SPANS &&
		    find_variable(k, &v, (uint32_t)from, &at, &was) == 0) {
			k->spans[k->n_spans++] =
				(struct daemon_keep_span){ was.offset, v.offset, v.bytes };
			m->n_spans++;
			continue;
		}
		m->n_lost++;
		if (m->n_lost == 1) {
			snprintf(m->detail, sizeof(m->detail), "%s", v.name);
		}
	}
	if (err == -EINVAL) {
		m->reason = "has no type information for its variables";
	} else if (!m->n_spans) {
		m->reason = "no variable matches a previous one by name and type";
	}
}

static void plan_map(struct daemon_keep *k, uint32_t i)
{
	const struct ebpf_object *o = &k->new->object, *was = &k->old->object;
	const struct ebpf_map_def *d = &o->maps[i];
	struct daemon_keep_map *m = &k->map[i];
	int from = find_map(was, d->name);

	m->from = -1;
	m->reason = never_kept(d);
	if (m->reason) {
		return;
	}
	if (from < 0) {
		m->reason = "the previous version has no map of that name";
		return;
	}
	if (d->is_data && was->maps[from].is_data && d->flags == was->maps[from].flags) {
		plan_data(k, i, from);
	} else if ((m->reason = definitions_differ(&was->maps[from], d, m->detail))) {
		return;
	} else if (d->is_data != was->maps[from].is_data) {
		m->reason = "is a data section in one version only";
	} else if (!ebpf_types_equal_within(ebpf_object_btf(was), was->key_type[from],
					    ebpf_object_btf(o), o->key_type[i], &k->looks)) {
		m->reason = "has keys of another type";
	} else if (!ebpf_types_equal_within(ebpf_object_btf(was), was->value_type[from],
					    ebpf_object_btf(o), o->value_type[i], &k->looks)) {
		m->reason = "has values of another type";
	}
	if (!m->reason) {
		m->from = from;
		k->n_kept++;
	}
}

int daemon_keep_plan(struct daemon_keep *k, const struct ebpf_built *old,
		     const struct ebpf_built *new)
{
	size_t bytes[EBPF_REGIONS];

	memset(k, 0, sizeof(*k));
	k->old = old;
	k->new = new;
	k->looks = MAX_LOOKS;
	if (ebpf_maps_layout(old->object.maps, old->object.n_maps, k->old_maps, bytes) < 0 ||
	    ebpf_maps_layout(new->object.maps, new->object.n_maps, k->new_maps, bytes) < 0) {
		return -EINVAL;
	}
	for (uint32_t i = 0; i < new->object.n_maps; i++) {
		plan_map(k, i);
	}
	return 0;
}

void daemon_keep_leave_out(struct daemon_keep *k, enum ebpf_region region, const char *reason)
{
	for (uint32_t i = 0; i < k->new->object.n_maps; i++) {
		struct daemon_keep_map *m = &k->map[i];

		if (m->from >= 0 && k->new_maps[i].region == (uint32_t)region) {
			m->from = -1;
			m->reason = reason;
			k->n_kept--;
		}
	}
}

/* ---- copying ---- */

/* Copies in words of 8 bytes. Values are aligned to 8 and variables to their size, so that no
 * number of up to 8 bytes is read in two halves. */
static void copy_bytes(void *to, const void *from, size_t n)
{
	size_t i = 0;

	if (((uintptr_t)to | (uintptr_t)from) % 8 == 0) {
		for (; i + 8 <= n; i += 8) {
			store_relaxed((uint64_t *)((char *)to + i),
				      load_relaxed((const uint64_t *)((const char *)from + i)));
		}
	}
	if (((uintptr_t)to | (uintptr_t)from) % 4 == 0) {
		for (; i + 4 <= n; i += 4) {
			store_relaxed((uint32_t *)((char *)to + i),
				      load_relaxed((const uint32_t *)((const char *)from + i)));
		}
	}
	for (; i < n; i++) {
		store_relaxed((uint8_t *)to + i, load_relaxed((const uint8_t *)from + i));
	}
}

uint64_t daemon_keep_bytes(const struct daemon_keep *k, enum ebpf_region region)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < k->new->object.n_maps; i++) {
		if (k->map[i].from >= 0 && k->new_maps[i].region == (uint32_t)region) {
			/* An element of a hash table takes about four times as long to copy as its
			 * bytes. */
			sum += (uint64_t)k->new_maps[i].bytes *
			       (k->new_maps[i].type == GBPF_MAP_ARRAY ? 1 : 4);
		}
	}
	return sum;
}

static void copy_map(const struct ebpf_map *to, const struct ebpf_map *from)
{
	(void)ebpf_map_copy(to, from); /* the definitions match, so this fails only if the tenant's
					  memory is corrupt: the rest is not copied */
	for (uint32_t i = 0; to->lock_1 && to->type == GBPF_MAP_ARRAY && i < to->max_entries; i++) {
		memset(to->data + (size_t)i * to->stride + to->lock_1 - 1, 0,
		       4); /* the copy of a held spin lock must be free */
	}
}

void daemon_keep_copy(const struct daemon_keep *k, enum ebpf_region region, const void *old,
		      void *new)
{
	for (uint32_t i = 0; i < k->new->object.n_maps; i++) {
		const struct daemon_keep_map *m = &k->map[i];
		struct ebpf_map from, to;

		if (m->from < 0 || k->new_maps[i].region != (uint32_t)region) {
			continue;
		}
		ebpf_map_at(&from, &k->old_maps[m->from], (void *)(uintptr_t)old);
		ebpf_map_at(&to, &k->new_maps[i], new);
		for (uint32_t s = m->span; s < m->span + m->n_spans; s++) {
			copy_bytes(to.data + k->spans[s].to, from.data + k->spans[s].from,
				   k->spans[s].bytes);
		}
		if (!m->n_spans) {
			copy_map(&to, &from);
		}
	}
}

/* ---- report ---- */

json_t *daemon_keep_json(const struct daemon_keep *k)
{
	json_t *maps = json_array();

	for (uint32_t i = 0; i < k->new->object.n_maps; i++) {
		const struct daemon_keep_map *m = &k->map[i];
		json_t *j = json_pack("{s:s,s:b}", "map", k->new->object.maps[i].name, "kept",
				      (int)!m->reason);

		if (j && m->reason) {
			json_object_set_new(j, "reason",
					    json_sprintf("%s%s%s%s", m->reason,
							 m->detail[0] ? " (" : "", m->detail,
							 m->detail[0] ? ")" : ""));
		}
		if (j && m->n_spans) {
			json_object_set_new(j, "variables", json_integer(m->n_spans));
			json_object_set_new(j, "new_variables", json_integer(m->n_lost));
		}
		json_array_append_new(maps, j);
	}
	return maps;
}
