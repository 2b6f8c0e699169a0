/* Units of reserved addresses, and memory that is mapped there. */
#ifndef GBPF_TESTS_SOFT_RESERVE_RIG_H
#define GBPF_TESTS_SOFT_RESERVE_RIG_H

#include "memory_rig.h"

#define G (2 * MIB)
#define SHARED (2 * DEVICE_PAGES) /* first page of the third part */

static inline struct softd_extent *extent(uint64_t bytes)
{
	struct softd_extent *x = softd_extent_create(gpu, bytes, false);

	assert_non_null(x);
	return x;
}

#endif
