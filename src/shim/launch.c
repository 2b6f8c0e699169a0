/* Launch records of kernels and graphs, from the arguments of each way to launch. */
#include "shim/gates.h"
#include "shim/kernel.h"

static CUstream as_stream(uint64_t a)
{
	return (CUstream)(uintptr_t)a;
}

static struct sched_kernel *kernel_here(uint64_t handle, bool is_graph)
{
	struct shim_thread *t = thread_self();

	return t ? kernel_of(t, (const void *)(uintptr_t)handle, is_graph) : NULL;
}

/* f, grid x y z, block x y z, shared memory, stream ... */
static CUresult plain(const struct shim_call *c, uint64_t *a, uint32_t flags)
{
	struct sched_launch l;

	gate_record(&l, GBPF_KIND_KERNEL);
	l.flags = flags;
	l.kernel = kernel_here(a[0], false);
	l.blocks = shim_extent3d((uint32_t)a[1], (uint32_t)a[2], (uint32_t)a[3]);
	l.threads = (uint32_t)(a[4] * a[5] * a[6]);
	l.smem_bytes = (uint32_t)a[7];
	return gate_submit(c, a, &l, as_stream(a[8]));
}

CUresult gate_kernel(const struct shim_call *c, uint64_t *a)
{
	return plain(c, a, 0);
}

CUresult gate_cooperative(const struct shim_call *c, uint64_t *a)
{
	return plain(c, a, GBPF_F_COOPERATIVE);
}

CUresult gate_kernel_ex(const struct shim_call *c, uint64_t *a)
{
	const CUlaunchConfig *config = (const CUlaunchConfig *)(uintptr_t)a[0];
	struct sched_launch l;

	if (!config) {
		return c->run(a);
	}
	gate_record(&l, GBPF_KIND_KERNEL);
	l.kernel = kernel_here(a[1], false);
	l.blocks = shim_extent3d(config->gridDimX, config->gridDimY, config->gridDimZ);
	l.threads = config->blockDimX * config->blockDimY * config->blockDimZ;
	l.smem_bytes = config->sharedMemBytes;
	for (unsigned i = 0; config->attrs && i < config->numAttrs; i++) {
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE &&
		    config->attrs[i].value.cooperative) {
			l.flags |= GBPF_F_COOPERATIVE;
		}
	}
	return gate_submit(c, a, &l, config->hStream);
}

/* cuLaunch(f), cuLaunchGrid(f, w, h), cuLaunchGridAsync(f, w, h, stream): block and parameters were
 * set before. */
CUresult gate_old(const struct shim_call *c, uint64_t *a)
{
	struct sched_launch l;

	gate_record(&l, GBPF_KIND_KERNEL);
	l.blocks = 1;
	l.kernel = kernel_here(a[0], false);
	if (c->nargs > 1) {
		l.blocks = shim_extent2d((uint32_t)a[1], (uint32_t)a[2]);
	}
	return gate_submit(c, a, &l, c->nargs > 3 ? as_stream(a[3]) : CU_STREAM_LEGACY);
}

CUresult gate_graph(const struct shim_call *c, uint64_t *a)
{
	struct sched_launch l;

	gate_record(&l, GBPF_KIND_GRAPH);
	l.kernel = kernel_here(a[0], true);
	return gate_submit(c, a, &l, as_stream(a[1]));
}
