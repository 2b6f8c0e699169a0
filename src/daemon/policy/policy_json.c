/* The answers to policy.list and policy.show. */
#include "daemon/policy/policies_int.h"

#include "base/atomic.h"
#include "daemon/policy/policy_failures.h"

/* Returns the numbers of the GPUs of the mask whose devices are known. */
static json_t *gpus_json(struct daemon *d, uint32_t mask)
{
	json_t *gpus = json_array();

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		if (d->devices.d[i].used && mask & 1u << i) {
			json_array_append_new(gpus, json_integer(i));
		}
	}
	return gpus;
}

/* Returns the GPUs of the version that are led: groups are stopped by the policy of another GPU. */
static json_t *led_json(struct daemon *d, uint64_t version)
{
	uint32_t led = load_relaxed(&daemon_directory(d)->led);

	return gpus_json(d, daemon_policy_gpus_of(d, version) & led);
}

static const char *state_of(struct daemon *d, uint64_t version)
{
	return daemon_policy_gpus_of(d, version) ? "active" : "kept";
}

static json_t *brief(struct daemon *d, const struct daemon_stored_version *v)
{
	json_t *gpus = gpus_json(d, daemon_policy_gpus_of(d, v->version)), *hooks = json_array(),
	       *maps = json_array(), *h;
	size_t i;

	json_array_foreach(json_object_get(v->meta, "hooks"), i, h)
	{
		json_array_append(hooks, json_object_get(h, "hook"));
	}
	json_array_foreach(json_object_get(v->meta, "maps"), i, h)
	{
		json_array_append(maps, json_object_get(h, "name"));
	}
	return json_pack("{s:I,s:s,s:s,s:O?,s:o,s:o,s:O?,s:O?,s:b,s:b,s:o,s:o,s:s}", "version",
			 (json_int_t)v->version, "name", v->name, "state", state_of(d, v->version),
			 "loaded_wall_ns", json_object_get(v->meta, "loaded_wall_ns"), "hooks",
			 hooks, "maps", maps, "license", json_object_get(v->meta, "license"),
			 "author_version", json_object_get(v->meta, "author_version"), "by_default",
			 (int)v->by_default, "volatile", (int)v->is_volatile, "gpus", gpus, "led",
			 led_json(d, v->version), "ended", v->ended);
}

uint64_t daemon_policy_first_active(struct daemon *d)
{
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		if (daemon_policy_active_version(d, i)) {
			return daemon_policy_active_version(d, i);
		}
	}
	return 0;
}

const char *daemon_policy_active_name(struct daemon *d, unsigned gpu)
{
	const struct daemon_stored_version *v =
		daemon_store_find(&d->policies->store, daemon_policy_active_version(d, gpu));

	return v ? v->name : "";
}

json_t *daemon_policy_list_json(struct daemon *d)
{
	struct daemon_store *st = &d->policies->store;
	json_t *versions = json_array();

	for (unsigned i = 0; i < st->n; i++) {
		json_array_append_new(versions, brief(d, &st->v[i]));
	}
	return json_pack("{s:I,s:o,s:o}", "active", (json_int_t)daemon_policy_first_active(d),
			 "known_gpus", gpus_json(d, UINT32_MAX), "versions", versions);
}

json_t *daemon_policy_counters_json(struct daemon *d, const struct daemon_version *l)
{
	json_t *notes = json_array();
	unsigned users = 0;
	struct daemon_tally t;

	daemon_failures_sum(d, l, &t);
	for (unsigned i = 0; i < PROTO_NOTES; i++) {
		json_array_append_new(notes, json_integer((json_int_t)t.notes[i]));
	}
	daemon_session_each(d, s)
	{
		const struct proto_stats *st = s->stats.map;

		users += st && s->state == DAEMON_SESSION_READY &&
			 load_relaxed(&st->version_in_use) == l->version;
	}
	return json_pack("{s:o,s:I,s:I,s:I,s:I,s:o,s:I,s:i}", "notes", notes, "helper_errors",
			 (json_int_t)(int64_t)daemon_failures_total(&t, PROTO_FAILED_HELPER),
			 "verdict_errors",
			 (json_int_t)(int64_t)daemon_failures_total(&t, PROTO_FAILED_VERDICT),
			 "stale_epochs",
			 (json_int_t)(int64_t)daemon_failures_total(&t, PROTO_FAILED_EPOCH), "slow",
			 (json_int_t)(int64_t)daemon_failures_total(&t, PROTO_FAILED_SLOW),
			 "failures", daemon_failures_json(&t), "ticks", (json_int_t)l->epoch,
			 "tenants", (int)users);
}

json_t *daemon_policy_show_json(struct daemon *d, uint64_t version)
{
	const struct daemon_stored_version *v;
	const struct daemon_version *live;
	json_t *j;

	version = version ? version : daemon_policy_first_active(d);
	v = daemon_store_find(&d->policies->store, version);
	if (!v) {
		return NULL;
	}
	j = json_copy(v->meta);
	if (!j) {
		return NULL;
	}
	json_object_set_new(j, "gpus", gpus_json(d, daemon_policy_gpus_of(d, version)));
	json_object_set_new(j, "led", led_json(d, version));
	json_object_set_new(j, "known_gpus", gpus_json(d, UINT32_MAX));
	json_object_set_new(j, "state", json_string(state_of(d, version)));
	live = daemon_version_find(d, version);
	if (live) {
		json_object_set_new(j, "counters", daemon_policy_counters_json(d, live));
	} else if (v->counters) {
		json_object_set(j, "counters", v->counters);
	}
	json_object_set_new(j, "ended", json_string(v->ended));
	json_object_set_new(j, "volatile", json_boolean(v->is_volatile));
	return j;
}
