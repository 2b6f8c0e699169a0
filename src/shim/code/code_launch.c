/* Launches of patched kernels: the entry stub's argument, all zero unless the thread has one, is
 * passed behind the program's parameters. The driver reads as many pointers as the machine code
 * declares parameters, so no call that launches may be missing here. Takes no lock and does not
 * allocate, except for kernels with more parameters than the room below. */
#include "shim/code/shim_code_int.h"

#include <stdlib.h>
#include <string.h>

#define MAX_EXTRA 8u
#define MAX_PER_CALL 16u /* launches of one cuLaunchCooperativeKernelMultiDevice */

uint64_t shim_code_zero[8];

_Static_assert(sizeof(shim_code_zero) == sizeof(struct ptx_gate_arg), "the stub's argument");

/* ---- parameters ---- */

/* Returns the stub's argument for a launch of the calling thread. */
static const void *stub_arg(void)
{
	const struct shim_thread *t = shim_thread_known;

	return t && unlikely(t->stub_arg) ? (const void *)t->stub_arg : shim_code_zero;
}

/* Finds the buffer in extra. Returns false for entries that the driver should refuse. */
static bool read_extra(void **extra, const void **ret, size_t *ret_bytes)
{
	*ret = NULL;
	*ret_bytes = 0;
	for (unsigned i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (i >= MAX_EXTRA) {
			return false;
		}
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
			*ret = extra[i + 1];
		} else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[i + 1]) {
			*ret_bytes = *(const size_t *)extra[i + 1];
		} else {
			return false;
		}
	}
	return *ret || !*ret_bytes;
}

/* Copies the program's buffer and appends the argument. Bytes behind the parameters are kept as
 * many as the program passed, for the driver to judge. A shorter buffer is refused: the driver
 * would take what is behind it for the argument. */
