/* A patched image and its kernels, as the room's files use it. */
#ifndef GBPF_CUBIN_CUBIN_PATCHED_INT_H
#define GBPF_CUBIN_CUBIN_PATCHED_INT_H

#include "base/strmap.h"
#include "cubin/cubin.h"

struct cubin_patched {
	const void *image; /* owned unless release is NULL; NULL if there is none */
	size_t bytes;
	cubin_release_fn *release;
	struct cubin_kernel *kernels; /* owned */
	struct cubin_param *params;   /* owned */
	size_t n, patched;
	struct strmap names; /* to kernels; owns their names */
};

/* Frees an image that malloc returned. */
void cubin_patched_free(void *image, size_t bytes);

#endif
