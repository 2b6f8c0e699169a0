/* Memory of graphs: allocation nodes, and allocations during a stream capture, which become such
 * nodes. The driver takes the memory of a device's graphs at their first launch, keeps it, and says
 * how much it is (CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT): that is charged. Before a launch that
 * may take more, the sum of the graph's nodes is charged, then the figure is taken from the driver.
 * One such launch of the process at a time, so that the difference is its, except while one waits
 * for memory. At the limit memory that no graph uses is given back (cuDeviceGraphMemTrim).
 *
 * A driver may take the memory when the node is made (the soft GPU does). A node cannot be removed
 * again, so it is charged before it is made then. */
#include "shim/mem/graphs.h"

#include <stdlib.h>

#include "mem/region.h"
#include "shim/capture_state.h"
#include "shim/mem/charge.h"
#include "shim/mem/work.h"
#include "shim/shim.h"

#define DEPTH_MAX 16 /* of graphs in graphs */

struct exec {
	uint64_t bytes[PROTO_MAX_GPUS]; /* of its allocation nodes, by device */
	uint32_t trims;			/* at its last launch; 0: it was not launched */
};

static struct lock mutex = LOCK_INITIALIZER(MEM_GRAPHS);
static struct mem_regions execs GUARDED_BY(mutex);	   /* by handle; owner: struct exec */
static uint64_t charged[PROTO_MAX_GPUS] GUARDED_BY(mutex); /* by device */
static uint32_t used; /* [atomic] the process has made allocation nodes */
/* [atomic] when the driver takes the memory of a node */
static enum when { NOT_KNOWN, WHEN_MADE, WHEN_LAUNCHED } taken;
static uint64_t late; /* [atomic] see shim_mem_graphs_late() */
/* How often memory was given back, so that the next launch takes it. */
static uint32_t trims GUARDED_BY(mutex) = 1;

static uint64_t attribute(CUdevice device, CUgraphMem_attribute what)
{
	uint64_t bytes = 0;

	return shim_driver.cuDeviceGetGraphMemAttribute(device, what, &bytes) == CUDA_SUCCESS
		       ? bytes
		       : 0;
}

/* ---- what a graph allocates ---- */

static void add_graph(CUgraph g, struct exec *e, int depth);

static void add_node(CUgraphNode node, struct exec *e, int depth)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p;
	CUgraphNodeType type;
	uint64_t *sum;
	CUgraph child;

	if (shim_driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) {
		return;
	}
	if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth < DEPTH_MAX &&
	    shim_driver.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) {
		add_graph(child, e, depth + 1);
	} else if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
		   shim_driver.cuGraphMemAllocNodeGetParams(node, &p) == CUDA_SUCCESS &&
		   p.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
		   shim_mem_row(p.poolProps.location.id) >= 0) {
		sum = &e->bytes[p.poolProps.location.id];
		*sum = p.bytesize > UINT64_MAX - *sum ? UINT64_MAX : *sum + p.bytesize;
	}
}

static void add_graph(CUgraph g, struct exec *e, int depth)
{
	CUgraphNode *nodes;
	size_t n = 0;

	if (shim_driver.cuGraphGetNodes(g, NULL, &n) != CUDA_SUCCESS || !n) {
		return;
	}
	nodes = calloc(n, sizeof(*nodes));
	if (nodes && shim_driver.cuGraphGetNodes(g, nodes, &n) == CUDA_SUCCESS) {
		for (size_t i = 0; i < n; i++) {
			add_node(nodes[i], e, depth);
		}
	}
	free(nodes);
}

static bool allocates(const struct exec *e)
{
	for (unsigned d = 0; d < PROTO_MAX_GPUS; d++) {
		if (e->bytes[d]) {
			return true;
		}
	}
	return false;
}

static void forget(CUgraphExec exec)
{
	struct mem_region r;

	if (mem_regions_take(&execs, (uint64_t)(uintptr_t)exec, &r)) {
		free((void *)(uintptr_t)r.owner);
	}
}

void shim_mem_graph_instantiated(CUgraphExec exec, CUgraph g)
{
	struct mem_region r = { .key = (uint64_t)(uintptr_t)exec, .count = 1 };
	struct exec *e;

	if (!shim_mem_joined()) {
		return;
	}
	e = calloc(1, sizeof(*e));
	if (e) {
		add_graph(g, e, 0);
	}
	lock_take(&mutex);
	forget(exec); /* of an exec that another function has destroyed */
	r.owner = (uint64_t)(uintptr_t)e;
	if (e && allocates(e) && mem_regions_add(&execs, &r) == 0) {
		store_release(&used, 1u);
		e = NULL;
	}
	lock_release(&mutex);
	free(e);
}

