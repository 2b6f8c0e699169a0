/* Launches of patched kernels: the entry stub's argument, all zero unless the thread has one, is
 * passed behind the program's parameters. The driver reads as many pointers as the machine code
 * declares parameters, so no call that launches may be missing here. Takes no lock and does not
 * allocate, except for kernels with more parameters than the room below. */
#include "shim/code/shim_code_int.h"

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

CUresult shim_code_args_open(struct shim_launch_args *a, const struct cubin_kernel *k,
			     void **params, void **extra)
{
	const struct shim_added_arg added = { .n_params = k->n_params,
					      .end = k->param_bytes,
					      .offset = k->arg_offset,
					      .bytes = SHIM_CODE_ARG_BYTES,
					      .value = stub_arg() };

	return shim_launch_args_open(a, &added, params, extra);
}

/* ---- launches ---- */

/* The body of a launch: CALL, with the parameters in a.params and a.extra. */
#define WITH_ARGUMENT(f, program_params, program_extra, CALL)                                      \
	{                                                                                          \
		const struct cubin_kernel *k = shim_code_kernel(f);                                \
		struct shim_launch_args a;                                                         \
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
		shim_launch_args_close(&a);                                                        \
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
	struct shim_launch_args a[MAX_PER_CALL];
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
		shim_launch_args_close(&a[--i]);
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
