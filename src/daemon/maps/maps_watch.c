/* Watches on maps: their owners and their schedule. A scan stops after half a millisecond and
 * continues in a later turn of the loop; it pauses while the caller does not read. */
#include "daemon/maps/maps_watch.h"

#include <bpf/btf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/consts.h"
#include "daemon/maps/maps_watch_int.h"
#include "daemon/policy/policies.h"
#include "daemon/probe/probes.h"
#include "daemon/timer.h"

#define MAX_WATCHES 32u
#define MAX_OF_USERS 12u /* of all users that may not administer */
#define MAX_OF_USER 4u	 /* of one of these */
#define CHANGES_MS 1000
#define RECORDS_MS 20
#define LEAST_MS 10
#define LEAST_OF_USER_MS 20

static struct daemon_maps_watch **find(struct daemon *d, const struct daemon_maps_watch *w)
{
	struct daemon_maps_watch **link = &d->maps.watches;

	while (*link && *link != w) {
		link = &(*link)->next;
	}
	return link;
}

static void destroy(struct daemon_maps_watch *w)
{
	struct daemon_maps_watch **link = find(w->d, w);

	if (*link) {
		*link = w->next;
	}
	sd_event_source_disable_unref(w->timer);
	for (uint32_t i = 0; i < PROTO_MAX_TENANTS; i++) {
		daemon_maps_watch_seen_free(w, i);
		daemon_maps_watch_ring_close(w, i);
	}
	free(w->key);
	free(w->value);
	free(w);
}

/* ---- lines ---- */

void daemon_maps_watch_line_begin(struct buf *out, const struct daemon_maps_watch *w, int tenant)
{
	buf_puts(out, "{\"watch\":{");
	if (tenant >= 0 && daemon_maps_per_tenant(&w->v)) {
		buf_printf(out, "\"tenant\":%d,", tenant);
	}
}

bool daemon_maps_watch_line_end(struct buf *out, const struct daemon_maps_watch *w)
{
	bool there;

	buf_puts(out, "}}\n");
	there = daemon_control_push(w->d, w->conn, out);
	buf_clear(out);
	return there;
}

static void say_end(struct daemon_maps_watch *w, const char *why)
{
	struct buf out;

	buf_init(&out);
	daemon_maps_watch_line_begin(&out, w, DAEMON_MAPS_NO_TENANT);
	buf_printf(&out, "\"end\":\"%s\"", why);
	daemon_maps_watch_line_end(&out, w);
	buf_finish(&out);
}

/* ---- time ---- */

static unsigned count(const struct daemon *d)
{
	unsigned n = 0;

	for (const struct daemon_maps_watch *w = d->maps.watches; w; w = w->next) {
		n++;
	}
	return n;
}

uint64_t daemon_maps_watch_deadline_ns(const struct daemon_maps_watch *w)
{
	return clock_now_ns() + DAEMON_WATCH_LOOK_NS * 4 / MAX(count(w->d), 4u);
}

/* Returns the delay until the next scan, or until the rest of this one: other work gets its turn in
 * between. */
static uint64_t next_look_us(const struct daemon_maps_watch *w, bool done, size_t waiting)
{
	if (waiting > DAEMON_WATCH_WAITING_BYTES) {
		return MIN(w->interval_us, (uint64_t)100000);
	}
	return done ? w->interval_us : 1000;
}

static int on_time(sd_event_source *src, uint64_t usec, void *arg)
{
	struct daemon_maps_watch *w = arg;
	size_t waiting = daemon_control_waiting(w->d, w->conn);
	uint64_t now_us = clock_now_ns() / 1000;
	bool done;

	(void)usec;
	if (waiting == SIZE_MAX) {
		destroy(w);
		return 0;
	}
	done = waiting <= DAEMON_WATCH_WAITING_BYTES &&
	       (daemon_maps_watch_is_ring(w) ? daemon_maps_watch_rings(w)
					     : daemon_maps_watch_changes(w));
	if (done && w->v.def->flags & GBPF_F_DEVICE) {
		daemon_probe_refresh(w->v.live, w->only); /* for the next scan */
	}
	daemon_timer_arm(src, now_us + next_look_us(w, done, waiting));
	return 0;
}

/* ---- begin and end ---- */

/* Returns until which processor time rings are drained. Many tenants may exit in one turn of the
 * loop and leave full rings, so the time is shared by all of them. */
