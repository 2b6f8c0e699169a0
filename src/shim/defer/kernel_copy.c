/* Copies of kernel launches. Parameters are passed by address (kernelParams) or in a buffer
 * (extra). The driver reads both before its call returns, so a copy owns them. The layout is
 * queried from the driver. */
#include "shim/defer/kernel_copy.h"

#include <stdlib.h>
#include <string.h>

#include "shim/kernel/kernel_handle.h"
#include "shim/object/launch_args.h"

#define MAX_PARAMS 256u
#define MAX_PARAM_BYTES 32768u
#define MAX_ATTRIBUTES 32u
#define BUFFER_AT 64u /* of a copied buffer, behind the list that names it and its size */

/* Parameters of a launch. The blob of its copy holds, in this order: [attributes] [extra]
 * [pointers] [bytes of the parameters or the buffer] */
struct parameters {
	unsigned n; /* kernelParams */
	size_t bytes;
	size_t at[MAX_PARAMS], size[MAX_PARAMS]; /* offsets in the blob's last part, and sizes */
	struct shim_param_buffer buffer;	 /* extra */
};

static CUresult param_info(bool library, void *f, size_t i, size_t *size)
{
	size_t offset;

	return library ? SHIM_REAL(cuKernelGetParamInfo)((CUkernel)f, i, &offset, size)
		       : SHIM_REAL(cuFuncGetParamInfo)((CUfunction)f, i, &offset, size);
}

/* Fills n, at, size and bytes. Returns false without a definite answer of the driver: the index
 * after the last one must be refused as an invalid value. */
static bool measure(struct parameters *p, void *f, bool library)
{
	for (p->n = 0, p->bytes = 0;; p->n++) {
		size_t size = 0;
		CUresult r = param_info(library, f, p->n, &size);

		if (r != CUDA_SUCCESS) {
			return r == CUDA_ERROR_INVALID_VALUE && p->n > 0;
		}
		if (p->n == MAX_PARAMS || size > MAX_PARAM_BYTES || p->bytes > MAX_PARAM_BYTES) {
			return false;
		}
		p->at[p->n] = p->bytes;
		p->size[p->n] = size;
		p->bytes += ROUND_UP(size, 16);
	}
}

static bool inspect(struct parameters *p, void *f, void **params, void **extra)
{
	bool library;

	memset(p, 0, sizeof(*p));
	if (!params) {
		return !extra || (shim_param_buffer(extra, &p->buffer) && p->buffer.at &&
				  p->buffer.bytes <= MAX_PARAM_BYTES);
	}
	if (extra) {
		return false; /* the driver refuses to take both */
	}
	library = shim_kernel_is_library(f);
	if (!measure(p, f, library) && !measure(p, f, !library)) {
		return false;
	}
	for (unsigned i = 0; i < p->n; i++) {
		if (!params[i]) {
			return false; /* a driver may refuse that */
		}
	}
	return true;
}

/* Returns the bytes that the parameters need in a blob. */
static size_t room_of(const struct parameters *p)
{
	return ROUND_UP(p->n * sizeof(void *), 16) + p->bytes +
	       (p->buffer.at ? BUFFER_AT + p->buffer.bytes : 0);
}

/* Copies the parameters to `to` in the blob (16-byte aligned) and stores the new kernelParams and
 * extra. */
static void fill(const struct parameters *p, unsigned char *to, void **params, uint64_t *ret_params,
		 uint64_t *ret_extra)
{
	if (p->n) {
		void **pointers = (void **)(void *)to;
		unsigned char *data = to + ROUND_UP(p->n * sizeof(void *), 16);

		for (unsigned i = 0; i < p->n; i++) {
			pointers[i] = data + p->at[i];
			memcpy(pointers[i], params[i], p->size[i]);
		}
		*ret_params = (uintptr_t)pointers;
	}
	if (p->buffer.at) {
		void **extra = (void **)(void *)to;
		size_t *size = (size_t *)(void *)(to + SHIM_EXTRA_LIST * sizeof(void *));

		*size = p->buffer.bytes;
		memcpy(to + BUFFER_AT, p->buffer.at, p->buffer.bytes);
		shim_param_buffer_list(extra, to + BUFFER_AT, size);
		*ret_extra = (uintptr_t)extra;
	}
}

/* A launch that is deferred has succeeded for the program. Returns false if the driver would refuse
 * f's blocks. */
static bool accepts(CUfunction f, const uint32_t block[3], uint32_t smem)
{
	bool library = shim_kernel_is_library(f);
	int n = 0;

	return (shim_kernel_attribute(&n, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f, library) !=
			CUDA_SUCCESS ||
		block[0] * block[1] * block[2] <= (unsigned)n) &&
	       (shim_kernel_attribute(&n, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f,
				      library) != CUDA_SUCCESS ||
		smem <= (unsigned)n);
}

static bool fits(CUfunction f, const uint32_t grid[3], const uint32_t block[3], uint32_t smem)
{
	return shim_shape_fits(grid, block) && accepts(f, block, smem);
}

