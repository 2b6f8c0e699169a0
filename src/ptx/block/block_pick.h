/* Which PTX of an image the driver would take for a device. */
#ifndef GBPF_PTX_BLOCK_BLOCK_PICK_H
#define GBPF_PTX_BLOCK_BLOCK_PICK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/report.h"

struct ptx_block_pick {
	char *text; /* owned, free(); a zero byte follows */
	size_t bytes;
	bool native; /* machine code for the device is there, too */
};

/* As ptx_block_image_open. 0; -ENOENT: no PTX that the device takes; -EINVAL, -EFBIG, -EBADMSG:
 * broken, too long, parts that do not fit together; -ENOMEM. */
int ptx_block_pick(struct ptx_block_pick *ret, const void *image, size_t bytes, unsigned arch,
		   size_t max, const char *name, struct report *r);

#endif
