/* Typed calls: packs parameters for the methods of docs/PROTOCOL.md. */
#include "lib/lib_int.h"

EXPORT void gbpf_on_gpu(struct gbpf *g, int gpu)
{
	g->gpu = gpu;
}

void lib_name_gpu(const struct gbpf *g, json_t *params)
{
	if (params && g->gpu >= 0) {
		json_object_set_new(params, "gpu", json_integer(g->gpu));
	}
}

EXPORT int gbpf_policy_rollback(struct gbpf *g, uint64_t version, char **ret_json)
{
	return gbpf_policy_activate(g, version, 0, ret_json);
}

EXPORT int gbpf_policy_activate(struct gbpf *g, uint64_t version, unsigned flags, char **ret_json)
{
	json_t *p = json_pack("{s:b}", "keep_maps", !!(flags & GBPF_LOAD_KEEP_MAPS));

	if (p && version) {
		json_object_set_new(p, "version", json_integer((json_int_t)version));
	}
	lib_name_gpu(g, p);
	return lib_text(g, "policy.rollback", p, -1, ret_json);
}

EXPORT int gbpf_policy_unload(struct gbpf *g, char **ret_json)
{
	json_t *p = json_object();

	lib_name_gpu(g, p);
	return lib_text(g, "policy.unload", p, -1, ret_json);
}

EXPORT int gbpf_policy_list(struct gbpf *g, char **ret_json)
{
	return lib_text(g, "policy.list", json_object(), -1, ret_json);
}

EXPORT int gbpf_policy_show(struct gbpf *g, uint64_t version, char **ret_json)
{
	json_t *p = version ? json_pack("{s:I}", "version", (json_int_t)version) : json_object();

	return lib_text(g, "policy.show", p, -1, ret_json);
}

EXPORT int gbpf_policy_watch(struct gbpf *g, uint64_t version, char **ret_json)
{
	json_t *p = version ? json_pack("{s:I}", "version", (json_int_t)version) : json_object();

	return lib_text(g, "policy.watch", p, -1, ret_json);
}

EXPORT int gbpf_policy_watch_cancel(struct gbpf *g, uint64_t version, char **ret_json)
{
	json_t *p = version ? json_pack("{s:I}", "version", (json_int_t)version) : json_object();

	return lib_text(g, "policy.watch_cancel", p, -1, ret_json);
}

EXPORT int gbpf_ps(struct gbpf *g, char **ret_json)
{
	return lib_text(g, "ps", json_object(), -1, ret_json);
}

EXPORT int gbpf_set(struct gbpf *g, uint32_t tenant, const char *class_name, uint32_t weight,
		    char **ret_json)
{
	json_t *p = json_pack("{s:I}", "tenant", (json_int_t)tenant);

	if (p && class_name) {
		json_object_set_new(p, "class", json_string(class_name));
	}
	if (p && weight) {
		json_object_set_new(p, "weight", json_integer(weight));
	}
	return lib_text(g, "set", p, -1, ret_json);
}

EXPORT int gbpf_device_list(struct gbpf *g, char **ret_json)
{
	return lib_text(g, "device.list", json_object(), -1, ret_json);
}

EXPORT int gbpf_status(struct gbpf *g, char **ret_json)
{
	return lib_text(g, "status", json_object(), -1, ret_json);
}

EXPORT int gbpf_off(struct gbpf *g, int off, char **ret_json)
{
	return lib_text(g, off ? "off" : "on", json_object(), -1, ret_json);
}
