/* PTX as modules and libraries were loaded from it, compressed, so that a probed form of a kernel
 * can be made while the program runs. It is kept as long as its owner, within a budget for the
 * process. */
#ifndef GBPF_SHIM_KERNEL_KEPT_IMAGE_H
#define GBPF_SHIM_KERNEL_KEPT_IMAGE_H

#include <stddef.h>

#define SHIM_KEPT_BYTES ((size_t)64 << 20) /* of all images of a process, compressed */

enum shim_kept_why {
	SHIM_KEPT,
	SHIM_KEPT_NO_PTX,  /* machine code only, or no PTX for this device */
	SHIM_KEPT_NO_ROOM, /* the budget is used up, or the text is too long */
	SHIM_KEPT_LINKED,  /* the result of the driver's linker */
};

struct shim_kept_image;

/* Copies the PTX that the driver would use for a device of that architecture. bytes 0: not known.
 * Returns NULL, and *ret_why says why there is nothing to keep. */
struct shim_kept_image *shim_kept_open(const void *image, size_t bytes, unsigned arch,
				       enum shim_kept_why *ret_why);
struct shim_kept_image *shim_kept_ref(struct shim_kept_image *k);
void shim_kept_unref(struct shim_kept_image *k); /* accepts NULL */
/* Returns a clause such as "it was loaded as machine code only". */
const char *shim_kept_why_text(enum shim_kept_why why);
/* Returns the text, zero-terminated; caller frees. NULL: no memory. */
char *shim_kept_text(const struct shim_kept_image *k, size_t *ret_bytes);

/* The budget, for what is kept in addition to PTX: returns the bytes that are left; takes some,
 * also beyond the budget; gives them back. */
size_t shim_kept_room(void);
void shim_kept_take(size_t bytes);
void shim_kept_give(size_t bytes);

#endif
