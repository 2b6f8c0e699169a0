/* The file of named vGPUs. It is written after each change, by the worker; what a vGPU is given
 * counts from the change on, also if the file cannot be written. */
#include "daemon/vgpu/vgpu_int.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/saving.h"
#include "daemon/store_file.h"

#define FILE_NAME "vgpus.json"
#define ASIDE ".bad" /* appended to the name of a file with faults */
#define FILE_MAX (1u << 20)
#define SAVING_MAX 64u	       /* changes that callers wait for */
#define SAVING_FOREIGN_MAX 32u /* beyond it only operators may change more */

static json_t *entry_json(const struct daemon_vgpu *v)
{
	json_t *j = daemon_vgpu_config_json(&v->is.config), *users = json_array();

	for (unsigned i = 0; i < v->n_users; i++) {
		json_array_append_new(users, json_integer((json_int_t)v->users[i]));
	}
	json_object_set_new(j, "name", json_string(v->is.name));
	json_object_set_new(j, "uid", json_integer((json_int_t)v->uid));
	json_object_set_new(j, "users", users);
	json_object_set_new(j, "draining", json_boolean(v->draining));
	return j;
}

static char *file_text(const struct daemon *d)
{
	json_t *all = json_array(), *j;
	char *text;

	for (const struct daemon_vgpu *v = d->vgpus.first; v; v = v->next) {
		if (v->is.name[0]) {
			json_array_append_new(all, entry_json(v));
		}
	}
	j = json_pack("{s:o}", "vgpus", all);
	text = j ? json_dumps(j, JSON_INDENT(1)) : NULL;
	json_decref(j);
	return text;
}

bool daemon_vgpu_may_save(const struct daemon *d, bool administers)
{
	return d->vgpus.saving < (administers ? SAVING_MAX : SAVING_FOREIGN_MAX);
}

int daemon_vgpu_save(struct daemon *d, json_t *result, uint64_t conn, json_int_t id)
{
	return daemon_save(d, &(struct daemon_saving){ .dir = d->opt.state,
						       .file = FILE_NAME,
						       .what = "a change of virtual GPUs",
						       .text = file_text(d),
						       .result = result,
						       .conn = conn,
						       .id = id,
						       .waiting = &d->vgpus.saving });
}

static bool is_uid(const json_t *j)
{
	return json_is_integer(j) && json_integer_value(j) >= 0 &&
	       json_integer_value(j) < (json_int_t)UINT32_MAX;
}

/* Returns NULL, or what is wrong with the entry. */
static const char *load_entry(struct daemon *d, const json_t *j)
{
	const char *name = json_string_value(json_object_get(j, "name"));
	const json_t *uid = json_object_get(j, "uid"), *users = json_object_get(j, "users"), *u;
	uid_t owner = uid && json_is_integer(uid) ? (uid_t)json_integer_value(uid) : 0;
	struct proto_vgpu is = { 0 };
	struct daemon_vgpu *v;
	const char *fault;
	size_t i;

	if (!name || !proto_vgpu_name_is_valid(name) || daemon_vgpu_of_owner(d, owner, name)) {
		return "name";
	}
	fault = daemon_vgpu_config_take(&is.config, j);
	if (fault || (uid && !is_uid(uid)) || json_array_size(users) > DAEMON_VGPU_USERS) {
		return fault ? fault : "users";
	}
	json_array_foreach(users, i, u)
	{
		if (!is_uid(u)) {
			return "users";
		}
	}
	snprintf(is.name, sizeof(is.name), "%s", name);
	v = d->vgpus.n < PROTO_VGPUS ? daemon_vgpu_add(d, owner, &is) : NULL;
	if (!v) {
		return "there are too many";
	}
	json_array_foreach(users, i, u)
	{
		v->users[v->n_users++] = (uid_t)json_integer_value(u);
	}
	v->draining = json_is_true(json_object_get(j, "draining"));
	v->awaited = daemon_vgpu_is_marked(v);
	if (v->draining && !v->awaited) { /* its last program ended while gbpfd was away */
		daemon_vgpu_destroy(v);
	}
	return NULL;
}

/* Keeps the file as it is under another name: the next change of a vGPU replaces it. */
static void keep_aside(const char *path)
{
	char aside[DAEMON_PATH + 32];

	snprintf(aside, sizeof(aside), "%s" ASIDE, path);
	(void)unlink(aside);
	if (link(path, aside) < 0 && rename(path, aside) < 0) { /* a folder has no second name */
		log_warn("cannot keep %s as %s: %s", path, aside, strerror(errno));
	}
}

/* Invalid entries are left out, with a warning; the file with them is kept aside. */
void daemon_vgpus_open(struct daemon *d)
{
	char path[DAEMON_PATH + 16];
	json_t *j, *e;
	bool faulty = false;
	struct stat st;
	size_t i;

	daemon_vgpus_await(d);
	snprintf(path, sizeof(path), "%s/" FILE_NAME, d->opt.state);
	j = daemon_store_read_json(path, FILE_MAX);
	if (!json_is_array(json_object_get(j, "vgpus")) && lstat(path, &st) == 0) {
		faulty = true;
		log_warn("%s is not a list of virtual GPUs: it is kept with " ASIDE " appended",
			 path);
		daemon_history_add(&d->history, "store", -1,
				   "%s cannot be read: no virtual GPU with a name is known; it is "
				   "kept with " ASIDE " appended",
				   path);
	}
	json_array_foreach(json_object_get(j, "vgpus"), i, e)
	{
		const char *fault = load_entry(d, e);

		if (fault) {
			faulty = true;
			log_warn("%s: entry %zu is left out: %s", path, i, fault);
			daemon_history_add(&d->history, "store", -1,
					   "virtual GPU %zu of %s is left out: %s", i, path, fault);
		}
	}
	json_decref(j);
	if (faulty) {
		keep_aside(path);
	}
}
