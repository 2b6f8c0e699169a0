/* Raw programs as PTX, the third engine of `gbpf policy exec`: a module whose entry runs one
 * unverified program with one thread. The caller runs it on a GPU. */
#ifndef GBPF_BPF_LOAD_EXEC_PTX_H
#define GBPF_BPF_LOAD_EXEC_PTX_H

#include <stddef.h>
#include <stdint.h>

#include "base/report.h"
#include "bpf/load/jit/ptx/jit_ptx.h"

#define EBPF_EXEC_PTX_ENTRY "gbpf_exec" /* one parameter: the address of a struct ebpf_ptx_env */

/* Writes the module for a program (in the byte order of the machine) to ret, with a terminating
 * zero. Returns 0, or -EINVAL, -E2BIG, -ENOTSUP, -ENOSPC or -ENOMEM with the report. */
int ebpf_exec_ptx_module(const void *insns, size_t insn_bytes, size_t mem_bytes, struct buf *ret,
			 struct report *r);
/* Fills the environment of a run: r1 = mem (0 if mem_bytes is 0), r2 = mem_bytes, other registers
 * 0. mem: address on the GPU, aligned to 8 bytes. */
void ebpf_exec_ptx_begin(struct ebpf_ptx_env *env, uint64_t mem, size_t mem_bytes);
/* Evaluates the environment after the kernel has ended. Returns 0 with *ret_r0, or -EFAULT, -ETIME
 * or -ELOOP with the report, in the words of ebpf_exec_raw(). */
int ebpf_exec_ptx_end(const struct ebpf_ptx_env *env, uint64_t *ret_r0, struct report *r);

#endif
