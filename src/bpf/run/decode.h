/* Which instructions exist: the one list of well-formed encodings (RFC 9669), for whoever must not
 * take them on trust. */
#ifndef GBPF_BPF_RUN_DECODE_H
#define GBPF_BPF_RUN_DECODE_H

#include <stdint.h>

#include "bpf/run/insn.h"

/* Slots that the instruction at pc occupies (1, or 2 for LD_IMM64), or -EINVAL when its opcode is
 * unknown, a reserved field is set, a register does not exist, it writes r10, or its second half is
 * missing. Jump targets, calls and map indices are not looked at. */
int ebpf_insn_slots(const struct ebpf_insn *insns, uint32_t n, uint32_t pc);

/* Does it write the register in its dst field? (Loads, moves and arithmetic do; stores and jumps do
 * not.) */
int ebpf_insn_writes_dst(const struct ebpf_insn *i);

/* Checks every instruction, jump target, local call, helper id and map index of a program: no
 * execution of it can then leave the bytecode. This is not verification: registers and memory are
 * not looked at. 0 or -EINVAL, *ret_pc says where (may be NULL). */
int ebpf_program_check(const struct ebpf_insn *insns, uint32_t n, uint32_t n_maps,
		       uint32_t *ret_pc);

/* What an instruction is that eBPF has elsewhere and that is not offered here; NULL: it is none. */
const char *ebpf_insn_unsupported(const struct ebpf_insn *i);

/* Where a tail call goes: an instruction, or -1: there is no such entry. c may be NULL. */
int64_t ebpf_tail_find(const struct ebpf_code *c, uint32_t map, uint32_t index);

#endif
