/* The walk over all paths: nodes where paths meet, pending branches, loops by convergence, packed
 * states.
 *
 * The walk is depth first. Where paths meet, the state is saved in a node. Once every path behind a
 * node has been walked, the node knows which registers and stack slots these paths read and the
 * maximum cost from the node to the exit. A later path whose state lies within the state of the
 * node, as far as it was read, ends there and takes over both. */
#ifndef GBPF_BPF_LOAD_VERIFY_WALK_VERIFY_WALK_INT_H
#define GBPF_BPF_LOAD_VERIFY_WALK_VERIFY_WALK_INT_H

#include <stddef.h>
#include <stdint.h>

#include "bpf/load/verify/verify_value_int.h"

struct ebpf_verifier;

struct ebpf_marks {
	uint64_t slots[EBPF_MAX_FRAMES];
	uint64_t texts[EBPF_MAX_FRAMES]; /* slots with printed characters; only in node.read */
	uint16_t regs[EBPF_MAX_FRAMES];
	uint16_t matter[EBPF_MAX_FRAMES]; /* registers whose number decided an outcome; only in
					     node.read */
};

/* For each register of each frame: the registers at the last node from which its number was
 * computed. */
struct ebpf_sources {
	uint16_t of[EBPF_MAX_FRAMES][10];
};

struct ebpf_packed_state; /* compact form of a state */

#define VERIFY_MAX_LOOPS 8u /* maximum nesting of loops by convergence */

/* A place in the program with its loops unrolled, from the outermost frame in: for each loop its
 * rank and the round, then the rank of the instruction (verify_order.c). */
struct ebpf_spot {
	uint32_t n, frames;
	uint32_t first[EBPF_MAX_FRAMES]; /* of each frame, in at[] */
	uint32_t loops[EBPF_MAX_FRAMES]; /* around the place in each frame */
	uint32_t at[48];
};

struct ebpf_waiting; /* a state that waits to be walked (verify_merge.c) */
struct ebpf_place;   /* of an instruction (verify_order.c) */

/* The maximum cost from a point to the end of the program, and to the next round of each enclosing
 * loop by convergence whose cost is not known yet. */
struct ebpf_costs {
	int64_t exit; /* -1: every path leads through those rounds */
	uint32_t n;
	struct cost_to {
		struct ebpf_loop *loop;
		int64_t cost;
	} to[VERIFY_MAX_LOOPS];
};

/* A loop by convergence: the rounds of one iterator, or of one helper call with a callback. Its
 * heads are nodes. Its body is walked until each state that reaches a head lies within the state of
 * a head. */
struct ebpf_loop {
	struct ebpf_loop *next; /* list of all loops */
	struct ebpf_state_node *first;
	uint32_t id; /* id of the reference */
	uint32_t pc;
	uint32_t joins;
	int began;		 /* rounds already begun at the first head */
	int closed;		 /* the costs are final */
	int64_t rounds;		 /* maximum number of rounds */
	int64_t round;		 /* cost of the most expensive round */
	int64_t before;		 /* cost of the path up to the first head */
	struct ebpf_costs after; /* from a head, without passing another head */
	struct ebpf_costs broke; /* the same, for leaving in the middle of a round */
};

struct ebpf_state_node {
	struct ebpf_state_node *parent;
	struct ebpf_state_node *next;	 /* next node of the same instruction */
	struct ebpf_packed_state *state; /* owned; NULL if it is not compared any more */
	uint32_t pc;
	uint32_t open;		  /* unfinished paths behind it; 0: best and read are final */
	uint64_t cost;		  /* cost from the parent to this node */
	uint64_t path_cost;	  /* cost from the start to this node */
	int64_t best;		  /* maximum cost to the exit found so far */
	struct ebpf_costs *costs; /* owned; costs to the rounds of loops; NULL: none */
	struct ebpf_loop *head;	  /* loop of which this is a head, or NULL */
	struct ebpf_loop *inside; /* loop whose round begins here, or NULL */
	uint32_t heads;		  /* number of heads from the root to this node */
	uint16_t hits, misses;
	struct ebpf_marks read;	     /* read behind the node before being written */
	struct ebpf_marks written;   /* written between the parent and this node */
	struct ebpf_sources sources; /* sources, at the parent, of the registers here */
};

/* A side of a branch that has not been walked yet. */
struct ebpf_pending_branch {
	struct ebpf_pending_branch *next;
	struct ebpf_state_node *node;
	struct ebpf_packed_state *state; /* owned; state before the branch */
	uint32_t pc;			 /* instruction of the branch */
	int outcome;
	uint64_t cost, path_cost; /* cost from the node and from the start */
	uint32_t since;
	size_t log; /* length of the path log */
	struct ebpf_marks written;
	struct ebpf_sources sources;
};

/* verify_live.c: fills live. Runs before the walk if there are loops by convergence. */
int ebpf_verify_live(struct ebpf_verifier *v);
/* Forgets registers and slots that are not read later. Called at the head of a loop. */
void ebpf_verify_drop_dead(struct ebpf_verifier *v);

