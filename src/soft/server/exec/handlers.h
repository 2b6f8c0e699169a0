/* The tables in which the decoder looks up handlers. lane_alu.c is compiled for baseline x86-64,
 * for AVX2 with FMA and for AVX-512; exec_handlers() returns the set for this processor. A NULL
 * entry is an unsupported combination. */
#ifndef GBPF_SOFT_SERVER_EXEC_HANDLERS_H
#define GBPF_SOFT_SERVER_EXEC_HANDLERS_H

#include "soft/server/exec/op.h"

enum exec_alu {
	ALU_ADD,
	ALU_SUB,
	ALU_MUL,
	ALU_MUL_HI,
	ALU_MUL_WIDE,
	ALU_MAD,
	ALU_MAD_HI,
	ALU_MAD_WIDE,
	ALU_DIV,
	ALU_REM,
	ALU_MIN,
	ALU_MAX,
	ALU_ABS,
	ALU_NEG,
	ALU_AND,
	ALU_OR,
	ALU_XOR,
	ALU_NOT,
	ALU_CNOT,
	ALU_SHL,
	ALU_SHR,
	ALU_SAD,
	ALU_MUL24,
	ALU_MUL24_HI,
	ALU_MAD24,
	ALU_MAD24_HI,
	ALU_POPC,
	ALU_CLZ,
	ALU_BREV,
	ALU_BFE,
	ALU_BFI,
	ALU_BFIND,
	ALU_BFIND_SHIFT,
	ALU_PRMT,
	ALU_LOP3,
	ALU_SHF_L_WRAP,
	ALU_SHF_L_CLAMP,
	ALU_SHF_R_WRAP,
	ALU_SHF_R_CLAMP,
	ALU_ADD_SAT,
	ALU_SUB_SAT,
	ALU_MUL_SAT,
	ALU_FMA,
	ALU_FMA_SAT,
	ALU_RCP,
	ALU_SQRT,
	ALU_RSQRT,
	ALU_EX2,
	ALU_LG2,
	ALU_SIN,
	ALU_COS,
	ALU_TANH,
	ALU_COPYSIGN,
	ALU_MIN_NAN,
	ALU_MAX_NAN,
	ALU_ROUND_N,
	ALU_ROUND_Z,
	ALU_ROUND_M,
	ALU_ROUND_P, /* to whole numbers, in the order of ROUND_* */
	ALU_MOV,
	ALU_SELP,
	ALU_PACK,   /* d = a | b << half */
	ALU_UNPACK, /* d, e = halves of a */
	ALU_COUNT,
};

/* Comparisons of setp; the unsigned words lo, ls, hi, hs are lt, le, gt, ge of an unsigned type. */
enum exec_cmp {
	CMP_EQ,
	CMP_NE,
	CMP_LT,
	CMP_LE,
	CMP_GT,
	CMP_GE,
	CMP_EQU,
	CMP_NEU,
	CMP_LTU,
	CMP_LEU,
	CMP_GTU,
	CMP_GEU,
	CMP_NUM,
	CMP_NAN,
	CMP_COUNT,
};

/* Sizes of memory elements in tables: 1, 2, 4, 8 bytes. */
struct exec_handlers {
	const char *name;
	exec_op_fn alu[ALU_COUNT][TY_COUNT];
	exec_op_fn setp[CMP_COUNT][TY_COUNT];
	exec_op_fn cvt[TY_COUNT][TY_COUNT]; /* [to][from]: round to nearest, floats to integers
					       towards zero */
	exec_op_fn shfl[4];		    /* indexed by SHFL_* */
	exec_op_fn load[SP_PARAM + 1];	    /* any size and vector */
	exec_op_fn store[SP_PARAM + 1];
	exec_op_fn load_word[SP_PARAM + 1][2]; /* one 32-bit or 64-bit element into a register of
						  that size; or NULL */
	exec_op_fn store_word[SP_PARAM + 1][2];
	exec_op_fn atom_add[SP_PARAM + 1]; /* of 32-bit words */
};

