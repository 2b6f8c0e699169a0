/* The list of map types: each line of hooks.def with the table of the file that implements it. */
#include "bpf/run/map/map_type.h"

#include "base/compiler.h"
#include "bpf/run/map/map_int.h"

static const struct {
	uint32_t id;
	const char *name;
	const struct ebpf_map_type *type;
} types[] = {
#define GBPF_MAP_TYPE(id, name, ops, doc) { id, #name, &ebpf_map_type_##name },
#include "gbpf/hooks.def"
};

const struct ebpf_map_type *ebpf_map_type_of(uint32_t id)
{
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (types[i].id == id) {
			return types[i].type;
		}
	}
	return NULL;
}

const char *ebpf_map_type_name_at(uint32_t i)
{
	return i < ARRAY_SIZE(types) ? types[i].name : NULL;
}

const char *ebpf_map_type_name(uint32_t id)
{
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		if (types[i].id == id) {
			return types[i].name;
		}
	}
	return NULL;
}

int ebpf_map_type_has(uint32_t id, enum ebpf_map_trait trait)
{
	const struct ebpf_map_type *t = ebpf_map_type_of(id);

	return t && (t->traits & trait);
}
