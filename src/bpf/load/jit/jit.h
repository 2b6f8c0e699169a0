/* Compiles verified programs: makes a plan that does not depend on the machine, then emits the code
 * of a target. */
#ifndef GBPF_BPF_LOAD_JIT_JIT_H
#define GBPF_BPF_LOAD_JIT_JIT_H

#include <stddef.h>
#include <stdint.h>

#include "bpf/run/insn.h"
#include "bpf/run/map/map.h"

/* Appends code for the program to out (cap bytes, *len used so far, entry aligned to 16). The entry
 * is an ebpf_entry. maps: as laid out by ebpf_maps_layout (sizes become constants; ->data is read
 * at run time from the env). Returns the entry's offset in out, -ENOSPC when it does not fit,
 * -EINVAL when it is no program (an unknown instruction, a jump or fall out of its function),
 * -ENOTSUP for what it cannot compile or on another architecture, -ENOMEM. On failure *len stays.
 */
int ebpf_jit_compile(const struct ebpf_code *prog, const struct ebpf_map *maps, uint32_t n_maps,
		     uint8_t *out, size_t cap, size_t *len);

/* Compiles a program without tail calls for this machine. */
int ebpf_jit_x86(const struct ebpf_insn *insns, uint32_t n, const struct ebpf_map *maps,
		 uint32_t n_maps, uint8_t *out, size_t cap, size_t *len);

#endif
