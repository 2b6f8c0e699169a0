/* Changes of a map between two scans. Entries are remembered by position, so an element that moves
 * is reported as removed and added. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/maps/maps_watch_int.h"

#define LOOK_EVERY 16u

/* Returns the bytes remembered for an entry: whether it exists, its key, its value. */
static size_t entry_bytes(const struct daemon_maps_watch *w)
{
	return 1 + (size_t)w->v.def->key_bytes + w->v.def->value_bytes;
}

static size_t all_bytes(const struct daemon_maps_watch *w)
{
	return (size_t)daemon_maps_positions(&w->v.live->run.env.maps[w->v.index]) * entry_bytes(w);
}

void daemon_maps_watch_seen_free(struct daemon_maps_watch *w, uint32_t tenant)
{
	w->seen_bytes -= w->seen[tenant] ? all_bytes(w) : 0;
	free(w->seen[tenant]);
	w->seen[tenant] = NULL;
	w->known[tenant] = false;
}

static void say_change(struct daemon_maps_watch *w, struct buf *out, int tenant, const uint8_t *was,
		       bool there)
{
	const uint8_t *old_key = was + 1, *old_value = was + 1 + w->v.def->key_bytes;
	bool same_key = was[0] && there && memcmp(old_key, w->key, w->v.def->key_bytes) == 0;

	if (was[0] && !same_key) {
		daemon_maps_watch_line_begin(out, w, tenant);
		daemon_maps_put_key(out, &w->v, old_key);
		buf_puts(out, ",\"gone\":true");
		daemon_maps_watch_line_end(out, w);
	}
	if (there) {
		daemon_maps_watch_line_begin(out, w, tenant);
		daemon_maps_put_entry(out, &w->v, NULL, DAEMON_MAPS_NO_TENANT, w->position, w->key,
				      w->value);
		if (same_key) {
			buf_puts(out, ",\"was\":");
			daemon_maps_put_value(out, &w->v, old_value);
		}
		daemon_maps_watch_line_end(out, w);
	}
}

/* Compares an entry with what is remembered of it. Returns true if a change was reported, which
 * takes longer than comparing. */
static bool look_at(struct daemon_maps_watch *w, struct buf *out, const struct ebpf_map *m,
		    uint32_t tenant)
{
	uint8_t *was = w->seen[tenant] + entry_bytes(w) * w->position;
	size_t keys = w->v.def->key_bytes, values = w->v.def->value_bytes;
	bool there = daemon_maps_entry_at(m, w->position, w->key, w->value) == 1;

	if (there == was[0] && (!there || (memcmp(was + 1, w->key, keys) == 0 &&
					   memcmp(was + 1 + keys, w->value, values) == 0))) {
		return false;
	}
	if (w->known[tenant]) {
		say_change(w, out, (int)tenant, was, there);
	}
	was[0] = there;
	memcpy(was + 1, w->key, keys);
	memcpy(was + 1 + keys, w->value, values);
	return w->known[tenant];
}

/* Allocates the memory for an instance. Returns false if it does not fit, which is reported once.
 */
static bool remember(struct daemon_maps_watch *w, struct buf *out, uint32_t tenant)
{
	size_t bytes = all_bytes(w);

	if (w->seen[tenant]) {
		return true;
	}
	if (w->seen_bytes + bytes <= 4 * DAEMON_WATCH_SEEN_BYTES) {
		w->seen[tenant] = calloc(1, bytes);
		w->seen_bytes += w->seen[tenant] ? bytes : 0;
	}
	if (!w->seen[tenant] && !w->known[tenant]) {
		w->known[tenant] = true;
		daemon_maps_watch_line_begin(out, w, (int)tenant);
		buf_puts(out, "\"left_out\":true");
		daemon_maps_watch_line_end(out, w);
	}
	return w->seen[tenant] != NULL;
}

/* Scans an instance. Returns true when it is complete. */
static bool look_instance(struct daemon_maps_watch *w, struct buf *out, uint32_t tenant,
			  uint64_t deadline_ns)
{
	struct ebpf_map room;
	const struct ebpf_map *m = daemon_maps_instance(&w->v, (int)tenant, &room);
	uint32_t positions;
	bool said = false;

	if (!m || !remember(w, out, tenant)) {
		return true;
	}
	positions = daemon_maps_positions(m);
	for (; w->position < positions; w->position++) {
		if ((w->position % LOOK_EVERY == 0 || m->value_bytes > 64 || said) &&
		    (clock_now_ns() > deadline_ns ||
		     daemon_control_waiting(w->d, w->conn) > DAEMON_WATCH_WAITING_BYTES)) {
			return false;
		}
		said = look_at(w, out, m, tenant);
	}
	w->known[tenant] = true;
	return true;
}

/* Scans all instances. Returns true when the scan is complete. */
bool daemon_maps_watch_changes(struct daemon_maps_watch *w)
{
	uint32_t end = daemon_maps_per_tenant(&w->v) ? PROTO_MAX_TENANTS : 1;
	uint64_t deadline_ns = daemon_maps_watch_deadline_ns(w);
	struct buf out;
	bool done = true;

	buf_init(&out);
	for (; w->tenant < end && done; w->tenant += done) {
		done = (w->only >= 0 && w->only != (int)w->tenant) ||
		       look_instance(w, &out, w->tenant, deadline_ns);
		w->position = done ? 0 : w->position;
	}
	buf_finish(&out);
	if (done) {
		w->tenant = 0;
	}
	return done;
}
