/* Files of the store: <dir>/<number>.bpf.o, <number>.json, and state.json with the active versions.
 */
#include "daemon/policy/policy_store.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/private_dir.h"
#include "daemon/clean_text.h"

#define META_MAX (1u << 20)
#define MAX_NUMBER (UINT64_C(1) << 53)

struct daemon_stored_version *daemon_store_find(struct daemon_store *s, uint64_t version)
{
	for (unsigned i = 0; i < s->n; i++) {
		if (s->v[i].version == version) {
			return &s->v[i];
		}
	}
	return NULL;
}

bool daemon_store_in_use(const struct daemon_store *s, uint64_t version)
{
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		if (s->active[i] == version || s->kept[i] == version ||
		    s->history[i][0] == version) {
			return true;
		}
	}
	return daemon_store_watch_needs(s, version);
}

void daemon_store_remove(struct daemon_store *s, uint64_t version)
{
	struct daemon_stored_version *v = daemon_store_find(s, version);

	if (v) {
		daemon_store_forget(s, version);
		json_decref(v->meta);
		json_decref(v->counters);
		buf_finish(&v->object);
		daemon_verified_drop(v->verified);
		s->n--;
		memmove(v, v + 1, (size_t)((char *)&s->v[s->n] - (char *)v));
	}
}

void daemon_store_set_volatile(struct daemon_store *s, uint64_t version, struct buf *object)
{
	struct daemon_stored_version *v = daemon_store_find(s, version);

	if (v) {
		v->is_volatile = true;
		v->object = *object;
		buf_init(object);
	}
}

void daemon_store_ended(struct daemon_store *s, uint64_t version, const char *why)
{
	struct daemon_stored_version *v = daemon_store_find(s, version);

	if (v) {
		daemon_text_copy(v->ended, sizeof(v->ended), why, strlen(why));
	}
}

int daemon_store_add(struct daemon_store *s, uint64_t version, json_t *meta, uint64_t *ret_removed)
{
	const char *name = json_string_value(json_object_get(meta, "name"));
	const char *hash = json_string_value(json_object_get(meta, "hash"));
	struct daemon_stored_version *v;

	*ret_removed = 0;
	if (s->n == DAEMON_STORE_VERSIONS) {
		for (unsigned i = 0; i < s->n && !*ret_removed; i++) {
			if (!daemon_store_in_use(s, s->v[i].version)) {
				*ret_removed = s->v[i].version;
			}
		}
		if (!*ret_removed) {
			json_decref(meta);
			return -ENOSPC;
		}
		daemon_store_remove(s, *ret_removed);
	}
	v = &s->v[s->n];
	while (v > s->v && v[-1].version > version) {
		v[0] = v[-1];
		v--;
	}
	s->n++;
	*v = (struct daemon_stored_version){ .version = version,
					     .meta = meta,
					     .by_default = json_is_true(
						     json_object_get(meta, "by_default")),
					     .hash = hash ? strtoull(hash, NULL, 16) : 0 };
	daemon_text_copy(v->name, sizeof(v->name), name ? name : "", name ? strlen(name) : 0);
	if (version >= s->next) {
		s->next = version + 1;
	}
	return 0;
}

/* Reads state.json before the versions, so that active ones are kept if there are too many. Returns
 * its content, or NULL. */
static json_t *read_state(struct daemon_store *s)
{
	char path[4200];
	json_t *j, *active;

	snprintf(path, sizeof(path), "%s/" DAEMON_STORE_STATE, s->dir);
	j = daemon_store_read_json(path, META_MAX);
	if (!j) {
		s->bad_state = access(path, F_OK) == 0;
		return NULL;
	}
	s->has_state = true;
	s->off = json_is_true(json_object_get(j, "off"));
	s->next = MAX(s->next, (uint64_t)MAX(json_integer_value(json_object_get(j, "next")), 1));
	s->next = MIN(s->next, MAX_NUMBER);
	active = json_object_get(j, "active");
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		s->active[i] = (uint64_t)json_integer_value(json_array_get(active, i));
	}
	daemon_store_history_read(s, j);
	daemon_store_watches_read(s, j);
	return j;
}

/* Applies the state after the versions were read: clears the numbers of missing versions, and sets
 * why each version ended. */
