/* From a PTX module to compact operations: what the decoder's files share. A kernel is decoded
 * together with every function that it can call. Functions return 0 or a negative error that has
 * been reported with NAME:LINE and the instruction. */
#ifndef GBPF_SOFT_SERVER_EXEC_DECODE_DECODE_KERNEL_H
#define GBPF_SOFT_SERVER_EXEC_DECODE_DECODE_KERNEL_H

#include "base/strmap.h"
#include "ptx/module.h"
#include "soft/server/exec/handlers.h"

#define DECODE_CODE_MAX (1u << 22)			/* operations of one kernel */
#define DECODE_MODULE_MAX (UINT64_C(1) << 23)		/* operations of all kernels of a module */
#define DECODE_RANGES_MAX (1u << 24)			/* registers declared in a kernel */
#define DECODE_SLOTS_MAX 32768u				/* registers of a kind in one function */
#define DECODE_CONSTANTS_MAX (1u << 26)			/* bytes */
#define DECODE_MODULE_CONSTANTS_MAX (UINT64_C(1) << 28) /* bytes, likewise */
#define DECODE_FUNCTIONS_MAX 1024u			/* that one kernel can call */
#define DECODE_LOCAL_MAX (1u << 24)			/* bytes of a function's frame */
#define DECODE_PARAMS_MAX 65536u			/* bytes of a function's parameters */
#define DECODE_SHARED_MAX (1u << 24)

enum symbol_kind {
	SYM_REGISTER,
	SYM_RANGE,
	SYM_LABEL,
	SYM_GLOBAL,
	SYM_SHARED,
	SYM_LOCAL,
	SYM_PARAM,
	SYM_TABLE,
	SYM_PROTOTYPE,
	SYM_CALL_TARGETS
};

struct symbol {
	enum symbol_kind kind;
	enum exec_type type; /* of registers; TY_PRED for predicates */
	uint32_t n;	     /* of a range */
	uint32_t *slots;     /* of a range: reference + 1, or 0 while unused */
	uint32_t ref;	     /* of a register, or the predicate's number; label's number; frame or
				parameter offset */
	bool extern_array;   /* shared memory of the launch's size */
	bool in_frame;	     /* SYM_PARAM: in the frame, not a kernel's parameter */
	uint64_t offset, bytes;
	const struct ptx_item *item; /* of prototypes and tables of call targets */
	struct symbol *next_owned;
};

struct scope {
	struct scope *up;
	struct strmap symbols;
};

/* A function as its callers see it. */
struct function_shape {
	const struct ptx_function *f;
	uint32_t start; /* pc */
	uint32_t n32, n64, n_pred;
	uint32_t local_bytes;
	uint32_t n_calls_out;
	uint32_t *callees; /* owned */
	uint32_t mark;	   /* while the chain of calls is walked */
	uint32_t chain32, chain64, chain_pred, chain_local, chain_depth;
};

struct label_use {
	uint32_t pc; /* of the branch, or UINT32_MAX: of a table's entry */
	uint32_t table, entry;
	uint32_t label;
};

/* The functions whose address the module takes somewhere. */
struct taken {
	struct strmap index;		  /* name -> number + 1 */
	const struct ptx_function **list; /* owned */
	uint32_t n;
};

struct decoder {
	const struct ptx_module *ptx;
	struct exec_module *module;
	struct strmap *globals;	  /* name -> struct exec_variable */
	struct strmap *inner;	  /* address of a ptx_variable in a function -> exec_variable */
	struct strmap *functions; /* name -> struct ptx_function, those with bodies first */
	struct report *report;
	const struct handlers *h;
	struct exec_function *out;

	struct buf code, calls, tables, relocs;
	struct buf constants;
	struct strmap constant_index; /* value and width -> offset + 1 */
	struct strmap *module_shared; /* name -> struct ptx_variable */
	struct strmap *reached;	      /* names of functions that some kernel calls */
	const struct taken *taken;
	struct exec_callee *callees; /* of this kernel, when it calls through pointers */
	uint32_t n_callees, n_layouts;
	struct strmap layouts; /* of parameters -> number */
	struct scope *root;    /* module-scope shared variables that this kernel uses */
	struct symbol *owned;
	uint32_t shared_bytes, shared_align;
	uint32_t ranges; /* registers declared so far */

