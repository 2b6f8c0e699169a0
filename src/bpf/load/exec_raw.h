/* Runs a program nobody has verified, for `gbpf policy exec` and conformance suites: never in a
 * policy's process, and always confined. */
#ifndef GBPF_BPF_LOAD_EXEC_RAW_H
#define GBPF_BPF_LOAD_EXEC_RAW_H

#include <stddef.h>
#include <stdint.h>

#include "base/report.h"

#define EBPF_RAW_MAX_MEM (1u << 20)

/* insns: instructions as bytes, in the machine's order. r1 = mem, r2 = mem_bytes; the program may
 * change mem, which is kept when it ends well. No maps, no helpers; r0 and r3-r9 begin as 0, the
 * stack is undefined. use_jit: compiled, in a child process that may only write its result;
 * otherwise by the checked interpreter. 0 with *ret_r0, or, with place and reason in r: -EINVAL (no
 * such instruction or jump), -E2BIG, -EFAULT (an access outside of mem and stack), -ETIME (too
 * long), -ELOOP (frames), -ENOTSUP (no compiler or no confinement here), -ENOMEM, -errno. */
int ebpf_exec_raw(const void *insns, size_t insn_bytes, void *mem, size_t mem_bytes, int use_jit,
		  uint64_t *ret_r0, struct report *r);

#endif
