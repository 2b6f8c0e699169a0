/* What arrays take of a device's memory. */
#ifndef GBPF_CUABI_ARRAY_LAYOUT_H
#define GBPF_CUABI_ARRAY_LAYOUT_H

#include <stdint.h>

#include "cuabi/types.h"

/* Returns the bytes of one channel, or 0 if elements of the format are not plain: planar, packed
 * and compressed ones. *ret_channels: required number of channels, 0: any. */
unsigned cuabi_channel_bytes(CUarray_format f, unsigned *ret_channels);
/* Returns the bytes that an array, or a mipmapped one, takes in the layout of NVIDIA's devices;
 * UINT64_MAX if that is too large. element: bytes of one, of a format that is not compressed.
 * levels: 1 of an array. Not rounded to the units in which the driver takes memory. */
uint64_t cuabi_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, uint64_t element, unsigned levels);

#endif
