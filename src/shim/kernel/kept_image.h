/* PTX as modules and libraries were loaded from it, compressed, so that a probed form of a kernel
 * can be made while the program runs. It is kept as long as its owner, within a budget for the
 * process. */
#ifndef GBPF_SHIM_KERNEL_KEPT_IMAGE_H
#define GBPF_SHIM_KERNEL_KEPT_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "ptx/choose.h"

#define SHIM_KEPT_BYTES ((size_t)64 << 20) /* of all images of a process, compressed */

enum shim_kept_why {
	SHIM_KEPT,
	SHIM_KEPT_NO_PTX,  /* machine code only */
	SHIM_KEPT_NO_ROOM, /* the budget is used up, or the text is too long */
	SHIM_KEPT_LINKED,  /* the result of the driver's linker */
	SHIM_KEPT_OTHER,   /* machine code, and PTX for other devices */
	SHIM_KEPT_TOO_NEW, /* machine code, and PTX of a .version that is not read */
	SHIM_KEPT_DIFFERS, /* machine code that runs, and PTX that differs in features */
	SHIM_KEPT_UNLIKE,  /* a library for devices of different architectures */
};

/* Why there is no PTX of an image. */
struct shim_kept_reason {
	enum shim_kept_why why;
	struct ptx_target target; /* of SHIM_KEPT_OTHER and _DIFFERS: that of the PTX */
	struct ptx_target code;	  /* of SHIM_KEPT_DIFFERS: that of the machine code */
	unsigned arch;		  /* of the device */
};

struct shim_kept_image;

/* Copies the PTX that the device executes. bytes 0: not known. rewritten: it was loaded in place of
 * machine code; else PTX that differs from that code in features is not what runs. Returns NULL and
 * the reason if there is nothing to keep. */
struct shim_kept_image *shim_kept_open(const void *image, size_t bytes, struct ptx_device device,
				       bool rewritten, struct shim_kept_reason *ret_why);
struct shim_kept_image *shim_kept_ref(struct shim_kept_image *k);
void shim_kept_unref(struct shim_kept_image *k); /* accepts NULL */
/* Appends a clause such as "it was loaded as machine code only". */
void shim_kept_why_print(const struct shim_kept_reason *why, struct buf *out);
/* Returns false if the device executes machine code that is for another architecture than the PTX:
 * the source may have other text for it. */
bool shim_kept_is_exact(const struct shim_kept_image *k);
/* Returns the text, zero-terminated; caller frees. NULL: no memory. */
char *shim_kept_text(const struct shim_kept_image *k, size_t *ret_bytes);

/* The budget, for what is kept in addition to PTX: returns the bytes that are left; takes some,
 * also beyond the budget; gives them back. */
size_t shim_kept_room(void);
void shim_kept_take(size_t bytes);
void shim_kept_give(size_t bytes);

#endif
