/* Internal interface of the verifier: the abstract state at one point of one path, and the walk
 * over all paths.
 *
 * The walk is depth first. Where paths meet, the state is saved in a node. Once every path behind a
 * node has been walked, the node knows which registers and stack slots these paths read and the
 * maximum cost from the node to the exit. A later path whose state lies within the state of the
 * node, as far as it was read, ends there and takes over both. */
#ifndef GBPF_BPF_LOAD_VERIFY_VERIFY_INT_H
#define GBPF_BPF_LOAD_VERIFY_VERIFY_INT_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "bpf/load/scalar/scalar.h"
#include "bpf/load/verify/verify.h"
#include "bpf/run/map/map_type.h"
#include "bpf/run/signature.h"

enum ebpf_reg_type {
	REG_NONE, /* never written, or dead after a call */
	REG_SCALAR,
	REG_CTX,
	REG_STACK,	   /* points into a frame: -512 .. 0 from its end */
	REG_VALUE,	   /* points into a map value */
	REG_VALUE_OR_NULL, /* result of a lookup before the NULL check */
	REG_MAP,	   /* handle of a map; with an id: of an inner map of that shape */
	REG_MAP_OR_NULL,   /* result of a lookup in an array of maps */
	REG_RECORD,	   /* points into a reserved ring buffer record; id: the reference */
	REG_RECORD_OR_NULL,
	REG_GONE,   /* referred to a released object */
	REG_FUNC,   /* address of a function; map: number of the function */
	REG_NUMBER, /* result of bpf_iter_num_next; id: the iterator; v: the number it points to */
	REG_KEY,    /* map key that a callback received; invalid after its frame ends */
	REG_ITER, /* An iterator; only in stack slots. map: 1 if it has ended. umax: maximum number
		     of rounds left. s32min, s32max: range of its numbers. */
	REG_ROUNDS, /* A helper call with a callback, in r5 of the caller during the call. umax: as
		       above. */
};

struct ebpf_reg {
	uint8_t type;
	uint8_t frame; /* REG_STACK, REG_KEY */
	uint8_t map;   /* index of the map that the register was derived from */
	uint32_t id;   /* Scalars: equal ones share an id. Values: the lookup that returned them.
			  References: their own. 0: none, or value 0 of an array. */
	struct ebpf_scalar v; /* the number, or the offset of the pointer in bytes */
};

enum ebpf_stack_byte { BYTE_NONE, BYTE_MISC, BYTE_ZERO, BYTE_SPILL, BYTE_ITER };

#define STACK_SLOTS (EBPF_STACK_BYTES / 8)

/* Slot s holds the eight bytes from -8 * (s + 1). The spilled bytes of a slot come from exactly one
 * store of r. */
struct ebpf_stack_slot {
	uint8_t kind[8];
	struct ebpf_reg r; /* valid while a byte is BYTE_SPILL or BYTE_ITER */
};

/* A reference: an object that the program must release. */
enum ebpf_ref_kind { REF_RECORD, REF_ITER, REF_LOCK, REF_CALL };

struct ebpf_ref {
	uint32_t id;
	uint32_t bytes; /* REF_RECORD: its size */
	uint32_t pc;	/* instruction that acquired it */
	uint8_t kind;
	uint8_t map;		/* REF_LOCK: map of the value that contains the lock */
	struct ebpf_loop *loop; /* REF_ITER, REF_CALL: its loop, set at the first head; borrowed */
};

#define VERIFY_MAX_REFS 16u
#define VERIFY_NULL_ID 0x80000000u /* id of NULL where ids of pointers are compared */

struct ebpf_call_state {
	struct ebpf_reg regs[11]; /* regs[10] is the frame pointer */
	struct ebpf_stack_slot slots[STACK_SLOTS];
	uint64_t used;	/* bit mask of slots with a byte other than BYTE_NONE */
	uint32_t ret;	/* return address in the caller */
	uint32_t depth; /* stack depth in bytes */
};

