/* Arguments of the kernel that programs read. A program's root has a parameter arg_OFFSET_BYTES,
 * param_NUMBER or param_bytes_NUMBER for each, behind those of its fields. */
#include <errno.h>
#include <stdio.h>

#include "ptx/probe/read/probe_read.h"

static bool read_name(const char *name, struct ptx_probe_arg *a)
{
	char end;

	if (sscanf(name, "arg_%u_%u%c", &a->offset, &a->bytes, &end) == 2) {
		a->kind = PTX_PROBE_ARG;
		return a->bytes == 1 || a->bytes == 2 || a->bytes == 4 || a->bytes == 8;
	}
	if (sscanf(name, "param_%u%c", &a->offset, &end) == 1) {
		a->kind = PTX_PROBE_PARAM;
		a->bytes = 8;
		return true;
	}
	a->kind = PTX_PROBE_PARAM_BYTES;
	a->bytes = 4;
	return sscanf(name, "param_bytes_%u%c", &a->offset, &end) == 1;
}

int ptx_probe_read_args(struct ptx_probe_program *g, const struct ptx_function *root,
			uint32_t first)
{
	for (uint32_t i = first; i < root->n_params; i++) {
		struct ptx_probe_arg *a = &g->args[g->n_args];
		const struct ptx_variable *v = &root->params[i];
		uint64_t size;

		if (g->n_args == PTX_PROBE_ARGS_MAX || v->n_dims || !read_name(v->name, a) ||
		    ptx_variable_bytes(v, &size) < 0 || size != PTX_PROBE_ARG_WIDTH(a->bytes)) {
			return -EINVAL;
		}
		g->n_args++;
	}
	return 0;
}
