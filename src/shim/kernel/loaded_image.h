/* The images from which the process's modules and libraries were loaded: the PTX that the
 * preemption pass has rewritten, which determines the functions that have clones. */
#ifndef GBPF_SHIM_KERNEL_LOADED_IMAGE_H
#define GBPF_SHIM_KERNEL_LOADED_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "cuabi/types.h"
#include "ptx/block_image.h"
#include "shim/code/shim_code_probe.h"
#include "shim/kernel/kept_image.h"
#include "shim/part.h"

extern const struct shim_part shim_image_part;

/* An image as a call loads it. */
struct shim_image_source {
	const void *image; /* NULL: not known */
	size_t bytes;	   /* 0: unknown */
	bool library;	   /* for all devices; else for that of the current context */
	unsigned target;   /* CU_JIT_TARGET; 0: not given */
};

/* Returns true if images loaded now get clones: there is a session, the tenant's class is not
 * latency, and GBPF_BLOCK is neither 0 nor off. */
bool shim_image_wanted(void);
/* Returns true if the image's machine code gets entry stubs: likewise, GBPF_BLOCK is not ptx, no
 * debugger or tool looks at it, and CU_JIT_TARGET does not ask for an older architecture, for which
 * the driver may take other code. *ret_why becomes that reason; GBPF_BLOCK and CU_JIT_TARGET only
 * if there is no PTX for the device. */
bool shim_image_code_wanted(const struct shim_image_source *s, enum proto_block_why *ret_why);

/* Runs the preemption pass on an image. If the result has a text, that is to be loaded instead.
 * NULL: load the original; *ret_why is the reason why it has no clones. */
const struct ptx_block_image *shim_image_open(const struct shim_image_source *s,
					      enum proto_block_why *ret_why);

/* Returns a file's contents, zero-terminated; caller frees. NULL if it cannot be read: let the
 * driver report the error. */
char *shim_image_read_file(const char *path, size_t *ret_bytes);

/* ---- owners: modules and libraries, by handle ---- */

#define SHIM_IMAGE_PARTS_MAX 16u /* rewritten inputs of one linked image */

/* Records the images that the owner was loaded from and takes their references. n 0: nothing was
 * rewritten, for that reason. The record ends with the context; NULL: it belongs to none. */
void shim_image_note(const void *owner, CUcontext ctx, const struct ptx_block_image *const *parts,
		     unsigned n, enum proto_block_why why);
/* Keeps the PTX of an image that was loaded, for a later probe of its kernels, in the owner's
 * record, and its machine code: a copy of it only if no PTX is kept. PTX is not kept where machine
 * code runs from which it differs in features. linked: the result of the linker, of which only the
 * code is kept. */
void shim_image_keep(const void *owner, const struct shim_image_source *s, bool linked);
/* Returns the kept PTX of a module or library, or NULL and the reason. Caller unrefs. */
struct shim_kept_image *shim_image_kept(const void *owner, struct shim_kept_reason *ret_why);
/* Returns a copy of what is known of the memory that a kernel of a module or library can access
 * (shim/kernel/kernel_pointers.h), NULL: nothing. Caller frees. */
struct ptx_pointers *shim_image_pointers(const void *owner, const char *kernel);
/* Returns true if the owner is a module of another context, which has not ended. */
bool shim_image_outlives(const void *owner, CUcontext ctx);
/* Returns the kept machine code of a module or library, NULL: none. Caller passes it to
 * shim_image_code_unref. */
struct shim_code_kept *shim_image_code(const void *owner);
void shim_image_code_unref(struct shim_code_kept *k); /* accepts NULL */

/* Returns the PTX of a kernel: what was kept, or else what gBPF's ptxas has stored in the machine
 * code (ptx/stored.h). kernel NULL: any of its owner. Zero-terminated; caller frees. NULL: none,
 * for that reason. Reads, and may unpack, the whole image: not on the launch path. */
char *shim_image_ptx(const void *owner, const char *kernel, size_t *ret_bytes,
		     struct shim_kept_reason *ret_why);

/* Records a library's module in the current context. */
void shim_image_note_module(const void *module, const void *library);
/* Returns a number that tells this load of a module or library from others, whose handle may have
 * been the same; 0: it is not known. */
uint64_t shim_image_load(const void *handle);
/* Returns true if the module or library is `owner`, or a module of it. */
bool shim_image_is_of(const void *handle, const void *owner);

/* Returns PROTO_BLOCK_OK and the function's entry, which is valid as long as the owner, or the
 * reason why it has no clone. */
enum proto_block_why shim_image_entry(const void *owner, const char *name,
				      const struct ptx_block_entry **ret);
/* Number of entries that the program must not see, and whether a name is one of them. */
unsigned shim_image_clones(const void *owner);
bool shim_image_hides(const void *owner, const char *name);
bool shim_image_is_clone_name(const char *name);

#endif
