/* Which memory the kernels of an image can access, from the PTX that was loaded. It is read once,
 * when the image is loaded, in processes whose memory can leave the device. */
#ifndef GBPF_SHIM_KERNEL_KERNEL_POINTERS_H
#define GBPF_SHIM_KERNEL_KERNEL_POINTERS_H

#include "ptx/probe_pointers.h"
#include "shim/kernel/kept_image.h"

struct shim_kernel_pointers;

/* Reads the PTX of an image. Returns NULL if nothing is known: its machine code is for another
 * architecture, for which the source may have other text, or no kernel takes all of its addresses
 * from arguments, other than those of directives. Caller frees. */
struct shim_kernel_pointers *shim_kernel_pointers_read(const struct shim_kept_image *k);
void shim_kernel_pointers_free(struct shim_kernel_pointers *p); /* accepts NULL */
/* Returns a copy of what is known of the kernel of that name, NULL: nothing. Caller frees. p may be
 * NULL. */
struct ptx_pointers *shim_kernel_pointers_of(const struct shim_kernel_pointers *p,
					     const char *name);

#endif
