/* Launches of patched kernels: the entry stub's argument is passed behind the program's parameters.
 * The driver reads as many pointers as the machine code declares parameters, so no call that
 * launches may be missing here. Takes no lock and does not allocate, except for kernels with more
 * parameters than the room below. */
#include "shim/code/shim_code_int.h"

#define MAX_PER_CALL 16u /* launches of one cuLaunchCooperativeKernelMultiDevice */

uint64_t shim_code_zero[8];

_Static_assert(sizeof(shim_code_zero) == sizeof(struct ptx_gate_arg), "the stub's argument");

/* ---- parameters ---- */

CUresult shim_code_args_open(struct shim_launch_args *a, const struct cubin_kernel *k,
			     const struct ptx_gate_arg *arg, void **params, void **extra)
{
	const struct shim_added_arg added = { .n_params = k->n_params,
					      .end = k->param_bytes,
					      .offset = k->arg_offset,
					      .bytes = SHIM_CODE_ARG_BYTES,
					      .value = arg ? (const void *)arg : shim_code_zero };

	return shim_launch_args_open(a, &added, params, extra);
}

/* ---- launches ---- */

static NOINLINE CUresult launch_patched(const struct shim_kernel_call *c, CUfunction f,
					uint32_t smem, void **params, void **extra,
					const struct cubin_kernel *k,
					const struct ptx_gate_arg *arg)
{
	struct shim_launch_args a;
	CUresult r = shim_code_args_open(&a, k, arg, params, extra);

	if (likely(r == CUDA_SUCCESS)) {
		r = shim_kernel_call_run(c, f, smem, a.params, a.extra);
	}
	shim_launch_args_close(&a);
	return r;
}

CUresult shim_code_launch(const struct shim_kernel_call *c, CUfunction f, uint32_t smem,
			  void **params, void **extra, const struct ptx_gate_arg *arg)
{
	const struct cubin_kernel *k = shim_code_kernel(f);

	return k ? launch_patched(c, f, smem, params, extra, k, arg)
		 : shim_kernel_call_run(c, f, smem, params, extra);
}

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
			r = shim_code_args_open(&a[i], k, NULL, list[i].kernelParams, NULL);
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
	(void)or_acqrel(&shim.forms, SHIM_FORMS);
	shim_real.cuLaunchCooperativeKernelMultiDevice = multi_device;
	shim_real.cuLaunch = legacy;
	shim_real.cuLaunchGrid = legacy_grid;
	shim_real.cuLaunchGridAsync = legacy_grid_async;
}
