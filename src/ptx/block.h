/* The block pass: for each entry f that allows it, adds an entry f$gbpf, its preemptible clone,
 * whose blocks draw tickets. First, one thread of a block reads the leases and the word that says
 * how far earlier launches are. If a lease is in force, or that word has not reached this launch's
 * first ticket (the launch before it in the run was interrupted), the block leaves at once. Else it
 * draws a ticket, which becomes its block index. The block that draws the last ticket updates the
 * word, and stores the launch's number to a word in host memory. Everything else has the meaning
 * that it has in f: each block of the grid runs once, from beginning to end. Both entries are in
 * one module, so globals and constants exist once. docs/PREEMPTION.md has the argument. */
#ifndef GBPF_PTX_BLOCK_H
#define GBPF_PTX_BLOCK_H

#include "proto/block_why.h"
#include "ptx/module.h"

#define PTX_BLOCK_SUFFIX "$gbpf"
/* Dynamic shared memory of a clone's launch: f's, rounded up to 16, and 16 bytes more, which pass
 * the ticket's block index to the block's threads. */
#define PTX_BLOCK_SMEM(bytes) ((((bytes) + 15u) & ~15u) + 16u)
/* "mov.u32 REG, %dynamic_smem_size" with this register reads a size that is a multiple of 16 in all
 * launches of f, so that a clone can compute f's size from its own. Other reads exclude a clone. */
#define PTX_BLOCK_BYTES_REG "%gbpf$bytes"
/* Unit of a lease word: the low 32 bits of %globaltimer, in ns, shifted right by this. 0: no lease.
 * A lease is in force while (int32_t)(word - (uint32_t)(globaltimer >> PTX_LEASE_SHIFT)) > 0. */
#define PTX_LEASE_SHIFT 16u

/* Version of what a clone expects of its launch: struct ptx_block_arg, PTX_BLOCK_SMEM, the meaning
 * of leases and tickets. Clones are kept in machine code (block_mark.h), so each change needs a new
 * version. */
#define PTX_BLOCK_ABI 2u

/* Offset from the counter to the word that is loaded instead of it. It is in a cache line of its
 * own: a load of the counter would wait for the additions to it. */
#define PTX_BLOCK_READY 32768u

/* The last parameter of a clone, by value, aligned to 8, behind f's own parameters. */
struct ptx_block_arg {
	uint64_t leases;  /* device address of the lease words, 16-byte aligned */
	uint64_t tickets; /* device address of the run's u32 ticket counter, which never decreases.
			     At PTX_BLOCK_READY behind it: the end of the launches whose tickets
			     have all been drawn; compared with `first` */
	uint64_t done;	  /* address, as kernels use it, of a u32 in pinned host memory */
	uint32_t first;	  /* the launch's first ticket */
	uint32_t total;	  /* number of blocks: tickets first .. first + total - 1, modulo 2^32 */
	uint32_t number;  /* stored to *done by the block that draws the last ticket */
	uint32_t groups;  /* lease words to read, in groups of four; 0: leases do not stop it */
	uint32_t grid_x, grid_y, grid_z; /* of f's launch; a clone's own grid is one-dimensional */
	uint32_t reserved;
};

#define PTX_BLOCK_MAX_PARAMS 256u
/* Result of the pass for one entry. */
struct ptx_block_entry {
	const char *name; /* in the module's arena */
	enum proto_block_why why;
	uint32_t line; /* of the text, where the reason was found; 0: none */
	uint32_t n_params;
	uint32_t arg_offset;	      /* offset of struct ptx_block_arg in the parameter buffer */
	uint32_t max_threads;	      /* product of .maxntid or .reqntid; 0: not stated */
	const uint32_t *param_offset; /* n_params each, in bytes; in the module's arena */
	const uint32_t *param_bytes;
};

/* Adds the clones to m. *ret: one result for each entry with a body, in order, in the module's
 * arena. Returns 0; -ENOMEM; -EINVAL: no driver would load the module, reason in r. After an error
 * m is useless. */
int ptx_block_run(struct ptx_module *m, const struct ptx_block_entry **ret, uint32_t *ret_n,
		  struct report *r);

#endif