static void check_state(struct daemon_store *s, const json_t *state)
{
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		s->active[i] = daemon_store_find(s, s->active[i]) ? s->active[i] : 0;
		s->kept[i] = s->active[i];
	}
	daemon_store_history_check(s, state);
	for (unsigned i = 0; i < s->n; i++) {
		char number[24];
		const char *why;

		snprintf(number, sizeof(number), "%llu", (unsigned long long)s->v[i].version);
		why = json_string_value(json_object_get(json_object_get(state, "ended"), number));
		daemon_store_ended(s, s->v[i].version, why ? why : "");
	}
}

/* A gbpfd that was killed may leave one version more than DAEMON_STORE_VERSIONS. */
static bool has_room(const struct daemon_store *s, uint64_t version)
{
	if (s->n < DAEMON_STORE_VERSIONS || daemon_store_in_use(s, version)) {
		return true;
	}
	for (unsigned i = 0; i < s->n; i++) {
		if (!daemon_store_in_use(s, s->v[i].version)) {
			return s->v[i].version < version;
		}
	}
	return false;
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), e = strlen(end);

	return n > e && strcmp(text + n - e, end) == 0;
}

/* Removes a temporary file that a killed gbpfd left. */
static bool remove_remains(struct daemon_store *s, const char *file)
{
	char path[4200 + 256], meta[4200];
	unsigned long long n = strtoull(file, NULL, 10);

	daemon_store_path(meta, s->dir, n, ".json");
	if (!ends_with(file, ".part") &&
	    !(n && ends_with(file, ".bpf.o") && access(meta, F_OK) < 0 && errno == ENOENT)) {
		return false;
	}
	snprintf(path, sizeof(path), "%s/%s", s->dir, file);
	unlink(path);
	return true;
}

static void read_version(struct daemon_store *s, const char *file)
{
	char *end, path[4200];
	unsigned long long n = strtoull(file, &end, 10);
	uint64_t removed;
	json_t *meta;

	if (n == 0 || n >= MAX_NUMBER || strcmp(end, ".json") != 0) {
		return;
	}
	daemon_store_path(path, s->dir, n, ".bpf.o");
	if (!daemon_store_is_file(path) || access(path, R_OK) < 0) {
		return;
	}
	if (!has_room(s, n)) {
		daemon_store_delete_files(s->dir, n);
		return;
	}
	daemon_store_path(path, s->dir, n, ".json");
	meta = daemon_store_read_json(path, META_MAX);
	if (meta && daemon_store_add(s, n, meta, &removed) == 0 && removed) {
		daemon_store_delete_files(s->dir, removed);
	}
}

int daemon_store_open(struct daemon_store *s, const char *state_dir)
{
	struct dirent *e;
	json_t *state;
	DIR *dir;
	int err;

	memset(s, 0, sizeof(*s));
	s->next = 1;
	if (snprintf(s->dir, sizeof(s->dir), "%s/policies", state_dir) >= (int)sizeof(s->dir)) {
		return -ENAMETOOLONG;
	}
	err = private_dir_make(s->dir, 0700, false, NULL);
	if (err) {
		return err;
	}
	dir = opendir(s->dir);
	if (!dir) {
		return -errno;
	}
	state = read_state(s);
	while ((e = readdir(dir))) {
		if (!remove_remains(s, e->d_name)) {
			read_version(s, e->d_name);
		}
	}
	closedir(dir);
	check_state(s, state);
	json_decref(state);
	return 0;
}

void daemon_store_close(struct daemon_store *s)
{
	while (s->n) {
		daemon_store_remove(s, s->v[0].version);
	}
}

char *daemon_store_state_text(const struct daemon_store *s)
{
	json_t *active = json_array(), *ended = json_object(), *j;
	char *text;

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		json_array_append_new(active, json_integer((json_int_t)s->kept[i]));
	}
	for (unsigned i = 0; i < s->n; i++) {
		if (s->v[i].ended[0]) {
			char number[24];

			snprintf(number, sizeof(number), "%llu",
				 (unsigned long long)s->v[i].version);
			json_object_set_new(ended, number, json_string(s->v[i].ended));
		}
	}
	j = json_pack("{s:I,s:b,s:o,s:o,s:o}", "next", (json_int_t)s->next, "off", (int)s->off,
		      "active", active, "ended", ended, "watches", daemon_store_watches_json(s));
	if (j) {
		daemon_store_history_write(s, j);
	}
	text = j ? json_dumps(j, JSON_COMPACT) : NULL;
	json_decref(j);
	return text;
}
