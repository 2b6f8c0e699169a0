/* The watches in state.json: what gbpfd needs to continue them after a restart. An entry of the
 * file is used only if it is valid as a whole; the others are counted, so that their loss is
 * reported. Must not depend on running watches. */
#include "daemon/policy/policy_store.h"

#include <string.h>

#include "base/compiler.h"
#include "daemon/clean_text.h"

#define NUMBER_MAX (INT64_C(1) << 53)
#define ALL_GPUS ((1u << PROTO_MAX_GPUS) - 1)

struct daemon_stored_watch *daemon_store_watch_find(struct daemon_store *s, uint64_t version)
{
	for (unsigned i = 0; i < s->n_watches; i++) {
		if (s->watch[i].version == version) {
			return &s->watch[i];
		}
	}
	return NULL;
}

bool daemon_store_watch_set(struct daemon_store *s, const struct daemon_stored_watch *w)
{
	struct daemon_stored_watch *to = daemon_store_watch_find(s, w->version);

	if (!to && s->n_watches < DAEMON_STORE_WATCHES) {
		to = &s->watch[s->n_watches++];
	}
	if (to) {
		*to = *w;
	}
	return to != NULL;
}

bool daemon_store_watch_remove(struct daemon_store *s, uint64_t version)
{
	struct daemon_stored_watch *w = daemon_store_watch_find(s, version);

	if (w) {
		*w = s->watch[--s->n_watches];
	}
	return w != NULL;
}

bool daemon_store_watch_needs(const struct daemon_store *s, uint64_t version)
{
	for (unsigned i = 0; i < s->n_watches; i++) {
		for (unsigned gpu = 0; gpu < PROTO_MAX_GPUS; gpu++) {
			if (s->watch[i].old[gpu] == version) {
				return true;
			}
		}
	}
	return false;
}

json_t *daemon_store_watches_json(const struct daemon_store *s)
{
	json_t *all = json_array();

	for (unsigned i = 0; i < s->n_watches; i++) {
		const struct daemon_stored_watch *w = &s->watch[i];
		json_t *old = json_array();

		for (unsigned gpu = 0; gpu < PROTO_MAX_GPUS; gpu++) {
			json_array_append_new(old, json_integer((json_int_t)w->old[gpu]));
		}
		json_array_append_new(
			all, json_pack("{s:I,s:s,s:I,s:I,s:I,s:b,s:s,s:o}", "version",
				       (json_int_t)w->version, "name", w->name, "watch_ns",
				       (json_int_t)w->ns, "end_wall_ns", (json_int_t)w->end_wall_ns,
				       "gpus", (json_int_t)w->gpu_mask, "keep_maps",
				       (int)w->keep_maps, "condition", w->condition, "old", old));
	}
	return all;
}

/* ---- reading ---- */

static bool number(const json_t *o, const char *key, json_int_t min, json_int_t max, uint64_t *ret)
{
	const json_t *j = json_object_get(o, key);
	json_int_t n = json_integer_value(j);

	*ret = (uint64_t)n;
	return json_is_integer(j) && n >= min && n <= max;
}

static bool read_old(const json_t *old, uint64_t out[PROTO_MAX_GPUS])
{
	if (!json_is_array(old) || json_array_size(old) != PROTO_MAX_GPUS) {
		return false;
	}
	for (unsigned gpu = 0; gpu < PROTO_MAX_GPUS; gpu++) {
		const json_t *j = json_array_get(old, gpu);
		json_int_t n = json_integer_value(j);

		if (!json_is_integer(j) || n < 0 || n >= NUMBER_MAX) {
			return false;
		}
		out[gpu] = (uint64_t)n;
	}
	return true;
}

static bool read_one(const json_t *j, struct daemon_stored_watch *w)
{
	const json_t *condition = json_object_get(j, "condition");
	const char *name = json_string_value(json_object_get(j, "name"));
	size_t len = json_string_length(condition);
	uint64_t gpus;

	if (!number(j, "version", 1, NUMBER_MAX - 1, &w->version) ||
	    !number(j, "watch_ns", DAEMON_WATCH_MIN_NS, DAEMON_WATCH_MAX_NS, &w->ns) ||
	    !number(j, "end_wall_ns", 0, INT64_MAX, &w->end_wall_ns) ||
	    !number(j, "gpus", 1, ALL_GPUS, &gpus) || !name || len == 0 ||
	    len >= sizeof(w->condition) || !read_old(json_object_get(j, "old"), w->old)) {
		return false;
	}
	w->gpu_mask = (uint32_t)gpus;
	w->keep_maps = json_is_true(json_object_get(j, "keep_maps"));
	memcpy(w->condition, json_string_value(condition), len + 1);
	daemon_text_copy(w->name, sizeof(w->name), name, strlen(name));
	return true;
}

void daemon_store_watches_read(struct daemon_store *s, const json_t *state)
{
	const json_t *all = json_object_get(state, "watches"), *j;
	size_t i;

	if (all && !json_is_array(all)) {
		s->bad_watches++;
	}
	json_array_foreach(all, i, j)
	{
		struct daemon_stored_watch w = { 0 };

		if (!read_one(j, &w) || daemon_store_watch_find(s, w.version) ||
		    !daemon_store_watch_set(s, &w)) {
			s->bad_watches++;
		}
	}
}
