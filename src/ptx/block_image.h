/* The passes over an image as programs give it to the driver: the PTX in it that the device
 * executes (ptx/choose.h), rewritten, and the results for its entries. Results are cached by a hash
 * of the input, so that an image that is loaded several times is rewritten once. Calls no driver.
 * Any thread. */
#ifndef GBPF_PTX_BLOCK_IMAGE_H
#define GBPF_PTX_BLOCK_IMAGE_H

#include "ptx/block.h"
#include "ptx/choose.h"

/* Longer PTX is not rewritten (the driver would compile it for minutes). */
#define PTX_BLOCK_IMAGE_MAX ((size_t)16 << 20)

/* Constant, and shared by all callers that opened the same image; valid until the last close. */
struct ptx_block_image {
	enum proto_block_why why; /* of the whole image: PROTO_BLOCK_OK; else there are no entries:
				     _NO_PTX, _OTHER_PTX, _UNREADABLE */
	bool prepared;		  /* text is prepared for probes (ptx/prepare.h) */
	bool native;	    /* has machine code that the device could use instead of the PTX */
	bool differs;	    /* in features from that code: see ptx_target_differs() */
	const char *reason; /* for _UNREADABLE: the reason, for messages; else "" */
	const char *text;   /* to be loaded instead of the image, zero-terminated; NULL: load the
			       image, because no entry has a clone or because it was rewritten before
			       (n_clones) */
	size_t bytes;	    /* of text, without the zero */
	const struct ptx_block_entry *entries; /* in order; names and tables belong to this image */
	uint32_t n_entries, n_clones;
};

/* image: as given to cuModuleLoadData, cuModuleLoadFatBinary or cuLibraryLoadData: PTX text, a fat
 * binary, its wrapper, or machine code. bytes: its size if known (a file's contents), else 0: read
 * as far as its headers state, as the driver does. name is for messages. Returns 0, also if `why`
 * is not PROTO_BLOCK_OK; -ENOMEM. Close with ptx_block_image_close. */
int ptx_block_image_open(const struct ptx_block_image **ret, const void *image, size_t bytes,
			 struct ptx_device device, const char *name);
/* As ptx_block_image_open(), with the text prepared for probes, so that it may differ without any
 * clone. */
int ptx_block_image_open_prepared(const struct ptx_block_image **ret, const void *image,
				  size_t bytes, struct ptx_device device, const char *name);
/* Takes another reference, to be closed as well. Accepts and returns NULL. */
const struct ptx_block_image *ptx_block_image_ref(const struct ptx_block_image *i);
void ptx_block_image_close(const struct ptx_block_image *i); /* accepts NULL */

/* Appends the text to be loaded, with a list of its entries, by which ptx_block_image_open
 * recognizes machine code compiled from it. Returns 0; -ENOENT: the image has no such text;
 * -ENOMEM. */
int ptx_block_image_marked(const struct ptx_block_image *i, struct buf *out);

/* Returns the entry of that name, or NULL. */
const struct ptx_block_entry *ptx_block_image_entry(const struct ptx_block_image *i,
						    const char *name);

/* Number and total duration of passes, and number of opens that the cache served. */
struct ptx_block_image_counts {
	uint64_t passes, hits, ns;
};
void ptx_block_image_counts(struct ptx_block_image_counts *ret);

#endif