struct ebpf_marks {
	uint64_t slots[EBPF_MAX_FRAMES];
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

/* Flags of an instruction. */
enum {
	INSN_START = 1,	      /* first slot of an instruction */
	INSN_MEET = 2,	      /* paths may meet: a place for a node */
	INSN_LOOP = 4,	      /* target of a backward jump */
	INSN_TAKEN_FIRST = 8, /* a branch whose target leaves the loop */
	INSN_SEEN = 16,	      /* reachable */
	INSN_POISON = 32,     /* replaces an instruction that could not be linked */
};

struct ebpf_verify_hook {
	int id;
	const char *name;
	int daemon;
	uint32_t budget;
	int64_t verdict_min, verdict_max;
	uint32_t ctx_bytes;
};

struct ebpf_verify_field {
	int hook;
	const char *name;
	uint32_t offset, bytes;
	int writable;
};

enum { SIDE_LOCAL = 1, SIDE_DAEMON = 2, SIDE_BOTH = 3 };

struct ebpf_verify_helper {
	int32_t id;
	const char *name;
	uint8_t ret;
	uint8_t args[5];
	uint8_t sides;
	uint32_t cost;
};

enum {
#define GBPF_HELPER(id, name, type, params, ret, a1, a2, a3, a4, a5, sides, cost, doc)             \
	HELPER_##name = id,
#include "gbpf/hooks.def"
};

/* Called with each state before its instruction is walked; for tests. */
struct ebpf_verifier;
typedef void (*ebpf_verify_probe_fn)(void *arg, uint32_t pc, unsigned frame,
				     const struct ebpf_call_state *f);

struct ebpf_verifier {
	const struct ebpf_prog *prog;
	const struct ebpf_map_def *maps;
	uint32_t n_maps;
	unsigned flags;
	const struct ebpf_verify_hook *hook;
	struct report *r;
	ebpf_verify_probe_fn probe;
	void *probe_arg;

	uint8_t *info;	      /* owned; INSN_* of each slot */
	uint8_t *subprog_of;  /* owned */
	uint16_t *live;	      /* owned; registers that are read later, by instruction; or NULL */
	uint32_t entry;	      /* function at which the running program began */
	uint64_t tails[64];   /* targets of the tail calls of each function, as bits */
	uint32_t tail_at[64]; /* instruction of that tail call */
	int converges;	      /* the program has loops by convergence */
	struct ebpf_state_node *
		*open; /* owned; by instruction: nodes of the running path, deepest first */
	struct ebpf_state_node **
		closed; /* owned; by instruction: nodes at which paths may end, last closed first */
	struct ebpf_state_node *root;
	struct ebpf_pending_branch *todo;
	struct ebpf_loop *loops;       /* owned */
	struct ebpf_loop *worst;       /* the most expensive one so far */
	struct ebpf_call_state *other; /* owned; EBPF_MAX_FRAMES frames, used for joins */
	size_t bytes;		       /* memory of nodes and states */
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

