/* Further stream operations for the random programs of `stress ... wide`: ways to copy and to fill
 * a whole buffer of WIDE_WORDS words, to launch, and to make one stream wait for another. way: any
 * number; selects the variant. */
#ifndef TESTS_BLOCK_STREAM_OPS_H
#define TESTS_BLOCK_STREAM_OPS_H

#include "../programs/program.h"

#define WIDE_WORDS 12288u

void wide_copy(CUstream s, CUdeviceptr to, CUdeviceptr from, CUcontext context, uint32_t way);
/* Fills with v, or another value if the variant is too narrow for v. Returns the value used. */
uint32_t wide_fill(CUstream s, CUdeviceptr to, uint32_t v, uint32_t way);
/* Copies between device and host memory. The host memory may be changed when wide_put() has
 * returned. */
void wide_put(CUstream s, CUdeviceptr to, const uint32_t *pageable, uint32_t way);
void wide_get(CUstream s, uint32_t *to, CUdeviceptr from, uint32_t way);
/* Makes later work on stream `to` wait for earlier work on `from`. word: zero initially, used for
 * this call only. */
void wide_order(CUstream from, CUstream to, CUdeviceptr word, uint32_t way);
/* Copies in one batch. Not for the legacy default stream. */
void wide_batch(CUstream s, CUdeviceptr to, CUdeviceptr from, uint32_t way);
/* On the legacy default stream, through calls without a stream argument; CUDA allows some of them
 * to wait. */
void wide_copy_default(CUdeviceptr to, CUdeviceptr from, uint32_t way);
void wide_fill_default(CUdeviceptr to, uint32_t v, uint32_t way);
/* Changes how the stream waits or uses the cache, which has no effect on results. */
void wide_attribute(CUstream s, CUdeviceptr data, uint32_t way);
/* Copies the data through memory that is mapped for this call only. */
void wide_mapped(CUstream s, CUdeviceptr data);
CUdeviceptr wide_managed(CUstream s);
void wide_launch(CUstream s, CUfunction f, uint32_t blocks, uint32_t threads, void **params,
		 uint32_t way);

#endif
