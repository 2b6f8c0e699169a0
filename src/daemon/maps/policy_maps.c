/* Finding the map that a request names, describing maps, and draining them. */
#include "daemon/maps/policy_maps.h"

#include <string.h>

#include "bpf/load/btf/typed.h"
#include "daemon/consts.h"
#include "daemon/policy/policies.h"
#include "daemon/probe/probes.h"

/* ---- lookup ---- */

static struct daemon_version *not_found(struct daemon_call *c, const char *hint, const char *what,
					long long n)
{
	daemon_control_error(c, 5, "not-found", hint, "there is no %s %lld", what, n);
	return NULL;
}

/* Leaves out instances of devices that were forgotten, unless no device of the version is known. */
static bool is_shown(const struct daemon_version *l)
{
	return daemon_policy_known_gpus(l->d, daemon_policy_gpus_of(l->d, l->version)) &
	       1u << l->gpu;
}

/* Returns the instance of an active version on the lowest GPU above `above`. */
static struct daemon_version *active_above(struct daemon *d, uint64_t version, int above)
{
	for (int gpu = above + 1; gpu < (int)PROTO_MAX_GPUS; gpu++) {
		struct daemon_version *l = daemon_policy_active_on(d, (uint32_t)gpu);

		if (l && l->version == version && is_shown(l)) {
			return l;
		}
	}
	return NULL;
}

static struct daemon_version *active_with(struct daemon *d, uint64_t version)
{
	return active_above(d, version, -1);
}

static struct daemon_version *default_version(struct daemon_call *c)
{
	struct daemon_version *l = active_with(c->d, daemon_policy_first_active(c->d));

	if (!l) {
		daemon_control_error(c, 5, "not-found", "`gbpf policy load` makes one active",
				     "no policy is active");
	}
	return l;
}

/* The instance on the GPU that params name: of this version, 0: of the active one. */
static struct daemon_version *version_on(struct daemon_call *c, const json_t *gpu, uint64_t version)
{
	json_int_t n = json_integer_value(gpu);
	struct daemon_version *l;

	if (!json_is_integer(gpu) || n < 0 || n >= (json_int_t)PROTO_MAX_GPUS) {
		daemon_control_error(c, 2, "usage", "`gbpf device` lists them", "invalid GPU");
		return NULL;
	}
	l = daemon_policy_active_on(c->d, (uint32_t)n);
	if (l && (!version || l->version == version)) {
		return l;
	}
	if (version) {
		daemon_control_error(c, 5, "not-active", "`gbpf policy list` shows where it is",
				     "version %llu is not active on GPU %lld",
				     (unsigned long long)version, (long long)n);
	} else {
		daemon_control_error(c, 5, "not-found", "`gbpf device` lists the GPUs",
				     "no policy is active on GPU %lld", (long long)n);
	}
	return NULL;
}

struct daemon_version *daemon_maps_next_instance(struct daemon_call *c,
						 const struct daemon_map_view *v)
{
	return daemon_version_is_probe(v->live) || json_object_get(c->params, "gpu") ||
			       v->def->flags & GBPF_F_ALL_GPUS
		       ? NULL
		       : active_above(c->d, v->live->version, (int)v->live->gpu);
}

static struct daemon_version *probe_version(struct daemon_call *c, const json_t *id)
{
	struct daemon_version *l = daemon_probe_numbered(c, json_integer_value(id));

	return l ? l
		 : not_found(c, "`gbpf probe ls` lists them", "tool",
			     (long long)json_integer_value(id));
}

struct daemon_version *daemon_maps_find_version(struct daemon_call *c)
{
	const json_t *given = json_object_get(c->params, "version");
	const json_t *probe = json_object_get(c->params, "probe");
	const json_t *gpu = json_object_get(c->params, "gpu");
	json_int_t version = json_integer_value(given);
	struct daemon_version *l;

