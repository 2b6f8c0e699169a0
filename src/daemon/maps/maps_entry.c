/* map.get, map.set, map.delete: one entry. A caller that may change maps can break the policy's own
 * invariants with it, but nothing else: values are stored as the helpers store them. */
#include "daemon/maps/policy_maps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bpf/load/btf/typed.h"
#include "daemon/audit.h"
#include "daemon/consts.h"

struct entry_call {
	struct daemon_map_view v;
	int tenant;
	uint8_t *key, *value; /* owned */
};

static void fail(struct daemon_call *c, const struct report *r, int exit_code)
{
	daemon_control_answer(c->d, c->conn, c->id, NULL, r, exit_code);
}

/* Parses params[name] into bytes, which keep what it does not mention. */
static bool parse(struct daemon_call *c, const struct entry_call *e, const char *name,
		  uint32_t type, uint8_t *bytes, size_t n)
{
	const char *text = json_string_value(json_object_get(c->params, name));
	struct report r;
	int err;

	if (!text) {
		daemon_control_error(c, 2, "usage", "As text: 7, {a=1}, \"name\", hex:0011",
				     "the %s is missing", name);
		return false;
	}
	report_init(&r);
	err = ebpf_typed_parse(e->v.btf, type, text, bytes, n, &r);
	if (err) {
		report_set(&r, err, "usage", "invalid %s for map '%s'", name, e->v.def->name);
		snprintf(r.code, sizeof(r.code), "usage");
		fail(c, &r, 2);
	}
	report_finish(&r);
	return !err;
}

static bool begin(struct daemon_call *c, struct entry_call *e)
{
	e->key = calloc(1, EBPF_MAX_KEY_BYTES);
	e->value = calloc(1, EBPF_MAX_VALUE_BYTES);
	if (!e->key || !e->value) {
		daemon_control_error(c, 1, "memory", NULL, "out of memory");
		return false;
	}
	return daemon_maps_find(c, &e->v) && daemon_maps_tenant(c, &e->v, &e->tenant);
}

static void end(struct entry_call *e)
{
	free(e->key);
	free(e->value);
}

static bool keyless(uint32_t type)
{
	return type == GBPF_MAP_QUEUE || type == GBPF_MAP_STACK;
}

static bool can_be_set(uint32_t type)
{
	return type == GBPF_MAP_ARRAY || type == GBPF_MAP_HASH || type == GBPF_MAP_LRU_HASH ||
	       type == GBPF_MAP_LPM_TRIE || keyless(type);
}

static bool may_change(struct daemon_call *c, const struct entry_call *e)
{
	if (e->v.def->flags & GBPF_F_RDONLY ||
	    ebpf_map_type_has(e->v.def->type, EBPF_MAP_PROGRAMS) ||
	    ebpf_map_type_has(e->v.def->type, EBPF_MAP_MAPS)) {
		daemon_control_error(
			c, 2, "constant", "Set it where the policy is built, and load that",
			"map '%s' is constant while its version is active", e->v.def->name);
		return false;
	}
	if (e->v.def->flags & GBPF_F_DEVICE) {
		daemon_control_error(c, 2, "not-possible",
				     "A constant (const volatile) can be set where the tool is "
				     "built",
				     "map '%s' is written by programs inside kernels only",
				     e->v.def->name);
		return false;
	}
	if (!can_be_set(e->v.def->type)) {
		daemon_control_error(c, 2, "not-possible", NULL, "entries of a %s cannot be set",
				     daemon_map_type_name(e->v.def->type));
		return false;
	}
	if (keyless(e->v.def->type) && json_is_string(json_object_get(c->params, "key"))) {
		daemon_control_error(c, 2, "usage", "Omit the key: the next element is used",
				     "a %s has no keys", daemon_map_type_name(e->v.def->type));
		return false;
	}
	if (daemon_maps_per_tenant(&e->v) && e->tenant < 0) {
		daemon_control_error(c, 2, "usage",
				     "Name one with --tenant PID; `gbpf ps` lists them",
				     "each tenant has its own '%s'", e->v.def->name);
		return false;
	}
	return true;
}

/* Parses the key if the map has keys. */
static bool parse_key(struct daemon_call *c, struct entry_call *e)
{
	return keyless(e->v.def->type) ||
	       parse(c, e, "key", e->v.object->key_type[e->v.index], e->key, e->v.def->key_bytes);
}

