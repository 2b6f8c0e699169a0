/* One map of a live version: names of its kind, its instances and their entries. Data in a tenant's
 * memory is copied out before it is examined. */
#ifndef GBPF_DAEMON_POLICY_MAP_VIEW_H
#define GBPF_DAEMON_POLICY_MAP_VIEW_H

#include "daemon/control_socket.h"
#include "daemon/policy/version.h"

#define DAEMON_MAPS_NO_TENANT (-1)

struct daemon_map_view {
	struct daemon_version *live;
	const struct ebpf_object *object;
	const struct ebpf_map_def *def;
	const struct btf *btf;
	uint32_t index;
};

const char *daemon_map_type_name(uint32_t type); /* "array", ... */
/* Returns "global", "tenant", "device", "host", "block", "daemon", "all-gpus" or "constant". */
const char *daemon_map_scope_name(const struct ebpf_map_def *def);

static inline bool daemon_maps_per_tenant(const struct daemon_map_view *v)
{
	return v->live->run.env.maps[v->index].region == EBPF_REGION_TENANT;
}

/* Whose instances of a map the caller may read: its own tenants', or all as an administrator. */
struct daemon_maps_reader {
	const struct daemon *d;
	uid_t uid;
	bool all;
};
struct daemon_maps_reader daemon_maps_reader_of(const struct daemon_call *c);
/* Returns true for DAEMON_MAPS_NO_TENANT, too. */
bool daemon_maps_may_read(const struct daemon_maps_reader *r, int tenant);
/* Returns the instance of a tenant (any number if the map is not per tenant), which may be
 * constructed in *room. NULL: the tenant has none. */
const struct ebpf_map *daemon_maps_instance(const struct daemon_map_view *v, int tenant,
					    struct ebpf_map *room);

/* Positions of entries, for walks in pieces. */
uint32_t daemon_maps_positions(const struct ebpf_map *m);
/* Copies the entry at a position. 1: copied; 0: there is none; -errno: the memory is corrupt. The
 * key of a map without keys is the index. */
int daemon_maps_entry_at(const struct ebpf_map *m, uint32_t position, void *key, void *value);
/* Copies the entry with this key. 0, -ENOENT, -EINVAL. */
int daemon_maps_entry_of(const struct ebpf_map *m, void *key, void *value);
static inline bool daemon_maps_has_keys(const struct daemon_map_view *v)
{
	return v->def->key_bytes != 0;
}

#endif
