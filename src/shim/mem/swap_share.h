/* Memory of cuMemAlloc that can leave the device, between processes: the handles of
 * cuIpcGetMemHandle for it. Such a handle is a token of gBPF's. It names the process that has
 * shared the memory, and a key that cannot be guessed; the process that opens it asks gbpfd for
 * descriptors of the chunks, and gbpfd asks the process that has them (docs/MEMORY-INTERNALS.md,
 * "Shared chunks"). */
#ifndef GBPF_SHIM_MEM_SWAP_SHARE_H
#define GBPF_SHIM_MEM_SWAP_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/types.h"
#include "proto/wire.h"

/* Makes the handle of the allocation with that base and number. The chunks of its region, which is
 * a pack for a small one, return to the device, and stay there until the region is freed. Returns
 * CUDA_ERROR_NOT_READY if they cannot return now, since work of the process goes on or a stream
 * captures; CUDA_ERROR_OUT_OF_MEMORY if there is no room; CUDA_ERROR_NOT_SUPPORTED if memory of the
 * process cannot move. */
CUresult shim_swap_share(CUdeviceptr base, uint64_t id, CUipcMemHandle *ret);
/* Returns true for a handle of gBPF's. */
bool shim_swap_is_token(const CUipcMemHandle *handle);
/* Opens a handle of gBPF's in the current context, or adds a use of what is open there. Returns
 * CUDA_ERROR_INVALID_VALUE if there is no such memory (any more) for this user,
 * CUDA_ERROR_INVALID_CONTEXT if it is this process's own, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED if it
 * is on another device, CUDA_ERROR_NOT_READY if gbpfd or the process that has it does not answer.
 */
CUresult shim_swap_open(CUdeviceptr *ret, const CUipcMemHandle *handle, unsigned flags);
/* Answers PROTO_IPC_WANTED in place; stores m->n descriptors, which are the caller's. On the
 * session's thread. */
void shim_swap_give(struct proto_ipc *m, int fds[PROTO_IPC_CHUNKS]);

#endif
