/* The standard maps about vGPUs: VSLICE_SET, MEMPOOL, IO_BUDGETS and PLACEMENT. */
#ifndef GBPF_BPF_RUN_STANDARD_MAPS_H
#define GBPF_BPF_RUN_STANDARD_MAPS_H

#include <stdbool.h>
#include <stdint.h>

#include "bpf/run/map/map.h"

#define EBPF_VGPUS 64u

/* A vGPU, for gbpfd's fields of the maps. */
struct ebpf_vgpu_row {
	bool present; /* else the rest is ignored */
	bool burst;
	uint32_t compute, copy; /* %; 0: not stated */
	int32_t prio;
	uint32_t tenants, gpus, lanes;
	uint64_t limit, reserve, used, overhead; /* bytes */
};

/* Returns true if one of the n definitions is such a map. */
bool ebpf_vgpu_maps_any(const struct ebpf_map_def *defs, unsigned n);
/* Returns true if VSLICE_SET, from which a policy learns of shares, is one. */
bool ebpf_vgpu_maps_shares(const struct ebpf_map_def *defs, unsigned n);
/* Returns true if IO_BUDGETS, from which a policy learns of copy shares, is one. */
bool ebpf_vgpu_maps_copies(const struct ebpf_map_def *defs, unsigned n);
/* Returns true if MEMPOOL, whose figures change without notice, is one. */
bool ebpf_vgpu_maps_figures(const struct ebpf_map_def *defs, unsigned n);
/* Writes gbpfd's fields of the maps to the next epoch, where they differ, by place; the elements of
 * places without a vGPU become zero. The caller publishes. maps: of gbpfd's instance. */
void ebpf_vgpu_maps_write(const struct ebpf_map *maps, const struct ebpf_map_def *defs, unsigned n,
			  const struct ebpf_vgpu_row row[EBPF_VGPUS]);

#endif
