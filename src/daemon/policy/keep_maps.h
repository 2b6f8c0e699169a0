/* Carrying the contents of maps over to the next version (--keep-maps): which maps match, and the
 * copying, which works on plain memory so that the worker can do it. Memory that a tenant writes is
 * read once a word, and what it holds decides nothing but the values of that same tenant. */
#ifndef GBPF_DAEMON_POLICY_KEEP_MAPS_H
#define GBPF_DAEMON_POLICY_KEEP_MAPS_H

#include <jansson.h>

#include "bpf/load/policy.h"

#define KEEP_SPANS 1024u

/* Bytes of the new map's values that come from the old map's. */
struct daemon_keep_span {
	uint32_t from, to, bytes;
};

struct daemon_keep_map {
	int from;	    /* map of the old version; -1: nothing is kept */
	const char *reason; /* why not, static; NULL: kept */
	char detail[64];    /* names what the reason is about; may be empty */
	/* data sections: only these spans; n_spans 0: the whole map */
	uint32_t span, n_spans, n_lost;
};

struct daemon_keep {
	const struct ebpf_built *old, *new; /* borrowed */
	struct ebpf_map old_maps[EBPF_MAX_MAPS], new_maps[EBPF_MAX_MAPS];
	struct daemon_keep_map map[EBPF_MAX_MAPS]; /* by map of the new version */
	struct daemon_keep_span spans[KEEP_SPANS];
	unsigned n_spans, n_kept;
	unsigned looks; /* at variables and types, that there may be yet */
};

/* Decides. 0 or -EINVAL (definitions that cannot be laid out). */
int daemon_keep_plan(struct daemon_keep *k, const struct ebpf_built *old,
		     const struct ebpf_built *new);

/* How much work keep_copy of a region is, in bytes of arrays. */
uint64_t daemon_keep_bytes(const struct daemon_keep *k, enum ebpf_region region);

/* Copies what is kept of a region; old and new are its mappings in the two versions. */
void daemon_keep_copy(const struct daemon_keep *k, enum ebpf_region region, const void *old,
		      void *new);

/* [{map, kept, reason, ...}] */
json_t *daemon_keep_json(const struct daemon_keep *k);

#endif
