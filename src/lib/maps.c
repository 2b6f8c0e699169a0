/* Calls about maps. */
#include "lib/lib_int.h"

#include <stddef.h>

/* Adds the version or tool, and the GPU. */
static void add_version(json_t *p, const struct gbpf_map *m)
{
	bool has_probe = m->size >= offsetof(struct gbpf_map, probe) + sizeof(m->probe);
	bool has_gpu = m->size >= offsetof(struct gbpf_map, gpu) + sizeof(m->gpu);

	if (p && m->version) {
		json_object_set_new(p, "version", json_integer((json_int_t)m->version));
	}
	if (p && has_probe && m->probe) {
		json_object_set_new(p, "probe", json_integer((json_int_t)m->probe));
	}
	if (p && has_gpu && m->gpu) {
		json_object_set_new(p, "gpu", json_integer((json_int_t)m->gpu - 1));
	}
}

json_t *lib_map_params(const struct gbpf_map *m)
{
	json_t *p = json_pack("{s:s}", "map", m->name ? m->name : "");

	add_version(p, m);
	if (p && m->tenant != GBPF_ALL_TENANTS) {
		json_object_set_new(p, "tenant", json_integer(m->tenant));
	}
	return p;
}

static void add_text(json_t *p, const char *name, const char *text)
{
	if (p && text) {
		json_object_set_new(p, name, json_string(text));
	}
}

EXPORT int gbpf_map_list(struct gbpf *g, uint64_t version, char **ret_json)
{
	json_t *p = version ? json_pack("{s:I}", "version", (json_int_t)version) : json_object();

	return lib_text(g, "map.list", p, -1, ret_json);
}

EXPORT int gbpf_map_list_of(struct gbpf *g, const struct gbpf_map *m, char **ret_json)
{
	json_t *p = json_object();

	add_version(p, m);
	return lib_text(g, "map.list", p, -1, ret_json);
}

EXPORT int gbpf_map_drain(struct gbpf *g, const struct gbpf_map *m, char **ret_json)
{
	json_t *p = lib_map_params(m);

	if (p && !m->name) {
		json_object_del(p, "map");
	}
	return lib_text(g, "map.drain", p, -1, ret_json);
}

EXPORT int gbpf_map_dump(struct gbpf *g, const struct gbpf_map *m, const char *after,
			 unsigned limit, int nonzero, char **ret_json)
{
	json_t *p = lib_map_params(m);

	add_text(p, "after", after);
	if (p && limit) {
		json_object_set_new(p, "limit", json_integer(limit));
	}
	if (p && nonzero) {
		json_object_set_new(p, "nonzero", json_true());
	}
	return lib_text(g, "map.dump", p, -1, ret_json);
}

EXPORT int gbpf_map_get(struct gbpf *g, const struct gbpf_map *m, const char *key, char **ret_json)
{
	json_t *p = lib_map_params(m);

	add_text(p, "key", key);
	return lib_text(g, "map.get", p, -1, ret_json);
}

EXPORT int gbpf_map_set(struct gbpf *g, const struct gbpf_map *m, const char *key,
			const char *value, char **ret_json)
{
	json_t *p = lib_map_params(m);

	add_text(p, "key", key);
	add_text(p, "value", value);
	return lib_text(g, "map.set", p, -1, ret_json);
}

EXPORT int gbpf_map_delete(struct gbpf *g, const struct gbpf_map *m, const char *key,
			   char **ret_json)
{
	json_t *p = lib_map_params(m);

	add_text(p, "key", key);
	return lib_text(g, "map.delete", p, -1, ret_json);
}
