/* Internal interface of the verifier: the state of one run, which facts a path marks as read or
 * written, and refusals. */
#ifndef GBPF_BPF_LOAD_VERIFY_VERIFY_INT_H
#define GBPF_BPF_LOAD_VERIFY_VERIFY_INT_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "bpf/load/verify/verify.h"
#include "bpf/load/verify/verify_tables_int.h"
#include "bpf/load/verify/verify_value_int.h"
#include "bpf/load/verify/walk/verify_walk_int.h"

/* Flags of an instruction. */
enum {
	INSN_START = 1,	      /* first slot of an instruction */
	INSN_MEET = 2,	      /* paths may meet: a place for a node */
	INSN_LOOP = 4,	      /* target of a backward jump */
	INSN_TAKEN_FIRST = 8, /* a branch whose target leaves the loop */
	INSN_SEEN = 16,	      /* reachable */
	INSN_POISON = 32,     /* replaces an instruction that could not be linked */
	INSN_CONST_TEXT = 64, /* prints a text of a constant map, on a path walked so far */
};

/* What a load instruction reads, over all paths. */
enum { CTX_READ = 1, CTX_NOT_READ = 2 };

/* Called with each state before its instruction is walked; for tests. */
struct ebpf_verifier;
struct ebpf_simt;
typedef void (*ebpf_verify_probe_fn)(void *arg, uint32_t pc, unsigned frame,
				     const struct ebpf_call_state *f);

struct ebpf_verifier {
	const struct ebpf_prog *prog;
	const struct ebpf_map_def *maps;
	uint32_t n_maps;
	unsigned flags;
	const struct ebpf_verify_hook *hook;
	uint32_t budget; /* of this program */
	struct report *r;
	ebpf_verify_probe_fn probe;
	void *probe_arg;
	void (*simt_probe)(void *arg, struct ebpf_simt *s); /* with probe_arg; for tests */

	struct ebpf_simt *simt; /* owned; only of programs that each lane runs */
	uint8_t *info;		/* owned; INSN_* of each slot */
	uint8_t *loads;		/* owned; CTX_* of each load instruction */
	uint8_t *subprog_of;	/* owned */
	uint16_t *live;		/* owned; registers that are read later, by instruction; or NULL */
	uint32_t entry;		/* function at which the running program began */
	uint64_t tails[64];	/* targets of the tail calls of each function, as bits */
	uint32_t tail_at[64];	/* instruction of that tail call */
	int prints;		/* the program calls helpers that take a format */
	int converges;		/* the program has loops by convergence */
	int plain_loops;	/* the program has jumps backward */
	int merging;		/* this is the merging walk */
	uint32_t max_visited;	/* instructions after which the walk gives up */
	uint64_t max_work;
	struct ebpf_place *places;    /* owned; by instruction; NULL unless merging */
	struct ebpf_waiting *waiting; /* owned; the first place first */
	struct ebpf_state_node *
		*open; /* owned; by instruction: nodes of the running path, deepest first */
	struct ebpf_state_node **
		closed; /* owned; by instruction: nodes at which paths may end, last closed first */
	struct ebpf_state_node *root;
	struct ebpf_pending_branch *todo;
	struct ebpf_loop *loops;	/* owned */
	struct ebpf_loop *worst;	/* the most expensive one so far */
	struct ebpf_call_state *other;	/* owned; EBPF_MAX_FRAMES frames, used for joins */
	struct ebpf_stack_texts *texts; /* owned; NULL until a format on the stack is found */
	size_t bytes;			/* memory of nodes and states */
	uint64_t work;

	/* the running path */
	struct ebpf_call_state *frames[EBPF_MAX_FRAMES]; /* owned */
	unsigned depth;					 /* index of the running frame */
	struct ebpf_ref refs[VERIFY_MAX_REFS]; /* held references in the order of acquisition */
	unsigned n_refs;
	uint32_t entering; /* reference of the call whose next round begins here, or 0 */
	uint32_t pc;
	struct ebpf_state_node *at; /* last node on the path */
	uint64_t cost, path_cost;   /* cost from at and from the start */
	uint32_t since;		    /* number of instructions after at */
	struct ebpf_marks written;  /* written after at */
	struct ebpf_sources sources;
	struct ebpf_spot spot; /* last place at which paths may meet; only if merging */

	uint32_t next_id, visited, states, peak_states, stack_bytes, joins;
	struct buf log; /* log of the path */
};

static inline int ebpf_verify_on(const struct ebpf_verifier *v, unsigned side)
{
	return v->hook->side == side;
}

#define VERIFY_MAX_BYTES (48u << 20)
#define VERIFY_MAX_WORK                                                                            \
	60000000u /* copied and compared registers and accessed slots; see EBPF_VERIFY_MAX_EFFORT  \
		   */

/* Like ebpf_verify(), but calls an observer. */
int ebpf_verify_observed(const struct ebpf_prog *prog, const struct ebpf_map_def *maps,
			 uint32_t n_maps, unsigned flags, ebpf_verify_probe_fn probe,
			 void *probe_arg, struct ebpf_verify_stats *ret_stats, struct report *r);

/* Like ebpf_verify() of a program that each lane runs, but calls one observer with the walked
 * states and the other with the levels of all values, before its rules are checked. */
int ebpf_verify_levels(const struct ebpf_prog *prog, const struct ebpf_map_def *maps,
		       uint32_t n_maps, unsigned flags, ebpf_verify_probe_fn probe,
		       void (*simt_probe)(void *arg, struct ebpf_simt *s), void *arg);

/* verify_cfg.c: the checks that need no walk. Fills info and subprog_of. */
int ebpf_verify_cfg(struct ebpf_verifier *v);
uint32_t ebpf_verify_target(const struct ebpf_insn *in, uint32_t pc);

