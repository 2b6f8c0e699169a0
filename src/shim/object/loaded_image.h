/* What the modules and libraries of this process were made from: PTX that the block level's pass
 * has rewritten, and so which of their functions have twins. */
#ifndef GBPF_SHIM_OBJECT_LOADED_IMAGE_H
#define GBPF_SHIM_OBJECT_LOADED_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "cuabi/types.h"
#include "ptx/block_image.h"

/* Images that are loaded now get twins: there is a session, the tenant is not of class latency, and
 * GBPF_BLOCK is not 0. */
bool shim_image_wanted(void);

/* What the pass says of the image: its text, when it has one, is to be loaded instead. NULL: load
 * the original; *ret_why says why it has no twins. bytes: 0 when not known. */
const struct ptx_block_image *shim_image_open(const void *image, size_t bytes,
					      enum proto_block_why *ret_why);

/* A whole file with a zero behind it, caller frees; NULL: the driver may say what is wrong. */
char *shim_image_read_file(const char *path, size_t *ret_bytes);

/* ---- owners: modules and libraries, by handle ---- */

#define SHIM_IMAGE_PARTS_MAX 16u /* rewritten inputs of one linked image */

/* What the owner was made from; its references are taken. n 0: nothing rewritten, for that reason.
 * It ends with the context; NULL: it belongs to none. */
void shim_image_note(const void *owner, CUcontext ctx, const struct ptx_block_image *const *parts,
		     unsigned n, enum proto_block_why why);
void shim_image_context_end(CUcontext ctx);
/* A library's module in some context. */
void shim_image_note_module(const void *module, const void *library);
/* It is about to go: what image_release gets once the driver has forgotten it too, which may still
 * read its text until then. NULL is fine. */
struct shim_image_owner *shim_image_forget(const void *owner);
void shim_image_release(struct shim_image_owner *o);

/* Why the function has no twin, or PTX_BLOCK_OK and its entry, which is valid as long as the owner.
 */
enum proto_block_why shim_image_entry(const void *owner, const char *name,
				      const struct ptx_block_entry **ret);
/* Entries that programs must not see: how many, and whether that is one. */
unsigned shim_image_clones(const void *owner);
bool shim_image_hides(const void *owner, const char *name);
bool shim_image_is_clone_name(const char *name);

#endif