/* cuLaunchKernel, cuLaunchCooperativeKernel: argument 0 is f, 9 kernelParams and 10, if there is
 * one, extra. */
struct shim_deferred_call *shim_copy_kernel(const struct shim_call *c, const uint64_t *a)
{
	void **params = (void **)(uintptr_t)a[9],
	     **extra = c->nargs > 10 ? (void **)(uintptr_t)a[10] : NULL;
	const uint32_t grid[] = { (uint32_t)a[1], (uint32_t)a[2], (uint32_t)a[3] };
	const uint32_t block[] = { (uint32_t)a[4], (uint32_t)a[5], (uint32_t)a[6] };
	struct parameters p;
	struct shim_deferred_call *k;
	uint64_t none = 0;

	if (!fits((CUfunction)(uintptr_t)a[0], grid, block, (uint32_t)a[7]) ||
	    !inspect(&p, (void *)(uintptr_t)a[0], params, extra)) {
		return NULL;
	}
	k = shim_deferred_new(c, a, room_of(&p));
	if (k) {
		fill(&p, k->blob, params, &k->a[9], c->nargs > 10 ? &k->a[10] : &none);
	}
	return k;
}

/* Returns the multiprocessors of the stream's green context, the program's or the cap's, or else of
 * the device; 0: unknown. */
static unsigned sms_of(const struct shim_queue *q)
{
	CUgreenCtx green = NULL;
	CUdevResource part;
	CUdevice d = 0;
	int sms = 0;

	if (q->kind == SHIM_QUEUE_CREATED &&
	    shim_real.cuStreamGetGreenCtx(q->dev.stream, &green) == CUDA_SUCCESS && green) {
		return shim_real.cuGreenCtxGetDevResource(green, &part, CU_DEV_RESOURCE_TYPE_SM) ==
				       CUDA_SUCCESS
			       ? part.sm.smCount
			       : 0;
	}
	return shim_real.cuCtxGetDevice(&d) == CUDA_SUCCESS &&
			       shim_real.cuDeviceGetAttribute(
				       &sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d) ==
				       CUDA_SUCCESS &&
			       sms > 0
		       ? (unsigned)sms
		       : 0;
}

/* All blocks of a cooperative launch must be resident at once on the multiprocessors that the
 * stream may use. The caller's launch returns an error if they are not, so a copy may be made only
 * if they are. */
bool shim_cooperative_fits(const struct shim_queue *q, CUfunction f, const struct sched_launch *l)
{
	int resident = 0;

	return shim_real.cuOccupancyMaxActiveBlocksPerMultiprocessor(
		       &resident, f, (int)l->threads, l->smem_bytes) == CUDA_SUCCESS &&
	       resident > 0 && l->blocks <= (uint64_t)resident * sms_of(q);
}

/* Returns false if an attribute names an event or returns a result, for which the caller must wait.
 */
static bool plain_attributes(const CUlaunchConfig *config)
{
	if (config->numAttrs > MAX_ATTRIBUTES || (config->numAttrs && !config->attrs)) {
		return false;
	}
	for (unsigned i = 0; i < config->numAttrs; i++) {
		switch (config->attrs[i].id) {
		case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
		case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
		case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
			return false;
		default:
			break;
		}
	}
	return true;
}

struct shim_deferred_call *shim_copy_kernel_ex(const struct shim_call *c, const uint64_t *a)
{
	const CUlaunchConfig *config = (const CUlaunchConfig *)(uintptr_t)a[0];
	void **params = (void **)(uintptr_t)a[2];
	size_t config_bytes, attribute_bytes;
	struct parameters p;
	CUlaunchConfig *copy;
	struct shim_deferred_call *k;

	if (!config || !plain_attributes(config) ||
	    !fits((CUfunction)(uintptr_t)a[1],
		  (const uint32_t[]){ config->gridDimX, config->gridDimY, config->gridDimZ },
		  (const uint32_t[]){ config->blockDimX, config->blockDimY, config->blockDimZ },
		  config->sharedMemBytes) ||
	    !inspect(&p, (void *)(uintptr_t)a[1], params, (void **)(uintptr_t)a[3])) {
		return NULL;
	}
	config_bytes = ROUND_UP(sizeof(*config), 16);
	attribute_bytes = ROUND_UP(config->numAttrs * sizeof(config->attrs[0]), 16);
	k = shim_deferred_new(c, a, config_bytes + attribute_bytes + room_of(&p));
	if (!k) {
		return NULL;
	}
	copy = (CUlaunchConfig *)(void *)k->blob;
	*copy = *config;
	if (config->numAttrs) {
		copy->attrs = (CUlaunchAttribute *)(void *)(k->blob + config_bytes);
		memcpy(copy->attrs, config->attrs, config->numAttrs * sizeof(config->attrs[0]));
	}
	k->a[0] = (uintptr_t)copy;
	fill(&p, k->blob + config_bytes + attribute_bytes, params, &k->a[2], &k->a[3]);
	return k;
}