static uint64_t drain_until(struct daemon *d)
{
	uint64_t turn = 0, now = clock_cpu_ns();

	sd_event_now(d->loop, CLOCK_MONOTONIC, &turn);
	if (turn != d->maps.drain_turn) {
		d->maps.drain_turn = turn;
		d->maps.drain_until_ns = now + DAEMON_WATCH_DRAIN_NS;
	}
	return MAX(d->maps.drain_until_ns, now + DAEMON_WATCH_DRAIN_MIN_NS);
}

static void tenant_gone(struct daemon_maps_watch *w, uint32_t tenant)
{
	if (daemon_maps_watch_is_ring(w)) {
		daemon_maps_watch_ring_drain(w, tenant, true, drain_until(w->d));
		daemon_maps_watch_ring_close(w, tenant);
		return;
	}
	daemon_maps_watch_seen_free(w, tenant);
	w->position = w->tenant == tenant ? 0 : w->position;
}

/* Reports the records left in the memory. */
static void tenant_memory_ends(struct daemon_version *l, uint32_t tenant)
{
	for (struct daemon_maps_watch *w = l->d->maps.watches; w; w = w->next) {
		if (w->v.live == l && daemon_maps_per_tenant(&w->v)) {
			tenant_gone(w, tenant);
		}
	}
}

static void version_gone(struct daemon_maps_watch *w, const char *why)
{
	uint32_t all = daemon_maps_per_tenant(&w->v) ? PROTO_MAX_TENANTS : 1;
	uint64_t cpu_until_ns = clock_cpu_ns() + DAEMON_WATCH_DRAIN_NS;

	for (uint32_t i = 0; daemon_maps_watch_is_ring(w) && i < all; i++) {
		daemon_maps_watch_ring_drain(w, i, false, cpu_until_ns);
	}
	say_end(w, why);
	destroy(w);
}

static void version_ends(struct daemon_version *l, const char *why)
{
	for (struct daemon_maps_watch *w = l->d->maps.watches, *next; w; w = next) {
		next = w->next;
		if (w->v.live == l) {
			version_gone(w, why);
		}
	}
}

static void connection_closed(struct daemon *d, uint64_t conn)
{
	for (struct daemon_maps_watch *w = d->maps.watches, *next; w; w = next) {
		next = w->next;
		if (w->conn == conn) {
			destroy(w);
		}
	}
}

const struct daemon_feature daemon_maps_feature = {
	.connection_closed = connection_closed,
	.tenant_memory_ends = tenant_memory_ends,
	.version_ends = version_ends,
};

/* Answers an error and returns true if the ring has a reader. A watch whose connection is closed is
 * destroyed instead. */
static bool has_reader(struct daemon_call *c, const struct daemon_map_view *v)
{
	for (struct daemon_maps_watch *w = c->d->maps.watches, *next; w; w = next) {
		next = w->next;
		if (w->v.live != v->live || w->v.index != v->index) {
			continue;
		}
		if (daemon_control_waiting(c->d, w->conn) != SIZE_MAX) {
			daemon_control_error(c, 7, "busy", "A ring buffer has one reader at a time",
					     "map '%s' is being watched already", v->def->name);
			return true;
		}
		destroy(w);
	}
	return false;
}

/* Returns false after answering that there is no watch left for the caller. */
static bool has_place(struct daemon_call *c)
{
	unsigned users = 0, own = 0, quota;

	if (count(c->d) >= MAX_WATCHES) {
		daemon_control_error(c, 7, "limit", "Try again when one of them has ended",
				     "%u maps are being watched already", MAX_WATCHES);
		return false;
	}
	for (const struct daemon_maps_watch *w = c->d->maps.watches; w; w = w->next) {
		users += !w->admin;
		own += !w->admin && w->uid == c->peer.uid;
	}
	quota = daemon_user_quota(MAX_OF_USERS, users - own, MAX_OF_USER);
	if (!daemon_may_administer(c->d, c->sock) && own >= quota) {
		daemon_control_error(c, 7, "limit", "End one of them",
				     "user %d watches %u maps, of %u that others leave to it",
				     (int)c->peer.uid, own, quota);
		return false;
	}
	return true;
}

/* Returns true for operators, and for the user that has attached the tool without being one; false
 * after answering an error. Such a tool has instances of the user's own programs only, so that
 * scans need not ask whose each is. */
static bool may_watch(struct daemon_call *c, const struct daemon_map_view *v)
{
	if (daemon_version_is_probe(v->live) ? daemon_probe_version_may_watch(c, v->live)
					     : daemon_may_administer(c->d, c->sock)) {
		return true;
	}
	daemon_control_error(c, 6, "permission",
			     "Only root, gbpfd's own user and members of the group gbpf may watch "
			     "maps of policies, and of tools that others have attached; "
			     "`gbpf map dump` shows what is in it",
			     "user %d may not watch map '%s'", (int)c->peer.uid, v->def->name);
	return false;
}

