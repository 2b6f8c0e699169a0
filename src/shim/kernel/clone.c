/* Clones are looked up once for each handle, by the entries of the owner's image. Occupancy is
 * queried again when the launch shape changes. */
#include "shim/kernel/clone.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/kernel/kernel_int.h"
#include "shim/kernel/loaded_image.h"
#include "shim/object/handle_set.h"

#define MAX_THREADS 1024u
#define MAX_SMEM (1u << 20) /* four times what a multiprocessor of 2025 has */
#define MAX_CLUSTER 1023u   /* blocks */
/* shim_clone.occupancy: the last queried shape and its answer in one word, so that they are always
 * consistent. */
#define SMEM_BITS 21u
#define THREAD_BITS 11u
#define SHAPE_BITS 42u
#define SHAPE ((UINT64_C(1) << SHAPE_BITS) - 1)
#define VALID UINT64_C(0x8000000000000000)
#define RESIDENT_MAX 0x1fffffu

/* Held over calls of the driver, which may load a clone. */
static struct lock clones_mutex = LOCK_INITIALIZER(CLONES);
/* Those of kernels that the program knows. */
static struct shim_clone *clones GUARDED_BY(clones_mutex);
static uint64_t made GUARDED_BY(clones_mutex);

/* Returns f$gbpf as the same kind of handle as f, NULL if there is none. */
static CUfunction clone_handle(const struct shim_kernel_origin *of)
{
	size_t cap = strlen(of->name) + sizeof(PTX_BLOCK_SUFFIX);
	char *name = malloc(cap);
	CUfunction f = NULL;
	CUkernel k = NULL;
	CUresult r;

	if (!name) {
		return NULL;
	}
	snprintf(name, cap, "%s" PTX_BLOCK_SUFFIX, of->name);
	if (of->kind == SHIM_KERNEL_OF_MODULE) {
		r = shim_real.cuModuleGetFunction(&f, (CUmodule)(uintptr_t)of->owner, name);
	} else {
		r = shim_real.cuLibraryGetKernel(&k, (CUlibrary)(uintptr_t)of->owner, name);
		f = (CUfunction)(void *)k;
		if (r == CUDA_SUCCESS && of->kind == SHIM_KERNEL_FUNCTION) {
			r = shim_real.cuKernelGetFunction(&f, k);
		}
	}
	free(name);
	return r == CUDA_SUCCESS ? f : NULL;
}

/* Returns 0 if the driver has no answer. */
static uint32_t attribute_of(const struct shim_clone *t, CUfunction f, CUfunction_attribute what)
{
	int n = 0;
	CUresult e = shim_kernel_attribute(&n, what, f, t->kind == SHIM_KERNEL_OF_LIBRARY);

	return e == CUDA_SUCCESS && n > 0 ? (uint32_t)n : 0;
}

