/* The room's own interface. */
#ifndef GBPF_SHIM_CODE_SHIM_CODE_INT_H
#define GBPF_SHIM_CODE_SHIM_CODE_INT_H

#include "ptx/block_gate.h"
#include "ptx/fatbin.h"
#include "shim/code/shim_code.h"
#include "shim/object/launch_args.h"

#define SHIM_CODE_ARG_BYTES ((uint32_t)sizeof(struct ptx_gate_arg))

/* ---- stubs and whether the device runs them rightly ---- */

/* Returns the stub for an architecture. NULL and the reason: the driver cannot compile it, or
 * patched code fails the self-test, which runs once; without memory, or if the driver reports an
 * error amid it, again at the next image, a few times. That is reported in an event. The device's
 * context is current; caller holds no lock. Other threads that ask at the same time wait for the
 * answer, which takes at most some seconds. */
const struct cubin_stub *shim_code_stub(unsigned arch, enum proto_block_why *ret_why);
/* Runs a patched kernel on the current device, of that architecture: all blocks, and a prefix of
 * them. 0; -EIO: a wrong result; -ETIMEDOUT: the device was busy; -ECANCELED: an error of the
 * driver; or another error. r has the reason. */
int shim_code_test(const struct cubin_stub *s, unsigned arch, struct report *r);

/* Take a file's lock before fork(), and release it in both processes. In the child no other thread
 * continues what it was doing. */
void shim_code_handles_before_fork(void);
void shim_code_handles_after_fork(void);
void shim_code_waiting_before_fork(void);
void shim_code_waiting_after_fork(bool is_child);

/* ---- the program's own machine code in an image ---- */

struct shim_code_elf {
	const void *given; /* in the image: the ELF, or the fat binary's entry with it */
	size_t given_bytes;
	struct ptx_fatbin_entry entry; /* of kind 0: `given` is the ELF */
	const void *data;	       /* the ELF; NULL until it is unpacked */
	size_t bytes;
	void *owned; /* NULL: data is in the image */
};
/* Finds the ELF that the driver would take. 0; -ENOENT: none, or a form that is not certain. */
int shim_code_find(struct shim_code_elf *ret, const void *image, size_t bytes, unsigned arch);

/* ---- kernels that wait for later blocks ---- */

/* Reads what earlier runs have found. Once, before the first image is patched. */
void shim_code_read_waiting(void);
/* Returns true if a kernel with that code is known to wait. */
bool shim_code_waits(const struct cubin_kernel *k);

/* ---- handles ---- */

/* From now on handles may name patched kernels. */
void shim_code_start(void);
/* The program has got a module's function or a library's kernel, by name. */
void shim_code_learn(const void *handle, const void *owner, const char *name);
void shim_code_learn_function(CUfunction f, CUkernel kernel);	 /* of that kernel */
void shim_code_learn_module(CUmodule module, CUlibrary library); /* of that library */

/* ---- patched images and compiled PTX on disk ---- */

/* Returns the image as an earlier run has patched it, NULL if there is none. */
struct cubin_patched *shim_code_cached(const struct shim_code_elf *elf, unsigned arch,
				       const struct cubin_stub *s);
/* Returns what this driver has compiled in an earlier run. 0, and caller frees *ret; -ENOENT. */
int shim_code_cached_ptx(const char *ptx, size_t bytes, unsigned arch, void **ret,
			 size_t *ret_bytes);
void shim_code_cache_ptx(const char *ptx, size_t bytes, unsigned arch, const void *code,
			 size_t code_bytes);
/* Stores a patched image for later runs. On success its memory becomes the file's. */
void shim_code_cache(const struct shim_code_elf *elf, unsigned arch, const struct cubin_stub *s,
		     struct cubin_patched *p);

/* ---- the functions behind shim_real ---- */

/* Fills a for a launch of k: with the stub's argument; NULL: shim_code_zero. CUDA_SUCCESS, or what
 * the launch must return. */
CUresult shim_code_args_open(struct shim_launch_args *a, const struct cubin_kernel *k,
			     const struct ptx_gate_arg *arg, void **params, void **extra);

extern uint64_t shim_code_zero[8]; /* the argument: run as the original */

/* Each leads the slots of its file's functions. */
void shim_code_lead_handles(void);
void shim_code_lead_launches(void);
void shim_code_lead_graphs(void);
void shim_code_lead_queries(void);

#endif