	if (probe && gpu) {
		daemon_control_error(c, 2, "usage", "Leave one of them out",
				     "a tool has the same maps on all GPUs");
		return NULL;
	}
	if (probe) {
		return probe_version(c, probe);
	}
	if (!given) {
		return gpu ? version_on(c, gpu, 0) : default_version(c);
	}
	if (version <= 0) {
		return not_found(c, "`gbpf policy list` shows the versions", "version",
				 (long long)version);
	}
	l = daemon_probe_version(c, (uint64_t)version);
	if (!l && gpu) {
		return version_on(c, gpu, (uint64_t)version);
	}
	l = l ? l : active_with(c->d, (uint64_t)version);
	if (!l) {
		daemon_control_error(
			c, 5, "not-active",
			"Only versions that are active have maps; `gbpf policy list` shows them",
			"version %lld is not active", (long long)version);
	}
	return l;
}

static void no_such_map(struct daemon_call *c, const struct daemon_version *l, const char *name)
{
	const struct ebpf_object *o = &l->built->object;
	struct buf names;

	buf_init(&names);
	for (uint32_t i = 0; i < o->n_maps; i++) {
		buf_printf(&names, "%s%s", i ? ", " : "It has ", o->maps[i].name);
	}
	if (daemon_version_is_probe(l)) {
		daemon_control_error(c, 5, "not-found",
				     names.len ? buf_text(&names) : "It has no maps",
				     "tool %lld '%s' has no map '%.64s'",
				     (long long)daemon_probe_id(l), l->run.name, name);
	} else {
		daemon_control_error(c, 5, "not-found",
				     names.len ? buf_text(&names) : "It has no maps",
				     "policy '%s' (version %llu) has no map '%.64s'", l->run.name,
				     (unsigned long long)l->version, name);
	}
	buf_finish(&names);
}

/* Global maps lie in every tenant's memory, so hiding them here would hide nothing. Those of gbpfd
 * alone may have collected what it knows of all tenants. */
static bool may_see(struct daemon_call *c, const struct daemon_map_view *v)
{
	if (!(v->def->flags & GBPF_F_DAEMON) || daemon_may_administer(c->d, c->sock)) {
		return true;
	}
	daemon_control_error(c, 6, "permission",
			     "Only root, gbpfd's own user and members of the group gbpf may read "
			     "maps of gbpfd's programs",
			     "user %d may not read map '%s'", (int)c->peer.uid, v->def->name);
	return false;
}

static bool has_memory(struct daemon_call *c, const struct daemon_map_view *v)
{
	if (!ebpf_map_type_has(v->def->type, EBPF_MAP_IN_BLOCK)) {
		return true;
	}
	daemon_control_error(
		c, 2, "not-possible", "A program at gdev/exit can add what is in it to another map",
		"map '%s' is in shared memory of blocks and ends with each", v->def->name);
	return false;
}

static bool has_map(const struct daemon_version *l, const char *name, uint32_t *ret)
{
	const struct ebpf_object *o = &l->built->object;

	for (uint32_t i = 0; i < o->n_maps; i++) {
		if (strcmp(o->maps[i].name, name) == 0) {
			*ret = i;
			return true;
		}
	}
	return false;
}

/* Finds the only tool that has the map. Returns false after answering that there are several; else
 * *ret is NULL if there is none. */
static bool only_tool(struct daemon_call *c, const char *name, struct daemon_version **ret)
{
	struct daemon_version *l = NULL;
	uint32_t index;
	struct buf ids;
	unsigned n = 0;

	*ret = NULL;
	buf_init(&ids);
	while ((l = daemon_probe_next(c, l))) {
		if (has_map(l, name, &index)) {
			buf_printf(&ids, "%s%lld", n++ ? ", " : "", (long long)daemon_probe_id(l));
			*ret = l;
		}
	}
	if (n > 1) {
		daemon_control_error(c, 2, "usage", "Name one with --probe",
				     "tools %s have a map '%.64s'", buf_text(&ids), name);
	}
	buf_finish(&ids);
	return n <= 1;
}