void shim_mem_graph_exec_destroyed(CUgraphExec exec)
{
	if (!load_acquire(&used) || !shim_mem_joined()) {
		return;
	}
	lock_take(&mutex);
	forget(exec);
	lock_release(&mutex);
}

/* ---- charges ---- */

/* Charges what a device's graphs hold; `more` is charged for them in addition. Growth is charged
 * beyond the limit if need be. */
static void correct(CUdevice device, uint64_t more) REQUIRES(mutex)
{
	uint64_t held = attribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
	uint64_t had = charged[device] + more;
	int row = shim_mem_row(device);

	if (held < charged[device]) {
		shim_mem_kind_sub(row, PROTO_KIND_GRAPH, charged[device] - held);
	}
	if (held < had) {
		shim_mem_release(row, had - held);
	} else if (held > had) {
		shim_mem_force(row, held - had);
	}
	if (held > charged[device]) {
		shim_mem_kind_add(row, PROTO_KIND_GRAPH, held - charged[device]);
	}
	charged[device] = held;
}

/* A device's graphs have given memory back. */
static void trimmed(CUdevice device) REQUIRES(mutex)
{
	trims = trims == UINT32_MAX ? 1 : trims + 1;
	correct(device, 0);
}

void shim_mem_graphs_measure(bool trim)
{
	if (!load_acquire(&used) || !shim_mem_joined() || !lock_try(&mutex)) {
		return; /* another thread launches a graph, and measures */
	}
	for (CUdevice d = 0; d < (int)PROTO_MAX_GPUS; d++) {
		if (shim_mem_row(d) < 0) {
			continue;
		}
		if (trim && charged[d]) {
			(void)shim_driver.cuDeviceGraphMemTrim(d);
			trimmed(d);
		} else {
			correct(d, 0);
		}
	}
	lock_release(&mutex);
}

/* Charges what a launch may take on a device; at the limit nothing if graphs have room. Returns
 * that, or UINT64_MAX: there is no memory now. */
static uint64_t charge_step(CUdevice device, uint64_t bytes) REQUIRES(mutex)
{
	uint64_t step = shim_mem_round_step(bytes), in_use;

	correct(device, 0);
	if (shim_mem_try_charge(shim_mem_row(device), step)) {
		return step;
	}
	in_use = attribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
	/* What other graphs have left is used again. */
	return charged[device] >= in_use && charged[device] - in_use >= bytes ? 0 : UINT64_MAX;
}

/* Charges what a launch may take on each device for which step[] has no charge yet. Returns -1, or
 * a device that has no memory now: then nothing is charged. */
static CUdevice charge_steps(const struct exec *e, uint64_t *step) REQUIRES(mutex)
{
	CUdevice full = -1;

	for (CUdevice d = 0; d < (int)PROTO_MAX_GPUS && full < 0; d++) {
		if (e->bytes[d] && !step[d]) {
			step[d] = charge_step(d, e->bytes[d]);
		}
		if (step[d] == UINT64_MAX) {
			step[d] = 0;
			full = d;
		}
	}
	for (CUdevice d = 0; d < (int)PROTO_MAX_GPUS && full >= 0; d++) {
		shim_mem_release(shim_mem_row(d), step[d]);
		step[d] = 0;
	}
	return full;
}

/* Returns the entry of an exec whose next launch may take memory, NULL: it has its memory, or none.
 * Memory that an exec has taken stays its until memory is given back. */
static struct exec *find_taker(CUgraphExec exec) REQUIRES(mutex)
{
	struct mem_region *m = mem_regions_find(&execs, (uint64_t)(uintptr_t)exec);
	struct exec *e = m ? (struct exec *)(uintptr_t)m->owner : NULL;

	return e && e->trims != trims ? e : NULL;
}

/* Charges what a launch may take. Where a device has no memory, it has pools and graphs give back
 * what they can and waits as long as the vGPU's calls wait, holding neither a charge nor the mutex:
 * other threads use graphs meanwhile, so all is looked at again then. It waits once for each
 * device. Returns false if there is no memory. */
static bool charge_launch(CUgraphExec exec, uint64_t *step) REQUIRES(mutex)
{
	bool has_waited[PROTO_MAX_GPUS] = { false };
	struct exec *e;
	CUdevice full;

	while ((e = find_taker(exec)) && (full = charge_steps(e, step)) >= 0) {
		uint64_t wanted = shim_mem_round_step(e->bytes[full]);

		if (has_waited[full]) {
			return false;
		}
		has_waited[full] = true;
		lock_release(&mutex);
		if (shim_mem_charge(shim_mem_row(full), wanted, "cuGraphLaunch")) {
			step[full] = wanted;
		}
		lock_take(&mutex);
	}
	return true;
}

