/* Maps of active versions, as the control socket shows and changes them: which map is meant, its
 * instances, its entries. What lies in a tenant's memory is copied out before it is looked at. */
#ifndef GBPF_DAEMON_MAPS_POLICY_MAPS_H
#define GBPF_DAEMON_MAPS_POLICY_MAPS_H

#include "daemon/control_socket.h"
#include "daemon/policy/version.h"

#define MAPS_NO_TENANT (-1)

/* One map of a live version. */
struct maps_view {
	struct live *live;
	const struct ebpf_object *object;
	const struct ebpf_map_def *def;
	const struct btf *btf;
	uint32_t index;
};

const char *map_type_name(uint32_t type);   /* "array", ... */
const char *map_scope_name(uint32_t flags); /* "global", "tenant", "daemon", "constant" */

/* The map that params name (map, version). false: the error has been answered. */
bool maps_find(struct call *c, struct maps_view *v);
static inline bool maps_per_tenant(const struct maps_view *v)
{
	return v->live->run.env.maps[v->index].region == EBPF_REGION_TENANT;
}
/* Params' tenant; MAPS_NO_TENANT when there is none, or the map is not per tenant. false: it is no
 * tenant's number, which has been answered. */
bool maps_tenant(struct call *c, const struct maps_view *v, int *ret);
/* The instance of a tenant (of a map that is not per tenant: any number), which may be made in
 * *room. NULL: it has none. */
const struct ebpf_map *maps_instance(const struct maps_view *v, int tenant, struct ebpf_map *room);

/* Entries by position, for walks that are cut into pieces. */
uint32_t maps_positions(const struct ebpf_map *m);
/* Copies out what lies at a position: 1; nothing there: 0; the memory is broken: -errno. The index
 * stands for the key where there are none. */
int maps_entry_at(const struct ebpf_map *m, uint32_t position, void *key, void *value);
/* The same by key. 0, -ENOENT, -EINVAL. */
int maps_entry_of(const struct ebpf_map *m, void *key, void *value);
static inline bool maps_has_keys(const struct maps_view *v)
{
	return v->def->key_bytes != 0;
}

/* Appends "key":..; the value alone. */
void maps_put_key(struct buf *out, const struct maps_view *v, const void *key);
void maps_put_value(struct buf *out, const struct maps_view *v, const void *value);
/* Appends ["tenant":..,]"key":..,"value":.. of an entry as docs/PROTOCOL.md has it for its type,
 * without braces. m: for what does not fit a value (instances of threads); NULL: leave it out. */
void maps_put_entry(struct buf *out, const struct maps_view *v, const struct ebpf_map *m,
		    int tenant, uint32_t position, const void *key, const void *value);
/* The beginning of an answer: {"version":..,"policy":..,"map":.., ... without its last brace. */
void maps_put_head(struct buf *out, const struct maps_view *v);

/* methods */
void method_map_list(struct call *c);
void method_map_dump(struct call *c);
void method_map_get(struct call *c);
void method_map_set(struct call *c);
void method_map_delete(struct call *c);

#endif
