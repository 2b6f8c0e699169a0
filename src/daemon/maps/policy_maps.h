/* Maps of active versions, as the control socket shows and changes them: which map is meant, its
 * instances, its entries. What lies in a tenant's memory is copied out before it is looked at. */
#ifndef GBPF_DAEMON_MAPS_POLICY_MAPS_H
#define GBPF_DAEMON_MAPS_POLICY_MAPS_H

#include "daemon/control_socket.h"
#include "daemon/policy/version.h"

#define MAPS_NO_TENANT (-1)

/* One map of a live version. */
struct daemon_map_view {
	struct daemon_version *live;
	const struct ebpf_object *object;
	const struct ebpf_map_def *def;
	const struct btf *btf;
	uint32_t index;
};

const char *daemon_map_type_name(uint32_t type);   /* "array", ... */
const char *daemon_map_scope_name(uint32_t flags); /* "global", "tenant", "daemon", "constant" */

/* The map that params name (map, version). false: the error has been answered. */
bool daemon_maps_find(struct daemon_call *c, struct daemon_map_view *v);
static inline bool daemon_maps_per_tenant(const struct daemon_map_view *v)
{
	return v->live->run.env.maps[v->index].region == EBPF_REGION_TENANT;
}
/* Params' tenant; MAPS_NO_TENANT when there is none, or the map is not per tenant. false: it is no
 * tenant's number, which has been answered. */
bool daemon_maps_tenant(struct daemon_call *c, const struct daemon_map_view *v, int *ret);
/* The instance of a tenant (of a map that is not per tenant: any number), which may be made in
 * *room. NULL: it has none. */
const struct ebpf_map *daemon_maps_instance(const struct daemon_map_view *v, int tenant,
					    struct ebpf_map *room);

/* Entries by position, for walks that are cut into pieces. */
uint32_t daemon_maps_positions(const struct ebpf_map *m);
/* Copies out what lies at a position: 1; nothing there: 0; the memory is broken: -errno. The index
 * stands for the key where there are none. */
int daemon_maps_entry_at(const struct ebpf_map *m, uint32_t position, void *key, void *value);
/* The same by key. 0, -ENOENT, -EINVAL. */
int daemon_maps_entry_of(const struct ebpf_map *m, void *key, void *value);
static inline bool daemon_maps_has_keys(const struct daemon_map_view *v)
{
	return v->def->key_bytes != 0;
}

/* Appends "key":..; the value alone. */
void daemon_maps_put_key(struct buf *out, const struct daemon_map_view *v, const void *key);
void daemon_maps_put_value(struct buf *out, const struct daemon_map_view *v, const void *value);
/* Appends ["tenant":..,]"key":..,"value":.. of an entry as docs/PROTOCOL.md has it for its type,
 * without braces. m: for what does not fit a value (instances of threads); NULL: leave it out. */
void daemon_maps_put_entry(struct buf *out, const struct daemon_map_view *v,
			   const struct ebpf_map *m, int tenant, uint32_t position, const void *key,
			   const void *value);
/* The beginning of an answer: {"version":..,"policy":..,"map":.., ... without its last brace. */
void daemon_maps_put_head(struct buf *out, const struct daemon_map_view *v);

/* methods */
void daemon_method_map_list(struct daemon_call *c);
void daemon_method_map_dump(struct daemon_call *c);
void daemon_method_map_get(struct daemon_call *c);
void daemon_method_map_set(struct daemon_call *c);
void daemon_method_map_delete(struct daemon_call *c);

#endif
