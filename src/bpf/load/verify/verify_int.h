/* The verifier's inside: what is known at one point of one path, and the walk over all paths.
 *
 * The walk is depth first. Where paths meet, the state is kept as a node; when everything behind a
 * node has been walked, the node knows which registers and stack slots were read behind it and how
 * much it costs at most to reach the exit. A later path that arrives with a state inside the node's
 * (as far as it was read) ends there and takes over both. */
#ifndef GBPF_BPF_LOAD_VERIFY_VERIFY_INT_H
#define GBPF_BPF_LOAD_VERIFY_VERIFY_INT_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "bpf/load/scalar/scalar.h"
#include "bpf/load/verify/verify.h"
#include "bpf/run/signature.h"

enum ebpf_reg_type {
	REG_NONE, /* never written, or dead after a call */
	REG_SCALAR,
	REG_CTX,
	REG_STACK,	   /* offset from the end of a frame: -512 .. 0 */
	REG_VALUE,	   /* into a value of a map */
	REG_VALUE_OR_NULL, /* what a lookup gave, unchecked */
	REG_MAP,	   /* handle of a map; with an id: of some map of that shape */
	REG_MAP_OR_NULL,   /* what a lookup in an array of maps gave */
	REG_RECORD,	   /* into a reserved record of a ring buffer; id: the reference */
	REG_RECORD_OR_NULL,
	REG_GONE,   /* named something that was given back */
	REG_FUNC,   /* a function of the program; map: its number */
	REG_NUMBER, /* what an iterator's next gave: id is the iterator's, v the number it points
		       to */
	REG_KEY,    /* a map's key that a callback was given; dies with that frame */
	REG_ITER,   /* an iterator, in a slot only; map: 1 when it has ended. umax: rounds that it
		       makes at most, s32min and s32max: its numbers */
	REG_ROUNDS, /* of a call that calls back, in the caller's r5 meanwhile. umax: as above */
};

struct ebpf_reg {
	uint8_t type;
	uint8_t frame; /* REG_STACK, REG_KEY */
	uint8_t map;   /* of everything that comes from one */
	uint32_t id; /* scalars: equal ones share it. Values: the lookup they came from. 0: none, or
			value 0. References: theirs */
	struct ebpf_scalar v; /* the number, or the pointer's offset in bytes */
};

enum ebpf_stack_byte { BYTE_NONE, BYTE_MISC, BYTE_ZERO, BYTE_SPILL, BYTE_ITER };

#define STACK_SLOTS (EBPF_STACK_BYTES / 8)

/* Slot s holds the bytes from -8 * (s + 1). The spilled bytes of a slot are exactly those of one
 * store of reg. */
struct ebpf_stack_slot {
	uint8_t kind[8];
	struct ebpf_reg r; /* while a byte is BYTE_SPILL or BYTE_ITER */
};

/* What was acquired and must be given back. */
enum ebpf_ref_kind { REF_RECORD, REF_ITER, REF_LOCK, REF_CALL };

struct ebpf_ref {
	uint32_t id;
	uint32_t bytes; /* REF_RECORD */
	uint32_t pc;	/* where it was acquired */
	uint8_t kind;
	uint8_t map;		/* REF_LOCK: of the value with the lock */
	struct ebpf_loop *loop; /* REF_ITER, REF_CALL: once the path has been at a head; borrowed */
};

#define VERIFY_MAX_REFS 16u
#define VERIFY_NULL_ID 0x80000000u /* of NULL, where names of pointers are compared */

struct ebpf_call_state {
	struct ebpf_reg regs[11]; /* regs[10] is the frame pointer */
	struct ebpf_stack_slot slots[STACK_SLOTS];
	uint64_t used;	/* slots with a byte that is not BYTE_NONE */
	uint32_t ret;	/* where the caller goes on */
	uint32_t depth; /* bytes of stack that were touched */
};

struct ebpf_marks {
	uint64_t slots[EBPF_MAX_FRAMES];
	uint16_t regs[EBPF_MAX_FRAMES];
	uint16_t matter[EBPF_MAX_FRAMES]; /* registers whose number decided something; only in
					     node.read */
};

/* For each register of each frame: the registers at the last node that its number was computed
 * from. */
struct ebpf_sources {
	uint16_t of[EBPF_MAX_FRAMES][10];
};

struct ebpf_packed_state; /* a state in as little memory as it needs */

#define VERIFY_MAX_LOOPS 8u /* by convergence, inside each other */

/* What it costs at most to get from a place to the program's end, and to the next round of each
 * loop by convergence around it whose cost is not known yet. */