/* Charges, launches, and corrects the charges. */
static CUresult take(CUgraphExec exec, CUstream stream, CUresult (*real)(CUgraphExec, CUstream))
	REQUIRES(mutex)
{
	uint64_t step[PROTO_MAX_GPUS] = { 0 };
	struct exec *e;
	CUresult r;

	if (!charge_launch(exec, step)) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	e = find_taker(exec); /* none if another thread has launched or destroyed it meanwhile */
	r = real(exec, stream);
	if (e) {
		e->trims = r == CUDA_SUCCESS ? trims : 0;
	}
	for (CUdevice d = 0; d < (int)PROTO_MAX_GPUS; d++) {
		if (step[d] || (e && e->bytes[d])) {
			correct(d, step[d]);
		}
	}
	return r;
}

static CUresult launch(CUgraphExec exec, CUstream stream, CUresult (*real)(CUgraphExec, CUstream))
{
	CUresult r;

	if (!load_acquire(&used) || !shim_mem_joined()) {
		return real(exec, stream);
	}
	lock_take(&mutex);
	if (!find_taker(exec)) {
		lock_release(&mutex);
		return real(exec, stream);
	}
	shim_mem_move_begin();
	r = take(exec, stream, real);
	shim_mem_move_end();
	lock_release(&mutex);
	return r;
}

/* Memory that has left the device comes back before the mutex is taken, since that may ask gbpfd.
 */
static CUresult launch_graph(CUgraphExec exec, CUstream stream)
{
	struct shim_swap_launch l;
	CUresult r;

	shim_work_launch_graph(&l, exec, stream, false);
	r = launch(exec, stream, shim_driver.cuGraphLaunch);
	shim_work_launched(&l, r);
	return r;
}

static CUresult launch_graph_ptsz(CUgraphExec exec, CUstream stream)
{
	struct shim_swap_launch l;
	CUresult r;

	shim_work_launch_graph(&l, exec, stream, true);
	r = launch(exec, stream, shim_driver.cuGraphLaunch_ptsz);
	shim_work_launched(&l, r);
	return r;
}

static CUresult upload(CUgraphExec exec, CUstream stream)
{
	return launch(exec, stream, shim_driver.cuGraphUpload);
}

static CUresult upload_ptsz(CUgraphExec exec, CUstream stream)
{
	return launch(exec, stream, shim_driver.cuGraphUpload_ptsz);
}

/* Surround a call in which the driver may hold more, or say that it holds less, than is charged. */
static void late_begin(void)
{
	(void)add_acqrel(&late, 1);
}

static void late_end(void)
{
	(void)add_acqrel(&late, (UINT64_C(1) << 32) - 1);
}

uint64_t shim_mem_graphs_late(void)
{
	return load_acquire(&late);
}

/* Shows by a node of a graph of its own, which is destroyed, when the driver takes memory. That is
 * held without a charge for the moment. */
static enum when find_out(CUdevice device) REQUIRES(mutex)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { CU_MEM_LOCATION_TYPE_DEVICE, device } },
		.bytesize = SHIM_MEM_UNIT,
	};
	CUstreamCaptureMode mode = shim_capture_exempt();
	uint64_t before = attribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
	enum when when = NOT_KNOWN;
	CUgraphNode node;
	CUgraph g;

	if (shim_driver.cuGraphCreate(&g, 0) == CUDA_SUCCESS) {
		if (shim_driver.cuGraphAddMemAllocNode(&node, g, NULL, 0, &p) == CUDA_SUCCESS) {
			uint64_t held = attribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);

			when = held > before ? WHEN_MADE : WHEN_LAUNCHED;
		}
		(void)shim_driver.cuGraphDestroy(g);
	}
	shim_capture_restore(mode);
	return when;
}

static bool takes_when_made(CUdevice device)
{
	enum when when = load_acquire(&taken);

	if (when == NOT_KNOWN) {
		late_begin();
		lock_take(&mutex);
		when = taken == NOT_KNOWN ? find_out(device) : taken;
		store_release(&taken, when);
		lock_release(&mutex);
		late_end();
	}
	return when != WHEN_LAUNCHED; /* also if it refuses such a node now */
}

