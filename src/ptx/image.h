/* An image as programs give it to the driver: PTX text, a fat binary, several of them in sequence,
 * or machine code. This room can use its PTX text. */
#ifndef GBPF_PTX_IMAGE_H
#define GBPF_PTX_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/report.h"
#include "ptx/choose.h"

#define PTX_VERSION_MAX 9u /* a higher major number of .version is refused */

struct ptx_image_text {
	char *text; /* owned, free(); followed by a zero byte */
	size_t bytes;
};

/* Finds the PTX of an image that the device executes (ptx/choose.h). Containers in sequence are
 * parts of one program: the PTX of each is taken and merged. Texts have at most max bytes. name is
 * for messages. Returns 0; -EINVAL: corrupt; -ENOENT: only machine code, no PTX for the device, or
 * nothing; -EOPNOTSUPP: the PTX version is too new; -EBADMSG: parts do not match; -EFBIG; -ENOMEM.
 */
int ptx_image_open(struct ptx_image_text *ret, const void *image, size_t len,
		   struct ptx_device device, size_t max, const char *name, struct report *r);
void ptx_image_close(struct ptx_image_text *t);
/* What else an image has. */
struct ptx_image_rest {
	struct ptx_target other;       /* without PTX for the device: of some other PTX */
	bool native;		       /* machine code for the device */
	struct ptx_difference differs; /* of the PTX and that code */
	bool other_arch;	       /* they are for architectures that are not equal */
};
/* The same for an image of which only the beginning is known to be readable (bytes 0), as programs
 * give it to the driver. */
int ptx_image_pick(struct ptx_image_text *ret, const void *image, size_t bytes,
		   struct ptx_device device, size_t max, const char *name,
		   struct ptx_image_rest *ret_rest, struct report *r);

/* Returns the text's .version as major * 10 + minor; 0 if it does not begin with one. */
unsigned ptx_text_version(const char *text, size_t len);
/* Returns the number in its .target: 75 of sm_75; 0 if there is none near the beginning. */
unsigned ptx_text_arch(const char *text, size_t len);

#endif
