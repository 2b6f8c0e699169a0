/* Uniformity of the values in a program that each active lane of a warp runs. A value is of level
 * LEVEL_BLOCK if all threads of a block that come to the instruction have the same, LEVEL_WARP if
 * all lanes of a warp have, else LEVEL_LANE: it varies.
 *
 * The walk of the verifier notes where the pointers of each instruction point and which sides of
 * each branch are possible (simt_facts.c). From these come a graph of basic blocks, and for each
 * branch the blocks that it decides about (simt_graph.c). The levels are the least solution of the
 * equations in simt_flow.c. simt.c checks the rules and reports. */
#ifndef GBPF_BPF_LOAD_VERIFY_SIMT_SIMT_INT_H
#define GBPF_BPF_LOAD_VERIFY_SIMT_SIMT_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/load/verify/verify_int.h"

/* What a pointer points to, as bits. */
enum ebpf_simt_kind {
	SIMT_CTX = 1,
	SIMT_STACK = 2,
	SIMT_CONSTANT = 4, /* a value that never changes */
	SIMT_SHARED = 8,   /* a value that other lanes, warps and tools change */
	SIMT_NUMBER = 16,  /* the number of an iterator */
	SIMT_FUNC = 32,
	SIMT_MAP = 64,
	SIMT_OTHER = 128,
};

/* Where the pointer of an instruction points, over all paths. */
struct ebpf_simt_place {
	uint64_t funcs;	   /* SIMT_STACK: functions whose frames it may be; SIMT_FUNC: functions, as
			      bits */
	int16_t low, high; /* SIMT_STACK: offsets from the end of the frame */
	uint8_t kinds;
	uint8_t level;	    /* SIMT_CTX: highest level of a field; SIMT_MAP: of an instance */
	bool varies;	    /* SIMT_MAP: a map is a hash table, or has a value for each thread */
	uint16_t key_bytes; /* SIMT_MAP: max bytes of a key */
	uint8_t map;	    /* SIMT_SHARED, SIMT_OTHER, SIMT_MAP: the map with the largest values */
	/* SIMT_CTX: the first field of that level. */
	const struct ebpf_verify_field *field;
};

/* Notes about an instruction. */
enum { SIMT_NOT_TAKEN = 1, SIMT_TAKEN = 2, SIMT_SEEN = 4 };

#define SIMT_WORDS (EBPF_STACK_BYTES / 64)

/* Registers, and bytes of a frame from its lowest address on. */
struct ebpf_simt_set {
	uint64_t bytes[SIMT_WORDS];
	uint16_t regs;
};

/* Levels of registers and of the bytes of one frame: above[i] has those above level i. */
struct ebpf_simt_state {
	struct ebpf_simt_set above[LEVEL_LANE];
};

#define SIMT_EXIT UINT32_MAX

struct ebpf_simt_block {
	uint32_t first, end; /* first instruction, and the one behind the last */
	uint32_t succ[2];    /* blocks */
	uint32_t n_succ;
	uint32_t join;	 /* immediate post-dominator: block at which its sides meet again, or
			    SIMT_EXIT */
	uint32_t rank;	 /* index in the order of the blocks */
	uint32_t why;	 /* block whose branch gave control its level, if that is not LEVEL_BLOCK */
	uint8_t func;	 /* function of the program */
	uint8_t level;	 /* level of the condition of its branch */
	uint8_t control; /* highest level of the function's branches that decide whether it is
			    reached */
	bool again;	 /* the branch decides about rounds of a loop; not valid while level is
			    LEVEL_BLOCK */
	bool dirty;	 /* must be computed again */
	struct ebpf_simt_set wrote; /* what its instructions may write */
	struct ebpf_simt_state in;
};

struct ebpf_simt_func {
	uint8_t result;		     /* level of r0 where it returns */
	uint8_t control;	     /* level of the branches that decide whether it is called */
	uint32_t called_at;	     /* call that set control to LEVEL_LANE */
	struct ebpf_simt_state seen; /* levels of its frame at any call that it makes */
};

