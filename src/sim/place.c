/* Resolves `map NAME[KEY].member of TENANT`, or `... on GPU`, to typed bytes in the memory of an
 * instance. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/nearest.h"
#include "bpf/load/btf/typed_btf.h"
#include "bpf/run/map/map_type.h"
#include "sim/sim_int.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

struct spec {
	const char *at; /* start of the place, for error messages */
	uint8_t key[EBPF_MAX_KEY_BYTES];
	bool has_key;
	char path[256];
};

static const struct btf *types(const struct sim *s)
{
	return ebpf_object_btf(&s->testbed.built.object);
}

/* Returns a copy of the element as tools show it, or NULL if it is absent. */
static const uint8_t *read_value(struct sim *s, const struct sim_place *p)
{
	uint8_t **slot = &s->values[s->turn++ % ARRAY_SIZE(s->values)];
	const struct ebpf_map *m = p->live;
	uint32_t index;
	int err;

	if (!*slot) {
		*slot = malloc(EBPF_MAX_VALUE_BYTES);
	}
	if (!*slot || p->bytes > EBPF_MAX_VALUE_BYTES) {
		return NULL;
	}
	if (ebpf_map_type_has(m->type, EBPF_MAP_KEYLESS)) {
		memcpy(&index, p->key, sizeof(index));
		err = index < ebpf_map_slots(m) ? ebpf_map_slot(m, index, NULL, *slot) - 1 : -1;
	} else {
		err = ebpf_map_read(m, p->key, *slot);
	}
	return err ? NULL : *slot;
}

static bool find_map(struct sim *s, const char *name, struct sim_place *p)
{
	const struct ebpf_object *o = &s->testbed.built.object;

	for (uint32_t i = 0; i < o->n_maps; i++) {
		if (!o->maps[i].is_data && strcmp(o->maps[i].name, name) == 0) {
			p->map = i;
			p->type = o->value_type[i];
			p->bytes = o->maps[i].value_bytes;
			return true;
		}
	}
	return false;
}

/* Finds a global variable, which is a member of a data section. */
static bool find_variable(struct sim *s, const char *name, struct sim_place *p)
{
	const struct ebpf_object *o = &s->testbed.built.object;

	for (uint32_t i = 0; i < o->n_maps; i++) {
		const struct btf_type *t = ebpf_typed_resolve(types(s), o->value_type[i]);
		uint32_t looks = TYPED_LOOKS;
		struct ebpf_typed_part part;

		if (o->maps[i].is_data && t && btf_is_datasec(t) &&
		    ebpf_typed_member_named(types(s), t, o->maps[i].value_bytes, name, strlen(name),
					    0, &looks, &part) == 0) {
			p->map = i;
			p->type = o->value_type[i];
			p->bytes = o->maps[i].value_bytes;
			return true;
		}
	}
	return false;
}

static void offer_names(struct sim *s, struct nearest *n, struct buf *all)
{
	const struct ebpf_object *o = &s->testbed.built.object;

	for (uint32_t i = 0; i < o->n_maps; i++) {
		const struct btf_type *t = ebpf_typed_resolve(types(s), o->value_type[i]);
		struct ebpf_typed_part part;
		const char *name;

		if (!o->maps[i].is_data) {
			nearest_offer(n, o->maps[i].name);
			buf_printf(all, "%s%s", all->len ? ", " : "", o->maps[i].name);
		}
		for (uint32_t k = 0;
		     o->maps[i].is_data && t && btf_is_datasec(t) && k < btf_vlen(t); k++) {
			if (ebpf_typed_member(types(s), t, k, o->maps[i].value_bytes, &part,
					      &name) == 0) {
				nearest_offer(n, name);
				buf_printf(all, "%s%s", all->len ? ", " : "", name);
			}
		}
	}
}

static int unknown_name(struct sim *s, const char *at, const char *name)
{
	struct buf all = { 0 };
	struct nearest n;

	nearest_init(&n, name);
	offer_names(s, &n, &all);
	sim_unknown(s, at, &n, &all, "the policy has no map or global variable '%s'", name);
	buf_finish(&all);
	return -EINVAL;
}

