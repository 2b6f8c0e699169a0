/* Probes in kernels of which only machine code exists: a copy of the image in which one kernel has
 * an entry stub with programs (ptx/probe_stub.h), loaded as a module of its own. The copy's
 * function is a patched kernel as any other: launches through the slots that shim_code_lead() leads
 * pass the stub's argument, all zero, which runs all blocks.
 *
 * The machine code of what the program loads is kept for that: of images in files that the dynamic
 * linker has mapped only where they are, of others a compressed copy. */
#ifndef GBPF_SHIM_CODE_SHIM_CODE_PROBE_H
#define GBPF_SHIM_CODE_SHIM_CODE_PROBE_H

#include "base/report.h"
#include "cuabi/types.h"
#include "cubin/cubin.h"
#include "ptx/probe_stub.h"

struct shim_code_probed {
	CUmodule module;
	CUfunction handle;
	uint32_t registers, was_registers; /* of a thread, with and without the stub */
};

/* Makes a probed copy of a kernel for the current context's device; loads nothing, so it waits for
 * no work. elf: the machine code as the program has it. envs: addresses of the programs'
 * environments. address: finds variables of the module that the program has loaded. 0, and the
 * caller loads *ret or closes it; or, with the reason in r, -ENOENT: no such kernel, or one that
 * cannot be patched; -ENOTSUP: a program that the stub cannot run, a kernel that uses what a copy
 * has of its own, or a variable without an address, a tool that looks at machine code, or code for
 * another device; -EINVAL; -ENOEXEC: the driver or room cubin refuses it; -ENOMEM. Caller
 * serializes the calls. */
int shim_code_probe_make(struct cubin_patched **ret, const void *elf, size_t bytes,
			 const struct ptx_stub_kernel *kernel, const struct ptx_probe *probes,
			 const uint64_t *envs, uint32_t n, cubin_address_fn *address, void *arg,
			 struct report *r);
/* Loads a copy, whose kernel has that name, in the current context, after the self-test of machine
 * code if no image was patched before. Takes p. 0; -ENOTSUP: no machine code is patched here;
 * -ENOEXEC: the driver refuses it. Caller holds no lock of this room. */
int shim_code_probe_load(struct shim_code_probed *ret, struct cubin_patched *p, const char *kernel,
			 struct report *r);
/* Unloads it, in its context. */
void shim_code_probe_unload(CUmodule module);

/* ---- the program's machine code ---- */

struct shim_code_kept;

/* Keeps the machine code that a device of that architecture would run of an image, in at most
 * `room` bytes of memory. bytes 0: not known. 0 and *ret; -ENOENT: none, or it is not certain
 * which; -EFBIG: no room; -ENOMEM. */
int shim_code_keep(struct shim_code_kept **ret, const void *image, size_t bytes, unsigned arch,
		   size_t room);
struct shim_code_kept *shim_code_kept_ref(struct shim_code_kept *k);
/* Returns true if it was the last reference. Accepts NULL. */
bool shim_code_kept_unref(struct shim_code_kept *k);
/* Returns the memory that it takes. */
size_t shim_code_kept_bytes(const struct shim_code_kept *k);
/* Returns the ELF image, which the caller frees; NULL with the reason: its file was changed or
 * removed, or there is no memory. */
void *shim_code_kept_elf(const struct shim_code_kept *k, size_t *ret_bytes, struct report *r);

#endif
