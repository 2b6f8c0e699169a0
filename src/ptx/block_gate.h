/* The gate: how blocks of kernels that exist as machine code only decide whether they run. Their
 * first instruction is replaced by a branch to an entry stub (src/cubin), whose PTX this is; the
 * driver compiles it. Each launch passes struct ptx_gate_arg behind the kernel's own parameters.
 *
 * Blocks have the hardware's index; those of a cluster take the index of its first block, so they
 * decide alike. One thread of a block decides, and a barrier tells the others. First it reads the
 * leases and the progress word, as a preemptible clone does (ptx/block.h): if a launch before this
 * one in the run was interrupted, the block leaves. Else it raises the gate, a word of 64 bits, to
 * base + index + 1. The first block that finds a lease in force closes the gate (PTX_GATE_CLOSED):
 * from then on its value, the bound, does not change, and a block runs only if its own value is at
 * most the bound. So what ran is a prefix of the grid, in whatever order blocks arrive, and a block
 * that waits for lower ones waits for blocks that run. The block of the last index, if it runs,
 * publishes the launch's end like the block that draws a clone's last ticket, and sets the counter
 * to it, for clones that follow: all blocks below it run.
 * docs/PREEMPTION-ARGUMENT.md has the argument. */
#ifndef GBPF_PTX_BLOCK_GATE_H
#define GBPF_PTX_BLOCK_GATE_H

#include "base/buf.h"
#include "ptx/block.h"

/* Offset of the gate from the ticket counter; PTX_BLOCK_READY is the progress word's. */
#define PTX_GATE_WORD 65536u
#define PTX_GATE_CLOSED (UINT64_C(1) << 63)

/* The stub's argument, by value, aligned to 8. All zero: the kernel runs as the original, and with
 * gate 0 the gate reads nothing else. Up to `groups` the layout is struct ptx_block_arg's. */
struct ptx_gate_arg {
	uint64_t leases; /* device address of the lease words, 16-byte aligned */
	uint64_t gate;	 /* device address of the gate, PTX_GATE_WORD behind the run's ticket
			    counter; 0: run */
	uint64_t done;	 /* address, as kernels use it, of a u32 in pinned host memory. With gate 0
			    the launch's number, which programs in the stub read; 0: not known */
	uint32_t first;	 /* the launch's first ticket */
	uint32_t end;	 /* its first ticket + its number of tickets: published at its end */
	uint32_t number; /* stored to *done at its end */
	uint32_t groups; /* lease words to read, in groups of four; 0: leases do not stop it */
	uint64_t base;	 /* below 2^63; no launch of the run has had a higher value. With gate 0 the
			    address of the table of late programs (ptx/probe_late.h) */
	uint32_t from;	 /* blocks of lower index leave: they have run */
	uint32_t wave;	 /* those below ask for leases first (UINT32_MAX: all); the others raise the
			    gate at the same time, which saves a round trip, but then they run even if
			    a lease is in force */
	uint32_t ask;	 /* those below are not stopped by leases */
	uint32_t launch; /* with gate 0: the launch's number in that table, 0: none */
};

/* The stub is compiled twice, with so many bytes of other parameters in front of its argument: what
 * differs refers to the argument. */
#define PTX_GATE_PAD_A 64u
#define PTX_GATE_PAD_B 1024u
#define PTX_GATE_ENTRY "gbpf_stub"

/* Appends a module with the entry PTX_GATE_ENTRY(.b8 pad[pad], .b8 arg[64]). It ends with "pmevent
 * 13; ret;", the place where the kernel begins. arch: of the device, 90 for sm_90; from there on
 * with clusters. Returns 0 or -ENOMEM. */
int ptx_gate_stub(struct buf *out, unsigned arch, uint32_t pad);

/* Append the parts of such a module: all in front of the place where blocks go that run, and the
 * end. Code in between runs in all threads of these blocks; its names must be in a scope. */
void ptx_gate_begin(struct buf *out, unsigned arch, uint32_t pad);
void ptx_gate_end(struct buf *out);

#endif