/* Copies the text up to the closing ], to which the position moves. */
static int raw_key(struct sim *s, char *out, size_t cap)
{
	const char *from = s->at;
	int depth = 0;
	bool quoted = false;

	for (; *s->at && (quoted || depth || *s->at != ']'); s->at++) {
		quoted ^= *s->at == '"';
		if (!quoted) {
			depth += (*s->at == '[') + (*s->at == '{');
			depth -= (*s->at == ']') + (*s->at == '}');
		}
	}
	if (*s->at != ']' || (size_t)(s->at - from) >= cap) {
		return sim_wrong(s, s->at, NULL, "here ']' is needed");
	}
	memcpy(out, from, (size_t)(s->at - from));
	out[s->at - from] = 0;
	return 0;
}

/* Reports an error of the typed parser with the caret in the line of the scenario. */
static int wrong_value(struct sim *s, const char *at, struct report *r)
{
	int err = sim_wrong(s, at, buf_text(&r->hint), "%s", buf_text(&r->message));

	report_finish(r);
	return err;
}

static int number_key(struct sim *s, const struct sim_place *p, struct spec *spec)
{
	const struct ebpf_object *o = &s->testbed.built.object;
	uint32_t bytes = o->maps[p->map].key_bytes ? o->maps[p->map].key_bytes : 4;
	struct ebpf_typed_part whole = { .type = o->key_type[p->map], .bytes = bytes };
	const char *at = s->at;
	struct sim_value v;
	int err = sim_expression(s, NULL, &v);

	if (err) {
		return err;
	}
	err = ebpf_typed_write(types(s), &whole, spec->key, v.v);
	if (err == -EINVAL && !whole.type && bytes <= 8) {
		memcpy(spec->key, &v.v, bytes);
		err = bytes < 8 && v.v >> (8 * bytes) ? -ERANGE : 0;
	}
	if (err == -ERANGE) {
		return sim_wrong(s, at, NULL, "the key does not fit %u bytes", bytes);
	}
	if (err) {
		struct buf text = { 0 };
		char hint[300];

		ebpf_typed_describe(&text, types(s), whole.type);
		snprintf(hint, sizeof(hint), "Write {member=value, ...}: the key is %.200s",
			 buf_text(&text));
		buf_finish(&text);
		return sim_wrong(s, at, hint, "the key of this map is not a number");
	}
	return 0;
}

static int parse_key(struct sim *s, const struct sim_place *p, struct spec *spec)
{
	const struct ebpf_object *o = &s->testbed.built.object;
	const char *at = s->at;
	char text[256];
	int err;

	sim_blanks(s);
	if (*s->at == '{' || *s->at == '"' || strncmp(s->at, "hex:", 4) == 0) {
		struct report r;

		err = raw_key(s, text, sizeof(text));
		if (err) {
			return err;
		}
		report_init(&r);
		if (ebpf_typed_parse(types(s), o->key_type[p->map], text, spec->key,
				     o->maps[p->map].key_bytes, &r) < 0) {
			return wrong_value(s, at, &r);
		}
		report_finish(&r);
	} else {
		err = number_key(s, p, spec);
		if (err) {
			return err;
		}
	}
	if (!sim_take(s, "]")) {
		return sim_wrong(s, s->at, NULL, "here ']' is needed");
	}
	spec->has_key = true;
	return 0;
}

