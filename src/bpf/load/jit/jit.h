/* Compiles verified programs: makes a plan that does not depend on the machine, then emits the code
 * of a target. */
#ifndef GBPF_BPF_LOAD_JIT_JIT_H
#define GBPF_BPF_LOAD_JIT_JIT_H

#include <stddef.h>
#include <stdint.h>

#include "bpf/run/insn.h"
#include "bpf/run/map/map.h"

struct ebpf_jit;

/* A target machine. Its functions run on the compiling thread without locks. */
struct ebpf_target {
	/* Mandatory. Name for messages. */
	const char *name;
	/* Mandatory. Alignment of a program's entry in bytes, a power of two, and the byte that
	 * fills the gap before it. */
	size_t entry_align;
	uint8_t filler;
	/* Mandatory. Writes position-independent code for the plan to out (cap bytes; NULL: none).
	 * Returns its length, -ENOSPC, -ENOTSUP or -ENOMEM. May allocate, does not block. The
	 * plan's notes may be changed (addresses), its instructions and maps may not. */
	int64_t (*emit)(struct ebpf_jit *plan, uint8_t *out, size_t cap);
};

extern const struct ebpf_target ebpf_target_x86; /* emit is -ENOTSUP on other machines */

/* Compiles the program and appends the code to out (cap bytes, *len used so far). The entry is an
 * ebpf_entry. maps: as laid out by ebpf_maps_layout(); sizes become constants, ->data is read at
 * run time from the env. Returns the offset of the entry in out, -ENOSPC if the code does not fit,
 * -EINVAL for an invalid program (an unknown instruction, a jump or fall out of its function),
 * -ENOTSUP if the target cannot compile it, or -ENOMEM. A failure leaves *len unchanged. */
int ebpf_jit_compile(const struct ebpf_target *target, const struct ebpf_code *prog,
		     const struct ebpf_map *maps, uint32_t n_maps, uint8_t *out, size_t cap,
		     size_t *len);

/* Compiles a program without tail calls for this machine. */
int ebpf_jit_x86(const struct ebpf_insn *insns, uint32_t n, const struct ebpf_map *maps,
		 uint32_t n_maps, uint8_t *out, size_t cap, size_t *len);

#endif
