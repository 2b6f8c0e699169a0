/* Records of ring buffers for their watcher. Without a watcher they stay in the ring; a full ring
 * refuses further ones and counts them. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bpf/load/btf/typed.h"
#include "daemon/consts.h"
#include "daemon/maps/maps_watch_int.h"

struct daemon_maps_watch_ring {
	struct ebpf_ring_reader reader;
	uint64_t told_lost;
};

void daemon_maps_watch_ring_close(struct daemon_maps_watch *w, uint32_t tenant)
{
	free(w->ring[tenant]);
	w->ring[tenant] = NULL;
}

static struct daemon_maps_watch_ring *ring_of(struct daemon_maps_watch *w, const struct ebpf_map *m,
					      uint32_t tenant)
{
	if (!w->ring[tenant]) {
		w->ring[tenant] = calloc(1, sizeof(*w->ring[tenant]));
		if (w->ring[tenant]) {
			ebpf_ring_open(&w->ring[tenant]->reader, m);
		}
	}
	return w->ring[tenant];
}

static void say_record(struct daemon_maps_watch *w, struct buf *out, uint32_t tenant,
		       const uint8_t *record, size_t bytes)
{
	daemon_maps_watch_line_begin(out, w, (int)tenant);
	buf_puts(out, "\"record\":");
	ebpf_typed_print(out, w->v.btf, w->record_type, record, bytes);
	buf_printf(out, ",\"bytes\":%zu", bytes);
	daemon_maps_watch_line_end(out, w);
}

/* Reports lost records; the count is the tenant's own claim. */
static void say_lost(struct daemon_maps_watch *w, struct buf *out, uint32_t tenant,
		     struct daemon_maps_watch_ring *r)
{
	uint64_t lost = r->reader.lost + r->reader.dropped + r->reader.broken;

	if (lost == r->told_lost) {
		return;
	}
	daemon_maps_watch_line_begin(out, w, (int)tenant);
	buf_printf(out, "\"lost\":%" PRIu64, MIN(lost - r->told_lost, (uint64_t)INT64_MAX));
	daemon_maps_watch_line_end(out, w);
	r->told_lost = lost;
}

/* Takes records of one ring, at least until the deadline, and until this thread's processor time is
 * cpu_until_ns. Returns true if it is empty. */
static bool take(struct daemon_maps_watch *w, struct buf *out, uint32_t tenant,
		 uint64_t deadline_ns, uint64_t cpu_until_ns, bool dead)
{
	struct ebpf_map room;
	const struct ebpf_map *m = daemon_maps_instance(&w->v, (int)tenant, &room);
	struct daemon_maps_watch_ring *r = m ? ring_of(w, m, tenant) : NULL;
	uint64_t now = clock_now_ns();
	int n = 1;

	while (r && n) {
		if ((now > deadline_ns && clock_cpu_ns() >= cpu_until_ns) ||
		    daemon_control_waiting(w->d, w->conn) > DAEMON_WATCH_WAITING_BYTES) {
			return false;
		}
		n = ebpf_ring_read(m, &r->reader, w->value, EBPF_MAX_VALUE_BYTES, now, dead);
		if (n > 0) {
			say_record(w, out, tenant, w->value, (size_t)n);
		}
		now = clock_now_ns();
	}
	if (r) {
		say_lost(w, out, tenant, r);
	}
	return true;
}

bool daemon_maps_watch_rings(struct daemon_maps_watch *w)
{
	uint32_t all = daemon_maps_per_tenant(&w->v) ? PROTO_MAX_TENANTS : 1;
	uint64_t deadline_ns = daemon_maps_watch_deadline_ns(w);
	struct buf out;
	bool done = true;

	buf_init(&out);
	for (uint32_t i = 0; i < all && done; i++) {
		uint32_t tenant = (w->tenant + i) % all;

		if (w->only < 0 || w->only == (int)tenant) {
			done = take(w, &out, tenant, deadline_ns, 0, false);
		}
		if (!done) { /* a tenant that writes without end must not delay the rings of others
			      */
			w->tenant = (tenant + 1) % all;
		}
	}
	buf_finish(&out);
	return done;
}

void daemon_maps_watch_ring_drain(struct daemon_maps_watch *w, uint32_t tenant, bool dead,
				  uint64_t cpu_until_ns)
{
	struct buf out;

	if (w->only >= 0 && w->only != (int)tenant) {
		return;
	}
	buf_init(&out);
	(void)take(w, &out, tenant, 0, cpu_until_ns, dead);
	buf_finish(&out);
}
