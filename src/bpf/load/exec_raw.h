/* Runs an unverified program for `gbpf policy exec` and conformance suites. It never runs in the
 * process of a policy and is always confined. */
#ifndef GBPF_BPF_LOAD_EXEC_RAW_H
#define GBPF_BPF_LOAD_EXEC_RAW_H

#include <stddef.h>
#include <stdint.h>

#include "base/report.h"

struct ebpf_insn;

#define EBPF_RAW_MAX_MEM (1u << 20)

/* Runs a program. insns: instructions in the byte order of the machine. r1 = mem, r2 = mem_bytes;
 * changes to mem are kept if the program succeeds. The program has no maps and no helpers; r0 and
 * r3-r9 are 0, the stack is undefined. use_jit: compiled, in a child process that can only write
 * its result; otherwise by the checked interpreter. Returns 0 with *ret_r0, or, with place and
 * reason in r: -EINVAL (invalid instruction or jump), -E2BIG, -EFAULT (an access outside of mem and
 * stack), -ETIME (timeout), -ELOOP (frames), -ENOTSUP (no compiler or no confinement available),
 * -ENOMEM, or another -errno. */
int ebpf_exec_raw(const void *insns, size_t insn_bytes, void *mem, size_t mem_bytes, int use_jit,
		  uint64_t *ret_r0, struct report *r);

/* For other engines of raw programs. */

#define EBPF_RAW_FUEL 20000000u /* maximum number of instructions of a run */

/* Refuses what compilers do not accept: sizes out of range, malformed programs, calls of helpers.
 * Returns 0, -EINVAL or -E2BIG with the report. insns must be aligned as struct ebpf_insn. */
int ebpf_exec_raw_check(const struct ebpf_insn *insns, size_t insn_bytes, size_t mem_bytes,
			struct report *r);
/* Reports how a run ended at an instruction: -EFAULT, -ETIME, -ELOOP or -EINVAL. Returns err. */
int ebpf_exec_raw_failed(struct report *r, int err, const struct ebpf_insn *insns, size_t n,
			 uint32_t pc);

#endif
