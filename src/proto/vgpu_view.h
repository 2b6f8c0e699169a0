/* The figures of the process's vGPU for one device, which gBPF's libnvidia-ml gets from the shim in
 * the same process: by dlsym, from the function PROTO_VGPU_VIEW. */
#ifndef GBPF_PROTO_VGPU_VIEW_H
#define GBPF_PROTO_VGPU_VIEW_H

#include <stddef.h>
#include <stdint.h>

#include "proto/account.h"

struct proto_vgpu_view {
	uint64_t limit; /* bytes; UINT64_MAX: the device's size */
	/* Bytes held by all processes of the vGPU, and that it may take in addition. Where swap is
	 * not shown, memory that has left the device counts as in use, up to the limit. */
	uint64_t used, left;
	/* Host memory for memory that leaves the device, by which it seems larger, and what is left
	 * of that, bytes; 0: none leaves, or swap is not shown. */
	uint64_t swap, swap_left;
	uint32_t n; /* of process */
	uint32_t reserved;
	struct proto_vgpu_process {
		uint64_t used; /* bytes */
		int32_t pid;   /* as gbpfd sees it */
		uint32_t reserved;
	} process[PROTO_ACCOUNT_LINES];
};

#define PROTO_VGPU_VIEW "gbpf_shim_vgpu_view"
/* Fills in *ret, of that size. device: the driver's number of the device, by which its limit is
 * found while no process of the vGPU uses it. Returns 0; -ENOENT: the process is in no vGPU, or
 * gBPF is switched off; -EINVAL, -EPERM: its environment names a vGPU in an invalid way, so that it
 * may not use the GPU; -EPROTO: the shim is of another version of gBPF. Without gbpfd, a process
 * that has not initialized CUDA sees the limit alone. From any thread; asks gbpfd, for a second at
 * most, unless the process has initialized CUDA. */
typedef int proto_vgpu_view_fn(const uint8_t uuid[16], uint32_t device, size_t bytes,
			       struct proto_vgpu_view *ret);

#endif
