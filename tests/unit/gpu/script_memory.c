/* See script_int.h. */
#include "script_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

unsigned script_n_allocations;

static void *allocated[1024];

void *script_allocate(size_t bytes)
{
	void *p = aligned_alloc(64, bytes < 64 ? 64 : ROUND_UP(bytes, 64u));

	for (unsigned i = 0; i < ARRAY_SIZE(allocated); i++) {
		if (!allocated[i]) {
			script_n_allocations++;
			memset(p, 0x5a, bytes);
			return allocated[i] = p;
		}
	}
	abort();
}

CUresult script_release(void *p)
{
	for (unsigned i = 0; i < ARRAY_SIZE(allocated); i++) {
		if (allocated[i] == p && p) {
			allocated[i] = NULL;
			script_n_allocations--;
			free(p);
			return CUDA_SUCCESS;
		}
	}
	fail_msg("memory that is not allocated is freed");
	return CUDA_ERROR_INVALID_VALUE;
}

void script_release_all(void)
{
	for (unsigned i = 0; i < ARRAY_SIZE(allocated); i++) {
		free(allocated[i]);
		allocated[i] = NULL;
	}
	script_n_allocations = 0;
}
