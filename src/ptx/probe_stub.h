/* Entry stubs that run programs: the gate (ptx/block_gate.h) and, behind it, eBPF programs that
 * were compiled to PTX, for kernels of which only machine code exists. The stub is compiled by the
 * driver, and room cubin splices it in.
 *
 * A stub runs before the kernel's first instruction and owns no memory, so it has no stack and no
 * calls: the programs' functions become part of its body. The address of each environment is a
 * constant in the text: the kernel's arguments stay what the gate defines, so that each call that
 * launches a patched kernel can launch a probed one. Such a stub serves one context and is not
 * worth storing on disk.
 *
 * Arguments of the kernel lie where the padding does, so programs read them there.
 *
 * Programs of gdev_block_enter run in thread 0 of each block that the gate lets run, those of
 * gdev_enter in lane 0 of each of its warps: all threads of a warp begin together. The kernel
 * begins when the threads of a warp are together again. Programs of gdev_block_exit run late, for
 * the block that had the place before (ptx/probe_late.h), if the launch has a number. */
#ifndef GBPF_PTX_PROBE_STUB_H
#define GBPF_PTX_PROBE_STUB_H

#include "ptx/block_gate.h"
#include "ptx/probe.h"
#include "ptx/probe_late.h"

/* A part of the kernel's parameters that a program reads. */
struct ptx_stub_arg {
	const char *program;	/* the probe's name */
	uint32_t offset, bytes; /* offset from the first parameter; size: 1, 2, 4 or 8 */
};

#define PTX_STUB_ARGS_MAX 64u

/* The kernel that gets a stub. A stub without a program that reads the field `kernel` does not
 * depend on its name, and one without programs that read parameters by their number does not depend
 * on where these lie. */
struct ptx_stub_kernel {
	const char *name;
	const struct ptx_kernel_params *params; /* NULL: not known; such programs are refused */
};

/* Requirements of a stub: what the kernel, and the code that enables the stub, must provide. */
struct ptx_stub_form {
	uint32_t pad; /* bytes of other parameters in front of the argument */
	uint32_t n_args;
	struct ptx_stub_arg
		args[PTX_STUB_ARGS_MAX]; /* each must lie in one parameter of the kernel */
};

/* Appends a module as ptx_gate_stub does, with programs. pad: PTX_GATE_PAD_A or _B; ret->pad is
 * more if arguments of the kernel lie behind. envs: address of each one's environment. Returns 0;
 * -ENOTSUP with the reason: a hook or a form of program that the stub lacks; -EINVAL: a probe is
 * not as ptx/probe.h says; -EFBIG; -ENOMEM. */
int ptx_probe_stub(struct buf *out, unsigned arch, uint32_t pad,
		   const struct ptx_stub_kernel *kernel, const struct ptx_probe *probes,
		   const uint64_t *envs, uint32_t n, struct ptx_stub_form *ret, struct report *r);

#endif
