/* How functions can be stopped between blocks: by a preemptible clone, f$gbpf for f, or by the
 * entry stub in f's own machine code; with what a launch of it must know. */
#ifndef GBPF_SHIM_KERNEL_CLONE_H
#define GBPF_SHIM_KERNEL_CLONE_H

#include "ptx/block.h"
#include "shim/code/shim_code.h"
#include "shim/kernel/kernel_handle.h"
#include "shim/part.h"

extern const struct shim_part shim_clone_part;

/* Why a clone must not be launched (shim_clone.excluded). */
#define SHIM_CLONE_HUNG 1u /* its blocks waited for blocks of higher index */
/* The driver has reused its function's or its owner's handle: the functions, entry and code may no
 * longer exist. */
#define SHIM_CLONE_FORMER 2u

struct shim_clone {
	struct shim_clone *next; /* in clone.c's list */
	const void *owner;	 /* module or library */
	CUcontext ctx;		 /* of the functions; NULL: of a CUkernel, which has none */
	CUfunction of;		 /* f, a CUfunction or CUkernel */
	CUfunction
		handle; /* f$gbpf, of the same kind; f itself with code; NULL: f cannot be stopped
			 */
	const struct ptx_block_entry *entry; /* borrowed from the owner's image */
	const struct cubin_kernel *code; /* f has an entry stub; borrowed likewise; NULL: a clone */
	/* The last of f's parameters, of 8 bytes, is the launch's number, which the program does
	 * not pass: f is a probed form. */
	bool numbered;
	enum shim_kernel_kind kind;
	uint64_t load;		 /* of the owner's image; 0: not known */
	uint64_t id;		 /* unique, whereas handles are reused */
	uint32_t max_threads;	 /* of a block of f */
	uint32_t max_smem_bytes; /* [atomic] maximum dynamic shared memory of a launch of handle */
	uint64_t occupancy;	 /* [atomic] last launch shape whose occupancy was queried, and the
				    answer */
	uint8_t why;		 /* enum proto_block_why */
	uint8_t excluded;	 /* [atomic] SHIM_CLONE_*; later launches do not take it */
	uint8_t reported_why;	 /* [atomic] enum proto_block_why that the statistics show; PROTO_
				    BLOCK_UNKNOWN: `why` */
};

/* Returns the clone that a launch of a kernel may take, NULL if the kernel cannot be stopped. */
static inline struct shim_clone *shim_clone_to_launch(const struct shim_kernel *k)
{
	struct shim_clone *t = load_acquire(&k->clone);

	return t && t->handle ? t : NULL;
}
/* Returns the record of a handle's clone, which may be none (shim_clone.handle); NULL: the handle
 * was not obtained through the shim. The owner's context is current. */
struct shim_clone *shim_clone_get(const void *handle);
/* Makes t the record of the clone of a function that the program does not know: a probed form, of a
 * module in the current context. Either entry, of the clone, or code, of the function itself, which
 * is its own clone then; both are borrowed. Its own copy ends without notice. */
void shim_clone_init(struct shim_clone *t, CUfunction of, CUfunction clone,
		     const struct ptx_block_entry *entry, const struct cubin_kernel *code);
/* Reads the limits of such a clone's function again. */
void shim_clone_follow(struct shim_clone *t);
/* Excludes a clone whose blocks were found waiting for blocks of higher index; it is not launched
 * any more. */
void shim_clone_exclude(CUfunction clone);
/* Excludes the clones of an owner whose handle the driver has reused after an unload that was not
 * seen, and forgets which kernels its handles name. They stay allocated, since deferred launches
 * may use them. until: number of the last load that may have ended (loaded_image.h); what another
 * thread has made of a later one stays. Called before the former load's entries and code are freed.
 */
void shim_clone_end_load(const void *owner, uint64_t until);
/* Updates the clones after the program has changed a property of a function; handle NULL: of all of
 * the owner's. */
void shim_clone_refresh(const void *owner, const void *handle);

/* The parameters of f and, behind them, of the launch at block level. */
uint32_t shim_clone_params(const struct shim_clone *t);
struct cubin_param shim_clone_param(const struct shim_clone *t, uint32_t i);
uint32_t shim_clone_arg_offset(const struct shim_clone *t);

/* Returns the number of blocks that are resident on the device at once for launches with that many
 * threads and bytes of dynamic shared memory per block; 0: fewer than of f, or the driver refuses
 * such a launch. */
uint32_t shim_clone_resident(struct shim_clone *t, uint32_t threads, uint32_t smem);
/* The same for launches of f with clusters of that many blocks. */
uint32_t shim_clone_cluster_resident(struct shim_clone *t, const CUlaunchConfig *config,
				     uint32_t cluster);

#endif
