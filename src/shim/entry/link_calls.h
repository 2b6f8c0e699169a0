/* cuLink: inputs that were rewritten on their way into the linker, so that what it makes carries
 * twins. */
#ifndef GBPF_SHIM_ENTRY_LINK_CALLS_H
#define GBPF_SHIM_ENTRY_LINK_CALLS_H

#include "shim/object/loaded_image.h"

/* The rewritten inputs of an image that a linker of this process made, also of a copy of it:
 * references, to be closed. How many; 0: it is none. */
unsigned shim_link_find(const void *image,
			const struct ptx_block_image *parts[SHIM_IMAGE_PARTS_MAX]);

#endif