static CUresult fill_buffer(struct shim_code_args *a, const struct cubin_kernel *k, void **extra)
{
	unsigned char *to = a->buffer;
	const void *from;
	size_t bytes, end = (size_t)k->arg_offset + SHIM_CODE_ARG_BYTES;

	if (!read_extra(extra, &from, &bytes) || bytes < k->param_bytes) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	a->bytes = end + (bytes > k->arg_offset ? bytes - k->arg_offset : 0);
	if (a->bytes < end) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (a->bytes > sizeof(a->buffer)) {
		to = a->heap = malloc(a->bytes);
		if (!to) {
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	memset(to, 0, a->bytes);
	if (from && k->param_bytes) {
		memcpy(to, from, k->param_bytes);
	}
	memcpy(to + k->arg_offset, stub_arg(), SHIM_CODE_ARG_BYTES);
	a->list[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
	a->list[1] = to;
	a->list[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
	a->list[3] = &a->bytes;
	a->list[4] = CU_LAUNCH_PARAM_END;
	a->extra = a->list;
	return CUDA_SUCCESS;
}

static CUresult fill_pointers(struct shim_code_args *a, const struct cubin_kernel *k, void **params)
{
	void **to = a->pointers;

	if (k->n_params >= ARRAY_SIZE(a->pointers)) {
		to = a->heap = malloc(((size_t)k->n_params + 1) * sizeof(to[0]));
		if (!to) {
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	if (k->n_params) {
		memcpy(to, params, k->n_params * sizeof(to[0]));
	}
	to[k->n_params] = unqual(stub_arg());
	a->params = to;
	return CUDA_SUCCESS;
}

CUresult shim_code_args_open(struct shim_code_args *a, const struct cubin_kernel *k, void **params,
			     void **extra)
{
	a->params = params;
	a->extra = extra;
	a->heap = NULL;
	if (extra && params) {
		return CUDA_SUCCESS; /* the driver refuses both */
	}
	if (extra) {
		return fill_buffer(a, k, extra);
	}
	return params || !k->n_params ? fill_pointers(a, k, params) : CUDA_ERROR_INVALID_VALUE;
}

void shim_code_args_close(struct shim_code_args *a)
{
	free(a->heap);
}

/* ---- launches ---- */

/* The body of a launch: CALL, with the parameters in a.params and a.extra. */
#define WITH_ARGUMENT(f, program_params, program_extra, CALL)                                      \
	{                                                                                          \
		const struct cubin_kernel *k = shim_code_kernel(f);                                \
		struct shim_code_args a;                                                           \
		CUresult r;                                                                        \
                                                                                                   \
		if (!k) {                                                                          \
			a.params = program_params;                                                 \
			a.extra = program_extra;                                                   \
			return CALL;                                                               \
		}                                                                                  \
		r = shim_code_args_open(&a, k, program_params, program_extra);                     \
		if (likely(r == CUDA_SUCCESS)) {                                                   \
			r = CALL;                                                                  \
		}                                                                                  \
		shim_code_args_close(&a);                                                          \
		return r;                                                                          \
	}

#define PLAIN_LAUNCH(name, real)                                                                   \
	static CUresult name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,     \
			     unsigned by, unsigned bz, unsigned smem, CUstream s, void **params,   \
			     void **extra)                                                         \
		WITH_ARGUMENT(f, params, extra,                                                    \
			      real(f, gx, gy, gz, bx, by, bz, smem, s, a.params, a.extra))

#define COOPERATIVE_LAUNCH(name, real)                                                             \
	static CUresult name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,     \
			     unsigned by, unsigned bz, unsigned smem, CUstream s, void **params)   \
		WITH_ARGUMENT(f, params, NULL, real(f, gx, gy, gz, bx, by, bz, smem, s, a.params))

#define LAUNCH_EX(name, real)                                                                      \
	static CUresult name(const CUlaunchConfig *config, CUfunction f, void **params,            \
			     void **extra)                                                         \
		WITH_ARGUMENT(f, params, extra, real(config, f, a.params, a.extra))

PLAIN_LAUNCH(launch, shim_driver.cuLaunchKernel)
PLAIN_LAUNCH(launch_ptsz, shim_driver.cuLaunchKernel_ptsz)
COOPERATIVE_LAUNCH(cooperative, shim_driver.cuLaunchCooperativeKernel)
COOPERATIVE_LAUNCH(cooperative_ptsz, shim_driver.cuLaunchCooperativeKernel_ptsz)
LAUNCH_EX(launch_ex, shim_driver.cuLaunchKernelEx)
LAUNCH_EX(launch_ex_ptsz, shim_driver.cuLaunchKernelEx_ptsz)

static CUresult multi_device(CUDA_LAUNCH_PARAMS *list, unsigned n, unsigned flags)
{
	CUDA_LAUNCH_PARAMS copy[MAX_PER_CALL];
	struct shim_code_args a[MAX_PER_CALL];
	CUresult r = CUDA_SUCCESS;
	unsigned i;

	if (!list || n > MAX_PER_CALL) { /* more devices than a machine has */
		return shim_driver.cuLaunchCooperativeKernelMultiDevice(list, n, flags);
	}
	for (i = 0; i < n && r == CUDA_SUCCESS; i++) {
		const struct cubin_kernel *k = shim_code_kernel(list[i].function);

		copy[i] = list[i];
		a[i].heap = NULL;
		if (k) {
			r = shim_code_args_open(&a[i], k, list[i].kernelParams, NULL);
			copy[i].kernelParams = a[i].params;
		}
	}
	if (r == CUDA_SUCCESS) {
		r = shim_driver.cuLaunchCooperativeKernelMultiDevice(copy, n, flags);
	}
	while (i) {
		shim_code_args_close(&a[--i]);
	}
	return r;
}

/* ---- launches whose parameters were set by cuParamSet* ---- */

static void set_zero(CUfunction f)
{
	const struct cubin_kernel *k = shim_code_kernel(f);

	if (k) {
		(void)shim_driver.cuParamSetv(f, (int)k->arg_offset, shim_code_zero,
					      sizeof(shim_code_zero));
		(void)shim_driver.cuParamSetSize(f, k->arg_offset + SHIM_CODE_ARG_BYTES);
	}
}

static CUresult legacy(CUfunction f)
{
	set_zero(f);
	return shim_driver.cuLaunch(f);
}

static CUresult legacy_grid(CUfunction f, int width, int height)
{
	set_zero(f);
	return shim_driver.cuLaunchGrid(f, width, height);
}

static CUresult legacy_grid_async(CUfunction f, int width, int height, CUstream s)
{
	set_zero(f);
	return shim_driver.cuLaunchGridAsync(f, width, height, s);
}

void shim_code_lead_launches(void)
{
	shim_real.cuLaunchKernel = launch;
	shim_real.cuLaunchKernel_ptsz = launch_ptsz;
	shim_real.cuLaunchKernelEx = launch_ex;
	shim_real.cuLaunchKernelEx_ptsz = launch_ex_ptsz;
	shim_real.cuLaunchCooperativeKernel = cooperative;
	shim_real.cuLaunchCooperativeKernel_ptsz = cooperative_ptsz;
	shim_real.cuLaunchCooperativeKernelMultiDevice = multi_device;
	shim_real.cuLaunch = legacy;
	shim_real.cuLaunchGrid = legacy_grid;
	shim_real.cuLaunchGridAsync = legacy_grid_async;
}