/* Bytes that a function and those that it calls write into the frame of another function, and their
 * levels. */
struct ebpf_simt_foreign {
	struct ebpf_simt_set wrote;
	struct ebpf_simt_state levels;
};

struct ebpf_simt {
	const struct ebpf_verifier *v; /* borrowed */
	uint32_t n, n_funcs;
	uint32_t *at;			/* owned; index of the first of `places`, by instruction */
	struct ebpf_simt_place *places; /* owned */
	uint8_t *notes;			/* owned; by instruction */
	struct ebpf_simt_block *blocks; /* owned */
	uint32_t n_blocks;
	uint32_t *block_of; /* owned; by instruction */
	uint32_t *order;    /* owned; blocks, each before its successors except in loops */
	uint32_t *label;    /* owned; scratch of simt_join.c, by block */
	uint32_t *inside;   /* owned; likewise */
	uint8_t *mark;	    /* owned; scratch of simt_join.c, by block; all 0 between calls */
	struct ebpf_simt_func *funcs;	   /* owned */
	struct ebpf_simt_foreign *foreign; /* owned; by writer and owner of the frame */
	uint32_t last_source; /* last instruction that is a source of variation; those behind it
				 count as uniform */
	uint64_t work;	      /* instructions computed so far */
	bool dirty;	      /* a block must be computed again */
};

/* simt_facts.c */
int ebpf_simt_start(struct ebpf_verifier *v);
void ebpf_simt_free(struct ebpf_simt *s);
/* Notes the state before the instruction at v->pc. */
void ebpf_simt_note(struct ebpf_verifier *v);
/* Notes that the branch at v->pc may have this outcome. */
void ebpf_simt_side(struct ebpf_verifier *v, int outcome);

/* simt_graph.c */
/* Returns 0 or -ENOMEM. */
int ebpf_simt_graph(struct ebpf_simt *s);

/* simt_join.c */
/* Finds the joins of all branches. Returns 0 or -ENOMEM. */
int ebpf_simt_joins(struct ebpf_simt *s);
/* Raises the level of a block's branch: control of the blocks that it decides about, and what these
 * write wherever lanes meet that took different ways. */
void ebpf_simt_raise(struct ebpf_simt *s, uint32_t block, uint8_t level);

/* simt_set.c */
/* Sets *ret to the bytes of a frame that an access of some bytes at p may reach. */
void ebpf_simt_reach(const struct ebpf_simt_place *p, unsigned bytes, struct ebpf_simt_set *ret);
uint8_t ebpf_simt_reg(const struct ebpf_simt_state *st, unsigned reg);
void ebpf_simt_set_reg(struct ebpf_simt_state *st, unsigned reg, uint8_t level);
/* Returns the highest level of the members of a set. */
uint8_t ebpf_simt_level(const struct ebpf_simt_state *st, const struct ebpf_simt_set *set);
/* Raises the members of a set to a level. */
void ebpf_simt_raise_set(struct ebpf_simt_state *st, const struct ebpf_simt_set *set,
			 uint8_t level);
/* Sets the bytes of a set to LEVEL_BLOCK. */
void ebpf_simt_drop(struct ebpf_simt_state *st, const struct ebpf_simt_set *set);
/* Adds one state to another. Returns whether that changed it. */
int ebpf_simt_join(struct ebpf_simt_state *to, const struct ebpf_simt_state *from);

/* simt_flow.c */
/* Computes all levels; only instructions up to last_source make values vary. Returns 0 or -E2BIG.
 */
