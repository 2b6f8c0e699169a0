/* The engine's data types: decoded operations, warps, blocks, kernels, modules. A register is an
 * array of 32 lanes. 32-bit and 64-bit registers lie in two files and predicates as masks in a
 * third, so a lane's storage never depends on which function the other lanes execute. */
#ifndef GBPF_SOFT_SERVER_EXEC_OP_H
#define GBPF_SOFT_SERVER_EXEC_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/strmap.h"
#include "soft/server/exec/exec.h"

#define EXEC_LANES 32u
#define EXEC_SLOT32 128u /* bytes of a 32-bit register of a warp */
#define EXEC_SLOT64 256u
#define EXEC_THREADS_MAX 1024u
#define EXEC_BARRIERS 16u
#define EXEC_BARRIER_CLUSTER EXEC_BARRIERS /* the index after the block's own barriers */
#define EXEC_CALL_DEPTH 32u		   /* call depth of recursive kernels: at least this */
#define EXEC_CALL_DEPTH_MAX 512u	   /* and at most this */
#define EXEC_CALL_BYTES (1u << 20)	   /* bounded by this memory per warp */
#define EXEC_STACK_BYTES (16u << 10)	   /* per thread, for kernels that use alloca */
#define EXEC_NO_PRED 0xffffu

/* Windows of generic addresses, distinguished by the top byte; all other addresses are global. */
#define EXEC_WINDOW_SHIFT 56
#define EXEC_WINDOW_SHARED (UINT64_C(0x71) << EXEC_WINDOW_SHIFT)
#define EXEC_WINDOW_LOCAL (UINT64_C(0x72) << EXEC_WINDOW_SHIFT)
#define EXEC_WINDOW_PARAM (UINT64_C(0x73) << EXEC_WINDOW_SHIFT)

/* Function addresses: module number, function number within the module, four zero bits. No memory
 * lies there. */
#define EXEC_WINDOW_CODE (UINT64_C(0x74) << EXEC_WINDOW_SHIFT)
#define EXEC_CODE_MODULE_SHIFT 24
#define EXEC_CODE_STEP 16u
#define EXEC_CODE_FUNCTIONS ((1u << EXEC_CODE_MODULE_SHIFT) / EXEC_CODE_STEP)

/* Operand references: the low bits name a base, the rest is an offset in multiples of 128 bytes. */
enum {
	REF_R32,   /* the frame's 32-bit registers */
	REF_R64,   /* the frame's 64-bit registers */
	REF_CONST, /* the kernel's constants */
	REF_WARP,  /* special registers of the warp */
	REF_BLOCK, /* special registers of the block */
	REF_BASES,
	REF_MASK = 127,
};

/* Slots of 128 bytes relative to REF_WARP. 64-bit values take two. */
enum {
	WARP_TID_X,
	WARP_TID_Y,
	WARP_TID_Z,
	WARP_LANEID,
	WARP_WARPID,
	WARP_MASK_EQ,
	WARP_MASK_LE,
	WARP_MASK_LT,
	WARP_MASK_GE,
	WARP_MASK_GT,
	WARP_FRAME,
	WARP_STACK = WARP_FRAME + 2, /* the current bottom of the alloca stack */
	WARP_SLOTS = WARP_STACK + 2
};
/* Slots relative to REF_BLOCK. */
enum {
	BLOCK_NTID_X,
	BLOCK_NTID_Y,
	BLOCK_NTID_Z,
	BLOCK_CTAID_X,
	BLOCK_CTAID_Y,
	BLOCK_CTAID_Z,
	BLOCK_NCTAID_X,
	BLOCK_NCTAID_Y,
	BLOCK_NCTAID_Z,
	BLOCK_NWARPID,
	BLOCK_SMID,
	BLOCK_NSMID,
	BLOCK_GRIDID32,
	BLOCK_DYN_SMEM,
	BLOCK_TOTAL_SMEM,
	BLOCK_SPARE,
	BLOCK_GRIDID,
	BLOCK_ENVREG1 = BLOCK_GRIDID + 2,
	BLOCK_ENVREG2,
	BLOCK_SLOTS
};

enum exec_type {
	TY_U8,
	TY_S8,
	TY_U16,
	TY_S16,
	TY_U32,
	TY_S32,
	TY_U64,
	TY_S64,
	TY_F16,
	TY_F32,
	TY_F64,
	TY_F32Z, /* f32 with .ftz, in tables that distinguish it */
	TY_PRED,
	TY_COUNT,
	TY_B128, /* registers only: two consecutive 64-bit ones */
};

