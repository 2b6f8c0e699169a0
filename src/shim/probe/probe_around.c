/* Launches between brackets. All three kernels go to the stream in one call of the program, in
 * their order, whoever makes the call: the program's thread, or the agent for a deferred launch.
 * The driver may refuse any of them. Without `begin` there is no `end`; a kernel that is refused
 * behind `begin` has no `end` either, and what `begin` has kept of it is freed. */
#include "shim/probe/shim_probe_int.h"

#include <string.h>

static uint64_t launches; /* [atomic] numbers given */

static CUresult launch(struct shim_probe_around *a, CUfunction f)
{
	void *params[] = { &a->arg };

	return f ? a->launch(f, 1, 1, 1, 1, 1, 1, 0, a->stream, params, NULL) : CUDA_SUCCESS;
}

void shim_probe_around_begin(struct shim_probe_around *a, struct shim_probe_form *f,
			     shim_probe_launcher *launcher, const uint32_t dims[SHIM_PROBE_DIMS],
			     CUstream s)
{
	a->form = f->around ? f : NULL;
	if (!a->form) {
		return;
	}
	a->launch = launcher;
	a->stream = s;
	a->arg = (struct ptx_bracket_arg){ .launch = add_relaxed(&launches, (uint64_t)1) + 1,
					   .kernel = f->kernel_hash,
					   .shared_bytes = dims[6] };
	memcpy(a->arg.grid, dims, sizeof(a->arg.grid));
	memcpy(a->arg.threads, dims + 3, sizeof(a->arg.threads));
	a->refusal = launch(a, f->begin);
}

void shim_probe_around_end(struct shim_probe_around *a, CUresult r)
{
	const struct shim_probe_form *f = a->form;

	if (!f) {
		return;
	}
	if (a->refusal == CUDA_SUCCESS && r == CUDA_SUCCESS) {
		a->refusal = launch(a, f->end);
	} else if (a->refusal == CUDA_SUCCESS && f->keeps_time) {
		a->arg.cancelled = 1;
		(void)launch(a, f->end);
	}
	if (r == CUDA_SUCCESS && a->refusal != CUDA_SUCCESS) {
		shim_probe_form_refused(a->form, a->refusal);
	}
}