struct ebpf_costs {
	int64_t exit; /* -1: no path leads there but through those rounds */
	uint32_t n;
	struct cost_to {
		struct ebpf_loop *loop;
		int64_t cost;
	} to[VERIFY_MAX_LOOPS];
};

/* A loop by convergence: the rounds of one iterator, or of one call of a helper that calls back.
 * Its heads are nodes; its body is walked until every state that reaches a head lies in one. */
struct ebpf_loop {
	struct ebpf_loop *next; /* of all */
	struct ebpf_state_node *first;
	uint32_t id; /* the iterator's or call's */
	uint32_t pc;
	uint32_t joins;
	int began;		 /* rounds at the first head: one more has begun */
	int closed;		 /* the costs are final */
	int64_t rounds;		 /* at most */
	int64_t round;		 /* the dearest */
	int64_t before;		 /* the path's cost up to the first head */
	struct ebpf_costs after; /* from a head without passing another */
	struct ebpf_costs broke; /* the same, but in the middle of a round, which uses it up */
};

struct ebpf_state_node {
	struct ebpf_state_node *parent;
	struct ebpf_state_node *next;	 /* in the list of its instruction */
	struct ebpf_packed_state *state; /* owned; NULL once it is not worth comparing with */
	uint32_t pc;
	uint32_t open;	    /* paths behind it that are not finished; 0: best and read are final */
	uint64_t cost;	    /* from the parent to here */
	uint64_t path_cost; /* from the start to here */
	int64_t best;	    /* costs.exit from here so far */
	struct ebpf_costs *costs; /* owned; the rest of it, NULL: none */
	struct ebpf_loop *head;	  /* whose head this is, or NULL */
	struct ebpf_loop *inside; /* whose round begins here, or NULL */
	uint32_t heads;		  /* at and above it */
	uint16_t hits, misses;
	struct ebpf_marks read;	     /* behind it, before being written */
	struct ebpf_marks written;   /* between the parent and here */
	struct ebpf_sources sources; /* of the registers here, at the parent */
};

/* A side of a branch that is still to be walked. */
struct ebpf_pending_branch {
	struct ebpf_pending_branch *next;
	struct ebpf_state_node *node;
	struct ebpf_packed_state *state; /* owned; as it was before the branch */
	uint32_t pc;			 /* of the branch */
	int outcome;
	uint64_t cost, path_cost; /* since the node; since the start */
	uint32_t since;
	size_t log; /* length of the explanation */
	struct ebpf_marks written;
	struct ebpf_sources sources;
};

/* Flags of an instruction. */
enum {
	INSN_START = 1,	      /* first slot of an instruction */
	INSN_MEET = 2,	      /* paths may meet: worth a node */
	INSN_LOOP = 4,	      /* target of a backward jump */
	INSN_TAKEN_FIRST = 8, /* a branch whose target leaves the loop */
	INSN_SEEN = 16,	      /* reachable */
	INSN_POISON = 32,     /* stands for what could not be linked */
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

/* Sees every state just before its instruction is walked; for tests. */
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
	uint16_t *live;	      /* owned; registers that are read from here on, or NULL */
	uint32_t entry;	      /* function with which the running program began */
	uint64_t tails[64];   /* by function: those that its tail calls may go on with */
	uint32_t tail_at[64]; /* where */
	int converges;	      /* there are loops by convergence */
	struct ebpf_state_node *
		*open; /* owned; by instruction: nodes of the running path, deepest first */
	struct ebpf_state_node *
		*closed; /* owned; by instruction: nodes to end at, last closed first */
	struct ebpf_state_node *root;
	struct ebpf_pending_branch *todo;
	struct ebpf_loop *loops;       /* owned */
	struct ebpf_loop *worst;       /* the dearest so far */
	struct ebpf_call_state *other; /* owned; EBPF_MAX_FRAMES of them, for joining */
	size_t bytes;		       /* of nodes and states */
	uint64_t work;

	/* the path that is being walked */
	struct ebpf_call_state *frames[EBPF_MAX_FRAMES]; /* owned */
	unsigned depth;					 /* index of the running frame */
	struct ebpf_ref refs[VERIFY_MAX_REFS];		 /* held, in the order of acquiring */
	unsigned n_refs;
	uint32_t entering; /* the call whose next round begins here, or 0 */
	uint32_t pc;
	struct ebpf_state_node *at; /* last node on it */
	uint64_t cost, path_cost;   /* since at; since the start */
	uint32_t since;		    /* instructions since at */
	struct ebpf_marks written;  /* since at */
	struct ebpf_sources sources;