int ebpf_simt_solve(struct ebpf_simt *s, uint32_t last_source);
/* Marks a block, or all, to be computed again. */
void ebpf_simt_dirty(struct ebpf_simt *s, uint32_t block);
void ebpf_simt_all_dirty(struct ebpf_simt *s);
/* Raises the level of what a function returns. */
void ebpf_simt_result(struct ebpf_simt *s, unsigned func, uint8_t level);
/* Sets *st to the levels before the instruction. */
void ebpf_simt_at(struct ebpf_simt *s, uint32_t pc, struct ebpf_simt_state *st);
/* Returns the level of the condition of a branch. */
uint8_t ebpf_simt_condition(const struct ebpf_simt *s, uint32_t pc,
			    const struct ebpf_simt_state *st);
/* Returns the highest level of branches that decide whether the instruction is reached: of its
 * function, or also of callers. */
uint8_t ebpf_simt_local_control(const struct ebpf_simt *s, uint32_t pc);
uint8_t ebpf_simt_control(const struct ebpf_simt *s, uint32_t pc);

/* simt_step.c */
/* Computes the levels behind the instruction. */
void ebpf_simt_step(struct ebpf_simt *s, uint32_t pc, struct ebpf_simt_state *st);
/* Returns the level of a result that differs between lanes: LEVEL_BLOCK behind last_source. */
uint8_t ebpf_simt_vary(const struct ebpf_simt *s, uint32_t pc);
/* Returns the level of bytes at a place that an instruction reads. addr: of the pointer. */
uint8_t ebpf_simt_memory(const struct ebpf_simt *s, uint32_t pc, const struct ebpf_simt_state *st,
			 const struct ebpf_simt_place *p, unsigned bytes, uint8_t addr);
/* Stores a value of a level; addr: of the pointer. */
void ebpf_simt_store(struct ebpf_simt *s, uint32_t pc, struct ebpf_simt_state *st,
		     const struct ebpf_simt_place *p, unsigned bytes, uint8_t level, uint8_t addr);
/* Raises the levels of the bytes that function k writes into the frame of f. control: level of the
 * branches of k that decide whether it writes them, which f knows only from here. */
void ebpf_simt_raise_foreign(struct ebpf_simt *s, unsigned k, unsigned f,
			     const struct ebpf_simt_state *levels,
			     const struct ebpf_simt_set *wrote, uint8_t control);

/* simt_call.c */
void ebpf_simt_call(struct ebpf_simt *s, uint32_t pc, struct ebpf_simt_state *st);
/* Returns the functions that a call enters, directly or by way of a helper, as bits. */
uint64_t ebpf_simt_callees(const struct ebpf_simt *s, uint32_t pc);
/* Returns how many bytes a helper call may write behind the place that argument i points to. */
unsigned ebpf_simt_out_bytes(const struct ebpf_simt *s, uint32_t pc, unsigned i);
/* Returns the level of the element that a map helper finds: of the key's bytes, its address and the
 * map. */
uint8_t ebpf_simt_key(const struct ebpf_simt *s, uint32_t pc, const struct ebpf_simt_state *st);
/* Returns the level of the number of rounds of bpf_loop. */
uint8_t ebpf_simt_rounds(const struct ebpf_simt *s, uint32_t pc, const struct ebpf_simt_state *st);

/* simt.c */
/* Checks the rules for programs that each lane runs. Returns 0, -EACCES (refused), -E2BIG or
 * -ENOMEM. */
int ebpf_simt_check(struct ebpf_verifier *v);

static inline unsigned ebpf_simt_func(const struct ebpf_simt *s, uint32_t pc)
{
	return s->v->subprog_of[pc];
}

static inline void ebpf_simt_unite(struct ebpf_simt_set *to, const struct ebpf_simt_set *from)
{
	for (unsigned i = 0; i < SIMT_WORDS; i++) {
		to->bytes[i] |= from->bytes[i];
	}
	to->regs |= from->regs;
}

static inline const struct ebpf_simt_place *ebpf_simt_place(const struct ebpf_simt *s, uint32_t pc,
							    unsigned operand)
{
	return &s->places[s->at[pc] + operand];
}

#endif