	struct function_shape *shapes;
	uint32_t n_shapes;
	uint32_t current; /* shape */
	bool in_entry;
	struct scope *scope;
	bool uses_stack;       /* alloca, in any function of the kernel */
	uint32_t stack_saved;  /* register of the current function, or UINT32_MAX */
	struct buf labels;     /* uint32_t pcs of the current function, UINT32_MAX while unknown */
	struct buf label_uses; /* of the current function */

	const struct ptx_insn *insn; /* the one in hand */
	uint32_t line;
	uint32_t used_modifiers; /* bit i: modifier i has been understood */
	struct op op;		 /* template: guard and line */
};

int dec_fail(struct decoder *d, const char *fmt, ...) PRINTF_LIKE(2, 3);
int dec_no_memory(struct decoder *d);

/* decode_symbol.c */
struct symbol *dec_find(struct decoder *d, const char *name);
int dec_declare(struct decoder *d, const struct ptx_variable *v);
int dec_declare_labels(struct decoder *d, const struct ptx_list *list);
struct symbol *dec_symbol_new(struct decoder *d, const char *name, enum symbol_kind kind);
int dec_scope_open(struct decoder *d);
void dec_scope_close(struct decoder *d);
int dec_new_register(struct decoder *d, enum exec_type type, uint32_t *ret);
/* A register by name: *ret is its reference, or number for predicates. 0, or 1 when the name is no
 * register. */
int dec_register(struct decoder *d, const char *name, uint32_t *ret, enum exec_type *ret_type);
/* The frame offsets of a function's results and parameters, the same for callers and itself; -1 for
 * registers. */
struct formal {
	bool in_register;
	enum exec_type type;
	uint32_t offset; /* in the frame, or the register's reference */
	uint32_t bytes;
};
int dec_formals(struct decoder *d, const struct ptx_function *f, struct formal *ret,
		uint32_t *frame, uint32_t *n32, uint32_t *n64, uint32_t *n_pred);

/* decode_operand.c */
enum exec_type dec_type(const char *word); /* TY_COUNT: none */
unsigned dec_type_bytes(enum exec_type t);
bool dec_is_float(enum exec_type t);
bool dec_is_signed(enum exec_type t);
static inline bool dec_is_wide(enum exec_type t)
{
	return dec_type_bytes(t) == 8;
}
bool dec_has(struct decoder *d, const char *modifier); /* and marks it as understood */
int dec_pick(struct decoder *d, const char *const *words, int n,
	     int none);				 /* index of the one that is there */
enum exec_type dec_take_type(struct decoder *d); /* the first type not taken; TY_COUNT: none left */
int dec_modifiers_done(struct decoder *d);	 /* refuses what nobody understood */
int dec_operands(struct decoder *d, unsigned n); /* refuses another count */
/* Bytes that stay with the module, besides operations; refused beyond a limit. */
int dec_module_takes(struct decoder *d, uint64_t bytes);
int dec_constant(struct decoder *d, uint64_t bits, bool wide, uint32_t *ret);
/* A source read as that type: register, constant, special register or address. exact: registers
 * must have its width; otherwise wider ones do too and *ret_wide says what came. */
int dec_source(struct decoder *d, const struct ptx_operand *o, enum exec_type t, uint32_t *ret);
int dec_source_any(struct decoder *d, const struct ptx_operand *o, enum exec_type t, uint32_t *ret,
		   bool *ret_wide);
int dec_dest(struct decoder *d, const struct ptx_operand *o, enum exec_type t, uint32_t *ret);
int dec_dest_any(struct decoder *d, const struct ptx_operand *o, enum exec_type t, uint32_t *ret,
		 bool *ret_wide);
int dec_pred(struct decoder *d, const struct ptx_operand *o, uint16_t *ret,
	     uint8_t *ret_not); /* ret_not NULL: no ! */
/* "[...]": reference, width and offset of an address; *space is refined when the base is a
 * variable. */
int dec_address(struct decoder *d, const struct ptx_operand *o, enum exec_space_kind *space,
		struct op *op);

/* The whole address in a new 64-bit register. */
int dec_address_value(struct decoder *d, const struct ptx_operand *o, enum exec_space_kind *space,
		      uint32_t *ret);

/* decode_special.c: a special register read as that type. 0; 1: there is none of this name and
 * size.
 */
int dec_special(struct decoder *d, const char *name, enum exec_type t, uint32_t *ret);