/* verify_state.c: nodes, pending branches, liveness. */
int ebpf_verify_start(struct ebpf_verifier *v);
void ebpf_verify_free(struct ebpf_verifier *v);
/* Called where paths may meet. Returns 1 if the path ends here, 0 if it continues, or an error. */
int ebpf_verify_meet(struct ebpf_verifier *v);
int ebpf_verify_push(struct ebpf_verifier *v, int outcome);
/* Ends the path. tail: its remaining cost from here; NULL: the program ends here. */
int ebpf_verify_path_end(struct ebpf_verifier *v, const struct ebpf_costs *tail);
/* Adds what is read behind a point to *into, less what was written between the two. */
void ebpf_verify_merge_read(struct ebpf_marks *into, const struct ebpf_marks *read,
			    const struct ebpf_marks *written, const struct ebpf_sources *sources);
/* Adds a node with the running state. */
int ebpf_verify_add_node(struct ebpf_verifier *v, struct ebpf_loop *head);
/* Adds a node without a state: a round of the loop begins with a number from the iterator. */
int ebpf_verify_begin_round(struct ebpf_verifier *v, struct ebpf_loop *l);
/* Takes up the next pending branch. Returns 1, or 0 if there is none. The caller applies the
 * outcome. */
int ebpf_verify_pop(struct ebpf_verifier *v, int *ret_outcome);
/* verify_merge.c: the merging walk. */
/* Prepares it. Returns -E2BIG for programs that it is not made for. */
int ebpf_merge_start(struct ebpf_verifier *v);
void ebpf_merge_free(struct ebpf_verifier *v);
/* Called where paths may meet. Returns 1 if the path ends here, 0 if it continues, or an error. */
int ebpf_merge_meet(struct ebpf_verifier *v);
/* Takes up the state that waits at the first place. Returns 1, or 0 if there is none. */
int ebpf_merge_next(struct ebpf_verifier *v);
/* Ends the path because the program ends. */
int ebpf_merge_end(struct ebpf_verifier *v);
/* verify_shape.c: returns whether the running state can be joined with p. LOSSY: a pointer would be
 * lost. NEVER: they have other calls or hold other references. */
enum ebpf_fit { FIT_NEVER, FIT_LOSSY, FIT_WHOLE };
enum ebpf_fit ebpf_verify_fit(struct ebpf_verifier *v, const struct ebpf_packed_state *p);
/* verify_loop.c */
/* Returns the loop whose head the path has reached, or 0. */
uint32_t ebpf_verify_head(const struct ebpf_verifier *v);
/* Called when the path has reached a head of the loop. Returns 1 if the path ends here, 0 if it
 * continues, or an error. */
int ebpf_verify_round(struct ebpf_verifier *v, uint32_t id);
/* Passes the costs of a fully walked head to its parent. */
int ebpf_verify_close_head(struct ebpf_verifier *v, struct ebpf_state_node *n);
int ebpf_verify_close_round(struct ebpf_verifier *v, struct ebpf_state_node *n);
int ebpf_verify_add_costs(struct ebpf_verifier *v, struct ebpf_state_node *n,
			  const struct ebpf_costs *c, uint64_t plus);
void ebpf_verify_node_costs(const struct ebpf_state_node *n, struct ebpf_costs *ret);
/* Computes the costs from a closed node. arrived: the loop whose next round would begin there, or
 * 0. Returns 0 if the node cannot be used by the running state. */
int ebpf_verify_costs_of(const struct ebpf_verifier *v, const struct ebpf_state_node *n,
			 uint32_t arrived, struct ebpf_costs *ret);
void ebpf_verify_free_loops(struct ebpf_verifier *v);
/* verify_join.c: widens the running state until it contains the packed one. level: number of
 * earlier joins; 0: to the union only. Returns -EACCES if the two cannot be joined. */
int ebpf_verify_join(struct ebpf_verifier *v, const struct ebpf_packed_state *p, unsigned level);
/* Unpacks p into v->other and its references into refs. */
int ebpf_verify_unpack_other(struct ebpf_verifier *v, const struct ebpf_packed_state *p,
			     struct ebpf_ref *refs, unsigned *n_refs);
/* Sets the marks of every register and slot in p: a state compared with all of p depends on them.
 */
void ebpf_verify_all_marks(struct ebpf_verifier *v, const struct ebpf_packed_state *p,
			   struct ebpf_marks *ret);

/* verify_pack.c */
struct ebpf_packed_state *ebpf_verify_pack(struct ebpf_verifier *v);
void ebpf_verify_unpack(struct ebpf_verifier *v, const struct ebpf_packed_state *p);
size_t ebpf_verify_packed_bytes(const struct ebpf_packed_state *p);
/* Returns the number of registers and stack slots in p. */
uint32_t ebpf_verify_packed_work(const struct ebpf_packed_state *p);
/* Returns whether the running state lies within p as far as read says, with the same ids for the
 * loops that costs (may be NULL) names. */
int ebpf_verify_within(struct ebpf_verifier *v, const struct ebpf_packed_state *p,
		       const struct ebpf_marks *read, const struct ebpf_costs *costs);
/* Returns register i of a frame, or NULL if it is not initialized. */
const struct ebpf_reg *ebpf_verify_packed_reg(const struct ebpf_packed_state *p, unsigned frame,
					      unsigned i);
/* Returns whether both states have the same call stack. */
int ebpf_verify_same_calls(const struct ebpf_verifier *v, const struct ebpf_packed_state *p);
/* Returns whether the running state equals p. */
int ebpf_verify_same(struct ebpf_verifier *v, const struct ebpf_packed_state *p);

#endif
