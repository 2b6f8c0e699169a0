/* Inside maps_watch.c, maps_changes.c and maps_ring.c: one watched map. */
#ifndef GBPF_DAEMON_MAPS_MAPS_WATCH_INT_H
#define GBPF_DAEMON_MAPS_MAPS_WATCH_INT_H

#include "bpf/run/map/ring.h"
#include "daemon/consts.h"
#include "daemon/maps/maps_watch.h"

#define DAEMON_WATCH_LOOK_NS                                                                       \
	500000u /* for one scan; when there are many, all share four times that */
#define DAEMON_WATCH_SEEN_BYTES                                                                    \
	(1u << 20) /* limit of memory for entries of a map whose changes are watched */
#define DAEMON_WATCH_WAITING_BYTES                                                                 \
	(256u << 10) /* no further scan with more pending output than this */

struct daemon_maps_watch_ring;

struct daemon_maps_watch {
	struct daemon_maps_watch *next;
	struct daemon *d;
	uint64_t conn;
	uid_t uid;  /* the caller's */
	bool admin; /* the caller may administer gbpfd */
	sd_event_source *timer;
	struct daemon_map_view v;
	int only;
	uint64_t interval_us;
	uint32_t tenant, position; /* position of the scan under way */
	uint8_t *key, *value;	   /* owned */
	/* changes: entries at the last scan */
	uint8_t *seen[PROTO_MAX_TENANTS]; /* owned; of each instance; [0] if tenants share one */
	bool known[PROTO_MAX_TENANTS];	  /* the instance has been scanned completely */
	size_t seen_bytes;
	/* records */
	struct daemon_maps_watch_ring
		*ring[PROTO_MAX_TENANTS]; /* owned; [0] if the map is gbpfd's */
	uint32_t record_type;		  /* BTF type; 0: bytes */
};

static inline bool daemon_maps_watch_is_ring(const struct daemon_maps_watch *w)
{
	return ebpf_map_type_has(w->v.def->type, EBPF_MAP_RECORDS);
}

/* Returns when a scan that begins now must stop. */
uint64_t daemon_maps_watch_deadline_ns(const struct daemon_maps_watch *w);

void daemon_maps_watch_line_begin(struct buf *out, const struct daemon_maps_watch *w, int tenant);
bool daemon_maps_watch_line_end(struct buf *out, const struct daemon_maps_watch *w);

/* Scans all entries until the deadline, or until the caller does not read. Returns true when the
 * scan is complete. */
bool daemon_maps_watch_changes(struct daemon_maps_watch *w);
void daemon_maps_watch_seen_free(struct daemon_maps_watch *w, uint32_t tenant);

/* Takes records of all rings until they are empty, the deadline passes or the caller does not read.
 * Returns true if they are empty. */
bool daemon_maps_watch_rings(struct daemon_maps_watch *w);
/* Takes the last records of one ring, whose writers have exited or are about to, until that
 * processor time of the loop: what is left is lost, which must not depend on the machine's load. */
void daemon_maps_watch_ring_drain(struct daemon_maps_watch *w, uint32_t tenant, bool dead,
				  uint64_t cpu_until_ns);
#define DAEMON_WATCH_DRAIN_NS 2000000u	  /* for the rest when tenants or a version end */
#define DAEMON_WATCH_DRAIN_MIN_NS 100000u /* for each tenant */
void daemon_maps_watch_ring_close(struct daemon_maps_watch *w, uint32_t tenant);

#endif
