/* cuLink: inputs that are rewritten on their way into the linker, so that its result contains
 * clones. */
#ifndef GBPF_SHIM_ENTRY_LINK_CALLS_H
#define GBPF_SHIM_ENTRY_LINK_CALLS_H

#include "shim/kernel/loaded_image.h"
#include "shim/part.h"

extern const struct shim_part shim_link_part;

/* Stores the rewritten inputs of an image that a linker of this process has made, or of a copy of
 * it, as references that the caller must close. Returns how many; 0: not such an image. */
unsigned shim_link_find(const void *image,
			const struct ptx_block_image *parts[SHIM_IMAGE_PARTS_MAX]);

#endif