/* verify_report.c: each function returns -EACCES (or err). Set the hint first, with report_hint().
 */
int ebpf_verify_refuse(struct ebpf_verifier *v, uint32_t pc, const char *rule, const char *fmt, ...)
	PRINTF_LIKE(4, 5);
int ebpf_verify_refuse_err(struct ebpf_verifier *v, int err, uint32_t pc, const char *rule,
			   const char *fmt, ...) PRINTF_LIKE(5, 6);
/* Refuses a program because one loop by convergence, or all together, cost more than the budget of
 * the hook. */
int ebpf_verify_loop_over_budget(struct ebpf_verifier *v, const struct ebpf_loop *l, int64_t total);
/* Refuses a program because v->path_cost exceeds the budget of the hook. */
int ebpf_verify_over_budget(struct ebpf_verifier *v);
/* Refuses a program because it took too much effort. what: which limit. */
int ebpf_verify_give_up(struct ebpf_verifier *v, const char *what);
/* Returns the loop head that occurs most often on the path, or UINT32_MAX if the path has no loop.
 */
uint32_t ebpf_verify_hottest_loop(struct ebpf_verifier *v, uint32_t *ret_rounds);
/* Returns the last instruction of the loop. Compilers assign its backward jump to the line of the
 * for or while statement. */
uint32_t ebpf_verify_loop_end(const struct ebpf_verifier *v, uint32_t head);
/* Describes a register. The text is valid until the eighth following call on the same thread. */
const char *ebpf_verify_reg_text(const struct ebpf_verifier *v, const struct ebpf_reg *r);
const char *ebpf_verify_range_text(const struct ebpf_scalar *s);
/* Returns "line 17", or "insn 4" if lines are not known. */
const char *ebpf_verify_place_text(const struct ebpf_verifier *v, uint32_t pc);
/* Allocates the log of the path; logs one step. */
int ebpf_verify_log_start(struct ebpf_verifier *v);
void ebpf_verify_log_state(struct ebpf_verifier *v);
/* Logs that the states of a loop were joined. */
void ebpf_verify_log_join(struct ebpf_verifier *v);
static inline struct ebpf_call_state *ebpf_verify_frame(const struct ebpf_verifier *v)
{
	return v->frames[v->depth];
}

static inline void ebpf_mark_read(struct ebpf_verifier *v, unsigned frame, unsigned reg)
{
	v->at->read.regs[frame] |= (uint16_t)(1u << reg) & (uint16_t)~v->written.regs[frame];
}

/* Marks that the number in the register decides something: an address, a size, the verdict, or that
 * one side of a branch is impossible. Pruning need not compare other numbers, because both sides of
 * their branches were walked. */
static inline void ebpf_mark_matter(struct ebpf_verifier *v, unsigned frame, unsigned reg)
{
	if (reg < 10) {
		v->at->read.matter[frame] |= v->sources.of[frame][reg];
	}
}

static inline void ebpf_mark_written(struct ebpf_verifier *v, unsigned frame, unsigned reg)
{
	v->written.regs[frame] |= (uint16_t)(1u << reg);
}

static inline void ebpf_mark_slot_read(struct ebpf_verifier *v, unsigned frame, unsigned slot)
{
	v->at->read.slots[frame] |= (1ull << slot) & ~v->written.slots[frame];
}

/* Marks that characters in the slot decide something. */
static inline void ebpf_mark_slot_text(struct ebpf_verifier *v, unsigned frame, unsigned slot)
{
	ebpf_mark_slot_read(v, frame, slot);
	v->at->read.texts[frame] |= (1ull << slot) & ~v->written.slots[frame];
}

static inline void ebpf_mark_slot_written(struct ebpf_verifier *v, unsigned frame, unsigned slot)
{
	v->written.slots[frame] |= 1ull << slot;
}

/* verify_link.c */
/* Gives an unknown number without an id a new one. */
void ebpf_link_name(struct ebpf_verifier *v, struct ebpf_reg *r);
void ebpf_link_drop(struct ebpf_reg *r);
/* Each of these sets the link of a number according to an operation. Call it before the value
 * changes. low: the low half is zero-extended. extend: the low bits are sign-extended. alu: any
 * operation but MOV and END. */
void ebpf_link_low(struct ebpf_reg *r);
void ebpf_link_extend(struct ebpf_reg *r, int bits);
void ebpf_link_alu(struct ebpf_reg *dst, unsigned op, int is64, const struct ebpf_scalar *src);
/* Sets *ret to the values of `to` that are possible if `from`, which has the same id, has one of
 * the values from->v. */
void ebpf_link_implied(const struct ebpf_reg *from, const struct ebpf_reg *to,
		       struct ebpf_scalar *ret);
/* Sets *ret to the number X from which r, a number with an id, has this value; only the low half
 * counts unless r is LINK_WHOLE. Returns 0 if there is none. */
int ebpf_link_origin(const struct ebpf_reg *r, uint64_t value, uint64_t *ret);

/* verify_reg.c */
/* Returns a register of the running frame and marks it as read; NULL if it is not initialized
 * (refused). */
struct ebpf_reg *ebpf_verify_read(struct ebpf_verifier *v, unsigned reg, int *err);
struct ebpf_reg *ebpf_verify_write(struct ebpf_verifier *v, unsigned reg);
/* Calls fn for every register and spilled register that has this id. */
void ebpf_verify_each_id(struct ebpf_verifier *v, uint32_t id,
			 void (*fn)(struct ebpf_verifier *v, struct ebpf_reg *r, void *arg),
			 void *arg);

#endif