static uint32_t max_smem(const struct shim_clone *t, CUfunction f)
{
	return attribute_of(t, f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
}

static CUresult set_max_smem(const struct shim_clone *t, uint32_t max)
{
	int bytes = (int)max;
	CUdevice d = 0;

	if (t->kind != SHIM_KERNEL_OF_LIBRARY) {
		return shim_real.cuFuncSetAttribute(
			t->handle, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
	}
	(void)shim_real.cuCtxGetDevice(&d);
	return shim_real.cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
					      bytes, (CUkernel)(void *)t->handle, d);
}

/* Learns the maximum of dynamic shared memory that the program has set. A clone's is set to that
 * plus the room for the ticket; where this exceeds the device's limit it is set to f's, and only
 * launches that use all of it go without the clone. */
static void follow_smem(struct shim_clone *t)
{
	uint32_t max = max_smem(t, t->of);

	if (!t->code) {
		if (max < MAX_SMEM && set_max_smem(t, PTX_BLOCK_SMEM(max)) != CUDA_SUCCESS) {
			(void)set_max_smem(t, max);
		}
		max = max_smem(t, t->handle);
	}
	store_relaxed(&t->max_smem_bytes, max);
	store_relaxed(&t->occupancy, (uint64_t)0);
}

/* f is its own clone if its machine code has an entry stub. */
static void use_code(struct shim_clone *t)
{
	const struct cubin_kernel *k = shim_code_kernel(t->of);

	t->why = (uint8_t)(k ? shim_code_why(k) : PROTO_BLOCK_CODE);
	if (t->why == PROTO_BLOCK_OK) {
		t->code = k;
		t->handle = t->of;
	}
}

static struct shim_clone *make(const void *handle, const struct shim_kernel_origin *o)
	REQUIRES(clones_mutex)
{
	struct shim_clone *t = calloc(1, sizeof(*t));

	if (!t) {
		return NULL;
	}
	t->owner = o->owner;
	t->kind = o->kind;
	t->load = o->load;
	t->id = ++made;
	if (t->kind != SHIM_KERNEL_OF_LIBRARY &&
	    shim_real.cuCtxGetCurrent(&t->ctx) != CUDA_SUCCESS) {
		t->ctx = NULL;
	}
	t->of = (CUfunction)(uintptr_t)handle;
	t->why = (uint8_t)shim_image_entry(o->owner, o->name, &t->entry);
	if (t->why != PROTO_BLOCK_OK && shim_code_owns(o->owner)) {
		use_code(t);
	} else if (t->why == PROTO_BLOCK_OK) {
		t->handle = clone_handle(o);
		t->why = (uint8_t)(t->handle ? PROTO_BLOCK_OK : PROTO_BLOCK_REJECTED);
	}
	if (t->handle) {
		t->max_threads = attribute_of(t, t->of, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
		follow_smem(t);
	}
	return t;
}

void shim_clone_follow(struct shim_clone *t)
{
	follow_smem(t);
}

void shim_clone_init(struct shim_clone *t, CUfunction of, CUfunction clone,
		     const struct ptx_block_entry *entry, const struct cubin_kernel *code)
{
	*t = (struct shim_clone){ .of = of,
				  .handle = clone,
				  .entry = entry,
				  .code = code,
				  .kind = SHIM_KERNEL_OF_MODULE,
				  .why = PROTO_BLOCK_OK };
	lock_take(&clones_mutex);
	t->id = ++made;
	lock_release(&clones_mutex);
	(void)shim_real.cuCtxGetCurrent(&t->ctx);
	t->max_threads = attribute_of(t, of, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
	follow_smem(t);
}

static bool is_former(const struct shim_clone *t)
{
	return load_relaxed(&t->excluded) & SHIM_CLONE_FORMER;
}

void shim_clone_refresh(const void *owner, const void *handle)
{
	lock_take(&clones_mutex);
	for (struct shim_clone *t = clones; t; t = t->next) {
		if (t->handle && !is_former(t) &&
		    (handle ? (const void *)t->of == handle : t->owner == owner)) {
			follow_smem(t);
		}
	}
	lock_release(&clones_mutex);
}

/* Returns the clone that is known of a handle. NULL: none; o->name then says, if it is not NULL,
 * that one can be made, and caller frees it. */
static struct shim_clone *known(const void *handle, struct shim_kernel_origin *o)
{
	const struct shim_kernel *k;
	struct shim_clone *t;

	lock_take(&shim_kernels_mutex);
	k = strmap_get(&shim_kernels, shim_handle_key(handle).text);
	t = k ? k->clone : NULL;
	lock_release(&shim_kernels_mutex);
	if (t || !shim_kernel_origin(handle, o)) {
		o->name = NULL;
	}
	return t;
}

/* Stores the clone in the kernel's record. Returns false if the program was given the handle for
 * another kernel meanwhile, or is unloading it, or if the owner's handle is that of a later load
 * (the former ended with its context): the name may be another kernel's there. The numbers of loads
 * only grow, so the clone was found in the load that is present here; in none, by its own handle.
 */
static bool publish(struct shim_clone *t, const struct shim_kernel_origin *o) REQUIRES(clones_mutex)
{
	uint64_t load = shim_image_load(o->owner);
	struct shim_kernel *k;
	bool same;

	lock_take(&shim_kernels_mutex);
	k = strmap_get(&shim_kernels, shim_handle_key(t->of).text);
	same = k && shim_kernel_names_the_same(k, o->name, o->owner, o->load) &&
	       (!load || load == o->load);
	if (same) {
		store_release(&k->clone, t);
		t->next = clones;
		clones = t;
	}
	lock_release(&shim_kernels_mutex);
	return same;
}

struct shim_clone *shim_clone_get(const void *handle)
{
	struct shim_kernel_origin o;
	struct shim_clone *t;

	lock_take(&clones_mutex);
	t = known(handle, &o);
	if (o.name) {
		t = make(handle, &o);
		if (t && !publish(t, &o)) {
			free(t);
			t = NULL;
		}
		free(o.name);
	}
	lock_release(&clones_mutex);
	return t;
}

static const struct cubin_kernel *code_of(CUfunction clone) REQUIRES(clones_mutex)
{
	const struct shim_clone *t = clones;

	while (t && (t->handle != clone || is_former(t))) {
		t = t->next;
	}
	return t ? t->code : NULL;
}

void shim_clone_exclude(CUfunction clone)
{
	const struct cubin_kernel *code;

	lock_take(&clones_mutex);
	code = code_of(clone);
	for (struct shim_clone *t = clones; t; t = t->next) {
		if (!is_former(t) && (t->handle == clone ||
				      (code && t->code && t->code->code_hash == code->code_hash))) {
			or_relaxed(&t->excluded, (uint8_t)SHIM_CLONE_HUNG);
		}
	}
	if (code) {
		shim_code_note_waiting(code);
	}
	lock_release(&clones_mutex);
}

void shim_clone_end_load(const void *owner, uint64_t until)
{
	lock_take(&clones_mutex); /* shim_clone_exclude() no longer reads their code */
	lock_take(&shim_kernels_mutex);
	for (struct shim_clone *t = clones; t; t = t->next) {
		if (t->load <= until && shim_image_is_of(t->owner, owner)) {
			or_relaxed(&t->excluded, (uint8_t)SHIM_CLONE_FORMER);
		}
	}
	strmap_each (&shim_kernels, e) {
		struct shim_kernel *k = e->value;

		if (k->load <= until && (shim_image_is_of(k->owner, owner) ||
					 (k->clone && shim_image_is_of(k->clone->owner, owner)))) {
			shim_kernel_means_another(k);
			k->owner = NULL; /* it does not end with the new load */
		}
	}
	lock_release(&shim_kernels_mutex);
	lock_release(&clones_mutex);
}

static void drop_clones(const void *owner, CUcontext ctx) REQUIRES(clones_mutex, shim_kernels_mutex)
{
	for (struct shim_clone **link = &clones, *t; (t = *link) != NULL;) {
		struct shim_kernel *k;

		if (owner ? !shim_image_is_of(t->owner, owner) : t->ctx != ctx) {
			link = &t->next;
			continue;
		}
		k = strmap_get(&shim_kernels, shim_handle_key(t->of).text);
		if (k && k->clone == t) {
			store_release(&k->clone, NULL);
		}
		*link = t->next;
		free(t);
	}
}

/* A kernel's record goes with its owner, after its clone. A handle that the program did not get
 * through the shim may be of the owner, and any may be of the context. */
static void forget(const void *owner, CUcontext ctx)
{
	lock_take(&clones_mutex);
	lock_take(&shim_kernels_mutex);
	drop_clones(owner, ctx);
	strmap_each (&shim_kernels, e) {
		struct shim_kernel *k = e->value;

		k->stale = k->stale || !owner || !k->name;
		if (!owner && k->kind != SHIM_KERNEL_OF_LIBRARY &&
		    !shim_image_outlives(k->owner, ctx)) {
			shim_kernel_drop_pointers(k);
		}
		if (owner && !k->name && k->owner && shim_image_is_of(k->owner, owner)) {
			strmap_del(&shim_kernels, e->key);
			free(k);
		}
	}
	add_acqrel(&shim.kernel_generation, 1);
	lock_release(&shim_kernels_mutex);
	lock_release(&clones_mutex);
}

static uint64_t unloading(const void *owner)
{
	forget(owner, NULL);
	return 0;
}

static void context_forget(CUcontext ctx)
{
	forget(NULL, ctx);
}

const struct shim_part shim_clone_part = { .if_attached = true,
					   .unloading = unloading,
					   .context_forget = context_forget };

/* Returns the number of blocks resident on a multiprocessor; 0: the driver refuses such a launch.
 */
static int resident(CUfunction f, uint32_t threads, uint32_t smem)
{
	int n = 0;

	return shim_real.cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, f, (int)threads, smem) ==
			       CUDA_SUCCESS
		       ? n
		       : 0;
}

static uint32_t multiprocessors(void)
{
	CUdevice d = 0;
	int n = 0;

	(void)shim_real.cuCtxGetDevice(&d);
	(void)shim_real.cuDeviceGetAttribute(&n, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d);
	return n > 0 ? (uint32_t)n : 0;
}

/* A launch that waits in a run has succeeded for the program, so the driver must not refuse it when
 * it is submitted. The occupancy's calls do not look at these limits. */
static bool accepts(const struct shim_clone *t, uint32_t threads, uint32_t smem)
{
	uint32_t need = t->code ? smem : PTX_BLOCK_SMEM(smem);

	return threads <= t->max_threads && need <= load_relaxed(&t->max_smem_bytes);
}

static uint64_t shape_of(uint32_t threads, uint32_t smem, uint32_t cluster)
{
	return ((uint64_t)cluster << THREAD_BITS | threads) << SMEM_BITS | smem;
}

static uint32_t remember(struct shim_clone *t, uint64_t shape, uint64_t n)
{
	n = MIN(n, (uint64_t)RESIDENT_MAX);
	store_relaxed(&t->occupancy, VALID | n << SHAPE_BITS | shape);
	return (uint32_t)n;
}

uint32_t shim_clone_resident(struct shim_clone *t, uint32_t threads, uint32_t smem)
{
	uint64_t shape = shape_of(threads, smem, 1);
	uint64_t cached = load_relaxed(&t->occupancy);
	uint64_t n;

	if (!threads || threads > MAX_THREADS || smem > MAX_SMEM) {
		return 0;
	}
	if (likely((cached & (VALID | SHAPE)) == (VALID | shape))) {
		return (uint32_t)((cached & ~VALID) >> SHAPE_BITS);
	}
	if (!accepts(t, threads, smem)) {
		return 0;
	}
	n = (uint64_t)resident(t->of, threads, smem);
	if (!t->code && (uint64_t)resident(t->handle, threads, PTX_BLOCK_SMEM(smem)) != n) {
		n = 0;
	}
	return remember(t, shape, n * multiprocessors());
}

uint32_t shim_clone_cluster_resident(struct shim_clone *t, const CUlaunchConfig *config,
				     uint32_t cluster)
{
	uint32_t threads = config->blockDimX * config->blockDimY * config->blockDimZ;
	uint64_t shape = shape_of(threads, config->sharedMemBytes, cluster);
	uint64_t cached = load_relaxed(&t->occupancy);
	int clusters = 0;

	if (!threads || threads > MAX_THREADS || config->sharedMemBytes > MAX_SMEM ||
	    cluster > MAX_CLUSTER) {
		return 0;
	}
	if (likely((cached & (VALID | SHAPE)) == (VALID | shape))) {
		return (uint32_t)((cached & ~VALID) >> SHAPE_BITS);
	}
	if (!accepts(t, threads, config->sharedMemBytes)) {
		return 0;
	}
	if (shim_real.cuOccupancyMaxActiveClusters(&clusters, t->of, config) != CUDA_SUCCESS ||
	    clusters < 0) {
		clusters = 0;
	}
	return remember(t, shape, (uint64_t)clusters * cluster);
}

uint32_t shim_clone_params(const struct shim_clone *t)
{
	return t->code ? t->code->n_params : t->entry->n_params;
}

struct cubin_param shim_clone_param(const struct shim_clone *t, uint32_t i)
{
	return t->code ? t->code->params[i]
		       : (struct cubin_param){ t->entry->param_offset[i],
					       t->entry->param_bytes[i] };
}

uint32_t shim_clone_arg_offset(const struct shim_clone *t)
{
	return t->code ? t->code->arg_offset : t->entry->arg_offset;
}
