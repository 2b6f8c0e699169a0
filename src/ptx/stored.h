/* PTX that is stored in the machine code compiled from it, so that kernels of programs that bring
 * no PTX can be probed while they run: a variable whose name begins with PTX_STORED holds the text,
 * compressed. Everything in it is checked before use; a forged text only makes the probed forms of
 * its own program fail. */
#ifndef GBPF_PTX_STORED_H
#define GBPF_PTX_STORED_H

#include "base/buf.h"

#define PTX_STORED "gbpf$ptx_"
#define PTX_STORED_MAX ((size_t)16 << 20)	/* of a text */
#define PTX_STORED_PACKED_MAX ((size_t)1 << 20) /* of it compressed: it takes memory of the GPU */

/* Appends the variable's declaration. 0; -EFBIG: the text is too long; -ENOMEM. */
int ptx_stored_print(struct buf *out, const char *text, size_t bytes);

/* Unpacks text i, from 0, of machine code, of which several are in linked modules. 0 and *ret,
 * which ends with a zero that is not counted: caller frees; -ENOENT: there are no more; -EINVAL: it
 * is damaged; -ENOMEM. */
int ptx_stored_read(const void *image, size_t bytes, uint32_t i, char **ret, size_t *ret_bytes);

#endif