/* decode.c */
/* Behind an access that may be waited with: the first register of what it has read. */
int dec_poll(struct decoder *d, const struct op *access);
/* Before a return, with its guard. */
int dec_restore_stack(struct decoder *d);
int dec_emit(struct decoder *d, const struct op *op);
struct op dec_op(struct decoder *d, op_fn fn); /* with guard and line */
int dec_kernel(struct decoder *d, const struct ptx_function *entry, struct exec_function *out);
int dec_shape(struct decoder *d, const char *name,
	      uint32_t *ret); /* the function's number in this kernel */

/* decode_check.c: while checking, emits the look at an access of that many bytes, before the access
 * itself; how: CHECK_* of check.h. */
int dec_check(struct decoder *d, const struct op *access, unsigned bytes, unsigned how);

/* One function for each group of opcodes. */
struct dec_opcode {
	const char *name;
	int (*decode)(struct decoder *d, int a, int b); /* NULL: known, not there */
	int a, b;
	const char *missing; /* why it is not there */
};
const struct dec_opcode *dec_opcode_find(const char *name);

int dec_arith(struct decoder *d, int alu, int sources);
int dec_mul(struct decoder *d, int lo, int sources);
int dec_mul24(struct decoder *d, int lo, int sources);
int dec_float_op(struct decoder *d, int alu, int sources);
int dec_div(struct decoder *d, int a, int b);
int dec_fma(struct decoder *d, int a, int b);
int dec_logic(struct decoder *d, int alu, int sources);
int dec_shift(struct decoder *d, int alu, int b);
int dec_bits(struct decoder *d, int alu, int b);
int dec_bfe(struct decoder *d, int alu, int b);
int dec_bfind(struct decoder *d, int a, int b);
int dec_prmt(struct decoder *d, int a, int b);
int dec_lop3(struct decoder *d, int a, int b);
int dec_shf(struct decoder *d, int a, int b);
int dec_carry(struct decoder *d, int kind, int in);
int dec_testp(struct decoder *d, int a, int b);
int dec_dot(struct decoder *d, int which, int n);
int dec_integer(struct decoder *d, int which, int n);
int dec_video(struct decoder *d, int which, int n);
int dec_mma(struct decoder *d, int a, int b);
int dec_wmma(struct decoder *d, int a, int b);
int dec_matrix(struct decoder *d, int store, int b);
int dec_movmatrix(struct decoder *d, int a, int b);

int dec_mov(struct decoder *d, int a, int b);
int dec_mov_wide(struct decoder *d); /* .b128 */
int dec_selp(struct decoder *d, int a, int b);
int dec_slct(struct decoder *d, int a, int b);
int dec_setp(struct decoder *d, int a, int b);
int dec_set(struct decoder *d, int a, int b);
int dec_cvt(struct decoder *d, int a, int b);
int dec_cvta(struct decoder *d, int a, int b);
int dec_isspacep(struct decoder *d, int a, int b);

int dec_load(struct decoder *d, int a, int b);
int dec_store(struct decoder *d, int a, int b);
int dec_atom(struct decoder *d, int wants_old, int b);
int dec_prefetch(struct decoder *d, int a, int b);
int dec_fence(struct decoder *d, int a, int b);

int dec_bra(struct decoder *d, int a, int b);
int dec_brx(struct decoder *d, int a, int b);
int dec_call(struct decoder *d, int a, int b);
int dec_plain(struct decoder *d, int which, int b);
int dec_bar(struct decoder *d, int a, int b);
int dec_shfl(struct decoder *d, int a, int b);
int dec_vote(struct decoder *d, int a, int b);
int dec_match(struct decoder *d, int a, int b);
int dec_redux(struct decoder *d, int a, int b);
int dec_nanosleep(struct decoder *d, int a, int b);
int dec_elect(struct decoder *d, int a, int b);
int dec_alloca(struct decoder *d, int a, int b);
int dec_stack(struct decoder *d, int restore, int b);
int dec_cluster(struct decoder *d, int rank, int b);
int dec_hint(struct decoder *d, int least, int most);
int dec_policy(struct decoder *d, int a, int b);
int dec_cp(struct decoder *d, int a, int b);
int dec_mbarrier(struct decoder *d, int a, int b);
int dec_activemask(struct decoder *d, int a, int b);

#endif
