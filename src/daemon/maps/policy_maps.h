/* Maps of live versions, as the control socket shows and changes them: lookup, instances, entries.
 * Data in a tenant's memory is copied out before it is examined. */
#ifndef GBPF_DAEMON_MAPS_POLICY_MAPS_H
#define GBPF_DAEMON_MAPS_POLICY_MAPS_H

#include "daemon/control_socket.h"
#include "daemon/policy/version.h"

#define DAEMON_MAPS_NO_TENANT (-1)
#define DAEMON_MAPS_GET_NS                                                                         \
	2000000u /* the loop's processor time for map.get of all tenants together */

/* One map of a live version. */
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

/* Finds the map that params name: `map`, of the version or the tool in `version` or `probe`, else
 * of the active policy, else of the only tool that has it; of a policy, in its instance on the GPU
 * in `gpu`, else on the lowest one. Returns false after answering an error. */
bool daemon_maps_find(struct daemon_call *c, struct daemon_map_view *v);
/* Finds the version or tool that params name; default: the active policy. NULL after answering an
 * error. */
struct daemon_version *daemon_maps_find_version(struct daemon_call *c);
/* Returns the next instance to which a change applies: of a policy's version, unless params name a
 * GPU, each in the order of the GPUs. NULL: none. */
struct daemon_version *daemon_maps_next_instance(struct daemon_call *c,
						 const struct daemon_map_view *v);
static inline bool daemon_maps_per_tenant(const struct daemon_map_view *v)
{
	return v->live->run.env.maps[v->index].region == EBPF_REGION_TENANT;
}
/* Parses the tenant in params; DAEMON_MAPS_NO_TENANT if there is none or the map is not per tenant.
 * If params name no GPU, v becomes the first instance that has memory of that tenant.
 * Returns false after answering that the number is not a tenant's. */
bool daemon_maps_tenant(struct daemon_call *c, struct daemon_map_view *v, int *ret);
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

/* Appends "key":..; daemon_maps_put_value() the value alone. */
void daemon_maps_put_key(struct buf *out, const struct daemon_map_view *v, const void *key);
void daemon_maps_put_value(struct buf *out, const struct daemon_map_view *v, const void *value);
/* Appends ["tenant":..,]"key":..,"value":.. of an entry in the form of docs/PROTOCOL.md for its
 * type, without braces. m: the instance, for values of threads; NULL: without them. */
void daemon_maps_put_entry(struct buf *out, const struct daemon_map_view *v,
			   const struct ebpf_map *m, int tenant, uint32_t position, const void *key,
			   const void *value);
/* Appends the beginning of an answer: {"version":..,"policy":..,"map":.., ... without the last
 * brace. */
void daemon_maps_put_head(struct buf *out, const struct daemon_map_view *v);

/* methods */
void daemon_method_map_list(struct daemon_call *c);
void daemon_method_map_dump(struct daemon_call *c);
void daemon_method_map_get(struct daemon_call *c);
void daemon_method_map_set(struct daemon_call *c);
void daemon_method_map_delete(struct daemon_call *c);

#endif
