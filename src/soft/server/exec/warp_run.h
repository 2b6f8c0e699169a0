/* Interface between the warp loop and control flow. */
#ifndef GBPF_SOFT_SERVER_EXEC_WARP_RUN_H
#define GBPF_SOFT_SERVER_EXEC_WARP_RUN_H

#include "soft/server/exec/op.h"

#define EXEC_LONG_BYTES (64u << 10) /* bytes copied by one operation that count as a turn */

#define EXEC_RUN_MAX 32u /* limit of operations that handlers execute by tail calls */

enum exec_warp_stop {
	WARP_QUANTUM, /* executed its n operations */
	WARP_YIELDS,  /* waits for other warps or blocks */
	WARP_WAITS,   /* every lane waits at a barrier */
	WARP_ENDED,
	WARP_FAULT,
};

/* Runs up to n operations and counts them in *used. */
enum exec_warp_stop exec_warp_run(struct exec_warp *w, uint64_t n, uint64_t *used);
bool exec_warp_ready(const struct exec_warp *w);

void exec_group_save(const struct exec_warp *w, struct exec_lane_group *g);
/* Gives the other groups of the warp a turn. Returns the step for an operation that found nothing
 * to do. */
int exec_yield(struct exec_warp *w);
void exec_stack_reset(struct exec_warp *w);
void exec_frame_set(struct exec_warp *w); /* sets bases from the offsets of the current frame */

/* Opens the barriers at which all expected threads have arrived. */
void exec_barrier_check(struct exec_block *b);

#endif