static void not_there(struct daemon_call *c, const struct entry_call *e)
{
	const char *key = json_string_value(json_object_get(c->params, "key"));

	if (keyless(e->v.def->type)) {
		daemon_control_error(c, 5, "not-found", NULL, "'%s' is empty", e->v.def->name);
		return;
	}
	daemon_control_error(c, 5, "not-found", NULL, "map '%s' has no entry %.64s", e->v.def->name,
			     key ? key : "");
}

/* ---- get ---- */

static unsigned put_one(struct buf *out, struct entry_call *e, int tenant, unsigned n)
{
	struct ebpf_map room;
	const struct ebpf_map *m = daemon_maps_instance(&e->v, tenant, &room);

	if (!m || daemon_maps_entry_of(m, e->key, e->value) != 0) {
		return n;
	}
	buf_puts(out, n ? ",{" : "{");
	daemon_maps_put_entry(out, &e->v, m, tenant, ebpf_map_index(e->key), e->key, e->value);
	buf_puts(out, "}");
	return n + 1;
}

static void get(struct daemon_call *c, struct entry_call *e)
{
	struct buf out;
	unsigned n = 0;
	bool slow = false;

	if (!daemon_maps_has_keys(&e->v)) {
		daemon_control_error(c, 2, "not-possible", "`gbpf map dump` shows what is in it",
				     "a %s has no keys", daemon_map_type_name(e->v.def->type));
		return;
	}
	if (!parse_key(c, e)) {
		return;
	}
	buf_init(&out);
	daemon_maps_put_head(&out, &e->v);
	buf_puts(&out, ",\"entries\":[");
	if (daemon_maps_per_tenant(&e->v) && e->tenant < 0) {
		struct daemon_maps_reader reader = daemon_maps_reader_of(c);
		uint64_t begin = clock_cpu_ns();

		for (int i = 0; i < (int)PROTO_MAX_TENANTS && !slow; i++) {
			if (e->v.live->region[i].map && daemon_maps_may_read(&reader, i)) {
				n = put_one(&out, e, i, n);
				slow = clock_cpu_ns() - begin > DAEMON_MAPS_GET_NS;
			}
		}
	} else {
		n = put_one(&out, e, e->tenant, n);
	}
	buf_puts(&out, "]}");
	if (slow) {
		daemon_control_error(c, 7, "limit", "Name one tenant, or use `gbpf map dump`",
				     "it takes too long to ask every tenant for its '%s'",
				     e->v.def->name);
	} else if (n) {
		daemon_control_result_text(c, &out);
	} else {
		not_there(c, e);
	}
	buf_finish(&out);
}

void daemon_method_map_get(struct daemon_call *c)
{
	struct entry_call e = { .tenant = DAEMON_MAPS_NO_TENANT };

	if (begin(c, &e)) {
		get(c, &e);
	}
	end(&e);
}

/* ---- set ---- */

static void answer(struct daemon_call *c, const struct entry_call *e)
{
	struct buf out;

	buf_init(&out);
	daemon_maps_put_head(&out, &e->v);
	buf_puts(&out, ",\"entries\":[{");
	daemon_maps_put_entry(&out, &e->v, NULL, e->tenant, 0, e->key, e->value);
	buf_puts(&out, "}]}");
	daemon_control_result_text(c, &out);
	buf_finish(&out);
}

static void fail_change(struct daemon_call *c, const struct entry_call *e, int err)
{
	switch (err) {
	case -ENOENT:
		not_there(c, e);
		break;
	case -E2BIG:
		daemon_control_error(c, 7, "full", NULL, "map '%s' is full", e->v.def->name);
		break;
	case -EINVAL:
		if (ebpf_map_type_has(e->v.def->type, EBPF_MAP_PREFIX)) {
			daemon_control_error(c, 2, "usage", "It counts bits",
					     "the prefix is longer than %u",
					     8 * (e->v.def->key_bytes - 4));
			break;
		}
		FALLTHROUGH;
	default:
		daemon_control_error(c, 1, "failed", NULL, "map '%s' cannot be changed: %s",
				     e->v.def->name, strerror(-err));
	}
}

