/* Places of instructions in the unrolled program: verify_order.c. */
#ifndef GBPF_BPF_LOAD_VERIFY_WALK_VERIFY_ORDER_INT_H
#define GBPF_BPF_LOAD_VERIFY_WALK_VERIFY_ORDER_INT_H

#include <stdint.h>

struct ebpf_verifier;

#define ORDER_MAX_LOOPS 8u /* maximum nesting of loops */

/* Where an instruction lies in its function. */
struct ebpf_place {
	uint8_t loops;			    /* number of loops around it, or of which it is head */
	uint8_t is_head;		    /* head of the innermost of them */
	uint32_t rank[ORDER_MAX_LOOPS + 1]; /* of loop 0 .. loops - 1, then of the instruction */
};

/* Fills v->places. Returns 0, -E2BIG if loops are nested too deeply, or -ENOMEM. */
int ebpf_order_start(struct ebpf_verifier *v);

#endif
