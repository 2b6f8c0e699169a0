/* The soft GPU's machine code: ELF files in the form of NVIDIA's cubins, made from PTX and read
 * back to PTX, which is what the soft GPU executes. docs/SOFTGPU-INTERNALS.md, "Machine code",
 * describes the format. A file may have been patched, so that a kernel begins with a branch to an
 * entry stub at its end: reading it inserts the stub's PTX before the kernel's body. */
#ifndef GBPF_SOFT_CODE_CODE_H
#define GBPF_SOFT_CODE_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/report.h"
#include "base/strmap.h"

#define SOFT_CODE_BYTES_MAX ((size_t)256 << 20)
#define SOFT_CODE_HEAD_BYTES 64u /* of an ELF file */

/* Appends machine code for the PTX. Returns 0; -EINVAL: not PTX; -EEXIST: an entry is defined
 * twice; -EFBIG; -ENOMEM; the reason is in r. */
int soft_code_assemble(struct buf *ret, const char *text, size_t bytes, const char *name,
		       struct report *r);

/* Returns true for an ELF file of the machine CUDA. Reads 64 bytes if the first four are those of
 * an ELF file. */
bool soft_code_is_cubin(const void *image);
/* Returns the length of machine code for the soft GPU's architecture that is given by pointer only,
 * from its headers. Returns 0 for any other, if it is longer than SOFT_CODE_BYTES_MAX, or if the
 * headers do not make sense. */
size_t soft_code_bytes(const void *image);
/* Returns true if such a file is the soft GPU's own machine code. */
bool soft_code_is_own(const void *image, size_t bytes);

/* Appends the PTX that the machine code stands for, and adds the number of registers of each kernel
 * to a map, as (void *)(uintptr_t)number.  Returns 0; -ENOENT: another device's machine
 * code; -EINVAL: anything in it is not as assemble writes it, except for a patch, or a patch does
 * not fit; -EFBIG; -ENOMEM; the reason is in r. */
int soft_code_read(struct buf *ret, struct strmap *registers, const void *image, size_t bytes,
		   const char *name, struct report *r);

#endif