	uint32_t next_id, visited, states, peak_states, stack_bytes;
	struct buf log; /* log of the path */
};

#define VERIFY_MAX_BYTES (48u << 20)
#define VERIFY_MAX_WORK                                                                            \
	100000000u /* copied and compared registers and accessed slots: one to two seconds */

/* Like ebpf_verify(), but calls an observer. */
int ebpf_verify_observed(const struct ebpf_prog *prog, const struct ebpf_map_def *maps,
			 uint32_t n_maps, unsigned flags, ebpf_verify_probe_fn probe,
			 void *probe_arg, struct ebpf_verify_stats *ret_stats, struct report *r);

/* verify_tables.c */
const struct ebpf_verify_hook *ebpf_verify_hook(int id);
const struct ebpf_verify_field *ebpf_verify_fields(uint32_t *ret_n);
const struct ebpf_verify_helper *ebpf_verify_helper(int32_t id);
/* Returns whether maps of a type have the operation that the helper needs; true for helpers without
 * a map argument. */
int ebpf_verify_map_can(uint32_t map_type, int32_t helper);
const char *ebpf_verify_map_type(uint32_t map_type);
/* Appends the names of the verdicts of a hook. */
void ebpf_verify_verdict_names(const struct ebpf_verify_hook *h, struct buf *out);

/* verify_cfg.c: the checks that need no walk. Fills info and subprog_of. */
int ebpf_verify_cfg(struct ebpf_verifier *v);
uint32_t ebpf_verify_target(const struct ebpf_insn *in, uint32_t pc);

/* verify_live.c: fills live. Runs before the walk if there are loops by convergence. */
int ebpf_verify_live(struct ebpf_verifier *v);
/* Forgets registers and slots that are not read later. Called at the head of a loop. */
void ebpf_verify_drop_dead(struct ebpf_verifier *v);

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
/* insn_text.c */
/* Formats instruction pc of n instructions, which may hold arbitrary bytes. */
void ebpf_insn_text(const struct ebpf_insn *insns, uint32_t n, uint32_t pc, struct buf *out);

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
 * earlier joins. Returns -EACCES if the two cannot be joined. */
int ebpf_verify_join(struct ebpf_verifier *v, const struct ebpf_packed_state *p, unsigned level);
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
/* Returns whether both states have the same call stack. */
int ebpf_verify_same_calls(const struct ebpf_verifier *v, const struct ebpf_packed_state *p);
/* Returns whether the running state equals p. */
int ebpf_verify_same(struct ebpf_verifier *v, const struct ebpf_packed_state *p);

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

static inline void ebpf_mark_slot_written(struct ebpf_verifier *v, unsigned frame, unsigned slot)
{
	v->written.slots[frame] |= 1ull << slot;
}

/* verify_reg.c */
void ebpf_reg_none(struct ebpf_reg *r);
void ebpf_reg_unknown(struct ebpf_reg *r);
void ebpf_reg_const(struct ebpf_reg *r, uint64_t value);
int ebpf_reg_is_pointer(const struct ebpf_reg *r);
/* Returns whether the register may be NULL and must be compared before use. */
int ebpf_reg_is_nullable(const struct ebpf_reg *r);
/* Returns whether numbers may be added to the offset of the register. */
int ebpf_reg_is_place(const struct ebpf_reg *r);
/* Returns whether both pointers refer to one object, so that their distance reveals no address. */
int ebpf_reg_same_base(const struct ebpf_reg *a, const struct ebpf_reg *b);
/* Returns a register of the running frame and marks it as read; NULL if it is not initialized
 * (refused). */
struct ebpf_reg *ebpf_verify_read(struct ebpf_verifier *v, unsigned reg, int *err);
struct ebpf_reg *ebpf_verify_write(struct ebpf_verifier *v, unsigned reg);
/* Calls fn for every register and spilled register that has this id. */
void ebpf_verify_each_id(struct ebpf_verifier *v, uint32_t id,
			 void (*fn)(struct ebpf_verifier *v, struct ebpf_reg *r, void *arg),
			 void *arg);

/* verify_alu.c */
int ebpf_verify_alu(struct ebpf_verifier *v, const struct ebpf_insn *in);

/* verify_branch.c: returns 1 if the path continues at v->pc, 0 if no side is possible. */
int ebpf_verify_branch(struct ebpf_verifier *v, const struct ebpf_insn *in);
int ebpf_verify_branch_outcome(struct ebpf_verifier *v, int outcome);
/* Applies the outcome of an instruction that was left with ebpf_verify_push(). */
int ebpf_verify_outcome(struct ebpf_verifier *v, int outcome);

/* verify_mem.c */
enum ebpf_access { ACCESS_READ = 1, ACCESS_WRITE = 2 };
int ebpf_verify_load(struct ebpf_verifier *v, const struct ebpf_insn *in);
int ebpf_verify_store(struct ebpf_verifier *v, const struct ebpf_insn *in);
int ebpf_verify_atomic(struct ebpf_verifier *v, const struct ebpf_insn *in);
/* Checks an access to bytes at ptr + off. what: name of the access in messages. */
int ebpf_verify_range(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
		      uint64_t bytes, int access, const char *what);
int ebpf_verify_map_write(struct ebpf_verifier *v, unsigned map, const char *what);
/* verify_stack.c */
int ebpf_verify_stack_read(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
			   uint64_t bytes, struct ebpf_reg *out);
int ebpf_verify_stack_write(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
			    uint64_t bytes, const struct ebpf_reg *value);

/* verify_args.c */
struct ebpf_helper_call {
	const struct ebpf_verify_helper *helper;
	const struct ebpf_map_def *map;
	unsigned map_index;
	uint32_t map_id;   /* id of an inner map */
	uint32_t constant; /* CONST_SIZE */
	uint32_t cost;
	const char *what; /* name of the helper */
};
/* Checks argument i (register i + 1) against the signature of the helper. */
int ebpf_verify_arg(struct ebpf_verifier *v, struct ebpf_helper_call *c, unsigned i);

/* verify_ref.c */
const struct ebpf_ref *ebpf_verify_ref(const struct ebpf_verifier *v, uint32_t id);
int ebpf_verify_acquire(struct ebpf_verifier *v, enum ebpf_ref_kind kind, uint32_t id,
			struct ebpf_ref **ret);
/* Releases the reference and invalidates everything that refers to it. */
void ebpf_verify_release(struct ebpf_verifier *v, uint32_t id);
/* Refuses the program because r is held. where completes the message "... is still held". */
int ebpf_verify_held(struct ebpf_verifier *v, const struct ebpf_ref *r, const char *where);
/* Refuses the program if any reference is held. */
int ebpf_verify_no_refs(struct ebpf_verifier *v, const char *where);
/* Refuses the program if a lock is held: no nested locks and no calls under a lock. */
int ebpf_verify_no_lock(struct ebpf_verifier *v, const char *what);
int ebpf_verify_lock(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
int ebpf_verify_unlock(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
/* Refuses a callback that uses a reference of its caller. */
int ebpf_verify_own(struct ebpf_verifier *v, const struct ebpf_helper_call *c, uint32_t id);

/* verify_call.c */
int ebpf_verify_load_imm64(struct ebpf_verifier *v, const struct ebpf_insn *in);
int ebpf_verify_call(struct ebpf_verifier *v, const struct ebpf_insn *in);
/* Returns 1 after a return to a caller, 0 if the program ended. */
int ebpf_verify_exit(struct ebpf_verifier *v);
void ebpf_verify_clobber(struct ebpf_verifier *v);
int ebpf_verify_enter(struct ebpf_verifier *v);
/* Invalidates everything that refers to the reference. */
void ebpf_verify_forget(struct ebpf_verifier *v, uint32_t id);
void ebpf_verify_charge(struct ebpf_verifier *v, uint32_t cost);

/* verify_iter.c */
/* Returns the iterator at a pointer, or NULL if the pointer is refused. */
struct ebpf_stack_slot *ebpf_verify_iterator(struct ebpf_verifier *v,
					     const struct ebpf_helper_call *c,
					     const struct ebpf_reg *ptr, int *err);
int ebpf_verify_iter_new(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
int ebpf_verify_iter_next(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
int ebpf_verify_iter_destroy(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
int ebpf_verify_iter_outcome(struct ebpf_verifier *v, int outcome);
/* Refuses the end of a frame that contains an iterator. */
int ebpf_verify_no_iterators(struct ebpf_verifier *v);

/* verify_callback.c */
int ebpf_verify_calls(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
int ebpf_verify_calls_outcome(struct ebpf_verifier *v, int outcome);
/* Returns whether the running frame is that of a callback. */
int ebpf_verify_is_callback(const struct ebpf_verifier *v);
int ebpf_verify_callback_exit(struct ebpf_verifier *v);

/* verify_tail.c */
int ebpf_verify_tail_call(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
/* Returns the targets of all tail calls walked so far and the program itself, as bits. */
uint64_t ebpf_verify_tail_targets(const struct ebpf_verifier *v);
/* Computes the cost of the most expensive chain. own: the cost of each function by itself. */
int ebpf_verify_chain_cost(struct ebpf_verifier *v, const uint64_t own[64], uint64_t *ret);

#endif