/* Evaluates the expressions in ".a[3].b", so that the path contains only numbers. */
static int parse_path(struct sim *s, struct spec *spec)
{
	size_t n = strlen(spec->path);

	while (*s->at == '.' || *s->at == '[') {
		struct sim_value v;
		size_t len;
		int err, wrote;

		if (*s->at == '.') {
			s->at++;
			len = sim_word(s);
			wrote = snprintf(spec->path + n, sizeof(spec->path) - n, ".%.*s", (int)len,
					 s->at);
			s->at += len;
		} else {
			s->at++;
			err = sim_expression(s, NULL, &v);
			if (err) {
				return err;
			}
			if (!sim_take(s, "]")) {
				return sim_wrong(s, s->at, NULL, "here ']' is needed");
			}
			wrote = snprintf(spec->path + n, sizeof(spec->path) - n, "[%" PRIu64 "]",
					 v.v);
		}
		if (wrote < 0 || (size_t)wrote >= sizeof(spec->path) - n) {
			return sim_wrong(s, s->at, NULL, "too many members");
		}
		n += (size_t)wrote;
	}
	return 0;
}

static struct sim_instance *only_instance(struct sim *s)
{
	return s->testbed.n_tenants == 1 ? &s->testbed.tenant[0].in : NULL;
}

/* Parses `on GPU`, or selects the only GPU, of a map that all tenants there share. */
static int parse_gpu(struct sim *s, const struct ebpf_map_def *d, const char *name, const char *at,
		     uint32_t *ret)
{
	struct sim_value v = { 0 };
	const char *from;
	int err;

	if (sim_take_word(s, "on")) {
		sim_blanks(s);
		from = s->at;
		err = sim_operand(s, &v);
		err = err ? err : sim_need_gpu(s, from, v.v);
	} else {
		err = s->testbed.n_gpus == 1 || d->flags & (GBPF_F_RDONLY | GBPF_F_ALL_GPUS)
			      ? 0
			      : sim_wrong(s, at, "Say which: ... on GPU",
					  "every GPU has its own '%s'", name);
	}
	*ret = (uint32_t)v.v;
	return err;
}

/* Parses `of NAME` or `on GPU`, or selects the only instance. */
static int parse_owner(struct sim *s, struct sim_place *p, const char *name, const char *at)
{
	const struct ebpf_map_def *d = &s->testbed.built.object.maps[p->map];
	bool per_tenant = d->flags & GBPF_F_TENANT;
	struct sim_instance *in;
	uint32_t gpu;
	int err;

	if (sim_take_word(s, "of")) {
		struct sim_tenant *t;

		sim_blanks(s);
		t = sim_testbed_tenant(&s->testbed, s->at, sim_word(s));
		if (!t) {
			return sim_wrong(s, s->at, "Tenants are declared with: tenant NAME",
					 "there is no tenant '%.*s'", (int)sim_word(s), s->at);
		}
		if (!per_tenant) {
			return sim_wrong(s, s->at, NULL, "'%s' is one for all tenants", name);
		}
		s->at += sim_word(s);
		in = &t->in;
	} else if (per_tenant) {
		in = sim_take_word(s, "on") ? NULL : only_instance(s);
		if (!in) {
			return sim_wrong(s, at, "Say whose: ... of TENANT",
					 "every tenant has its own '%s'", name);
		}
	} else {
		err = parse_gpu(s, d, name, at, &gpu);
		if (err) {
			return err;
		}
		in = &s->testbed.gpu[gpu].daemon;
	}
	p->live = in->policy ? &in->policy->env.maps[p->map] : NULL;
	return 0;
}

/* Selects a part of an untyped value: a number, or an element of an array of u64 (histogram). */
static int untyped_part(struct sim_place *p, const char *path)
{
	unsigned long long i;
	char end;

	p->part = (struct ebpf_typed_part){ .bytes = p->bytes };
	if (!path[0]) {
		return 0;
	}
	if (sscanf(path, "[%llu]%c", &i, &end) != 1 || i >= p->bytes / 8) {
		return -EINVAL;
	}
	p->part.offset = (size_t)i * 8;
	p->part.bytes = 8;
	return 0;
}

