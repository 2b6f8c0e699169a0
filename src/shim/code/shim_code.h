/* Machine code whose kernels have an entry stub (room cubin). Each of their launches must pass the
 * stub's argument behind the kernel's own parameters. From the first patched image on launches go
 * through shim_code_launch(), and the slots of shim_real for other calls that name a kernel lead to
 * functions of this room. They add the argument, all zero: run as the original. So everything above
 * sees the kernels as the program knows them. */
#ifndef GBPF_SHIM_CODE_SHIM_CODE_H
#define GBPF_SHIM_CODE_SHIM_CODE_H

#include "cuabi/types.h"
#include "cubin/cubin.h"
#include "proto/block_why.h"
#include "shim/object/kernel_call.h"
#include "shim/object/thread_cache.h"
#include "shim/part.h"

/* Handles are forgotten before an end, and asked of the driver again if they are launched
 * meanwhile. Images only when they are gone: a launch without the stub's argument would run with
 * what happens to be behind the parameters. */
extern const struct shim_part shim_code_part;
/* When a context is about to end: waits until no thread compiles or tests a stub in it, as the
 * driver waits for a module that is being loaded there. */
extern const struct shim_part shim_stub_part;

struct ptx_gate_arg;

/* ---- images ---- */

/* Returns the image's machine code for the current context's device, patched, or NULL: load the
 * image as it is; *ret_why is the reason, unchanged if it has no machine code. bytes: 0 if unknown.
 * library: the image is loaded for all devices. Compiles the stub at the process's first image.
 * Caller holds no lock. */
struct cubin_patched *shim_code_open(const void *image, size_t bytes, bool library,
				     enum proto_block_why *ret_why);

/* Records what a module or library was loaded from, before the program knows its handle. ctx: whose
 * end unloads it; NULL for a library. kept: the driver still reads the image. Takes p. false:
 * without memory for it the owner must be unloaded, and p, which the caller keeps, closed. */
bool shim_code_note(const void *owner, CUcontext ctx, struct cubin_patched *p, bool kept);
/* Says that a module or library was loaded as it is: its handle may have named another one, whose
 * end was not seen. */
void shim_code_loaded_unpatched(const void *owner);
/* Forgets the handles that the driver may reuse once the owner is unloaded. Returns the number of
 * records so far. */
uint64_t shim_code_unloading(const void *owner);
/* Removes the record of an owner that the driver has unloaded, if its number is not above `until`:
 * the driver may give its handle to a new one at once. */
void shim_code_unloaded(const void *owner, uint64_t until);

/* Leads launches of kernels to shim_launch_issue() and slots of shim_real to this room's functions,
 * once. */
void shim_code_lead(void);
/* Makes a call that launches f, with the entry stub's argument if its code has one. arg NULL: all
 * zero, run as the original. */
CUresult shim_code_launch(const struct shim_kernel_call *c, CUfunction f, uint32_t smem,
			  void **params, void **extra, const struct ptx_gate_arg *arg);
/* Returns the architecture of the current context's device; 0: no context is current, or a library
 * would be loaded for devices of another architecture, too. */
unsigned shim_code_arch_here(bool library);
/* Compiles PTX for the current device, of that architecture, by the driver's linker, unless the
 * cache has the result. *ret: caller frees. 0; -ENOEXEC, with the driver's message in r; -ENOMEM.
 */
int shim_code_compile(const char *ptx, size_t bytes, unsigned arch, void **ret, size_t *ret_bytes,
		      struct report *r);
/* As shim_code_compile(), but for text that no later run has: the cache is left alone. */
int shim_code_compile_once(const char *ptx, size_t bytes, void **ret, size_t *ret_bytes,
			   struct report *r);

/* Returns true if a patched image was loaded. */
bool shim_code_any(void);

/* ---- kernels ---- */

/* Returns PROTO_BLOCK_OK if launches of a patched kernel may ever be stopped between blocks, or why
 * they must not. */
enum proto_block_why shim_code_why(const struct cubin_kernel *k);
/* Excludes all kernels with that code, in this process and in later ones: its blocks were found
 * waiting for blocks of higher index. Any thread, with locks held. */
void shim_code_note_waiting(const struct cubin_kernel *k);
/* Saves what was noted, in a file. Called at the agent's rounds and at the process's exit. */
void shim_code_save_waiting(void);
/* Returns true if a module or library was loaded from a patched image. */
bool shim_code_owns(const void *owner);

/* Returns the patched kernel that a CUfunction or CUkernel names, NULL if its code is the program's
 * own. Valid until its owner is unloaded. Asks the driver on a handle's first use. */
static inline const struct cubin_kernel *shim_code_kernel(const void *handle);

extern struct cubin_kernel shim_code_own; /* in the tables of handles: the code is the program's */
const struct cubin_kernel *shim_code_lookup(const void *handle, struct shim_thread *t);

static inline const struct cubin_kernel *shim_code_kernel(const void *handle)
{
	struct shim_thread *t = shim_thread_self();
	const struct shim_thread_kernel *e = t ? shim_thread_find(t, (uintptr_t)handle) : NULL;

	if (unlikely(!e || !e->code)) {
		return shim_code_lookup(handle, t);
	}
	return e->code == &shim_code_own ? NULL : e->code;
}

#endif
