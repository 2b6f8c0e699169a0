/* Copies: one description for every variant of the API. */
#ifndef GBPF_SOFT_CLIENT_MEMORY_COPY_H
#define GBPF_SOFT_CLIENT_MEMORY_COPY_H

#include "soft/client/process.h"

struct soft_copy {
	uint64_t dst, dst_pitch, dst_slice; /* address on the host or device; bytes from row to row
					       and from slice to slice */
	uint64_t src, src_pitch, src_slice;
	uint64_t width, height, depth; /* in bytes, rows and slices; depth 0 means 1 */
	int dst_device, src_device;    /* the address must lie in a window */
};
/* Validates the copy and brings it into its simplest form: sets omitted pitches, and merges
 * adjacent rows and slices. *ret_empty: there is nothing to copy. */
CUresult soft_copy_prepare(struct soft_copy *c, bool *ret_empty);
/* Returns whether neither the server nor, by a host address, the program may access a side. */
bool soft_copy_is_invalid(const struct soft_copy *c);
bool soft_copy_reachable(const struct soft_copy *c,
			 bool dst); /* whether the server reaches that side of a prepared copy */
void soft_copy_fill(struct soft_record_copy *r, uint64_t dst, uint64_t dst_pitch, uint64_t src,
		    uint64_t src_pitch, uint64_t width, uint64_t height);
CUresult soft_copy_run(CUstream s, const struct soft_copy *c, bool blocking);

/* copy_calls.c: translates the driver's description of a copy; arrays become addresses. */
CUresult soft_copy_resolve(const CUDA_MEMCPY3D_PEER *p, struct soft_copy *ret);

#endif
