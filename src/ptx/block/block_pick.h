/* Picks the PTX of an image that a device executes. */
#ifndef GBPF_PTX_BLOCK_BLOCK_PICK_H
#define GBPF_PTX_BLOCK_BLOCK_PICK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/report.h"
#include "ptx/choose.h"

struct ptx_block_pick {
	char *text; /* owned, free(); followed by a zero byte */
	size_t bytes;
	bool native;		       /* machine code for the device is also there */
	struct ptx_difference differs; /* of the PTX and that code */
	bool other_arch;	       /* they are for architectures that are not equal */
	struct ptx_target other;       /* of PTX that the device does not execute */
	bool too_new;		       /* there is PTX of a .version that is not read */
};

/* Arguments as ptx_block_image_open. Returns 0; -ENOENT: no PTX for the device; -EINVAL, -EFBIG,
 * -EBADMSG: corrupt, too long, parts that do not match; -ENOMEM. */
int ptx_block_pick(struct ptx_block_pick *ret, const void *image, size_t bytes,
		   struct ptx_device device, size_t max, const char *name, struct report *r);

#endif
