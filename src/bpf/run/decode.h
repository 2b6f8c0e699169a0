/* The only definition of well-formed instruction encodings (RFC 9669), used by every engine that
 * reads untrusted bytecode. */
#ifndef GBPF_BPF_RUN_DECODE_H
#define GBPF_BPF_RUN_DECODE_H

#include <stdint.h>

#include "bpf/run/insn.h"

/* Returns the number of slots of the instruction at pc (1, or 2 for LD_IMM64), or -EINVAL if its
 * opcode is unknown, a reserved field is set, a register does not exist, it writes r10, or its
 * second half is missing. Does not check jump targets, calls and map indices. */
int ebpf_insn_slots(const struct ebpf_insn *insns, uint32_t n, uint32_t pc);

/* Returns whether the instruction writes the register in its dst field: loads, moves and arithmetic
 * do; stores and jumps do not. */
int ebpf_insn_writes_dst(const struct ebpf_insn *i);

/* Checks every instruction, jump target, local call, helper id and map index of a program, so that
 * no execution can leave the bytecode. This is not verification: registers and memory are not
 * checked. Returns 0, or -EINVAL and sets *ret_pc (may be NULL) to the place. */
int ebpf_program_check(const struct ebpf_insn *insns, uint32_t n, uint32_t n_maps,
		       uint32_t *ret_pc);

/* Returns the name of an eBPF feature that the instruction uses and gBPF does not offer, or NULL.
 */
const char *ebpf_insn_unsupported(const struct ebpf_insn *i);

/* Returns the target instruction of a tail call, or -1 if there is no such entry. c may be NULL. */
int64_t ebpf_tail_find(const struct ebpf_code *c, uint32_t map, uint32_t index);

#endif
