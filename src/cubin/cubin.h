/* Machine code (cubins) that asks at its entry whether to run: the first instruction of each kernel
 * becomes a branch to an *entry stub* at the end of the kernel's code, which runs the displaced
 * instruction and branches back. The room reads, checks and patches ELF images; it calls no CUDA.
 */
#ifndef GBPF_CUBIN_CUBIN_H
#define GBPF_CUBIN_CUBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/report.h"

/* ---- images ---- */

/* Stores the length of an ELF image that is known by its address only, computed from its headers.
 * 0; -ENOEXEC if it is no ELF; -E2BIG if it would exceed max. Reads the ELF header and the tables
 * that it places within max bytes. */
int cubin_bytes(const void *image, size_t max, size_t *ret);

/* Returns the architecture, 90 for sm_90 and sm_90a; 0 if the image is no cubin. */
unsigned cubin_arch(const void *image, size_t bytes);

/* Called for each variable, or group of variables, with its size in bytes, not 0. */
typedef void cubin_data_fn(void *arg, uint64_t bytes);
/* Reports the sizes of an image's variables (.nv.global, .nv.global.init) and of its bank of user
 * constants, which take device memory when it is loaded. The image may be relocatable, or of a form
 * that nothing else here reads. 0; -ENOEXEC if it is no cubin or its headers exceed it: what was
 * reported until then is right. */
int cubin_data_bytes(const void *image, size_t bytes, cubin_data_fn *fn, void *arg);

/* ---- entry stubs ---- */

/* An entry stub: any program whose PTX is one entry with the parameters
 * (.param .align 8 .b8 pad[PAD], .param .align 8 .b8 arg[ARG]) that ends with `pmevent 13; ret;`.
 * EXIT ends the thread, reaching the end runs the kernel. It must not use a stack, shared or
 * constant data, other functions, or warp-wide instructions. */
struct cubin_stub;

/* Reads two compilations of one text, which differ in the bytes of padding in front of the
 * argument. 0 and *ret; -EINVAL if the stub breaks the rules above (r says which); -ENOEXEC if a
 * compilation is no cubin of the expected form; -ENOMEM. Does not keep a and b. */
int cubin_stub_open(struct cubin_stub **ret, const void *a, size_t a_bytes, uint32_t pad_a,
		    const void *b, size_t b_bytes, uint32_t pad_b, const char *entry,
		    uint32_t arg_bytes, struct report *r);
void cubin_stub_close(struct cubin_stub *s); /* accepts NULL */

/* Checks the code behind the gate of a stub that runs programs (ptx/probe_stub.h): no call, no
 * local or shared memory, no barrier, nothing that acts for a whole warp, and lanes that part join
 * again. 0; -ENOTSUP with the reason. */
int cubin_stub_check_programs(const struct cubin_stub *s, struct report *r);

/* ---- kernels ---- */

/* Why a kernel was not patched. The numbers are stable; append only. */
enum cubin_why {
	CUBIN_OK = 0,
	CUBIN_DEVICE_RUNTIME, /* the image launches kernels from the device */
	CUBIN_REFERENCED,     /* its address is taken: the device may launch or call it */
	CUBIN_NO_PARAM_ROOM,  /* no room behind its parameters */
	CUBIN_PARAM_LAYOUT,   /* parameters in an unknown form or at an unknown place */
	CUBIN_NO_BANK,	      /* no constant bank of parameters, or one of an unexpected size */
	CUBIN_NO_INFO,	      /* no attributes, or no register count */
	CUBIN_FIRST_INSN,     /* first instruction of an unknown kind */
	CUBIN_RELOCATED,      /* first instruction is relocated */
	CUBIN_LOOPS_TO_ENTRY, /* branches back to its first instruction */
	CUBIN_REGISTERS,      /* the stub needs more registers than the kernel may have */
	CUBIN_BARRIERS,	      /* uses a barrier count that the stub's cannot be added to */
	CUBIN_CODE_FORM, /* code section of an unexpected form, or an attribute that rules it out */
	CUBIN_NOT_CHOSEN, /* cubin_patch_copy() patches another one */
	CUBIN_WHY_COUNT
};
/* Returns a clause such as "the image launches kernels from the device". */
const char *cubin_why_text(enum cubin_why why);

struct cubin_param {
	uint32_t offset, bytes; /* offset from the first parameter */
};

struct cubin_kernel {
	const char *name;
	enum cubin_why why; /* CUBIN_OK: patched */
	uint32_t n_params;  /* of the original, by ordinal */
	const struct cubin_param *params;
	uint32_t param_bytes; /* of the original */
	uint32_t arg_offset;  /* of the stub's argument, from the first parameter; it is parameter
				 n_params */
	uint32_t registers;   /* per thread, of the original */
	uint32_t patched_registers; /* per thread, of the patched kernel */
	uint32_t barriers;	    /* of the original */
	uint32_t max_threads;	    /* per block, 0: not stated */
	uint32_t required_block[3]; /* block dimensions that every launch must have; zeros: none */
	uint32_t cluster[3];	    /* cluster dimensions that it was compiled with; zeros: none */
	uint32_t max_cluster_rank;  /* 0: not stated */
	uint32_t code_bytes;	    /* of the original */
	uint64_t code_hash;	  /* of its original machine code and name; the same in every run */
	bool explicit_cluster;	  /* launches must give cluster dimensions, or it states them */
	bool blocks_are_clusters; /* the grid counts clusters */
	bool sets_registers;	  /* setmaxnreg: warps change their register counts */
	bool waits_for_launch;	  /* programmatic dependent launch: waits for the preceding grid */
	bool triggers_launch;	  /* programmatic dependent launch: lets the next grid start */
	bool group_insns;  /* shuffles, votes of cooperative groups; a grid-wide barrier has them */
	bool indirect;	   /* indirect branches or calls */
	bool system_calls; /* printf, assert, malloc: calls that the driver resolves */
};