	uint32_t next_id, visited, states, peak_states, stack_bytes;
	struct buf log; /* the explanation of the path */
};

#define VERIFY_MAX_BYTES (48u << 20)
#define VERIFY_MAX_WORK                                                                            \
	100000000u /* registers copied and compared, slots accessed: a second or two */

/* ebpf_verify with an observer. */
int ebpf_verify_observed(const struct ebpf_prog *prog, const struct ebpf_map_def *maps,
			 uint32_t n_maps, unsigned flags, ebpf_verify_probe_fn probe,
			 void *probe_arg, struct ebpf_verify_stats *ret_stats, struct report *r);

/* verify_tables.c */
const struct ebpf_verify_hook *ebpf_verify_hook(int id);
const struct ebpf_verify_field *ebpf_verify_fields(uint32_t *ret_n);
const struct ebpf_verify_helper *ebpf_verify_helper(int32_t id);
/* Whether maps of a type have the operation that the helper needs (helpers without map have none),
 * and the type's name. */
int ebpf_verify_map_can(uint32_t map_type, int32_t helper);
const char *ebpf_verify_map_type(uint32_t map_type);
/* Appends the names of a hook's verdicts. */
void ebpf_verify_verdict_names(const struct ebpf_verify_hook *h, struct buf *out);

/* verify_cfg.c: all that can be said without walking. Fills info and subprog_of. */
int ebpf_verify_cfg(struct ebpf_verifier *v);
uint32_t ebpf_verify_target(const struct ebpf_insn *in, uint32_t pc);

/* verify_live.c. Before the walk, when there are loops by convergence: fills live. */
int ebpf_verify_live(struct ebpf_verifier *v);
/* At a loop's head: forgets what nobody reads any more. */
void ebpf_verify_drop_dead(struct ebpf_verifier *v);

/* verify_report.c. Each returns -EACCES (or err). The hint is set first, by report_hint. */
int ebpf_verify_refuse(struct ebpf_verifier *v, uint32_t pc, const char *rule, const char *fmt, ...)
	PRINTF_LIKE(4, 5);
int ebpf_verify_refuse_err(struct ebpf_verifier *v, int err, uint32_t pc, const char *rule,
			   const char *fmt, ...) PRINTF_LIKE(5, 6);
/* A loop by convergence costs more than the hook may, or all together do. */
int ebpf_verify_loop_over_budget(struct ebpf_verifier *v, const struct ebpf_loop *l, int64_t total);
/* The running path costs v->path_cost, which is more than the hook may. */
int ebpf_verify_over_budget(struct ebpf_verifier *v);
/* Text that lives until the eighth call after this one (on this thread). */
const char *ebpf_verify_reg_text(const struct ebpf_verifier *v, const struct ebpf_reg *r);
const char *ebpf_verify_range_text(const struct ebpf_scalar *s);
/* "line 17", or "insn 4" where lines are not known. */
const char *ebpf_verify_place_text(const struct ebpf_verifier *v, uint32_t pc);
/* The explanation of the path: memory for it, and one step. */
int ebpf_verify_log_start(struct ebpf_verifier *v);
void ebpf_verify_log_state(struct ebpf_verifier *v);
/* Where a loop's states were joined. */
void ebpf_verify_log_join(struct ebpf_verifier *v);
/* insn_text.c */
/* Instruction pc of n, of any bytes. */
void ebpf_insn_text(const struct ebpf_insn *insns, uint32_t n, uint32_t pc, struct buf *out);

/* verify_state.c: nodes, pending branches, liveness. */
int ebpf_verify_start(struct ebpf_verifier *v);
void ebpf_verify_free(struct ebpf_verifier *v);
/* At a meeting point: 1 when the path ends here, 0 to go on, or an error. */
int ebpf_verify_meet(struct ebpf_verifier *v);
int ebpf_verify_push(struct ebpf_verifier *v, int outcome);
/* The path has ended; tail is what it still costs from here; NULL: the program ends. */
int ebpf_verify_path_end(struct ebpf_verifier *v, const struct ebpf_costs *tail);
/* Reading behind a place, seen from before what was written in between. */
void ebpf_verify_merge_read(struct ebpf_marks *into, const struct ebpf_marks *read,
			    const struct ebpf_marks *written, const struct ebpf_sources *sources);