enum exec_space_kind { SP_GENERIC, SP_GLOBAL, SP_SHARED, SP_LOCAL, SP_PARAM };

/* Return value of a handler to the warp loop. */
enum exec_step {
	STEP_NEXT,
	STEP_SWITCH, /* choose again which lanes run */
	STEP_YIELD,  /* waiting: give the next warp a turn */
	STEP_FAULT,
	STEP_LONG, /* took as long as a turn: end the turn */
};

struct exec_warp;
struct exec_op;
/* Executes one operation for the lanes m (never 0). w->pc already points past the operation, except
 * in handlers that tail-call the next one (lane_alu.h). */
typedef int (*exec_op_fn)(struct exec_warp *w, const struct exec_op *o, uint32_t m);

/* One cache line. The meaning of d, a, b, c, e depends on the handler; loads and stores have the
 * address in a and values in d, b, c, e. */
struct exec_op {
	exec_op_fn fn;
	uint32_t d, a, b, c, e;
	uint32_t line;
	int64_t imm;
	uint16_t guard; /* a predicate, or EXEC_NO_PRED */
	uint16_t p, q;	/* predicates written */
	uint16_t r;	/* predicate read */
	uint8_t guard_not, r_not;
	uint8_t size;  /* bytes of an element in memory */
	uint8_t n;     /* elements of a vector */
	uint8_t space; /* exec_space_kind */
	uint8_t type;  /* exec_type */
	uint8_t type2; /* second type: the source of a conversion */
	uint8_t sub;   /* handler-specific selector */
	uint8_t wide;  /* WIDE_*: which operands are 64-bit registers */
	uint8_t flags;
	bool tail_calls; /* the handler calls the next operation's handler directly */
};
_Static_assert(sizeof(struct exec_op) == 64, "an operation is a cache line");

enum { WIDE_A = 1, WIDE_D = 2, WIDE_B = 4, WIDE_C = 8 };
enum { BOOL_NONE, BOOL_AND, BOOL_OR, BOOL_XOR };

enum { FLAG_SAT = 1, FLAG_FTZ = 2, FLAG_INT_ROUND = 4, FLAG_VOTE_SYNC = 8 };
enum { ROUND_RN, ROUND_RZ, ROUND_RM, ROUND_RP };

/* Bytes copied per lane between the frames of caller and callee, or registers. */
struct exec_copy {
	enum { COPY_BYTES, COPY_REG32, COPY_REG64, COPY_REG_TO_BYTES, COPY_BYTES_TO_REG } kind;
	uint32_t src, dst; /* frame offsets or operand references */
	uint32_t bytes;
};

struct exec_call {
	uint32_t target;				/* pc of the callee */
	uint32_t callee, caller;			/* function indices, used while decoding */
	uint32_t step32, step64, step_pred, step_local; /* size of the caller's frame */
	uint32_t layout; /* parameter layout of a call through a pointer; 0: direct call */
	uint32_t n_in, n_out;
	struct exec_copy *in, *out; /* owned */
};

/* A function whose address the module takes, as decoded for this kernel. */
struct exec_callee {
	uint32_t target; /* pc */
	uint32_t layout; /* parameter layout; 0: cannot be called */
	uint32_t shape;	 /* while decoding */
};

struct exec_table { /* of brx.idx */
	uint32_t n;
	uint32_t *targets; /* owned; pcs */
};

enum exec_reloc_kind { RELOC_GLOBAL, RELOC_DYNAMIC_SHARED };
struct exec_reloc {
	enum exec_reloc_kind kind;
	uint32_t offset; /* of the slot in the constants */
	bool wide;
	int64_t addend;
};

/* A kernel: its code and that of every function it can call. Kernels of one family have one array
 * of code, with its constants, calls, callees, tables and findings; the first of them owns it. */