/* Without a version or tool in params: the active policy, unless only a tool has the map. */
static struct daemon_version *version_with(struct daemon_call *c, const char *name)
{
	struct daemon_version *l, *tool;
	uint32_t index;

	if (json_object_get(c->params, "version") || json_object_get(c->params, "probe") ||
	    json_object_get(c->params, "gpu")) {
		return daemon_maps_find_version(c);
	}
	l = active_with(c->d, daemon_policy_first_active(c->d));
	if (l && has_map(l, name, &index)) {
		return l;
	}
	if (!only_tool(c, name, &tool)) {
		return NULL;
	}
	return tool ? tool : default_version(c);
}

bool daemon_maps_find(struct daemon_call *c, struct daemon_map_view *v)
{
	const char *name = json_string_value(json_object_get(c->params, "map"));
	struct daemon_version *l;
	uint32_t i;

	if (!name) {
		daemon_control_error(c, 2, "usage", "`gbpf map list` shows them",
				     "a map's name is missing");
		return false;
	}
	l = version_with(c, name);
	if (!l) {
		return false;
	}
	if (!has_map(l, name, &i)) {
		no_such_map(c, l, name);
		return false;
	}
	*v = (struct daemon_map_view){ l, &l->built->object, &l->built->object.maps[i],
				       ebpf_object_btf(&l->built->object), i };
	return may_see(c, v) && has_memory(c, v);
}

/* Without a GPU in params: goes to the first instance that has memory of the tenant. */
static void go_to_tenant(struct daemon_call *c, struct daemon_map_view *v, json_int_t tenant)
{
	struct daemon_map_view at = *v;

	while (at.live && !at.live->region[tenant].map) {
		at.live = daemon_maps_next_instance(c, &at);
	}
	v->live = at.live ? at.live : v->live;
}

bool daemon_maps_tenant(struct daemon_call *c, struct daemon_map_view *v, int *ret)
{
	const json_t *j = json_object_get(c->params, "tenant");
	json_int_t n = json_integer_value(j);
	struct daemon_maps_reader reader;

	*ret = DAEMON_MAPS_NO_TENANT;
	if (!j || json_is_null(j) || !daemon_maps_per_tenant(v)) {
		return true;
	}
	/* another user's tenant is not found, rather than forbidden: whether it uses the map is its
	 * own matter */
	reader = daemon_maps_reader_of(c);
	if (json_is_integer(j) && n >= 0 && n < PROTO_MAX_TENANTS) {
		go_to_tenant(c, v, n);
	}
	if (!json_is_integer(j) || n < 0 || n >= PROTO_MAX_TENANTS || !v->live->region[n].map ||
	    !daemon_maps_may_read(&reader, (int)n)) {
		daemon_control_error(c, 5, "not-found", "`gbpf ps` lists them",
				     "no tenant %lld with an instance of map '%s'", (long long)n,
				     v->def->name);
		return false;
	}
	*ret = (int)n;
	return true;
}

/* ---- description ---- */

static json_t *type_text(const struct daemon_map_view *v, uint32_t type)
{
	struct buf b;
	json_t *j;

	buf_init(&b);
	if (type && v->btf) {
		ebpf_typed_describe(&b, v->btf, type);
	}
	j = json_string(buf_text(&b));
	buf_finish(&b);
	return j ? j : json_string("");
}

static void add_kind(json_t *j, const struct daemon_map_view *v)
{
	json_object_set_new(j, "map", json_string(v->def->name));
	json_object_set_new(j, "type", json_string(daemon_map_type_name(v->def->type)));
	json_object_set_new(j, "scope", json_string(daemon_map_scope_name(v->def)));
	json_object_set_new(j, "key", type_text(v, v->object->key_type[v->index]));
	json_object_set_new(j, "value", type_text(v, v->object->value_type[v->index]));
}