extern const struct exec_handlers exec_handlers_base;
extern const struct exec_handlers exec_handlers_avx2;
extern const struct exec_handlers exec_handlers_avx512;
const struct exec_handlers *exec_handlers(void);
/* Stores every set that this processor can run, best first; returns their number. */
#define EXEC_HANDLER_SETS 3u
unsigned exec_handlers_sets(const struct exec_handlers *ret[EXEC_HANDLER_SETS]);
/* Sets tail_calls of the operations whose handlers can call the next handler. */
void exec_runs_mark(struct exec_op *code, uint32_t n);
void exec_handlers_force(const struct exec_handlers *h); /* for tests, before modules are loaded;
							    NULL: choose by processor */

/* slow.c: handlers where speed does not matter. */
int exec_op_round(struct exec_warp *w, const struct exec_op *o,
		  uint32_t m); /* directed rounding: sub = enum exec_slow_round */
enum exec_slow_round { SLOW_ADD, SLOW_SUB, SLOW_MUL, SLOW_FMA, SLOW_DIV, SLOW_RCP, SLOW_SQRT };
int exec_op_approx(struct exec_warp *w, const struct exec_op *o, uint32_t m); /* sub = enum below */
enum { APPROX_DIV, APPROX_RCP64, APPROX_RSQRT64 };
int exec_op_testp(struct exec_warp *w, const struct exec_op *o, uint32_t m);
enum { TEST_FINITE, TEST_INFINITE, TEST_NUMBER, TEST_NAN, TEST_NORMAL, TEST_SUBNORMAL };
int exec_op_carry(struct exec_warp *w, const struct exec_op *o,
		  uint32_t m); /* sub = enum, flags: FLAG_* below */
enum { CARRY_ADD, CARRY_SUB, CARRY_MAD_LO, CARRY_MAD_HI };
enum { CARRY_IN = 1, CARRY_OUT = 2 };
int exec_op_clock(struct exec_warp *w, const struct exec_op *o, uint32_t m);
enum { CLOCK_CYCLES, CLOCK_CYCLES_HI, CLOCK_TIMER, CLOCK_TIMER_LO, CLOCK_TIMER_HI };
int exec_op_pred_logic(struct exec_warp *w, const struct exec_op *o,
		       uint32_t m); /* p = sub(r, q) */
enum { LOGIC_MOV, LOGIC_NOT, LOGIC_AND, LOGIC_OR, LOGIC_XOR, LOGIC_SET };
int exec_op_isspacep(struct exec_warp *w, const struct exec_op *o, uint32_t m);
int exec_op_fence(struct exec_warp *w, const struct exec_op *o, uint32_t m);

/* atom.c */
enum {
	ATOM_ADD,
	ATOM_MIN,
	ATOM_MAX,
	ATOM_EXCH,
	ATOM_CAS,
	ATOM_AND,
	ATOM_OR,
	ATOM_XOR,
	ATOM_INC,
	ATOM_DEC
};
int exec_op_atom(struct exec_warp *w, const struct exec_op *o, uint32_t m); /* see atom.h */

/* cross.c: operations across lanes. */
enum { SHFL_UP, SHFL_DOWN, SHFL_BFLY, SHFL_IDX };
int exec_op_vote(struct exec_warp *w, const struct exec_op *o, uint32_t m);
enum { VOTE_ALL, VOTE_ANY, VOTE_UNI, VOTE_BALLOT };
int exec_op_activemask(struct exec_warp *w, const struct exec_op *o, uint32_t m);
int exec_op_match(struct exec_warp *w, const struct exec_op *o, uint32_t m); /* sub 0 any, 1 all */
int exec_op_redux(struct exec_warp *w, const struct exec_op *o,
		  uint32_t m); /* sub = enum of atom */
