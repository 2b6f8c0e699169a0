/* What else can be asked of a stream, for the random programs of `stress ... wide`: ways to copy
 * and to fill a whole buffer of WIDE_WORDS words, to launch, and to make one stream wait for
 * another. Which way: any number. */
#ifndef TESTS_BLOCK_STREAM_OPS_H
#define TESTS_BLOCK_STREAM_OPS_H

#include "../programs/program.h"

#define WIDE_WORDS 12288u

void wide_copy(CUstream s, CUdeviceptr to, CUdeviceptr from, CUcontext context, uint32_t way);
/* With v or, where the way has no room for it, what is returned. */
uint32_t wide_fill(CUstream s, CUdeviceptr to, uint32_t v, uint32_t way);
/* Between the device and memory of the host, which may be changed when put has returned. */
void wide_put(CUstream s, CUdeviceptr to, const uint32_t *pageable, uint32_t way);
void wide_get(CUstream s, uint32_t *to, CUdeviceptr from, uint32_t way);
/* What comes on the stream `to` waits for what is on `from`; word: zero at
 * first, and for this time only. */
void wide_order(CUstream from, CUstream to, CUdeviceptr word, uint32_t way);
/* In one batch; not on the legacy default stream. */
void wide_batch(CUstream s, CUdeviceptr to, CUdeviceptr from, uint32_t way);
/* On the legacy default stream, as calls without one; some are of CUDA's that may wait. */
void wide_copy_default(CUdeviceptr to, CUdeviceptr from, uint32_t way);
void wide_fill_default(CUdeviceptr to, uint32_t v, uint32_t way);
/* How the stream waits, or what it would like to have in the cache: no other result. */
void wide_attribute(CUstream s, CUdeviceptr data, uint32_t way);
/* By way of memory that is mapped for it, and for it only. */
void wide_mapped(CUstream s, CUdeviceptr data);
CUdeviceptr wide_managed(CUstream s);
void wide_launch(CUstream s, CUfunction f, uint32_t blocks, uint32_t threads, void **params,
		 uint32_t way);

#endif
