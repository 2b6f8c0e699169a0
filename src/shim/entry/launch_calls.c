/* Launch records of kernels and graphs, from the arguments of each launch function. */
#include "shim/capture_state.h"
#include "shim/defer/block_launch.h"
#include "shim/entry/gate.h"
#include "shim/kernel/kernel_handle.h"
#include "shim/object/event_uses.h"
#include "shim/object/graph_events.h"

static CUstream as_stream(uint64_t a)
{
	return (CUstream)(uintptr_t)a;
}

static const struct shim_thread_kernel *kernel_here(uint64_t handle, bool is_graph)
{
	static const struct shim_thread_kernel none;
	struct shim_thread *t = shim_thread_self();

	return t ? shim_kernel_of(t, (const void *)(uintptr_t)handle, is_graph) : &none;
}

/* Arguments: f, grid x y z, block x y z, shared memory, stream, kernelParams, extra. */
static CUresult plain(const struct shim_call *c, uint64_t *a, uint32_t flags)
{
	const struct shim_thread_kernel *k = kernel_here(a[0], false);
	struct sched_launch l;
	struct shim_block_call b;

	shim_gate_record_init(&l, GBPF_KIND_KERNEL);
	l.flags = flags;
	l.kernel = k->k;
	l.blocks = shim_extent3d((uint32_t)a[1], (uint32_t)a[2], (uint32_t)a[3]);
	l.threads = (uint32_t)(a[4] * a[5] * a[6]);
	l.smem_bytes = (uint32_t)a[7];
	b.clone = NULL;
	b.kernel = NULL;
	b.form = NULL;
	if (k->clone && flags) {
		shim_block_note_reason(k, PROTO_BLOCK_COOPERATIVE);
	} else if (k->clone) {
		for (unsigned i = 0; i < 3; i++) {
			b.grid[i] = (uint32_t)a[1 + i];
			b.block[i] = (uint32_t)a[4 + i];
		}
		b.smem = l.smem_bytes;
		b.params = (void **)(uintptr_t)a[9];
		b.extra = (void **)(uintptr_t)a[10];
		b.kernel = k;
		b.config = NULL;
	}
	return shim_gate_submit(c, a, &l, as_stream(a[8]), &b);
}

CUresult shim_gate_kernel(const struct shim_call *c, uint64_t *a)
{
	return plain(c, a, 0);
}

CUresult shim_gate_cooperative(const struct shim_call *c, uint64_t *a)
{
	return plain(c, a, GBPF_F_COOPERATIVE);
}

CUresult shim_gate_kernel_ex(const struct shim_call *c, uint64_t *a)
{
	const CUlaunchConfig *config = (const CUlaunchConfig *)(uintptr_t)a[0];
	const struct shim_thread_kernel *k;
	struct sched_launch l;
	struct shim_block_call b;

	if (!config) {
		return c->run(a);
	}
	k = kernel_here(a[1], false);
	shim_gate_record_init(&l, GBPF_KIND_KERNEL);
	l.kernel = k->k;
	l.blocks = shim_extent3d(config->gridDimX, config->gridDimY, config->gridDimZ);
	l.threads = config->blockDimX * config->blockDimY * config->blockDimZ;
	l.smem_bytes = config->sharedMemBytes;
	for (unsigned i = 0; config->attrs && i < config->numAttrs; i++) {
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE &&
		    config->attrs[i].value.cooperative) {
			l.flags |= GBPF_F_COOPERATIVE;
		}
	}
	b.clone = NULL;
	b.kernel = NULL;
	b.form = NULL;
	if (k->clone) {
		b.kernel = k;
		b.config = config;
		b.grid[0] = config->gridDimX;
		b.grid[1] = config->gridDimY;
		b.grid[2] = config->gridDimZ;
		b.block[0] = config->blockDimX;
		b.block[1] = config->blockDimY;
		b.block[2] = config->blockDimZ;
		b.smem = config->sharedMemBytes;
		b.params = (void **)(uintptr_t)a[2];
		b.extra = (void **)(uintptr_t)a[3];
	}
	return shim_gate_submit(c, a, &l, config->hStream, &b);
}

/* cuLaunch(f), cuLaunchGrid(f, w, h), cuLaunchGridAsync(f, w, h, stream): block size and parameters
 * were set by earlier calls. */
CUresult shim_gate_legacy(const struct shim_call *c, uint64_t *a)
{
	struct sched_launch l;

	shim_gate_record_init(&l, GBPF_KIND_KERNEL);
	l.blocks = 1;
	l.kernel = kernel_here(a[0], false)->k;
	if (c->nargs > 1) {
		l.blocks = shim_extent2d((uint32_t)a[1], (uint32_t)a[2]);
	}
	return shim_gate_submit(c, a, &l, c->nargs > 3 ? as_stream(a[3]) : CU_STREAM_LEGACY, NULL);
}

/* A graph launch must follow the launches of the same graph that other streams have deferred, and
 * an executable graph must not be used while another thread launches it: drains those launches. */
static NOINLINE void drain_before_graph(const struct shim_call *c, const uint64_t *a)
{
	struct shim_thread *t = shim_thread_self();
	CUstream stream = as_stream(a[1]);

	if (shim_graph_has_events((CUgraphExec)(uintptr_t)a[0])) {
		shim_drain_all();
	} else if (t && !(shim_capture_any() && shim_capture_has(stream, c->per_thread))) {
		shim_event_drain((CUevent)(uintptr_t)a[0], SHIM_EVENT_RECORD,
				 shim_queue_of(t, stream, c->per_thread));
	}
}

CUresult shim_gate_graph(const struct shim_call *c, uint64_t *a)
{
	struct sched_launch l;

	if (shim_pending()) {
		drain_before_graph(c, a);
	}
	shim_gate_record_init(&l, GBPF_KIND_GRAPH);
	l.kernel = kernel_here(a[0], true)->k;
	return shim_gate_submit(c, a, &l, as_stream(a[1]), NULL);
}
