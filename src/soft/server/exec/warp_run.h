/* What the loop over a warp shares with control flow. */
#ifndef GBPF_SOFT_SERVER_EXEC_WARP_RUN_H
#define GBPF_SOFT_SERVER_EXEC_WARP_RUN_H

#include "soft/server/exec/op.h"

#define EXEC_STREAK_END (1u << 30) /* longer than any streak */

#define EXEC_LONG_BYTES (64u << 10) /* that one operation copies: then it counts as a turn */

#define EXEC_RUN_MAX 32u /* operations that handlers do in one go, at most */

enum exec_warp_stop {
	WARP_QUANTUM, /* used its operations */
	WARP_YIELDS,  /* it waits for what others do */
	WARP_WAITS,   /* every lane waits at a barrier */
	WARP_ENDED,
	WARP_FAULT,
};

/* Runs up to n operations; *used counts them. */
enum exec_warp_stop exec_warp_run(struct exec_warp *w, uint64_t n, uint64_t *used);
bool exec_warp_ready(const struct exec_warp *w);

void exec_group_save(const struct exec_warp *w, struct softd_group *g);
/* The other groups of the warp go first; what an operation says that found nothing to do. */
int exec_yield(struct exec_warp *w);
void exec_stack_reset(struct exec_warp *w);
void exec_frame_set(struct exec_warp *w); /* bases from the offsets of the current frame */

/* Opens the barriers at which everyone who is expected has arrived. */
void exec_barrier_check(struct exec_block *b);

#endif
