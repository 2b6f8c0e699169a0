/* Launches of kernels and graphs, from the arguments of each launch function. */
#include "shim/kernel/clone.h"
#include "shim/launch/shim_launch.h"

static CUstream as_stream(uint64_t a)
{
	return (CUstream)(uintptr_t)a;
}

static const struct shim_kernel *kernel_here(uint64_t handle)
{
	struct shim_thread *t = shim_thread_self();

	return t ? shim_kernel_of(t, (const void *)(uintptr_t)handle) : &shim_kernel_none;
}

/* Sets the kernel, whose shape is known, and what the policy sees of both. */
static void describe_shape(struct shim_launch *l, uint32_t flags)
{
	const struct shim_kernel_call *k = &l->call;
	const struct shim_kernel *kernel = kernel_here((uintptr_t)k->f);

	l->own_clone = shim_clone_to_launch(kernel);
	l->smem = k->smem;
	l->record.kernel = load_acquire(&kernel->counted);
	l->record.flags = flags;
	l->record.blocks = shim_extent3d(k->grid[0], k->grid[1], k->grid[2]);
	l->record.threads = k->block[0] * k->block[1] * k->block[2];
	l->record.smem_bytes = k->smem;
}

static void begin_call(struct shim_kernel_call *k, const struct shim_call *c,
		       enum shim_kernel_api api)
{
	k->api = (uint8_t)api;
	k->choice = SHIM_KERNEL_NOT_CHOSEN;
	k->per_thread = c->per_thread;
	k->brackets = 0;
}

/* Arguments: f, grid x y z, block x y z, shared memory, stream, kernelParams, and of a launch that
 * is not cooperative also extra. */
void shim_describe_call(struct shim_kernel_call *k, const struct shim_call *c, const uint64_t *a)
{
	k->f = (CUfunction)(uintptr_t)a[0];
	k->stream = as_stream(a[8]);
	k->config = NULL;
	for (unsigned i = 0; i < 3; i++) {
		k->grid[i] = (uint32_t)a[1 + i];
		k->block[i] = (uint32_t)a[4 + i];
	}
	k->smem = (uint32_t)a[7];
	k->params = (void **)(uintptr_t)a[9];
	k->extra = c->nargs > 10 ? (void **)(uintptr_t)a[10] : NULL;
	begin_call(k, c, c->nargs > 10 ? SHIM_KERNEL_API_PLAIN : SHIM_KERNEL_API_COOPERATIVE);
}

/* Arguments: config, f, kernelParams, extra. */
void shim_describe_call_ex(struct shim_kernel_call *k, const struct shim_call *c, const uint64_t *a)
{
	const CUlaunchConfig *config = (const CUlaunchConfig *)(uintptr_t)a[0];

	k->f = (CUfunction)(uintptr_t)a[1];
	k->stream = config->hStream;
	k->config = config;
	k->grid[0] = config->gridDimX;
	k->grid[1] = config->gridDimY;
	k->grid[2] = config->gridDimZ;
	k->block[0] = config->blockDimX;
	k->block[1] = config->blockDimY;
	k->block[2] = config->blockDimZ;
	k->smem = config->sharedMemBytes;
	k->params = (void **)(uintptr_t)a[2];
	k->extra = (void **)(uintptr_t)a[3];
	begin_call(k, c, SHIM_KERNEL_API_EX);
}

void shim_describe_kernel(struct shim_launch *l, const struct shim_call *c, const uint64_t *a)
{
	shim_launch_init(l, GBPF_KIND_KERNEL, NULL);
	shim_describe_call(&l->call, c, a);
	describe_shape(l, c->nargs > 10 ? 0 : GBPF_F_COOPERATIVE);
}

void shim_describe_kernel_ex(struct shim_launch *l, const struct shim_call *c, const uint64_t *a)
{
	const CUlaunchConfig *config = (const CUlaunchConfig *)(uintptr_t)a[0];

	shim_launch_init(l, GBPF_KIND_KERNEL, NULL);
	shim_describe_call_ex(&l->call, c, a);
	describe_shape(l, 0);
	for (unsigned i = 0; config->attrs && i < config->numAttrs; i++) {
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE &&
		    config->attrs[i].value.cooperative) {
			l->record.flags |= GBPF_F_COOPERATIVE;
		}
	}
}

/* It never runs at block level: `own_clone` stays NULL. */
void shim_describe_one_of(struct shim_launch *l, struct shim_thread *t, const CUDA_LAUNCH_PARAMS *p)
{
	shim_launch_init(l, GBPF_KIND_KERNEL, p->hStream);
	l->record.flags = GBPF_F_COOPERATIVE;
	l->record.kernel = load_acquire(&shim_kernel_of(t, p->function)->counted);
	l->record.blocks = shim_extent3d(p->gridDimX, p->gridDimY, p->gridDimZ);
	l->record.threads = p->blockDimX * p->blockDimY * p->blockDimZ;
	l->record.smem_bytes = p->sharedMemBytes;
}

void shim_describe_legacy(struct shim_launch *l, const struct shim_call *c, const uint64_t *a)
{
	shim_launch_init(l, GBPF_KIND_KERNEL, c->nargs > 3 ? as_stream(a[3]) : CU_STREAM_LEGACY);
	l->record.kernel = load_acquire(&kernel_here(a[0])->counted);
	l->record.blocks = c->nargs > 1 ? shim_extent2d((uint32_t)a[1], (uint32_t)a[2]) : 1;
}

void shim_describe_graph(struct shim_launch *l, const uint64_t *a)
{
	struct shim_thread *t = shim_thread_self();

	shim_launch_init(l, GBPF_KIND_GRAPH, as_stream(a[1]));
	l->record.kernel = t ? shim_kernel_of_graph(t, (const void *)(uintptr_t)a[0]) : NULL;
}
