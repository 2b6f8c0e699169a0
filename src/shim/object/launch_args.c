/* Launch parameters: in a buffer, and with an added one. */
#include "shim/object/launch_args.h"

#include <stdlib.h>
#include <string.h>

#define MAX_EXTRA 8u

bool shim_param_buffer(void **extra, struct shim_param_buffer *ret)
{
	*ret = (struct shim_param_buffer){ .at = NULL };
	for (unsigned i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (i >= MAX_EXTRA) {
			return false;
		}
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
			ret->at = extra[i + 1];
		} else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[i + 1]) {
			ret->bytes = *(const size_t *)extra[i + 1];
		} else {
			return false;
		}
	}
	return ret->at || !ret->bytes;
}

void shim_param_buffer_list(void *list[SHIM_EXTRA_LIST], const void *at, size_t *bytes)
{
	list[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
	list[1] = unqual(at);
	list[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
	list[3] = bytes;
	list[4] = CU_LAUNCH_PARAM_END;
}

/* Copies the program's buffer and appends the argument. Bytes behind the parameters are kept as
 * many as the program passed, for the driver to judge. A shorter buffer is refused: the driver
 * would take what is behind it for the argument. */
static CUresult fill_buffer(struct shim_launch_args *a, const struct shim_added_arg *k,
			    void **extra)
{
	unsigned char *to = a->buffer;
	size_t end = (size_t)k->offset + k->bytes;
	struct shim_param_buffer from;

	if (!shim_param_buffer(extra, &from) || from.bytes < k->end) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	a->bytes = end + (from.bytes > k->offset ? from.bytes - k->offset : 0);
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
	if (from.at && k->end) {
		memcpy(to, from.at, k->end);
	}
	memcpy(to + k->offset, k->value, k->bytes);
	shim_param_buffer_list(a->list, to, &a->bytes);
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
