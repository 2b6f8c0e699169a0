/* The numbers of launches. Launches whose form has programs of begin or end, or programs that read
 * the number inside the kernel, are counted; all others pay nothing. A form made of PTX gets its
 * number as a parameter behind the kernel's own, an entry stub in its argument (probe_around.c). In
 * graphs, whose nodes keep their parameters from launch to launch, the number is 0. */
#include "shim/probe/shim_probe_int.h"

static uint64_t launches; /* [atomic] numbers given */

uint64_t shim_probe_number(const struct shim_probe_form *f)
{
	return f->bracket || f->numbered ? shim_probe_number_next() : 0;
}

uint64_t shim_probe_number_next(void)
{
	return add_relaxed(&launches, (uint64_t)1) + 1;
}

CUresult shim_probe_number_args(struct shim_launch_args *a, const struct shim_probe_form *f,
				const uint64_t *number, void **params, void **extra)
{
	const struct shim_added_arg added = { .n_params = f->passing.n_params,
					      .end = f->passing.end,
					      .offset = f->passing.offset,
					      .bytes = sizeof(*number),
					      .value = number };

	return shim_launch_args_open(a, &added, params, extra);
}
