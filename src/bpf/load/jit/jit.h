/* Compiles verified programs: makes a plan that does not depend on the machine, then emits the code
 * of a target. */
#ifndef GBPF_BPF_LOAD_JIT_JIT_H
#define GBPF_BPF_LOAD_JIT_JIT_H

#include <stddef.h>
#include <stdint.h>

#include "base/report.h"
#include "bpf/run/insn.h"
#include "bpf/run/map/map.h"
#include "bpf/run/printk.h"

struct ebpf_jit;

/* A target machine. Its functions run on the compiling thread without locks. */
struct ebpf_target {
	/* Mandatory. Name for messages. */
	const char *name;
	/* Mandatory. Alignment of a program's entry in bytes, a power of two, and the byte that
	 * fills the gap before it. */
	size_t entry_align;
	uint8_t filler;
	/* The target encodes fused instructions; otherwise the plan fuses none. */
	uint8_t fuses;
	/* Mandatory. Writes position-independent code for the plan to out (cap bytes; NULL: none).
	 * Returns its length, -ENOSPC, -ENOTSUP or -ENOMEM. May allocate, does not block. The
	 * plan's notes may be changed (addresses), its instructions and maps may not. */
	int64_t (*emit)(struct ebpf_jit *plan, uint8_t *out, size_t cap);
};

extern const struct ebpf_target ebpf_target_x86; /* emit is -ENOTSUP on other machines */
extern const struct ebpf_target ebpf_target_ptx; /* text of functions; see jit/ptx/jit_ptx.h */

/* Options of one compilation. */
struct ebpf_jit_options {
	/* PTX: prefix of the names of the functions, so that several programs fit into one module.
	 * NULL: "gbpf". */
	const char *name;
	/* PTX: emit checks of accesses, frames and time, for a program that was not verified. The
	 * x86-64 target refuses it. */
	int checked;
	/* PTX: id of the hook of a program inside kernels; 0: none. Other targets refuse it. */
	int device_hook;
	/* PTX: each active lane runs the program, which may call warp-wide helpers. */
	int device_lane;
	/* PTX: the program inside kernels returns at once in blocks that the control word behind
	 * its environment leaves out (bpf/run/ptx_env.h). */
	int device_control;
	/* PTX: receives a bit for each context field that the program reads, bit i for the i-th
	 * GBPF_CTX line of its hook; may be NULL. */
	uint64_t *fields;
	/* PTX, programs inside kernels: the program's name, for labels that tell where its code
	 * is (jit_ptx.h). NULL, or no identifier: there are none. */
	const char *label;
	/* PTX, programs inside kernels: the root takes the address of the data of each map that it
	 * uses as a parameter; receives a bit for each. NULL: it reads them from the environment,
	 * as the other functions do. */
	uint64_t *maps;
	/* PTX: 1 + index of the map that receives lines of bpf_printk (bpf/run/printk.h); 0: there
	 * is none. */
	uint32_t print_map_1;
	/* PTX: the formats on the program's stack, and the number of the program in the words that
	 * name them (bpf/run/printk.h). NULL: there are none. */
	const struct ebpf_stack_texts *texts;
	uint32_t number;
	struct report *report; /* receives the reason of -ENOTSUP; may be NULL */
};

/* Compiles the program and appends the code to out (cap bytes, *len used so far). The entry is an
 * ebpf_entry. maps: as laid out by ebpf_maps_layout(); sizes become constants, ->data is read at
 * run time from the env. Returns the offset of the entry in out, -ENOSPC if the code does not fit,
 * -EINVAL for an invalid program (an unknown instruction, a jump or fall out of its function),
 * -ENOTSUP if the target cannot compile it, or -ENOMEM. A failure leaves *len unchanged. */
int ebpf_jit_compile(const struct ebpf_target *target, const struct ebpf_code *prog,
		     const struct ebpf_map *maps, uint32_t n_maps, uint8_t *out, size_t cap,
		     size_t *len);

/* Like ebpf_jit_compile(), with options (NULL: none). */
int ebpf_jit_compile_with(const struct ebpf_target *target, const struct ebpf_jit_options *options,
			  const struct ebpf_code *prog, const struct ebpf_map *maps,
			  uint32_t n_maps, uint8_t *out, size_t cap, size_t *len);

/* Compiles a program without tail calls for this machine. */
int ebpf_jit_x86(const struct ebpf_insn *insns, uint32_t n, const struct ebpf_map *maps,
		 uint32_t n_maps, uint8_t *out, size_t cap, size_t *len);

#endif
