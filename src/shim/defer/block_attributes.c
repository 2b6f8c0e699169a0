/* Launch attributes at block level: which can be omitted, which are kept, and which forbid it. A
 * clone has none; machine code keeps its clusters, whose blocks decide alike. */
#include "shim/defer/block_launch.h"

#include "base/compiler.h"

static bool one_by_one(unsigned x, unsigned y, unsigned z)
{
	return x <= 1 && y <= 1 && z <= 1;
}

/* Returns the number of blocks, 0 if it cannot be a cluster's. */
static uint32_t volume(uint32_t x, uint32_t y, uint32_t z)
{
	uint64_t n = (uint64_t)x * y * z;

	return x && y && z && x <= UINT16_MAX && y <= UINT16_MAX && n <= UINT16_MAX ? (uint32_t)n
										    : 0;
}

/* Grids that clusters do not divide are refused by the driver. */
static bool divides(uint32_t x, uint32_t y, uint32_t z, const uint32_t grid[3])
{
	return grid[0] % x == 0 && grid[1] % y == 0 && grid[2] % z == 0;
}

/* The cluster that the kernel was compiled for. */
static enum proto_block_why begin(struct shim_launch *l, const struct shim_clone *t)
{
	l->n_attrs = 0;
	l->cluster = 1;
	if (t->code && (t->code->cluster[0] || t->code->cluster[1] || t->code->cluster[2])) {
		const uint32_t c[3] = { t->code->cluster[0], MAX(t->code->cluster[1], 1u),
					MAX(t->code->cluster[2], 1u) };

		l->cluster = volume(c[0], c[1], c[2]);
		if (!l->cluster || !divides(c[0], c[1], c[2], l->call.grid)) {
			return PROTO_BLOCK_CLUSTER;
		}
	}
	return PROTO_BLOCK_OK;
}

static enum proto_block_why keep(struct shim_launch *l, const CUlaunchAttribute *a)
{
	if (l->n_attrs == GPU_BLOCK_ATTRS_MAX) {
		return PROTO_BLOCK_ATTRIBUTE;
	}
	l->attrs[l->n_attrs++] = *a;
	return PROTO_BLOCK_OK;
}

/* The cluster that a launch gives. */
static enum proto_block_why keep_cluster(struct shim_launch *l, const struct shim_clone *t,
					 const CUlaunchAttribute *a)
{
	const CUlaunchAttributeValue *v = &a->value;

	if (!t->code) {
		return one_by_one(v->clusterDim.x, v->clusterDim.y, v->clusterDim.z)
			       ? PROTO_BLOCK_OK
			       : PROTO_BLOCK_ATTRIBUTE;
	}
	l->cluster = volume(v->clusterDim.x, v->clusterDim.y, v->clusterDim.z);
	return l->cluster && divides(v->clusterDim.x, v->clusterDim.y, v->clusterDim.z,
				     l->call.grid)
		       ? keep(l, a)
		       : PROTO_BLOCK_CLUSTER;
}

static enum proto_block_why one(struct shim_launch *l, const struct shim_clone *t,
				const CUlaunchAttribute *a)
{
	const CUlaunchAttributeValue *v = &a->value;

	switch (a->id) {
	case CU_LAUNCH_ATTRIBUTE_IGNORE:
	/* Omitted: with it a kernel may start before its predecessor has ended, but need not, and
	 * without it griddepcontrol.wait does not wait. */
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
		return PROTO_BLOCK_OK;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		return t->code ? keep(l, a) : PROTO_BLOCK_OK;
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		return v->cooperative ? PROTO_BLOCK_COOPERATIVE : PROTO_BLOCK_OK;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		return keep_cluster(l, t, a);
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
		return one_by_one(v->preferredClusterDim.x, v->preferredClusterDim.y,
				  v->preferredClusterDim.z)
			       ? PROTO_BLOCK_OK
			       : PROTO_BLOCK_ATTRIBUTE;
	default:
		return PROTO_BLOCK_ATTRIBUTE;
	}
}

enum proto_block_why shim_block_attributes(struct shim_launch *l, const struct shim_clone *t)
{
	enum proto_block_why why = begin(l, t);
	const CUlaunchConfig *config = l->call.config;

	if (!config || !config->attrs) {
		return why;
	}
	for (unsigned i = 0; why == PROTO_BLOCK_OK && i < config->numAttrs; i++) {
		why = one(l, t, &config->attrs[i]);
	}
	return why;
}
