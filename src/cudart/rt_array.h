/* Formats of arrays: the runtime describes bits and kind of each channel, the driver a format and
 * the number of channels. */
#ifndef GBPF_CUDART_RT_ARRAY_H
#define GBPF_CUDART_RT_ARRAY_H

#include "cudart/rt_types.h"

/* cudaErrorInvalidChannelDescriptor if the driver has no such format. */
cudaError_t cudart_format(const struct cudaChannelFormatDesc *desc, CUarray_format *ret_format,
			  unsigned *ret_channels);

struct cudaChannelFormatDesc cudart_channel_desc(CUarray_format format, unsigned channels);

/* Stores the bytes of an element of the array. */
cudaError_t cudart_element_bytes(cudaArray_t array, size_t *ret);

#endif