int exec_op_warp_sync(struct exec_warp *w, const struct exec_op *o, uint32_t m);

int exec_op_elect(struct exec_warp *w, const struct exec_op *o, uint32_t m);

/* async.c */
int exec_op_copy_async(struct exec_warp *w, const struct exec_op *o, uint32_t m);
enum { ASYNC_SIZE = 1, ASYNC_IGNORE = 2 };
int exec_op_mbarrier(struct exec_warp *w, const struct exec_op *o, uint32_t m);
enum {
	MBAR_INIT,
	MBAR_INVAL,
	MBAR_EXPECT,
	MBAR_COMPLETE,
	MBAR_ARRIVE,
	MBAR_DROP,
	MBAR_ARRIVE_EXPECT,
	MBAR_DROP_EXPECT
};
int exec_op_mbarrier_test(struct exec_warp *w, const struct exec_op *o, uint32_t m);
enum { MBAR_STATE, MBAR_PARITY };
int exec_op_mbarrier_pending(struct exec_warp *w, const struct exec_op *o, uint32_t m);

/* stack.c */
int exec_op_alloca(struct exec_warp *w, const struct exec_op *o, uint32_t m);
int exec_op_stack_save(struct exec_warp *w, const struct exec_op *o, uint32_t m);    /* d */
int exec_op_stack_restore(struct exec_warp *w, const struct exec_op *o, uint32_t m); /* a */

/* flow.c */
int exec_op_yield(struct exec_warp *w, const struct exec_op *o, uint32_t m);
/* Follows a load or atomic operation that may be a spin wait; d, a, imm, wide as there. */
int exec_op_poll(struct exec_warp *w, const struct exec_op *o, uint32_t m);
int exec_op_mapa(struct exec_warp *w, const struct exec_op *o,
		 uint32_t m); /* d = a if rank b is 0 */
int exec_op_cluster_arrive(struct exec_warp *w, const struct exec_op *o, uint32_t m);
int exec_op_cluster_wait(struct exec_warp *w, const struct exec_op *o, uint32_t m);
int exec_op_bra(struct exec_warp *w, const struct exec_op *o, uint32_t m);  /* e: pc */
int exec_op_brx(struct exec_warp *w, const struct exec_op *o, uint32_t m);  /* e: table, a: index */
int exec_op_call(struct exec_warp *w, const struct exec_op *o, uint32_t m); /* e: call */
int exec_op_call_pointer(struct exec_warp *w, const struct exec_op *o,
			 uint32_t m); /* e: call, a: address of a function */
int exec_op_call_out(struct exec_warp *w, const struct exec_op *o,
		     uint32_t m); /* follows exec_op_call; e: call */
int exec_op_ret(struct exec_warp *w, const struct exec_op *o, uint32_t m);
int exec_op_exit(struct exec_warp *w, const struct exec_op *o, uint32_t m);
int exec_op_trap(struct exec_warp *w, const struct exec_op *o, uint32_t m);
int exec_op_bar(struct exec_warp *w, const struct exec_op *o,
		uint32_t m); /* a: number, b: count when WIDE_B */
enum { BAR_SYNC, BAR_ARRIVE, BAR_RED_POPC, BAR_RED_AND, BAR_RED_OR };

/* device_calls.c: functions that the device provides. */
int exec_op_vprintf(struct exec_warp *w, const struct exec_op *o, uint32_t m);
int exec_op_assertfail(struct exec_warp *w, const struct exec_op *o, uint32_t m);
int exec_op_malloc(struct exec_warp *w, const struct exec_op *o, uint32_t m);
int exec_op_heap_free(struct exec_warp *w, const struct exec_op *o, uint32_t m);

/* Returns true if every lane of the mask is in the current group or has exited. Otherwise the group
 * must wait: return STEP_SWITCH. */
bool exec_sync_ready(struct exec_warp *w, uint32_t members);

#endif