/* ---- patching ---- */

/* A patched image, and the kernels of the image that it was made from. */
struct cubin_patched;

/* Inserts the stub into each kernel of an image that allows it, and checks the result.
 * 0: *ret has an image with at least one patched kernel; an unpatched one has a reason in `why`.
 * -ENOENT: no kernel can be patched; *ret has the kernels and their reasons, but no image.
 * -ENOEXEC: the image, or the result of patching it, is not understood; load the original. r has
 * the reason; *ret is unchanged. -ENOMEM. Thread-safe; does not keep image or s. */
int cubin_patch(struct cubin_patched **ret, const void *image, size_t bytes,
		const struct cubin_stub *s, struct report *r);
/* Stores the address of a variable in the image that is loaded. 0 or -errno. */
typedef int cubin_address_fn(void *arg, const char *variable, uint64_t *ret);
/* Inserts the stub into one kernel only, for a copy that is loaded in addition to the image. If the
 * kernel uses variables of the module, the copy uses them at the addresses that `address` finds;
 * NULL: it is refused. As cubin_patch(), and -ENOENT without *ret if no kernel has the name or it
 * cannot be patched, -ENOTSUP if the kernel uses what a copy has of its own: variables without an
 * address, constants of the module, textures, calls of an unknown form. r has the reason. */
int cubin_patch_copy(struct cubin_patched **ret, const void *image, size_t bytes,
		     const char *kernel, const struct cubin_stub *s, cubin_address_fn *address,
		     void *arg, struct report *r);
/* Reports for each of n kernels whether a copy of the image could run it with a stub, as far as
 * that does not depend on the stub and on addresses of variables: 0, or with the reason in the
 * report -ENOENT or -ENOTSUP as cubin_patch_copy(). Returns 0, -ENOEXEC with r, or -ENOMEM: then
 * nothing was reported. */
typedef void cubin_copy_tell_fn(void *arg, size_t i, int err, const struct report *r);
int cubin_copy_survey(const void *image, size_t bytes, const char *const *kernels, size_t n,
		      cubin_copy_tell_fn *tell, void *arg, struct report *r);
/* Returns the image, NULL if there is none or it was dropped. Aligned to 16 bytes. */
const void *cubin_patched_image(const struct cubin_patched *p, size_t *ret_bytes);
void cubin_patched_drop_image(struct cubin_patched *p); /* keeps the kernels */
void cubin_patched_close(struct cubin_patched *p);	/* accepts NULL */
/* Replaces the image by equal bytes elsewhere, which `release` (NULL: nothing) frees when the image
 * is dropped or replaced; frees the former one. */
typedef void cubin_release_fn(void *image, size_t bytes);
void cubin_patched_set_image(struct cubin_patched *p, const void *image, size_t bytes,
			     cubin_release_fn *release);
/* Returns true if there is an image and cubin_patched_set_image placed it. */
bool cubin_patched_image_is_set(const struct cubin_patched *p);
size_t cubin_patched_kernels(const struct cubin_patched *p);
size_t cubin_patched_count(const struct cubin_patched *p); /* of those, patched */
/* Returns kernel i, in the order of the image's sections. Valid until close. */
const struct cubin_kernel *cubin_patched_kernel(const struct cubin_patched *p, size_t i);
const struct cubin_kernel *cubin_patched_find(const struct cubin_patched *p, const char *name);

/* ---- storing kernels ---- */

/* Appends the kernels, without the image, in a form that cubin_table_read reads. 0 or -ENOMEM. */
int cubin_table_write(const struct cubin_patched *p, struct buf *out);
/* Reads kernels that cubin_table_write has written; all that is read is checked. The result has no
 * image. 0 and *ret; -EBADMSG; -ENOMEM. Does not keep table. */
int cubin_table_read(struct cubin_patched **ret, const void *table, size_t bytes);

/* Return values that change when the room's sources change, and with the stub: an image that was
 * patched by other sources, or with another stub, must not be used again. */
uint64_t cubin_version(void);
uint64_t cubin_stub_hash(const struct cubin_stub *s);

/* Compares a patched image with its original without the patcher's code: every section, symbol,
 * relocation and attribute is accounted for, and only what patching changes may differ.
 * 0, -ENOEXEC with the first difference in r, -ENOMEM. cubin_patch calls it. */
int cubin_check(const void *original, size_t original_bytes, const void *result,
		size_t result_bytes, const struct cubin_stub *s, struct report *r);

#endif
