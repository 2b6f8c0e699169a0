/* The block level's pass: beside each entry f that allows it, a second entry f$gbpf, its twin,
 * whose blocks draw tickets. The first thing that a block of the twin does: its first thread reads
 * the leases and how far the launches before are; if a lease is in force, or that has not reached
 * this launch's first ticket (the launch before it in the chain was interrupted), the block leaves
 * at once; else it draws a ticket, which becomes its block index. The block that draws the last
 * ticket says how far they are now, and stores the launch's number to a word in host memory.
 * Everything else means what it means in f: each block of the grid runs once, whole. Both entries
 * lie in one module, so globals and constants exist once. docs/PREEMPTION.md has the argument. */
#ifndef GBPF_PTX_BLOCK_H
#define GBPF_PTX_BLOCK_H

#include "ptx/module.h"

#define PTX_BLOCK_SUFFIX "$gbpf"
/* Dynamic shared memory that a twin is launched with: f's, rounded up to 16, and 16 more, in which
 * the ticket's block index is handed to the block's threads. */
#define PTX_BLOCK_SMEM(bytes) ((((bytes) + 15u) & ~15u) + 16u)
/* Unit of a lease word: %globaltimer nanoseconds, shifted; the low 32 bits. 0: no lease. A lease is
 * in force while (int32_t)(word - (uint32_t)(globaltimer >> PTX_LEASE_SHIFT)) > 0. */
#define PTX_LEASE_SHIFT 16u

/* What a twin expects of its launch: this struct, PTX_BLOCK_SMEM, the meaning of leases and
 * tickets. Raised with each change of them, since twins are kept in machine code (block_mark.h). */
#define PTX_BLOCK_ABI 2u

/* From the counter to the word that is read instead of it. In a line of its own, which others do
 * not write: a load of the counter would wait behind their additions. */
#define PTX_BLOCK_READY 32768u

/* The last parameter of a twin, by value, aligned to 8, behind f's own parameters. */
struct ptx_block_arg {
	uint64_t leases;  /* device address of lease words, 16-byte aligned */
	uint64_t tickets; /* device address of the chain's u32 counter; it never falls. At
			     PTX_BLOCK_READY behind it: the end of the launches whose tickets have
			     all been drawn, which a launch's `first` is compared with */
	uint64_t done;	  /* address, as kernels see it, of a u32 in pinned host memory */
	uint32_t first;	  /* the launch's first ticket */
	uint32_t total;	  /* its blocks: tickets first .. first + total - 1, modulo 2^32 */
	uint32_t number;  /* stored to done by who draws the last ticket */
	uint32_t groups;  /* lease words looked at, in groups of four; 0: no lease stops it */
	uint32_t grid_x, grid_y, grid_z; /* of f's launch; a twin's own grid is one-dimensional */
	uint32_t reserved;
};

/* Why an entry has no twin, or a launch of it none: shown by `gbpf ps --why`. Append only. */
enum proto_block_why {
	PROTO_BLOCK_UNKNOWN,	    /* not looked at */
	PROTO_BLOCK_OK,		    /* it has a twin */
	PROTO_BLOCK_NO_PTX,	    /* the image has no PTX that this device takes */
	PROTO_BLOCK_UNREADABLE,	    /* the PTX could not be read */
	PROTO_BLOCK_CLUSTER,	    /* clusters of blocks */
	PROTO_BLOCK_DEPENDENT,	    /* griddepcontrol */
	PROTO_BLOCK_GRID_ID,	    /* %gridid, %envreg and others that tell launches apart */
	PROTO_BLOCK_DEVICE_RUNTIME, /* launches kernels, or cooperative groups' grid workspace */
	PROTO_BLOCK_CALL,	    /* calls through a pointer code that knows its block index */
	PROTO_BLOCK_EXTERN,	    /* calls a function of another module */
	PROTO_BLOCK_PARAMETERS,	    /* no room behind its parameters */
	PROTO_BLOCK_SHARED,	    /* no room for 16 bytes of shared memory, or reads its size */
	PROTO_BLOCK_OCCUPANCY,	    /* the twin would have fewer blocks resident */
	PROTO_BLOCK_COOPERATIVE,    /* cooperative launch */
	PROTO_BLOCK_ATTRIBUTE,	    /* a launch attribute that is not known to be harmless */
	PROTO_BLOCK_CAPTURE,	    /* in a graph */
	PROTO_BLOCK_HUNG,	    /* waited for later blocks once: excluded */
	PTX_BLOCK_SHORT,	    /* too short for the level to pay */
	PROTO_BLOCK_REJECTED,	    /* the driver did not take the rewritten module */
	PROTO_BLOCK_CLASS,	    /* the tenant was of class latency when the module was loaded */
	PROTO_BLOCK_SOURCE,	    /* uses something else that the pass does not know */
	PROTO_BLOCK_NATIVE, /* its machine code is kept: the PTX is older, or long to compile */
	PROTO_BLOCK_WHYS
};
const char *proto_block_why_text(enum proto_block_why why); /* static; "not looked at" ... */

#define PTX_BLOCK_MAX_PARAMS 256u
/* What the pass says of one entry. */
struct ptx_block_entry {
	const char *name; /* of the module's arena */
	enum proto_block_why why;
	uint32_t line; /* where the reason stands; 0: nowhere */
	uint32_t n_params;
	uint32_t arg_offset;	      /* of struct ptx_block_arg in the parameter buffer */
	uint32_t max_threads;	      /* .maxntid or .reqntid, product; 0: not said */
	const uint32_t *param_offset; /* n_params each, in bytes; of the module's arena */
	const uint32_t *param_bytes;
};

/* Adds the twins to m. ret: one for each entry with a body, in order, of the module's arena. 0;
 * -ENOMEM; -EINVAL: the module is not one that could be loaded, with the reason in r; m is then
 * useless. */
int ptx_block_run(struct ptx_module *m, const struct ptx_block_entry **ret, uint32_t *ret_n,
		  struct report *r);

#endif
