/* Maps of live versions, as the control socket shows and changes them: lookup and description. */
#ifndef GBPF_DAEMON_MAPS_POLICY_MAPS_H
#define GBPF_DAEMON_MAPS_POLICY_MAPS_H

#include "daemon/policy/map_view.h"

#define DAEMON_MAPS_GET_NS                                                                         \
	2000000u /* the loop's processor time for map.get of all tenants together */

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
/* Parses the tenant in params; DAEMON_MAPS_NO_TENANT if there is none or the map is not per tenant.
 * If params name no GPU, v becomes the first instance that has memory of that tenant.
 * Returns false after answering that the number is not a tenant's. */
bool daemon_maps_tenant(struct daemon_call *c, struct daemon_map_view *v, int *ret);

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
void daemon_method_map_drain(struct daemon_call *c);
void daemon_method_map_dump(struct daemon_call *c);
void daemon_method_map_get(struct daemon_call *c);
void daemon_method_map_set(struct daemon_call *c);
void daemon_method_map_delete(struct daemon_call *c);

#endif