static bool can_be_watched(struct daemon_call *c, const struct daemon_map_view *v)
{
	const struct ebpf_map *m = &v->live->run.env.maps[v->index];
	bool ring = ebpf_map_type_has(v->def->type, EBPF_MAP_RECORDS);

	if (!may_watch(c, v) || !has_place(c)) {
		return false;
	}
	if (ring) {
		return !has_reader(c, v);
	}
	if (!daemon_maps_positions(m) || !daemon_maps_has_keys(v) ||
	    ebpf_map_type_has(v->def->type, EBPF_MAP_PROGRAMS)) {
		daemon_control_error(c, 2, "not-possible", "`gbpf map dump` shows what is in it",
				     "a %s cannot be watched", daemon_map_type_name(v->def->type));
		return false;
	}
	if ((uint64_t)daemon_maps_positions(m) * (v->def->key_bytes + v->def->value_bytes) >
	    DAEMON_WATCH_SEEN_BYTES) {
		daemon_control_error(c, 7, "limit", "Use `gbpf map dump`",
				     "map '%s' has more than %u MiB, too much to watch",
				     v->def->name, DAEMON_WATCH_SEEN_BYTES >> 20);
		return false;
	}
	return true;
}

/* Determines the type of records: as params name it, else the map's value type. Returns false after
 * answering that there is no such type. */
static bool record_type(struct daemon_call *c, const struct daemon_map_view *v, uint32_t *ret)
{
	const char *name = json_string_value(json_object_get(c->params, "type"));
	int id;

	*ret = v->object->value_type[v->index];
	if (!name) {
		return true;
	}
	name += strncmp(name, "struct ", 7) == 0 ? 7 : 0;
	id = v->btf ? btf__find_by_name_kind(v->btf, name, BTF_KIND_STRUCT) : -ENOENT;
	if (id < 0 && v->btf) {
		id = btf__find_by_name(v->btf, name);
	}
	if (id <= 0) {
		daemon_control_error(c, 5, "not-found", "Types are named as in the policy's source",
				     "policy '%s' has no type '%.64s'", v->live->run.name, name);
		return false;
	}
	*ret = (uint32_t)id;
	return true;
}

static struct daemon_maps_watch *create(struct daemon_call *c, const struct daemon_map_view *v,
					int only, uint32_t type)
{
	const json_t *interval = json_object_get(c->params, "interval_ms");
	bool ring = ebpf_map_type_has(v->def->type, EBPF_MAP_RECORDS);
	json_int_t ms = interval ? json_integer_value(interval) : ring ? RECORDS_MS : CHANGES_MS;
	struct daemon_maps_watch *w = calloc(1, sizeof(*w));
	uint64_t now_us = clock_now_ns() / 1000;

	if (!w) {
		return NULL;
	}
	w->d = c->d;
	w->conn = c->conn;
	w->v = *v;
	w->only = only;
	w->record_type = type;
	w->uid = c->peer.uid;
	w->admin = daemon_may_administer(c->d, c->sock);
	w->interval_us =
		(uint64_t)MIN(MAX(ms, w->admin ? LEAST_MS : LEAST_OF_USER_MS), 3600000) * 1000;
	w->key = calloc(1, EBPF_MAX_KEY_BYTES);
	w->value = calloc(1, EBPF_MAX_VALUE_BYTES);
	if (!w->key || !w->value ||
	    sd_event_add_time(c->d->loop, &w->timer, CLOCK_MONOTONIC, now_us, 1000, on_time, w) <
		    0) {
		destroy(w);
		return NULL;
	}
	w->next = c->d->maps.watches;
	c->d->maps.watches = w;
	return w;
}

void daemon_method_map_watch(struct daemon_call *c)
{
	struct daemon_map_view v;
	struct buf head;
	uint32_t type;
	int only;

	if (!daemon_maps_find(c, &v) || !daemon_maps_tenant(c, &v, &only) ||
	    !record_type(c, &v, &type) || !can_be_watched(c, &v)) {
		return;
	}
	buf_init(&head);
	daemon_maps_put_head(&head, &v);
	buf_puts(&head, "}");
	daemon_control_result_text(c, create(c, &v, only, type) ? &head : NULL);
	buf_finish(&head);
}
