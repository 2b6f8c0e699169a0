/* Calls about virtual GPUs. */
#include "lib/lib_int.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BYTES offsetof(struct gbpf_vgpu, device_mem) /* the struct must be this long */

static void add_number(json_t *p, const char *name, uint64_t value)
{
	json_int_t n = value > INT64_MAX ? INT64_MAX : (json_int_t)value; /* gbpfd refuses it */

	json_object_set_new(p, name, json_integer(n));
}

static void add_users(json_t *p, const struct gbpf_vgpu *v)
{
	json_t *users = json_array();

	for (size_t i = 0; i < v->n_users; i++) {
		json_array_append_new(users, json_integer(v->users[i]));
	}
	json_object_set_new(p, "users", users);
}

/* Adds what is given to the parameters. */
static void add_given(json_t *p, const struct gbpf_vgpu *v)
{
	const struct {
		unsigned bit;
		const char *name;
		uint64_t value;
	} numbers[] = {
		{ GBPF_GIVEN_MEM, "mem", v->mem },
		{ GBPF_GIVEN_RESERVE, "reserve", v->reserve },
		{ GBPF_GIVEN_PINNED, "pinned", v->pinned },
		{ GBPF_GIVEN_SWAP, "swap", v->swap },
		{ GBPF_GIVEN_WAIT, "wait_ns", v->wait_ns },
		{ GBPF_GIVEN_COMPUTE, "compute", v->compute },
		{ GBPF_GIVEN_COPY, "copy", v->copy },
		{ GBPF_GIVEN_PRIO, "prio", v->prio },
	};

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		if (v->given & numbers[i].bit) {
			add_number(p, numbers[i].name, numbers[i].value);
		}
	}
	if (v->given & GBPF_GIVEN_SHOW) {
		json_object_set_new(p, "show",
				    v->show == GBPF_SHOW_MEM   ? json_string("mem")
				    : v->show == GBPF_SHOW_ALL ? json_string("all")
							       : json_integer(v->show));
	}
	if (v->given & GBPF_GIVEN_BURST) {
		json_object_set_new(p, "burst", json_boolean(v->burst));
	}
	if (v->given & GBPF_GIVEN_USERS) {
		add_users(p, v);
	}
	if (v->device_mem) {
		add_number(p, "device_mem", v->device_mem);
	}
}

/* Calls a method with parameters (takes them; NULL: no memory) and what is given. */
static int change(struct gbpf *g, const char *method, json_t *params, const struct gbpf_vgpu *v,
		  char **ret_json)
{
	struct gbpf_vgpu all = { 0 };

	if (params && v) {
		if (v->size < FIRST_BYTES) {
			json_decref(params);
			return lib_fail(g, -EINVAL, GBPF_CODE_USAGE, "usage",
					"Set it to sizeof(struct gbpf_vgpu)",
					"the size of struct gbpf_vgpu is %zu", v->size);
		}
		memcpy(&all, v, v->size < sizeof(all) ? v->size : sizeof(all));
		add_given(params, &all);
	}
	return lib_text(g, method, params, -1, ret_json);
}

/* Returns {"name":name}, or NULL with the error stored. */
static json_t *name_params(struct gbpf *g, const char *name)
{
	json_t *text = json_string(name ? name : "");

	if (!text) {
		(void)lib_fail(g, -EINVAL, GBPF_CODE_USAGE, "usage", NULL,
			       "the name of a virtual GPU is not UTF-8");
		return NULL;
	}
	return json_pack("{s:o}", "name", text);
}

EXPORT int gbpf_vgpu_list(struct gbpf *g, char **ret_json)
{
	return lib_text(g, "vgpu.list", json_object(), -1, ret_json);
}

/* Returns true if a vGPU is that of the user in "1000/train". */
static bool is_of(const json_t *v, const char *name)
{
	return (unsigned long long)json_integer_value(json_object_get(v, "uid")) ==
	       strtoull(name, NULL, 10);
}

/* Returns the vGPU of that name, or of that number if it has none; NULL: there is none. gbpfd has
 * chosen it, but an older one, where a name was that of one vGPU only, lists all. */
static json_t *find(const json_t *list, const char *name)
{
	const char *slash = strchr(name, '/');
	json_t *v;
	size_t i;

	json_array_foreach(json_object_get(list, "vgpus"), i, v)
	{
		const char *own = json_string_value(json_object_get(v, "name"));
		const char *number = json_string_value(json_object_get(v, "number"));

		own = own && own[0] ? own : number;
		if (own && strcmp(own, slash ? slash + 1 : name) == 0 &&
		    (!slash || is_of(v, name))) {
			return v;
		}
	}
	return NULL;
}

EXPORT int gbpf_vgpu_show(struct gbpf *g, const char *name, char **ret_json)
{
	json_t *list = NULL, *v, *params = name_params(g, name);
	int err = params ? lib_request(g, "vgpu.list", params, -1, &list) : -EINVAL;

	if (err) {
		return err;
	}
	v = find(list, name ? name : "");
	err = v ? lib_give_text(g, v, ret_json)
		: lib_fail(g, -ENOENT, GBPF_CODE_NOT_FOUND, "not-found",
			   "`gbpf vgpu ls` lists them", "there is no virtual GPU '%.40s'",
			   name ? name : "");
	json_decref(list);
	return err;
}

EXPORT int gbpf_vgpu_create(struct gbpf *g, const char *name, const struct gbpf_vgpu *v,
			    char **ret_json)
{
	json_t *params = name_params(g, name);

	return params ? change(g, "vgpu.create", params, v, ret_json) : -EINVAL;
}

EXPORT int gbpf_vgpu_set(struct gbpf *g, const char *name, const struct gbpf_vgpu *v,
			 char **ret_json)
{
	json_t *params = name_params(g, name);

	return params ? change(g, "vgpu.set", params, v, ret_json) : -EINVAL;
}

EXPORT int gbpf_vgpu_set_of(struct gbpf *g, uint32_t tenant, const struct gbpf_vgpu *v,
			    char **ret_json)
{
	return change(g, "vgpu.set", json_pack("{s:I}", "tenant", (json_int_t)tenant), v, ret_json);
}

EXPORT int gbpf_vgpu_remove(struct gbpf *g, const char *name, unsigned flags, char **ret_json)
{
	json_t *params = name_params(g, name);

	if (!params) {
		return -EINVAL;
	}
	json_object_set_new(params, "drain", json_boolean(flags & GBPF_VGPU_DRAIN));
	return lib_text(g, "vgpu.rm", params, -1, ret_json);
}
