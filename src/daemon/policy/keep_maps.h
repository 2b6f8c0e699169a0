/* Carrying the contents of maps over to the next version (--keep-maps): which maps match, and the
 * copying, which needs plain memory alone, so that the worker can do it. Memory that a tenant
 * writes is read once per word, and its contents affect the values of that tenant only. */
#ifndef GBPF_DAEMON_POLICY_KEEP_MAPS_H
#define GBPF_DAEMON_POLICY_KEEP_MAPS_H

#include <jansson.h>

#include "bpf/load/policy.h"

#define DAEMON_KEEP_SPANS 1024u

/* Bytes of the new map's values that are copied from the old map's. */
struct daemon_keep_span {
	uint32_t from, to, bytes;
};

struct daemon_keep_map {
	int from;	    /* index of the old version's map; -1: not kept */
	const char *reason; /* why it is not kept, static; NULL: it is kept */
	char detail[64];    /* name that the reason refers to; may be empty */
	/* data sections: the spans to copy; n_spans 0: the whole map */
	uint32_t span, n_spans, n_lost;
};

struct daemon_keep {
	const struct ebpf_built *old, *new; /* borrowed */
	struct ebpf_map old_maps[EBPF_MAX_MAPS], new_maps[EBPF_MAX_MAPS];
	struct daemon_keep_map map[EBPF_MAX_MAPS]; /* by map of the new version */
	struct daemon_keep_span spans[DAEMON_KEEP_SPANS];
	unsigned n_spans, n_kept;
	unsigned looks; /* remaining budget for comparing variables and types */
};

/* Decides which maps are kept. 0 or -EINVAL (definitions without a valid layout). */
int daemon_keep_plan(struct daemon_keep *k, const struct ebpf_built *old,
		     const struct ebpf_built *new);

/* Keeps no map of that region, for that reason, a constant. */
void daemon_keep_leave_out(struct daemon_keep *k, enum ebpf_region region, const char *reason);

/* Returns the cost of daemon_keep_copy() for a region, in bytes of arrays. */
uint64_t daemon_keep_bytes(const struct daemon_keep *k, enum ebpf_region region);

/* Copies the kept maps of a region; old and new are its mappings in the two versions. */
void daemon_keep_copy(const struct daemon_keep *k, enum ebpf_region region, const void *old,
		      void *new);

/* Returns [{map, kept, reason, ...}]. */
json_t *daemon_keep_json(const struct daemon_keep *k);

#endif
