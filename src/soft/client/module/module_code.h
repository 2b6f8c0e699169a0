/* Images that hold the soft GPU's own machine code. */
#ifndef GBPF_SOFT_CLIENT_MODULE_MODULE_CODE_H
#define GBPF_SOFT_CLIENT_MODULE_MODULE_CODE_H

#include "soft/client/module/module_image.h"

/* Replaces an image that is machine code of the soft GPU, or a fat binary with such, by the PTX
 * that it stands for; leaves any other image as it is. On failure the log has the reason. */
CUresult soft_image_resolve(struct soft_image *i, const char *name, struct soft_jit *j);

/* The number of registers of each kernel of an image, which its machine code states. Counts its
 * users; NULL for images without machine code. */
struct soft_registers;
struct soft_registers *soft_registers_ref(struct soft_registers *r); /* accepts NULL */
void soft_registers_unref(struct soft_registers *r);		     /* accepts NULL */
/* Returns 0 if it is not known. */
uint32_t soft_registers_of(const struct soft_registers *r, const char *kernel);

#endif