struct exec_function {
	struct exec_function_info info;
	struct exec_module *module; /* borrowed: the module owns this */
	bool borrows;		    /* what is marked (owned) belongs to another kernel */
	uint32_t start;		    /* pc of the kernel's first operation */
	struct exec_op *code;	    /* (owned) */
	uint32_t n_code;
	uint8_t *constants; /* (owned), aligned to 64 */
	uint32_t constant_bytes;
	struct exec_call *calls; /* (owned) */
	uint32_t n_calls;
	struct exec_callee *callees; /* (owned); empty unless the kernel calls through pointers */
	uint32_t n_callees;
	struct exec_table *tables; /* (owned) */
	uint32_t n_tables;
	struct exec_reloc *relocs; /* (owned) */
	uint32_t n_relocs;
	struct exec_param *params; /* owned */
	/* Needs of one warp for the deepest call chain: */
	uint32_t bytes32, bytes64, preds;
	uint32_t local_stride; /* bytes of one thread */
	uint32_t stack_bytes;  /* the last part of local memory, for alloca */
	uint32_t depth;	       /* maximum call depth */
	uint32_t shared_static, shared_align;
	uint32_t *found; /* (owned); while checking: findings already reported per operation */
};

/* Lanes at the same pc. A warp's list holds only the groups that wait or are not current. */
enum exec_group_state { GROUP_READY, GROUP_SYNC, GROUP_BARRIER };
struct exec_lane_group {
	uint32_t pc, mask;
	uint32_t depth;
	uint32_t off32, off64, off_pred, frame;
	enum exec_group_state state;
	uint8_t barrier;
	uint64_t stamp; /* time when the group last ran */
};

struct exec_warp {
	/* Base addresses indexed by the low byte of a reference. The low byte contains bit 7 of the
	 * offset, so entries exist for both values; place is base - ref number, because REF adds
	 * the whole reference. */
	uintptr_t place[REF_MASK + 1 + REF_BASES];
	uintptr_t run_end; /* handlers may tail-call operations that lie below this address */
	uint8_t *base[REF_BASES + 3]; /* bases of the current frame */
	uint32_t *preds;
	const struct exec_op *code;
	uint32_t pc;
	uint32_t mask;		     /* lanes of the current group; 0: none chosen */
	uint32_t idle;		     /* lanes that do not exist or have exited */
	uint32_t stop_pc;	     /* pc at which the current group may merge with another one */
	enum exec_group_state state; /* of the current group, after STEP_SWITCH */
	uint8_t barrier;
	uint32_t depth;
	uint32_t off32, off64, off_pred, frame;
	uint32_t carry; /* carry flag of each lane */
	uint32_t index;
	uint32_t exists; /* lanes that exist */
	struct exec_block *block;
	uint32_t *ret_pc; /* [depth][lane] */
	uint8_t *mem32, *mem64;
	uint32_t *mem_pred;
	uint32_t n_groups;
	bool forced;	    /* the current group runs out of order, for fairness */
	bool sync_forced;   /* lanes that a .sync names will not arrive */
	uint64_t look_at;   /* time to look for starved groups; 0: the current group waits */
	uint64_t next_turn; /* no starved group has a turn before this time */
	uint64_t clock;	    /* operations so far; the time base of stamp */
	uint64_t poll;	    /* place and value of the last polling load */
	uint32_t polls;	    /* consecutive repetitions of that load */
	struct exec_lane_group groups[EXEC_LANES];
	uint32_t arrived[EXEC_BARRIERS];	  /* lanes that have arrived */
	uint32_t red_in[EXEC_BARRIERS];		  /* their predicates, for barrier.red */
	uint32_t cluster_arrived, cluster_passed; /* lanes, of barrier.cluster */
};

struct exec_barrier {
	uint32_t expected; /* threads; 0: all of the block */
	uint32_t extra;	   /* threads that arrived without waiting */
};

struct exec_block {
	struct exec_launch launch;
	const struct exec_function *f;
	void *memory; /* owned; holds everything below */
	struct exec_warp *warps;
	uint32_t n_warps, n_threads;
	uint32_t current; /* index of the current warp */
	uint8_t *shared;
	uint32_t shared_bytes;
	uint8_t *local; /* local_stride bytes per lane */
	uint8_t *block_slots;
	struct exec_barrier barriers[EXEC_BARRIERS];
	uint32_t barriers_used;		     /* bit mask of barriers with arrivals */
	uint64_t lanes;			     /* lane instructions of the last run */
	uint64_t link_bytes[EXEC_LINK_WAYS]; /* of host memory, in the last run */
	enum exec_status status;	     /* EXEC_BUDGET while it can run */
	struct exec_fault fault;
	struct exec_block_check *check; /* owned; NULL unless checking */
};