static int find_part(struct sim *s, struct sim_place *p, const struct spec *spec)
{
	struct report r;

	/* The buckets of a histogram's row need no name. */
	if (!p->type ||
	    (ebpf_map_type_has(s->testbed.built.object.maps[p->map].type, EBPF_MAP_COUNTERS) &&
	     spec->path[0] == '[')) {
		p->type = 0;
		return untyped_part(p, spec->path) < 0
			       ? sim_wrong(s, spec->at, NULL, "there is no '%s' in it", spec->path)
			       : 0;
	}
	report_init(&r);
	if (ebpf_typed_find(types(s), p->type, p->bytes, spec->path, &p->part, &r) < 0) {
		return wrong_value(s, spec->at, &r);
	}
	report_finish(&r);
	return 0;
}

/* Returns whether the map takes a key. Queues and stacks do not; their [0] is the next element to
 * pop. */
static bool takes_key(const struct sim *s, const struct sim_place *p)
{
	const struct ebpf_map_def *d = &s->testbed.built.object.maps[p->map];

	return d->key_bytes || ebpf_map_type_has(d->type, EBPF_MAP_KEYLESS);
}

int sim_place_map(struct sim *s, struct sim_place *p)
{
	const char *at;
	char name[64];
	size_t len;

	memset(p, 0, sizeof(*p));
	sim_blanks(s);
	at = s->at;
	len = MIN(sim_word(s), sizeof(name) - 1);
	snprintf(name, sizeof(name), "%.*s", (int)len, at);
	if (!find_map(s, name, p)) {
		return unknown_name(s, at, name);
	}
	s->at += len;
	return 0;
}

int sim_place_parse(struct sim *s, struct sim_place *p)
{
	static const uint32_t data_key;
	struct spec spec;
	bool is_map;
	char name[64];
	size_t len;
	int err = 0;

	memset(p, 0, sizeof(*p));
	memset(&spec, 0, sizeof(spec));
	sim_blanks(s);
	spec.at = s->at;
	len = MIN(sim_word(s), sizeof(name) - 1);
	snprintf(name, sizeof(name), "%.*s", (int)len, s->at);
	is_map = find_map(s, name, p);
	if (!is_map && !find_variable(s, name, p)) {
		return unknown_name(s, spec.at, name);
	}
	s->at += len;
	if (!is_map) {
		snprintf(spec.path, sizeof(spec.path), "%s", name);
	} else if (takes_key(s, p) && sim_take(s, "[")) {
		err = parse_key(s, p, &spec);
	}
	err = err ? err : parse_path(s, &spec);
	err = err ? err : parse_owner(s, p, name, spec.at);
	if (err) {
		return err;
	}
	p->whole_map = is_map && !spec.has_key;
	memcpy(p->key, is_map ? spec.key : (const uint8_t *)&data_key, is_map ? sizeof(p->key) : 4);
	if (!p->whole_map && p->live) {
		p->base = read_value(s, p);
	}
	return p->whole_map ? 0 : find_part(s, p, &spec);
}

int sim_place_number(struct sim *s, const char *at, const struct sim_place *p,
		     struct sim_value *ret)
{
	*ret = (struct sim_value){ 0, false };
	if (p->whole_map) {
		return sim_wrong(s, at, "Which element? map NAME[KEY]", "this is a whole map");
	}
	if (s->dry) {
		const struct btf_type *t = ebpf_typed_resolve(types(s), p->part.type);

		if (p->type && !ebpf_typed_is_scalar(t)) {
			return sim_wrong(s, at, "Name a member, or compare with {member=value}",
					 "this is not a number");
		}
		return 0;
	}
	if (!p->base) {
		return sim_wrong(s, at, NULL, "there is no such element now");
	}
	if (!p->type && p->part.bytes <= 8) {
		memcpy(&ret->v, p->base + p->part.offset, p->part.bytes);
		return 0;
	}
	if (ebpf_typed_read(types(s), &p->part, p->base, &ret->v, &ret->is_signed) < 0) {
		return sim_wrong(s, at, NULL, "this is not a number");
	}
	return 0;
}

void sim_place_print(struct sim *s, const struct sim_place *p, struct buf *out)
{
	if (!p->base) {
		buf_puts(out, "no such element");
		return;
	}
	ebpf_typed_print(out, types(s), p->part.type, p->base + p->part.offset, p->part.bytes);
}