/* A node for the running state. */
int ebpf_verify_add_node(struct ebpf_verifier *v, struct ebpf_loop *head);
/* One without a state: the round of an iterator begins, of which another number is there. */
int ebpf_verify_begin_round(struct ebpf_verifier *v, struct ebpf_loop *l);
/* Takes the next pending branch: 1, or 0 when all is done. The branch's outcome is still to be
 * applied. */
int ebpf_verify_pop(struct ebpf_verifier *v, int *ret_outcome);
/* verify_loop.c */
/* Of which loop's head the path stands, or 0. */
uint32_t ebpf_verify_head(const struct ebpf_verifier *v);
/* The path stands at a head of that loop: 1 when it ends here, 0 to go on, or an error. */
int ebpf_verify_round(struct ebpf_verifier *v, uint32_t id);
/* A head has been walked to the end: what its parent learns. */
int ebpf_verify_close_head(struct ebpf_verifier *v, struct ebpf_state_node *n);
int ebpf_verify_close_round(struct ebpf_verifier *v, struct ebpf_state_node *n);
int ebpf_verify_add_costs(struct ebpf_verifier *v, struct ebpf_state_node *n,
			  const struct ebpf_costs *c, uint64_t plus);
void ebpf_verify_node_costs(const struct ebpf_state_node *n, struct ebpf_costs *ret);
/* What is known of the costs from a closed node. arrived: the loop whose next round would begin
 * there. 0: not of use to the running state. */
int ebpf_verify_costs_of(const struct ebpf_verifier *v, const struct ebpf_state_node *n,
			 uint32_t arrived, struct ebpf_costs *ret);
void ebpf_verify_free_loops(struct ebpf_verifier *v);
/* verify_join.c: widens the running state until it holds the packed one too. level: how often that
 * happened before. -EACCES: they cannot be joined. */
int ebpf_verify_join(struct ebpf_verifier *v, const struct ebpf_packed_state *p, unsigned level);
/* What a state that must lie in all of p depends on. */
void ebpf_verify_all_marks(struct ebpf_verifier *v, const struct ebpf_packed_state *p,
			   struct ebpf_marks *ret);

/* verify_pack.c */
struct ebpf_packed_state *ebpf_verify_pack(struct ebpf_verifier *v);
void ebpf_verify_unpack(struct ebpf_verifier *v, const struct ebpf_packed_state *p);
size_t ebpf_verify_packed_bytes(const struct ebpf_packed_state *p);
/* Registers and stack slots in it. */
uint32_t ebpf_verify_packed_work(const struct ebpf_packed_state *p);
/* The running state lies inside p, as far as read says; loops' ids that costs names are the same in
 * both (costs may be NULL). */
int ebpf_verify_within(struct ebpf_verifier *v, const struct ebpf_packed_state *p,
		       const struct ebpf_marks *read, const struct ebpf_costs *costs);
/* The same functions were called from the same places. */
int ebpf_verify_same_calls(const struct ebpf_verifier *v, const struct ebpf_packed_state *p);
/* The running state equals p. */
int ebpf_verify_same(struct ebpf_verifier *v, const struct ebpf_packed_state *p);

static inline struct ebpf_call_state *ebpf_verify_frame(const struct ebpf_verifier *v)
{
	return v->frames[v->depth];
}

static inline void ebpf_mark_read(struct ebpf_verifier *v, unsigned frame, unsigned reg)
{
	v->at->read.regs[frame] |= (uint16_t)(1u << reg) & (uint16_t)~v->written.regs[frame];
}

/* The number in the register decides something: an address, a size, the verdict, or that one side
 * of a branch is impossible. Other numbers need not be the same for a path to be pruned: both sides
 * of their branches were walked. */
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
/* May be NULL: of no use before it was compared. */
int ebpf_reg_is_nullable(const struct ebpf_reg *r);
/* Has an offset that numbers may be added to. */
int ebpf_reg_is_place(const struct ebpf_reg *r);
/* Places in one object, whose distance says nothing about addresses. */
int ebpf_reg_same_base(const struct ebpf_reg *a, const struct ebpf_reg *b);
/* An initialized register of the running frame, marked as read; NULL: refused. */
struct ebpf_reg *ebpf_verify_read(struct ebpf_verifier *v, unsigned reg, int *err);
struct ebpf_reg *ebpf_verify_write(struct ebpf_verifier *v, unsigned reg);
/* Calls fn for every register and spilled register that has this id. */
void ebpf_verify_each_id(struct ebpf_verifier *v, uint32_t id,
			 void (*fn)(struct ebpf_verifier *v, struct ebpf_reg *r, void *arg),
			 void *arg);