struct exec_variable {
	uint64_t offset, bytes;
	char *name; /* borrowed from the map */
	bool managed;
	bool texref, surfref;
};

struct exec_init_reloc {
	uint64_t at, addend; /* offset in the image, and of the target */
	uint32_t bytes, shift;
};

/* The code from a line of the PTX on, up to the next of these, belongs to a program that was
 * inserted into the kernel, or to the kernel. */
struct exec_origin {
	uint32_t line;
	uint32_t insn; /* of the program; UINT32_MAX: not known */
	uint32_t name; /* of the program, in the module's names; UINT32_MAX: the kernel's code */
};

struct exec_module {
	uint32_t refs; /* atomic */
	char *name;
	struct strmap functions; /* exec_function */
	struct strmap variables; /* exec_variable, owned values */
	uint8_t *image;		 /* owned; initial values */
	uint64_t image_bytes;	 /* the rest of the variables is zero */
	uint64_t global_bytes;
	uint64_t const_bytes;
	struct exec_init_reloc *relocs; /* owned */
	uint32_t n_relocs;
	uint64_t address;
	uint64_t operations;	     /* operations decoded so far, of all kernels */
	uint64_t constant_bytes;     /* constants of all kernels */
	uint64_t code_base;	     /* address of function 0 */
	bool managed;		     /* some variable is .managed */
	struct exec_origin *origins; /* owned; by line; none: all code is the kernels' */
	uint32_t n_origins;
	char *names; /* owned; of programs, each ends with a zero */
};

/* Returns the program that a line of the PTX belongs to, until the module ends, NULL: the kernel.
 * *ret_insn: its instruction, UINT32_MAX: not known. */
const char *exec_origin_at(const struct exec_module *m, uint32_t line, uint32_t *ret_insn);

#define REF(T, w, r) ((T *)((w)->place[(uint8_t)(r)] + (r)))
#define REF_SLOT32(i, kind) ((uint32_t)(i)*EXEC_SLOT32 | (kind))
#define REF_SLOT64(i, kind) ((uint32_t)(i)*EXEC_SLOT64 | (kind))

static inline void exec_warp_base_set(struct exec_warp *w, unsigned ref, uint8_t *p)
{
	w->base[ref] = p;
	w->place[ref] = w->place[REF_MASK + 1 + ref] = (uintptr_t)p - ref;
}

static ALWAYS_INLINE bool exec_lane_in(uint32_t m, unsigned lane)
{
	return m >> lane & 1;
}

/* Usually all lanes, so that case is tested first. */
static ALWAYS_INLINE uint32_t exec_lane_count(uint32_t m)
{
	return m == ~0u ? EXEC_LANES : (uint32_t)__builtin_popcount(m);
}

#define exec_each_lane(m, i)                                                                       \
	for (uint32_t left_ = (m), i; left_ && (i = (uint32_t)__builtin_ctz(left_), true);         \
	     left_ &= left_ - 1)

static inline uint64_t exec_lane_get(const struct exec_warp *w, uint32_t ref, bool wide,
				     unsigned lane)
{
	return wide ? REF(const uint64_t, w, ref)[lane] : REF(const uint32_t, w, ref)[lane];
}

static inline void exec_lane_set(struct exec_warp *w, uint32_t ref, bool wide, unsigned lane,
				 uint64_t v)
{
	if (wide) {
		REF(uint64_t, w, ref)[lane] = v;
	} else {
		REF(uint32_t, w, ref)[lane] = (uint32_t)v;
	}
}

static ALWAYS_INLINE void exec_pred_set(struct exec_warp *w, uint16_t p, uint32_t m, uint32_t v)
{
	w->preds[p] = (w->preds[p] & ~m) | (v & m);
}

/* fault.c */
/* Returns the space that a generic address lies in, and its offset there. */
enum exec_space_kind exec_window_of(uint64_t address, uint64_t *ret_off);
int exec_fault_set(struct exec_warp *w, const struct exec_op *o, enum exec_status status,
		   unsigned lane, uint64_t address, const char *what) COLD;
/* Returns the host address of one lane's access, or NULL after setting the fault. */
void *exec_lane_pointer(struct exec_warp *w, const struct exec_op *o, enum exec_space_kind space,
			unsigned lane, uint64_t address, unsigned bytes, bool write);

#endif
