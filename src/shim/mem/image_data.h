/* The device memory that the variables of an image take once it is loaded, as far as the image
 * shows it before the driver is called. */
#ifndef GBPF_SHIM_MEM_IMAGE_DATA_H
#define GBPF_SHIM_MEM_IMAGE_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "ptx/choose.h"

/* Returns the bytes that the variables of an image take in one context of a device, UINT64_MAX if
 * they exceed 64 bits. 0 also for an image that is not understood: the driver refuses it, or what
 * it takes is measured. bytes: length of the image; 0: as its contents state, which the driver
 * relies on as well.
 *
 * A variable above 1 MiB takes units of 2 MiB of its own; smaller ones share units, so their sum
 * counts (H200, driver 580: ten of 1.1 MiB take 20 MiB, ten of 1 MiB take 10). Of a fat binary the
 * entry counts that the driver takes: machine code for the device, the largest where there are
 * several, or else the PTX that the device executes (ptx/choose.h), the largest if that cannot be
 * chosen; of containers that are linked, the sum. */
uint64_t shim_mem_image_bytes(const void *image, size_t bytes, struct ptx_device device);
/* The same for a file. */
uint64_t shim_mem_file_bytes(const char *path, struct ptx_device device);

#endif
