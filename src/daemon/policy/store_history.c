/* Which version a rollback chooses. Each GPU has a short list of the versions that were active on
 * it before, the last one first. A version that becomes active leaves the list, and the one before
 * it enters it, so that a second rollback returns to where the first one began. A version that a
 * watch has rolled back is rejected: no list has it, and only its number activates it. */
#include <string.h>

#include "daemon/policy/policy_store.h"

static void take_out(uint64_t list[DAEMON_STORE_HISTORY], uint64_t version)
{
	unsigned n = 0;

	for (unsigned i = 0; i < DAEMON_STORE_HISTORY; i++) {
		if (list[i] && list[i] != version) {
			list[n++] = list[i];
		}
	}
	while (n < DAEMON_STORE_HISTORY) {
		list[n++] = 0;
	}
}

static void put_first(uint64_t list[DAEMON_STORE_HISTORY], uint64_t version)
{
	take_out(list, version);
	memmove(&list[1], &list[0], (DAEMON_STORE_HISTORY - 1) * sizeof(list[0]));
	list[0] = version;
}

void daemon_store_activate(struct daemon_store *s, unsigned gpu, uint64_t version)
{
	uint64_t was = s->active[gpu];
	const struct daemon_stored_version *v = daemon_store_find(s, was);

	if (was != version && v && !v->is_rejected) {
		put_first(s->history[gpu], was);
	}
	take_out(s->history[gpu], version);
	s->active[gpu] = version;
}

void daemon_store_forget(struct daemon_store *s, uint64_t version)
{
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		take_out(s->history[i], version);
	}
}

void daemon_store_reject(struct daemon_store *s, uint64_t version)
{
	struct daemon_stored_version *v = daemon_store_find(s, version);

	if (v) {
		v->is_rejected = true;
		daemon_store_forget(s, version);
	}
}

const struct daemon_stored_version *daemon_store_last_rejected(const struct daemon_store *s)
{
	const struct daemon_stored_version *last = NULL;

	for (unsigned i = 0; i < s->n; i++) {
		last = s->v[i].is_rejected ? &s->v[i] : last;
	}
	return last;
}

void daemon_store_history_write(const struct daemon_store *s, json_t *state)
{
	json_t *history = json_array(), *rejected = json_array();

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		json_t *list = json_array();

		for (unsigned k = 0; k < DAEMON_STORE_HISTORY && s->history[i][k]; k++) {
			json_array_append_new(list, json_integer((json_int_t)s->history[i][k]));
		}
		json_array_append_new(history, list);
	}
	for (unsigned i = 0; i < s->n; i++) {
		if (s->v[i].is_rejected) {
			json_array_append_new(rejected, json_integer((json_int_t)s->v[i].version));
		}
	}
	json_object_set_new(state, "history", history);
	json_object_set_new(state, "rejected", rejected);
}

void daemon_store_history_read(struct daemon_store *s, const json_t *state)
{
	const json_t *history = json_object_get(state, "history");
	/* of gBPF 0.1.0: one version of each GPU */
	const json_t *previous = json_object_get(state, "previous");

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		const json_t *list = json_array_get(history, i);

		s->history[i][0] = (uint64_t)json_integer_value(json_array_get(previous, i));
		for (unsigned k = 0; k < DAEMON_STORE_HISTORY && list; k++) {
			s->history[i][k] = (uint64_t)json_integer_value(json_array_get(list, k));
		}
	}
}

void daemon_store_history_check(struct daemon_store *s, const json_t *state)
{
	const json_t *number;
	size_t n;

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		uint64_t list[DAEMON_STORE_HISTORY];

		memcpy(list, s->history[i], sizeof(list));
		memset(s->history[i], 0, sizeof(list));
		for (unsigned k = DAEMON_STORE_HISTORY; k-- > 0;) {
			if (list[k] != s->active[i] && daemon_store_find(s, list[k])) {
				put_first(s->history[i], list[k]);
			}
		}
	}
	json_array_foreach(json_object_get(state, "rejected"), n, number)
	{
		daemon_store_reject(s, (uint64_t)json_integer_value(number));
	}
}
