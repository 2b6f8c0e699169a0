/* One map of a live version: names of its kind, its instances and their entries. */
#include "daemon/policy/map_view.h"

#include <errno.h>
#include <string.h>

#include "daemon/consts.h"

static const struct {
	uint32_t type;
	const char *name;
} types[] = {
	{ GBPF_MAP_HASH, "hash" },
	{ GBPF_MAP_ARRAY, "array" },
	{ GBPF_MAP_PROG_ARRAY, "prog_array" },
	{ GBPF_MAP_THREAD_ARRAY, "thread_array" },
	{ GBPF_MAP_LRU_HASH, "lru_hash" },
	{ GBPF_MAP_LPM_TRIE, "lpm_trie" },
	{ GBPF_MAP_ARRAY_OF_MAPS, "array_of_maps" },
	{ GBPF_MAP_QUEUE, "queue" },
	{ GBPF_MAP_STACK, "stack" },
	{ GBPF_MAP_RINGBUF, "ringbuf" },
	{ GBPF_MAP_HISTOGRAM, "histogram" },
	{ GBPF_MAP_SM_ARRAY, "sm_array" },
	{ GBPF_MAP_WARP_ARRAY, "warp_array" },
	{ GBPF_MAP_SM_RING, "sm_ring" },
	{ GBPF_MAP_BLOCK_ARRAY, "block_array" },
	{ GBPF_MAP_GPU_THREAD_ARRAY, "gpu_thread_array" },
	{ GBPF_MAP_WARP_SCRATCH, "warp_scratch" },
};

const char *daemon_map_type_name(uint32_t type)
{
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (types[i].type == type) {
			return types[i].name;
		}
	}
	return "other";
}

const char *daemon_map_scope_name(const struct ebpf_map_def *def)
{
	uint32_t flags = def->flags;

	if (ebpf_map_type_has(def->type, EBPF_MAP_IN_BLOCK)) {
		return "block";
	}
	if (flags & GBPF_F_TENANT) {
		return "tenant";
	}
	if (flags & GBPF_F_DEVICE) {
		return flags & GBPF_F_HOST ? "host" : "device";
	}
	if (flags & GBPF_F_DAEMON) {
		return flags & GBPF_F_ALL_GPUS ? "all-gpus" : "daemon";
	}
	return flags & GBPF_F_RDONLY ? "constant" : "global";
}

struct daemon_maps_reader daemon_maps_reader_of(const struct daemon_call *c)
{
	return (struct daemon_maps_reader){ .d = c->d,
					    .uid = c->peer.uid,
					    .all = daemon_may_administer(c->d, c->sock) };
}

bool daemon_maps_may_read(const struct daemon_maps_reader *r, int tenant)
{
	const struct daemon_session *s = tenant >= 0 && tenant < (int)PROTO_MAX_TENANTS
						 ? r->d->sessions.tenant[tenant]
						 : NULL;

	return r->all || tenant == DAEMON_MAPS_NO_TENANT || (s && s->peer.uid == r->uid);
}

const struct ebpf_map *daemon_maps_instance(const struct daemon_map_view *v, int tenant,
					    struct ebpf_map *room)
{
	const struct ebpf_map *m = &v->live->run.env.maps[v->index];
	const struct daemon_page *p;

	if (!daemon_maps_per_tenant(v)) {
		return m->data || ebpf_map_type_has(m->type, EBPF_MAP_PROGRAMS) ? m : NULL;
	}
	p = tenant >= 0 && tenant < (int)PROTO_MAX_TENANTS ? &v->live->region[tenant] : NULL;
	if (!p || !p->map) {
		return NULL;
	}
	ebpf_map_at(room, m, p->map);
	return room;
}

/* ---- entries ---- */

uint32_t daemon_maps_positions(const struct ebpf_map *m)
{
	return ebpf_map_type_has(m->type, EBPF_MAP_PROGRAMS) ? m->max_entries : ebpf_map_slots(m);
}

int daemon_maps_entry_at(const struct ebpf_map *m, uint32_t position, void *key, void *value)
{
	if (m->key_bytes == 0 || ebpf_map_type_has(m->type, EBPF_MAP_PROGRAMS)) {
		memcpy(key, &position, 4);
		memset(value, 0, m->value_bytes);
	}
	return ebpf_map_type_has(m->type, EBPF_MAP_PROGRAMS)
		       ? position < m->max_entries
		       : ebpf_map_slot(m, position, key, value);
}

int daemon_maps_entry_of(const struct ebpf_map *m, void *key, void *value)
{
	if (ebpf_map_type_has(m->type, EBPF_MAP_PROGRAMS)) {
		return ebpf_map_index(key) < m->max_entries ? 0 : -ENOENT;
	}
	return ebpf_map_read(m, key, value);
}
