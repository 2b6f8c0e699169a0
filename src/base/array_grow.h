/* Arrays that grow by one element at a time. */
#ifndef GBPF_BASE_ARRAY_GROW_H
#define GBPF_BASE_ARRAY_GROW_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/compiler.h"

/* Makes room for one more element in an array of n elements, each of that many bytes, where *room
 * is that of the array: if it is full it is doubled, from `first` on, as long as it has no more
 * than `most`. Returns the array, which may have moved, and stores its room; NULL: it is as it was,
 * and full. */
static inline void *array_grow(void *array, size_t n, size_t *room, size_t bytes, size_t first,
			       size_t most)
{
	size_t more = *room ? 2 * *room : first;
	void *grown;

	if (n < *room) {
		return array;
	}
	grown = more <= MIN(most, SIZE_MAX / bytes) ? realloc(array, more * bytes) : NULL;
	if (grown) {
		*room = more;
	}
	return grown;
}

#endif