/* UNCHECKED: the mutex is held until _end() unless it returns false. */
UNCHECKED bool shim_mem_graph_node_begin(CUdevice device, uint64_t bytes, uint64_t *ret_charged)
{
	int row = shim_mem_row(device);

	*ret_charged = row >= 0 && takes_when_made(device) ? shim_mem_round(bytes) : 0;
	if (*ret_charged && !shim_mem_charge(row, *ret_charged, "an allocation node")) {
		return false;
	}
	late_begin();
	lock_take(&mutex);
	if (row >= 0 && !*ret_charged) {
		correct(device, 0); /* growth is the node's from here on */
	}
	return true;
}

/* UNCHECKED: see _begin(). */
UNCHECKED void shim_mem_graph_node_end(CUdevice device, uint64_t charged_bytes, bool made)
{
	if (shim_mem_row(device) >= 0 && (made || charged_bytes)) {
		uint64_t before = charged[device];

		store_release(&used, 1u);
		correct(device, charged_bytes);
		if (charged[device] > before) {
			store_release(&taken, WHEN_MADE);
		}
	}
	lock_release(&mutex);
	late_end();
}

/* A call that adds a node. */
struct adding {
	CUdevice device;
	uint64_t charged;
	bool allocates;
};

/* p: of a node that allocates, else NULL. Returns false if there is no memory for it; else
 * adding_end() follows the call. */
static bool adding_begin(struct adding *a, const CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	const CUmemLocation *at = p ? &p->poolProps.location : NULL;

	*a = (struct adding){ .device = -1, .allocates = p };
	if (!p) {
		return true;
	}
	a->device = at->type == CU_MEM_LOCATION_TYPE_DEVICE ? at->id : -1;
	shim_mem_move_begin();
	if (shim_mem_graph_node_begin(a->device, a->device >= 0 ? p->bytesize : 0, &a->charged)) {
		return true;
	}
	shim_mem_move_end();
	return false;
}

/* If the driver took more than was charged, the node stays, beyond the limit: a graph with a node
 * of which its program was told that there is none would allocate all the same. */
static CUresult adding_end(const struct adding *a, CUresult r)
{
	if (a->allocates) {
		shim_mem_graph_node_end(a->device, a->charged, r == CUDA_SUCCESS);
		shim_mem_move_end();
	}
	return r;
}

static CUresult add_alloc(CUgraphNode *ret, CUgraph g, const CUgraphNode *after, size_t n,
			  CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	struct adding a;

	return adding_begin(&a, p)
		       ? adding_end(&a, shim_driver.cuGraphAddMemAllocNode(ret, g, after, n, p))
		       : CUDA_ERROR_OUT_OF_MEMORY;
}

static const CUDA_MEM_ALLOC_NODE_PARAMS *allocation_of(const CUgraphNodeParams *p)
{
	return p && p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? &p->alloc : NULL;
}

static CUresult add_any(CUgraphNode *ret, CUgraph g, const CUgraphNode *after, size_t n,
			CUgraphNodeParams *p)
{
	struct adding a;

	return adding_begin(&a, allocation_of(p))
		       ? adding_end(&a, shim_driver.cuGraphAddNode(ret, g, after, n, p))
		       : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult add_any_v2(CUgraphNode *ret, CUgraph g, const CUgraphNode *after,
			   const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *p)
{
	struct adding a;

	return adding_begin(&a, allocation_of(p))
		       ? adding_end(&a, shim_driver.cuGraphAddNode_v2(ret, g, after, edges, n, p))
		       : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult trim_device(CUdevice device)
{
	CUresult r = shim_driver.cuDeviceGraphMemTrim(device);

	if (r == CUDA_SUCCESS && load_acquire(&used) && shim_mem_row(device) >= 0) {
		lock_take(&mutex);
		trimmed(device);
		lock_release(&mutex);
	}
	return r;
}

static CUresult destroy(CUgraph g)
{
	CUresult r;

	/* The driver may say that it holds less before the memory is free. It may wait for work, so
	 * the mutex is not held. */
	late_begin();
	r = shim_driver.cuGraphDestroy(g);
	shim_mem_graphs_measure(false);
	late_end();
	return r;
}

void shim_mem_install_graphs(void)
{
	shim_real.cuGraphLaunch = launch_graph;
	shim_real.cuGraphLaunch_ptsz = launch_graph_ptsz;
	shim_real.cuGraphUpload = upload;
	shim_real.cuGraphUpload_ptsz = upload_ptsz;
	shim_real.cuGraphAddMemAllocNode = add_alloc;
	shim_real.cuGraphAddNode = add_any;
	shim_real.cuGraphAddNode_v2 = add_any_v2;
	shim_real.cuGraphDestroy = destroy;
	shim_real.cuDeviceGraphMemTrim = trim_device;
}
