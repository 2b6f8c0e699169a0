/* Launch parameters with an added one. */
#include "shim/object/launch_args.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAX_EXTRA 8u

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
static CUresult fill_buffer(struct shim_launch_args *a, const struct shim_added_arg *k,
			    void **extra)
{
	unsigned char *to = a->buffer;
	const void *from;
	size_t bytes, end = (size_t)k->offset + k->bytes;

	if (!read_extra(extra, &from, &bytes) || bytes < k->end) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	a->bytes = end + (bytes > k->offset ? bytes - k->offset : 0);
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
	if (from && k->end) {
		memcpy(to, from, k->end);
	}
	memcpy(to + k->offset, k->value, k->bytes);
	a->list[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
	a->list[1] = to;
	a->list[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
	a->list[3] = &a->bytes;
	a->list[4] = CU_LAUNCH_PARAM_END;
	a->extra = a->list;
	return CUDA_SUCCESS;
}

static CUresult fill_pointers(struct shim_launch_args *a, const struct shim_added_arg *k,
			      void **params)
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
	to[k->n_params] = unqual(k->value);
	a->params = to;
	return CUDA_SUCCESS;
}

CUresult shim_launch_args_open(struct shim_launch_args *a, const struct shim_added_arg *k,
			       void **params, void **extra)
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

void shim_launch_args_close(struct shim_launch_args *a)
{
	free(a->heap);
}
