/* Where contexts share the GPU by time slices, the first kernel of a request waits for the context
 * switch (about 145 us on an H200). An empty kernel launched about 200 us ahead absorbs this wait,
 * provided the other contexts have left the GPU by then; launched 100 us ahead it still delays the
 * request. */
#include "gpu/cuda/flag_lease_int.h"

static const char ptx[] = ".version 6.0\n"
			  ".target sm_50\n"
			  ".address_size 64\n"
			  ".visible .entry gbpf_warm()\n"
			  "{\n"
			  "ret;\n"
			  "}\n";

/* Loads the kernel. The context is current. */
static bool make(struct gpu_device *d, struct gpu_warm_kernel *w)
{
	CUmodule module;

	if (w->f || w->refused) {
		return !w->refused;
	}
	w->refused = d->real->cuModuleLoadData(&module, ptx) != CUDA_SUCCESS ||
		     d->real->cuModuleGetFunction(&w->f, module, "gbpf_warm") != CUDA_SUCCESS ||
		     gpu_private_stream(d, &w->stream) != CUDA_SUCCESS || !w->f || !w->stream;
	return !w->refused;
}

void gpu_warm_prepare(struct gpu_device *d, CUcontext ctx, struct gpu_warm_kernel *w)
{
	struct gpu_scope scope;

	if (!w->f && !w->refused && gpu_scope_enter(d, ctx, &scope) == 0) {
		(void)make(d, w);
		gpu_scope_leave(d, &scope);
	}
}

void gpu_warm_launch(struct gpu_device *d, CUcontext ctx, struct gpu_warm_kernel *w)
{
	struct gpu_scope scope;

	if (w->refused || gpu_scope_enter(d, ctx, &scope) < 0) {
		return;
	}
	/* One at a time: if the previous one has not run yet, another would not either. */
	if (make(d, w) && d->real->cuStreamQuery(w->stream) == CUDA_SUCCESS) {
		(void)d->real->cuLaunchKernel(w->f, 1, 1, 1, 1, 1, 1, 0, w->stream, NULL, NULL);
	}
	gpu_scope_leave(d, &scope);
}
