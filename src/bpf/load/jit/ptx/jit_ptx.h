/* The PTX target: the environment that its code reads, and the contract of its functions.
 *
 * The text is a sequence of functions without a module header, for PTX 6.0 and sm_70 or later:
 *
 *	.func (.param .b64 result) NAME_f0 (.param .b64 ctx, .param .b64 env)
 *
 * is the program; further functions are NAME_f1, NAME_f2 ... in the order of the program. All other
 * names are local to them. env is the generic address of a struct ebpf_ptx_env. Pointers are
 * generic addresses. A function uses no shared memory, no barrier and no warp-wide instruction.
 *
 * With the option `device_hook` the program is one inside kernels, and its root is
 *
 *	.func NAME_f0 (.param .b64 env, .param .b32 FIELD, .param .b64 FIELD ...)
 *
 * with a parameter for each context field that it reads, in the order of hooks.def, named after the
 * field and as wide as it. A parameter arg_OFFSET_BYTES for each argument of the kernel that it
 * reads follows, of 4 bytes or, for 8 bytes, of 8. With the option `maps` parameters mapN, of 64
 * bits, stand between env and the fields, for each map N that the root uses: the address of its
 * data. Instead of map it is sum for one with GBPF_F_DEFER, and own for a WARP_SCRATCH, whose
 * address is that of the warp's instance. Its other functions that receive the context take the
 * parameters of fields and arguments after env. The verdict, 0, is not returned.
 *
 * With `device_control` a parameter `control` of 64 bits stands behind env, the generic address
 * that bpf/run/ptx_env.h describes. The root also takes `block` and, in lane mode, `active`, and
 * returns at once in blocks that the control word leaves out.
 *
 * With the option `label` each function begins with the label EBPF_PTX_LABEL and this name, and a
 * label $LN stands before the code of instruction N if that accesses memory or calls something.
 * Nothing jumps to these labels, so compilers drop them. The soft GPU names the program and the
 * instruction in the faults that it reports.
 *
 * With the option `checked` the program may be any bytes that ebpf_program_check() accepts. Its
 * functions take only (.param .b64 env); registers travel in env. An access outside of memory and
 * frames, a ninth frame, or an instruction after the last of env->fuel ends the thread, with the
 * reason in env->error. */
#ifndef GBPF_BPF_LOAD_JIT_PTX_JIT_PTX_H
#define GBPF_BPF_LOAD_JIT_PTX_JIT_PTX_H

#include <stdint.h>

#include "bpf/run/ptx_env.h"

#define EBPF_PTX_ARGS_MAX 32u
#define EBPF_PTX_LABEL "$program$" /* and the program's name */

/* A field of the context of a hook inside kernels. */
struct ebpf_ptx_field {
	const char *name;
	uint16_t offset; /* in the context */
	uint8_t bytes;	 /* 4 or 8 */
};

/* Returns field number i of a hook, in the order of hooks.def, or NULL if the hook has fewer fields
 * or is none inside kernels. */
const struct ebpf_ptx_field *ebpf_ptx_field(int hook, unsigned i);

/* gbpf_sample(): 1 if the upper half of hash * every is 0, hash of a block's number (32 bits) being
 * (h ^ h >> 16) * factor with h = number * factor. */
#define EBPF_PTX_SAMPLE_FACTOR 0x9e3779b1u

#endif