/* Of a policy: the GPU whose instance it is, and those on which the version is active. */
static void add_gpus(json_t *j, const struct daemon_version *l)
{
	json_t *gpus;

	if (!j || daemon_version_is_probe(l)) {
		return;
	}
	gpus = json_array();
	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		const struct daemon_version *on = daemon_policy_active_on(l->d, i);

		if (on && on->version == l->version && (is_shown(on) || on == l)) {
			json_array_append_new(gpus, json_integer((json_int_t)i));
		}
	}
	json_object_set_new(j, "gpu", json_integer((json_int_t)l->gpu));
	json_object_set_new(j, "gpus", gpus);
}

void daemon_maps_put_head(struct buf *out, const struct daemon_map_view *v)
{
	json_t *j = json_pack("{s:I,s:s}", "version", (json_int_t)v->live->version, "policy",
			      v->live->run.name);
	char *text;

	add_gpus(j, v->live);
	if (j) {
		add_kind(j, v);
	}
	text = j ? json_dumps(j, JSON_COMPACT) : NULL;
	if (text) {
		buf_add(out, text, strlen(text) - 1);
	} else {
		out->failed = 1;
	}
	free(text);
	json_decref(j);
}

static json_t *describe(const struct daemon_map_view *v)
{
	const struct ebpf_map *m = &v->live->run.env.maps[v->index];
	int instances = 1;
	json_t *j;

	if (daemon_maps_per_tenant(v)) {
		instances = 0;
		for (unsigned i = 0; i < PROTO_MAX_TENANTS; i++) {
			instances += v->live->region[i].map != NULL;
		}
	}
	j = json_pack("{s:i,s:i,s:I,s:I,s:b,s:b,s:I,s:i}", "key_bytes", (int)v->def->key_bytes,
		      "value_bytes", (int)v->def->value_bytes, "max_entries",
		      (json_int_t)v->def->max_entries, "flags", (json_int_t)v->def->flags, "data",
		      (int)!!v->def->is_data, "epoch", (int)!!(v->def->flags & GBPF_F_EPOCH),
		      "bytes", (json_int_t)m->bytes, "instances", instances);
	if (j) {
		add_kind(j, v);
	}
	return j;
}

void daemon_method_map_list(struct daemon_call *c)
{
	struct daemon_version *l = daemon_maps_find_version(c);
	json_t *maps, *result;

	if (!l) {
		return;
	}
	maps = json_array();
	for (uint32_t i = 0; i < l->built->object.n_maps; i++) {
		const struct ebpf_object *o = &l->built->object;
		struct daemon_map_view v = { l, o, &o->maps[i], ebpf_object_btf(o), i };

		json_array_append_new(maps, describe(&v));
	}
	result = json_pack("{s:I,s:s,s:o}", "version", (json_int_t)l->version, "policy",
			   l->run.name, "maps", maps);
	add_gpus(result, l);
	daemon_control_result(c, result);
}

/* ---- drain ---- */

/* Returns the version or tool whose maps are to be copied, and the tenant. NULL after answering an
 * error. */
static struct daemon_version *drained(struct daemon_call *c, int *ret_tenant)
{
	struct daemon_map_view v;

	*ret_tenant = DAEMON_MAPS_NO_TENANT;
	if (!json_object_get(c->params, "map")) {
		return daemon_maps_find_version(c);
	}
	return daemon_maps_find(c, &v) && daemon_maps_tenant(c, &v, ret_tenant) ? v.live : NULL;
}

void daemon_method_map_drain(struct daemon_call *c)
{
	int tenant;
	struct daemon_version *l = drained(c, &tenant);

	if (l && daemon_version_is_probe(l)) {
		daemon_probe_drain_call(c, l, tenant);
	} else if (l) {
		daemon_control_result(c, json_pack("{s:I,s:i,s:i,s:i}", "version",
						   (json_int_t)l->version, "probe", 0, "drained", 0,
						   "late", 0));
	}
}
