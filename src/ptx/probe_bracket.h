/* Brackets: kernels of gBPF's own that are launched in front of and behind a kernel of the
 * program, on its stream, and run the programs of gdev_begin and gdev_end in one thread. They need
 * nothing of the kernel itself, so every kernel can have them.
 *
 * The module depends on the programs only: what differs between launches is the entries' argument,
 * and the addresses of the environments are in the table PTX_PROBE_TABLE (ptx/probe.h), an entry
 * for each probe in their order. So kernels with the same programs share a module. */
#ifndef GBPF_PTX_PROBE_BRACKET_H
#define GBPF_PTX_PROBE_BRACKET_H

#include "ptx/probe.h"
#include "ptx/probe_late.h"

#define PTX_BRACKET_BEGIN "gbpf_begin"
#define PTX_BRACKET_END "gbpf_end"
#define PTX_BRACKET_LATE "gbpf_late" /* PTX_LATE_BLOCKS blocks of PTX_LATE_THREADS threads */

/* Launches of a module whose times can be kept at once; those that find no room among the
 * PTX_BRACKET_TRIES slots behind their number have no begin_ns. */
#define PTX_BRACKET_SLOTS 1024u
#define PTX_BRACKET_TRIES 16u

/* The argument of all entries, by value. `begin` and `end` are launched with one block of one
 * thread. */
struct ptx_bracket_arg {
	uint64_t launch; /* its number, not 0 */
	uint64_t kernel; /* hash of the kernel's name */
	uint32_t grid[3], threads[3];
	uint32_t shared_bytes;
	uint32_t cancelled; /* 1: the launch behind `begin` was refused: `end` runs no program and
			       only frees what `begin` has kept */
	uint64_t done; /* address of a counter of 8 bytes in host memory; the last kernel of the
			  launch, `end` if there is one, adds 1. 0: none */
	uint64_t late; /* address of the form's table (ptx/probe_late.h) */
	uint32_t late_launch; /* number of the launch in it */
	uint32_t reserved;    /* 0 */
	uint64_t control;     /* address of the kernel's control words minus that of the environment
			       */
};

/* What a module of brackets has. */
struct ptx_bracket_parts {
	bool begin, end; /* entries; a missing one is not launched */
	bool late;	 /* likewise; launched behind the kernel and in front of `end` */
	bool keeps_time; /* `begin` stores what `end` reads, so a refused launch must be cancelled
			  */
};

/* Returns true if programs of the hook run in brackets. */
bool ptx_probe_is_bracket(uint32_t hook);

/* Appends a module with the programs, all of which are of such hooks, or of gdev_block_exit in an
 * entry stub, for the blocks that no block follows. arch: of the device, 90 for
 * sm_90. Returns 0; -ENOTSUP with the reason; -EINVAL: a probe is not as ptx/probe.h says; -EFBIG;
 * -ENOMEM. */
int ptx_probe_bracket(struct buf *out, unsigned arch, const struct ptx_probe *probes, uint32_t n,
		      struct ptx_bracket_parts *ret, struct report *r);

#endif
