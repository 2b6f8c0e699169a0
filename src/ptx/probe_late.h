/* Programs of gdev_block_exit in kernels that exist as machine code only. They run late: an entry
 * stub (ptx/probe_stub.h) reports the block that had its place before, and a bracket
 * (ptx/probe_bracket.h) behind the launch those that no block followed. Both share a table of the
 * form, whose address and the launch's number the launch passes in the gate's argument.
 *
 * A place is that of a block's first warp: multiprocessor and warp slot. A record is a word of 64
 * bits, 0 for none: the launch's number and the block's linear index. It is stored, replaced and
 * taken by atomic operations on the whole word, so each record is reported once.
 *
 * Where a program reads begin_ns each place has the time at which its block began, too. Only the
 * block that begins in the place stores it, behind its record; whoever reports a block reads the
 * time in front of that store or of the compare and swap that takes the record, so it is that of
 * the record. */
#ifndef GBPF_PTX_PROBE_LATE_H
#define GBPF_PTX_PROBE_LATE_H

#include <stdbool.h>
#include <stdint.h>

/* Returns true for the hook whose programs run so. */
bool ptx_probe_is_late(uint32_t hook);

#define PTX_LATE_SMS 256u
#define PTX_LATE_WARPS 64u
#define PTX_LATE_SLOTS (PTX_LATE_SMS * PTX_LATE_WARPS)
#define PTX_LATE_BYTES                                                                             \
	(16u * PTX_LATE_SLOTS) /* of a table, all zero at first: records, then times */
/* Numbers of launches. Two that run at once differ: more cannot be in the queues. */
#define PTX_LATE_LAUNCH_MAX 0xffffffu
#define PTX_LATE_LAUNCH(n) ((uint32_t)((n) % PTX_LATE_LAUNCH_MAX) + 1)
/* The bracket's blocks and their threads. */
#define PTX_LATE_THREADS 32u
#define PTX_LATE_BLOCKS (PTX_LATE_SLOTS / PTX_LATE_THREADS)

#endif
