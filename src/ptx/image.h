/* An image as programs hand it to the driver: PTX text, a fat binary, several of them behind each
 * other, machine code. What can be used of it is PTX text. */
#ifndef GBPF_PTX_IMAGE_H
#define GBPF_PTX_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/report.h"

#define PTX_VERSION_MAX 9u /* .version of a higher major number is refused */

struct ptx_image_text {
	char *text; /* owned, free(); a zero byte follows */
	size_t bytes;
};

/* The PTX of an image for a device of that architecture (75: sm_75); text is taken for any, of a
 * fat binary the best that is there. Containers behind each other are parts of one program: the
 * PTX of each is taken and merged. Texts have at most max bytes. name is for messages.
 * 0; -EINVAL: broken; -ENOENT: only machine code or nothing; -EOPNOTSUPP: PTX of a version that is
 * too new; -EBADMSG: parts do not fit together; -EFBIG; -ENOMEM. */
int ptx_image_open(struct ptx_image_text *ret, const void *image, size_t len, unsigned arch,
		   size_t max, const char *name, struct report *r);
void ptx_image_close(struct ptx_image_text *t);

/* What a text's .version says: major * 10 + minor; 0 when it does not begin with one. */
unsigned ptx_text_version(const char *text, size_t len);
/* The number in its .target: 75 of sm_75; 0 when there is none near the beginning. */
unsigned ptx_text_arch(const char *text, size_t len);

#endif