/* Records who changed a map: each change in the audit log, the first of a series in the history. */
static void record_change(struct daemon_call *c, const struct entry_call *e)
{
	json_t *key = json_object_get(c->params, "key"),
	       *value = json_object_get(c->params, "value");
	char *k = key ? json_dumps(key, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
	char *v = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
	char text[320], of[32] = "";

	if (e->tenant >= 0) {
		snprintf(of, sizeof(of), " of tenant %d", e->tenant);
	}
	snprintf(text, sizeof(text), "version %llu, map '%s'%s: %s%.80s%s%.120s",
		 (unsigned long long)e->v.live->version, e->v.def->name, of, value ? "" : "delete ",
		 k ? k : "", k && v ? " = " : "", v ? v : "");
	daemon_audit(c->d, &c->peer, value ? "map.set" : "map.delete", 0, "%s", text);
	daemon_history_repeat(&c->d->history, clock_now_ns(), c->peer.uid, "map", -1, c->peer.pid,
			      "user %d: %s", (int)c->peer.uid, text);
	free(k);
	free(v);
}

/* Changes one instance; e->value is its entry then, or was. Returns 0, -errno, or 1 after answering
 * an error. */
typedef int (*change_one)(struct daemon_call *c, struct entry_call *e, const struct ebpf_map *m);

/* Changes each instance that the request is about, and answers. A per-tenant map has no instance
 * on the GPUs that its tenant does not use. Values are written as gbpfd's programs write them:
 * those of an epoch map are published at once. */
static void change(struct daemon_call *c, struct entry_call *e, change_one one)
{
	unsigned changed = 0;
	int err = 0;

	for (struct daemon_version *l = e->v.live; l && !err;
	     l = daemon_maps_next_instance(c, &e->v)) {
		struct ebpf_map room;
		const struct ebpf_map *m;

		e->v.live = l;
		m = daemon_maps_instance(&e->v, e->tenant, &room);
		if (m) {
			err = one(c, e, m);
			changed += !err;
			err = err == -ENOENT ? 0 : err; /* there may be one on another GPU */
			daemon_version_publish(l);
		}
	}
	if (changed) {
		record_change(c, e);
	}
	if (err < 0 || !changed) {
		fail_change(c, e, err ? err : -ENOENT);
	} else if (!err) {
		answer(c, e);
	}
}

static int set_one(struct daemon_call *c, struct entry_call *e, const struct ebpf_map *m)
{
	if (!keyless(m->type) && daemon_maps_entry_of(m, e->key, e->value) != 0) {
		memset(e->value, 0,
		       m->value_bytes); /* otherwise members that the value does not mention stay */
	}
	if (!parse(c, e, "value", e->v.object->value_type[e->v.index], e->value, m->value_bytes)) {
		return 1;
	}
	return keyless(m->type) ? ebpf_map_push(m, e->value, 0)
				: ebpf_map_update(m, e->key, e->value, 0);
}

static void set(struct daemon_call *c, struct entry_call *e)
{
	if (may_change(c, e) && parse_key(c, e)) {
		change(c, e, set_one);
	}
}

void daemon_method_map_set(struct daemon_call *c)
{
	struct entry_call e = { .tenant = DAEMON_MAPS_NO_TENANT };

	if (begin(c, &e)) {
		set(c, &e);
	}
	end(&e);
}

/* ---- delete ---- */

static int delete_one(struct daemon_call *c, struct entry_call *e, const struct ebpf_map *m)
{
	(void)c;
	if (keyless(m->type)) {
		return ebpf_map_pop(m, e->value);
	}
	/* The answer contains the deleted value. */
	return daemon_maps_entry_of(m, e->key, e->value) != 0 ? -ENOENT
							      : ebpf_map_delete(m, e->key);
}

static void remove_entry(struct daemon_call *c, struct entry_call *e)
{
	if (!may_change(c, e)) {
		return;
	}
	if (e->v.def->type == GBPF_MAP_ARRAY) {
		daemon_control_error(c, 2, "not-possible", "Set it to 0 instead",
				     "entries of an array cannot be deleted");
		return;
	}
	if (parse_key(c, e)) {
		change(c, e, delete_one);
	}
}

void daemon_method_map_delete(struct daemon_call *c)
{
	struct entry_call e = { .tenant = DAEMON_MAPS_NO_TENANT };

	if (begin(c, &e)) {
		remove_entry(c, &e);
	}
	end(&e);
}
