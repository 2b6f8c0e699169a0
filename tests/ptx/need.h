/* need(): a CUDA call that must succeed, for programs that are run on a GPU by hand. */
#ifndef GBPF_TESTS_PTX_NEED_H
#define GBPF_TESTS_PTX_NEED_H

#include <stdio.h>
#include <stdlib.h>

#include "cuabi/api.h"

static inline void need(CUresult r, const char *what)
{
	const char *name = "?";

	if (r != CUDA_SUCCESS) {
		cuGetErrorName(r, &name);
		printf("%s: %s\n", what, name);
		exit(3);
	}
}

#endif
