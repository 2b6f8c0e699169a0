/* Fills the standard maps about vGPUs. The loader has checked that a map of such a name has the
 * shape that hooks.def says. */
#include "bpf/run/standard_maps.h"

#include <string.h>

#include "base/compiler.h"

#define TYPE_u64 uint64_t
#define TYPE_u32 uint32_t
#define TYPE_s32 int32_t

#define GBPF_CONST(name, value, doc) enum { name = value };
#define GBPF_MAP_BEGIN(map) struct std_##map {
#define GBPF_MAP_FIELD(map, type, name, writer, doc) TYPE_##type name;
#define GBPF_MAP_END(map)                                                                          \
	}                                                                                          \
	;
#include "gbpf/hooks.def"

_Static_assert(EBPF_VGPUS == GBPF_VGPUS, "places of vGPUs");

#define VALUE_BYTES_MAX 64u

static uint32_t flags_of(const struct ebpf_vgpu_row *r)
{
	return GBPF_VGPU_PRESENT | (r->burst ? GBPF_VGPU_BURST : 0);
}

/* Each sets gbpfd's fields of an element; the policy's stay. */

static void fill_vslice_set(const struct ebpf_vgpu_row *r, void *value)
{
	struct std_vslice_set *v = value;

	v->compute_pct = r->compute;
	v->tenants = r->tenants;
	v->priority = r->prio;
	v->flags = flags_of(r);
}

static void fill_mempool(const struct ebpf_vgpu_row *r, void *value)
{
	*(struct std_mempool *)value = (struct std_mempool){ .limit_bytes = r->limit,
							     .reserve_bytes = r->reserve,
							     .used_bytes = r->used,
							     .overhead_bytes = r->overhead };
}

static void fill_io_budgets(const struct ebpf_vgpu_row *r, void *value)
{
	struct std_io_budgets *v = value;

	v->copy_pct = r->copy;
	v->flags = flags_of(r);
}

static void fill_placement(const struct ebpf_vgpu_row *r, void *value)
{
	struct std_placement *v = value;

	v->gpus = r->gpus;
	v->lanes = r->lanes;
}

static const struct standard {
	const char *name;
	uint32_t bytes;
	void (*fill)(const struct ebpf_vgpu_row *r, void *value);
} standard[] = {
	{ "VSLICE_SET", sizeof(struct std_vslice_set), fill_vslice_set },
	{ "MEMPOOL", sizeof(struct std_mempool), fill_mempool },
	{ "IO_BUDGETS", sizeof(struct std_io_budgets), fill_io_budgets },
	{ "PLACEMENT", sizeof(struct std_placement), fill_placement },
};
_Static_assert(sizeof(struct std_vslice_set) <= VALUE_BYTES_MAX &&
		       sizeof(struct std_mempool) <= VALUE_BYTES_MAX &&
		       sizeof(struct std_io_budgets) <= VALUE_BYTES_MAX &&
		       sizeof(struct std_placement) <= VALUE_BYTES_MAX,
	       "VALUE_BYTES_MAX");

static const struct standard *standard_of(const struct ebpf_map_def *def)
{
	for (size_t i = 0; i < ARRAY_SIZE(standard); i++) {
		if (strcmp(standard[i].name, def->name) == 0 && !def->is_data &&
		    def->value_bytes == standard[i].bytes && def->max_entries == EBPF_VGPUS) {
			return &standard[i];
		}
	}
	return NULL;
}

bool ebpf_vgpu_maps_any(const struct ebpf_map_def *defs, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (standard_of(&defs[i])) {
			return true;
		}
	}
	return false;
}

static bool has(const struct ebpf_map_def *defs, unsigned n,
		void (*fill)(const struct ebpf_vgpu_row *r, void *value))
{
	for (unsigned i = 0; i < n; i++) {
		const struct standard *s = standard_of(&defs[i]);

		if (s && s->fill == fill) {
			return true;
		}
	}
	return false;
}

bool ebpf_vgpu_maps_shares(const struct ebpf_map_def *defs, unsigned n)
{
	return has(defs, n, fill_vslice_set);
}

bool ebpf_vgpu_maps_copies(const struct ebpf_map_def *defs, unsigned n)
{
	return has(defs, n, fill_io_budgets);
}

bool ebpf_vgpu_maps_figures(const struct ebpf_map_def *defs, unsigned n)
{
	return has(defs, n, fill_mempool);
}

static void write_one(const struct ebpf_map *m, const struct standard *s,
		      const struct ebpf_vgpu_row row[EBPF_VGPUS])
{
	for (uint32_t place = 0; place < EBPF_VGPUS; place++) {
		uint64_t old[VALUE_BYTES_MAX / 8] = { 0 }, new[VALUE_BYTES_MAX / 8] = { 0 };

		if (ebpf_map_read(m, &place, old) < 0) {
			return; /* the version has no memory */
		}
		if (row[place].present) {
			memcpy(new, old, sizeof(new));
			s->fill(&row[place], new);
		}
		if (memcmp(old, new, s->bytes) != 0) {
			(void)ebpf_map_update(m, &place, new, 0);
		}
	}
}

void ebpf_vgpu_maps_write(const struct ebpf_map *maps, const struct ebpf_map_def *defs, unsigned n,
			  const struct ebpf_vgpu_row row[EBPF_VGPUS])
{
	for (unsigned i = 0; i < n; i++) {
		const struct standard *s = standard_of(&defs[i]);

		if (s) {
			write_one(&maps[i], s, row);
		}
	}
}