/* verify_alu.c */
int ebpf_verify_alu(struct ebpf_verifier *v, const struct ebpf_insn *in);

/* verify_branch.c: 1 when the path goes on at v->pc, 0 when it cannot be taken. */
int ebpf_verify_branch(struct ebpf_verifier *v, const struct ebpf_insn *in);
int ebpf_verify_branch_outcome(struct ebpf_verifier *v, int outcome);
/* The same for any instruction that was left with verify_push. */
int ebpf_verify_outcome(struct ebpf_verifier *v, int outcome);

/* verify_mem.c */
enum ebpf_access { ACCESS_READ = 1, ACCESS_WRITE = 2 };
int ebpf_verify_load(struct ebpf_verifier *v, const struct ebpf_insn *in);
int ebpf_verify_store(struct ebpf_verifier *v, const struct ebpf_insn *in);
int ebpf_verify_atomic(struct ebpf_verifier *v, const struct ebpf_insn *in);
/* Is memory of that many bytes at ptr usable (what: how messages call the pointer)? */
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
	uint32_t map_id;   /* of a map that was looked up */
	uint32_t constant; /* CONST_SIZE */
	uint32_t cost;
	const char *what; /* its name */
};
/* Argument i, r(i + 1), against the helper's signature. */
int ebpf_verify_arg(struct ebpf_verifier *v, struct ebpf_helper_call *c, unsigned i);

/* verify_ref.c */
const struct ebpf_ref *ebpf_verify_ref(const struct ebpf_verifier *v, uint32_t id);
int ebpf_verify_acquire(struct ebpf_verifier *v, enum ebpf_ref_kind kind, uint32_t id,
			struct ebpf_ref **ret);
/* Forgets the reference; everything that names it is gone. */
void ebpf_verify_release(struct ebpf_verifier *v, uint32_t id);
/* Refuses because it is held; where completes "... is still held". */
int ebpf_verify_held(struct ebpf_verifier *v, const struct ebpf_ref *r, const char *where);
/* Nothing may be held here. */
int ebpf_verify_no_refs(struct ebpf_verifier *v, const char *where);
/* Locks: one at a time, and nothing is called meanwhile. */
int ebpf_verify_no_lock(struct ebpf_verifier *v, const char *what);
int ebpf_verify_lock(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
int ebpf_verify_unlock(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
/* A function that is called back leaves alone what its caller holds. */
int ebpf_verify_own(struct ebpf_verifier *v, const struct ebpf_helper_call *c, uint32_t id);

/* verify_call.c */
int ebpf_verify_load_imm64(struct ebpf_verifier *v, const struct ebpf_insn *in);
int ebpf_verify_call(struct ebpf_verifier *v, const struct ebpf_insn *in);
/* 1: returned to the caller; 0: the program ended. */
int ebpf_verify_exit(struct ebpf_verifier *v);
void ebpf_verify_clobber(struct ebpf_verifier *v);
int ebpf_verify_enter(struct ebpf_verifier *v);
/* Everything that names the reference is gone. */
void ebpf_verify_forget(struct ebpf_verifier *v, uint32_t id);
void ebpf_verify_charge(struct ebpf_verifier *v, uint32_t cost);

/* verify_iter.c */
/* The iterator to which a pointer points, or NULL: refused. */
struct ebpf_stack_slot *ebpf_verify_iterator(struct ebpf_verifier *v,
					     const struct ebpf_helper_call *c,
					     const struct ebpf_reg *ptr, int *err);
int ebpf_verify_iter_new(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
int ebpf_verify_iter_next(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
int ebpf_verify_iter_destroy(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
int ebpf_verify_iter_outcome(struct ebpf_verifier *v, int outcome);
/* None of the frame that ends. */
int ebpf_verify_no_iterators(struct ebpf_verifier *v);

/* verify_callback.c */
int ebpf_verify_calls(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
int ebpf_verify_calls_outcome(struct ebpf_verifier *v, int outcome);
/* The running frame belongs to a function that a helper has called. */
int ebpf_verify_is_callback(const struct ebpf_verifier *v);
int ebpf_verify_callback_exit(struct ebpf_verifier *v);

/* verify_tail.c */
int ebpf_verify_tail_call(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
/* The functions with which something that was walked may go on, and the program itself: bits. */
uint64_t ebpf_verify_tail_targets(const struct ebpf_verifier *v);
/* own: what each of them costs by itself. */
int ebpf_verify_chain_cost(struct ebpf_verifier *v, const uint64_t own[64], uint64_t *ret);

#endif
