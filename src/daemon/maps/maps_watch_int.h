/* Inside maps_watch.c and maps_ring.c: one map that is being watched. */
#ifndef GBPF_DAEMON_MAPS_MAPS_WATCH_INT_H
#define GBPF_DAEMON_MAPS_MAPS_WATCH_INT_H

#include "bpf/run/map/ring.h"
#include "daemon/consts.h"
#include "daemon/maps/maps_watch.h"

#define WATCH_LOOK_NS 500000u		 /* one look; many share four times that */
#define WATCH_SEEN_BYTES (1u << 20)	 /* of a map whose changes are watched */
#define WATCH_WAITING_BYTES (256u << 10) /* not read yet by the caller: no further look */

struct daemon_maps_watch_ring;

struct daemon_maps_watch {
	struct daemon_maps_watch *next;
	struct daemon *d;
	uint64_t conn;
	sd_event_source *timer;
	struct daemon_map_view v;
	int only;
	uint64_t interval_us;
	uint32_t tenant, position; /* where the look under way is */
	uint8_t *key, *value;	   /* owned */
	/* changes: what was there at the last look */
	uint8_t *seen[PROTO_MAX_TENANTS]; /* owned; of an instance; [0] where tenants share */
	bool known[PROTO_MAX_TENANTS];	  /* it has been looked at as a whole */
	size_t seen_bytes;
	/* records */
	struct daemon_maps_watch_ring
		*ring[PROTO_MAX_TENANTS]; /* owned; [0] of a map that is gbpfd's */
	uint32_t record_type;		  /* BTF; 0: bytes */
};

static inline bool daemon_maps_watch_is_ring(const struct daemon_maps_watch *w)
{
	return w->v.def->type == GBPF_MAP_RINGBUF;
}

/* When a look that begins now has to stop. */
uint64_t daemon_maps_watch_deadline_ns(const struct daemon_maps_watch *w);

void daemon_maps_watch_line_begin(struct buf *out, const struct daemon_maps_watch *w, int tenant);
bool daemon_maps_watch_line_end(struct buf *out, const struct daemon_maps_watch *w);

/* Looks at all entries until the time is over or the caller does not read. True: at all. */
bool daemon_maps_watch_changes(struct daemon_maps_watch *w);
void daemon_maps_watch_seen_free(struct daemon_maps_watch *w, uint32_t tenant);

/* Takes records of all rings until there are none, or the time is over, or the caller does not
 * read. True: there are none. */
bool daemon_maps_watch_rings(struct daemon_maps_watch *w);
/* The last records of one; its writers are gone, or will be. */
void daemon_maps_watch_ring_drain(struct daemon_maps_watch *w, uint32_t tenant, bool dead,
				  uint64_t deadline_ns);
#define WATCH_DRAIN_NS 2000000u	   /* for what is left when tenants or a version go */
#define WATCH_DRAIN_MIN_NS 100000u /* for each tenant */
void daemon_maps_watch_ring_close(struct daemon_maps_watch *w, uint32_t tenant);

#endif
