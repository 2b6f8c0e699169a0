/* The block level's pass over an image as programs hand it to the driver: the PTX in it that the
 * driver would take for a device, rewritten, with what is known of its entries; kept in memory by a
 * hash of the input, so that an image that is loaded several times is rewritten once. Calls no
 * driver. Any thread. */
#ifndef GBPF_PTX_BLOCK_IMAGE_H
#define GBPF_PTX_BLOCK_IMAGE_H

#include "ptx/block.h"

/* Longer PTX is not rewritten (the driver would compile it for minutes). */
#define PTX_BLOCK_IMAGE_MAX ((size_t)16 << 20)

/* Constant and shared by all who opened the same image; all of it is valid until the last close. */
struct ptx_block_image {
	enum proto_block_why why; /* of the image as a whole: PTX_BLOCK_OK, else no entries:
				   _NO_PTX, _UNREADABLE */
	bool native;	    /* it has machine code that the device could take instead of PTX */
	const char *reason; /* for _UNREADABLE: why, for people; else "" */
	const char *text;   /* to be loaded instead, zero-terminated; NULL: load the original, since
			       no entry has a twin, or it was rewritten before (n_twins) */
	size_t bytes;	    /* of text, without the zero */
	const struct ptx_block_entry *entries; /* in order; names and tables are this image's */
	uint32_t n_entries, n_clones;
};

/* image: what cuModuleLoadData, cuModuleLoadFatBinary or cuLibraryLoadData were given: PTX text, a
 * fat binary, its wrapper, or machine code. bytes: how long it is when that is known (a file's
 * contents), else 0: then it is read as far as it says itself, as the driver does. arch: the
 * device's compute capability, major * 10 + minor. name is for messages.
 * 0, also when why is not PTX_BLOCK_OK; -ENOMEM. Closed with ptx_block_image_close. */
int ptx_block_image_open(const struct ptx_block_image **ret, const void *image, size_t bytes,
			 unsigned arch, const char *name);
/* One more to be closed. NULL allowed, and returned. */
const struct ptx_block_image *ptx_block_image_ref(const struct ptx_block_image *i);
void ptx_block_image_close(const struct ptx_block_image *i); /* NULL allowed */

/* The text to be loaded instead with a list of its entries in it, by which this file's functions
 * know machine code that was made of it. 0; -ENOENT: the image has no such text; -ENOMEM. */
int ptx_block_image_marked(const struct ptx_block_image *i, struct buf *out);

/* The entry of that name, or NULL. */
const struct ptx_block_entry *ptx_block_image_entry(const struct ptx_block_image *i,
						    const char *name);

/* How many passes have run and how long they took, and how many opens were answered without one.
 */
struct ptx_block_image_counts {
	uint64_t passes, hits, ns;
};
void ptx_block_image_counts(struct ptx_block_image_counts *ret);

#endif
