/* Decoding from a PTX module to operations: the decoder's state and the functions its files share.
 * A kernel is decoded together with every function that it can call. Functions return 0 or a
 * negative error that has been reported with NAME:LINE and the instruction. */
#ifndef GBPF_SOFT_SERVER_EXEC_DECODE_DECODE_KERNEL_H
#define GBPF_SOFT_SERVER_EXEC_DECODE_DECODE_KERNEL_H

#include "base/strmap.h"
#include "ptx/module.h"
#include "soft/server/exec/handlers.h"

#define DECODE_CODE_MAX (1u << 22)			/* operations of one kernel */
#define DECODE_MODULE_MAX (UINT64_C(1) << 23)		/* operations of all kernels of a module */
#define DECODE_RANGES_MAX (1u << 24)			/* registers declared in a kernel */
#define DECODE_SLOTS_MAX 131072u			/* registers of one width in one function */
#define DECODE_PREDICATES_MAX 32768u			/* numbered by 16 bits */
#define DECODE_CONSTANTS_MAX (1u << 26)			/* bytes */
#define DECODE_MODULE_CONSTANTS_MAX (UINT64_C(1) << 28) /* bytes, of all kernels of a module */
#define DECODE_FUNCTIONS_MAX 4096u			/* functions that one kernel can call */
#define DECODE_LOCAL_MAX (1u << 24)			/* bytes of a function's frame */
#define DECODE_PARAMS_MAX 65536u			/* bytes of a function's parameters */
#define DECODE_SHARED_MAX (1u << 24)

enum exec_symbol_kind {
	SYM_REGISTER,
	SYM_RANGE,
	SYM_VECTOR, /* a range of one */
	SYM_LABEL,
	SYM_GLOBAL,
	SYM_SHARED,
	SYM_LOCAL,
	SYM_PARAM,
	SYM_TABLE,
	SYM_PROTOTYPE,
	SYM_CALL_TARGETS
};

struct exec_symbol {
	enum exec_symbol_kind kind;
	enum exec_type type; /* of registers; TY_PRED for predicates */
	uint32_t n;	     /* of a range */
	uint32_t vector;     /* components of each register of a range: 1, 2 or 4 */
	uint32_t *slots;     /* range: reference + 1 of each component, or 0 while unused */
	uint32_t ref; /* reference of a register; number of a predicate or label; frame or parameter
			 offset */
	bool extern_array; /* dynamic shared memory */
	bool in_frame;	   /* SYM_PARAM: in the frame, not a kernel parameter */
	uint64_t offset, bytes;
	const struct ptx_item *item; /* prototypes and tables of call targets */
	struct exec_symbol *next_owned;
};

struct exec_scope {
	struct exec_scope *up;
	struct strmap symbols;
};

/* A function from its callers' view. */
struct exec_function_shape {
	const struct ptx_function *f;
	uint32_t start; /* pc */
	uint32_t n32, n64, n_pred;
	uint32_t local_bytes;
	uint32_t n_calls_out;
	uint32_t *callees; /* owned */
	uint32_t mark;	   /* visited, while call chains are walked */
	uint32_t chain32, chain64, chain_pred, chain_local, chain_depth;
};

struct exec_label_use {
	uint32_t pc; /* pc of the branch; UINT32_MAX: a table entry */
	uint32_t table, entry;
	uint32_t label;
};

/* Functions whose address the module takes. */
struct exec_taken_addresses {
	struct strmap index;		  /* name -> number + 1 */
	const struct ptx_function **list; /* owned */
	uint32_t n;
};

/* What is known of registers that no instruction up to here has written, in the current function.
 */
struct exec_undefined {
	struct buf written[2]; /* of 32 and of 64 bits: 1 for each register that was written */
	uint32_t moved[16];    /* registers to which such a value was moved, since the last label */
	uint32_t n_moved;
	bool read;	  /* the last register that was a source is one */
	bool found;	  /* loops are known */
	bool tables;	  /* a branch goes to one of several labels */
	struct buf loops; /* struct loop (decode_undefined.c), by their last lines */
	size_t next;	  /* the first loop that does not end before the current line */
};

struct exec_decoder {
	const struct ptx_module *ptx;
	struct exec_module *module;
	struct strmap *globals;	  /* name -> struct exec_variable */
	struct strmap *inner;	  /* address of a ptx_variable inside a function -> exec_variable */
	struct strmap *functions; /* name -> struct ptx_function, those with bodies first */
	struct report *report;
	const struct exec_handlers *h;
	struct exec_function *out;

	struct buf code, calls, tables, relocs;
	struct buf constants;
	struct strmap constant_index; /* value and width -> offset + 1 */
	struct strmap *module_shared; /* name -> struct ptx_variable */
	struct strmap *reached;	      /* names of functions that some kernel calls */
	const struct exec_taken_addresses *taken;
	struct exec_callee *callees; /* for a kernel that calls through pointers */
	uint32_t n_callees, n_layouts;
	struct strmap layouts;	 /* parameter layouts -> number */
	struct exec_scope *root; /* module-scope shared variables that this kernel uses */
	struct exec_symbol *owned;
	uint32_t shared_bytes, shared_align;
	uint32_t ranges;  /* registers declared up to now */
	bool has_vectors; /* the kernel declares vector registers */
	struct ptx_arena arena;
	struct strmap components; /* name of a vector -> operands of its components, in arena */
	struct buf operands;	  /* of the current instruction, if vectors were replaced */

	struct exec_function_shape *shapes;
	uint32_t n_shapes;
	uint32_t n_functions; /* shapes that are no kernels */
	bool in_family;	      /* kernels are decoded together: -EAGAIN if they cannot be */
	uint32_t current;     /* index of the current shape */
	bool in_entry;
	struct exec_scope *scope;
	bool uses_stack;      /* some function of the kernel uses alloca */
	uint32_t stack_saved; /* register of the current function, or UINT32_MAX */
	struct buf labels;    /* pcs (uint32_t) of the current function, UINT32_MAX while unknown */
	struct buf label_uses; /* of the current function */
	struct exec_undefined undefined;

	const struct ptx_insn *insn; /* the current instruction */
	uint32_t line;
	uint32_t used_modifiers; /* bit i: modifier i has been taken */
	struct exec_op op;	 /* template: guard and line */
	uint32_t texture_inputs; /* 1 + first of the registers for inputs of texture instructions;
				    0: none yet */
	uint32_t texture_shape;	 /* the function that they belong to */
};

int exec_dec_fail(struct exec_decoder *d, const char *fmt, ...) PRINTF_LIKE(2, 3);
int exec_dec_no_memory(struct exec_decoder *d);

/* decode_symbol.c */
struct exec_symbol *exec_dec_find(struct exec_decoder *d, const char *name);
int exec_dec_declare(struct exec_decoder *d, const struct ptx_variable *v);
int exec_dec_declare_labels(struct exec_decoder *d, const struct ptx_list *list);
struct exec_symbol *exec_dec_symbol_new(struct exec_decoder *d, const char *name,
					enum exec_symbol_kind kind);
int exec_dec_scope_open(struct exec_decoder *d);
void exec_dec_scope_close(struct exec_decoder *d);
int exec_dec_new_register(struct exec_decoder *d, enum exec_type type, uint32_t *ret);
/* Looks up a register by name: *ret is its reference, or the number of a predicate. Returns 0, or 1
 * if the name is no register. */
int exec_dec_register(struct exec_decoder *d, const char *name, uint32_t *ret,
		      enum exec_type *ret_type);
/* Returns the count of components if the name is a whole vector register, else 0. */
uint32_t exec_dec_vector_find(struct exec_decoder *d, const char *name);

/* decode_vector.c */
int exec_dec_vector_check(struct exec_decoder *d, const struct ptx_variable *v,
			  enum exec_type type);
/* Returns the number of the component that a name such as %v.y selects, -1: none; *ret_len: the
 * length of the vector's name. */
int exec_dec_component(const char *name, size_t *ret_len);
/* Makes *copy the instruction with whole vectors replaced by their components. Valid until the next
 * call. */
int exec_dec_expand(struct exec_decoder *d, const struct ptx_insn *insn, struct ptx_insn *copy);
int exec_dec_mov_vector(struct exec_decoder *d, uint32_t n);

/* Placement of a function's results and parameters, the same for callers and callee. */
struct exec_formal {
	bool in_register;
	enum exec_type type;
	uint32_t offset; /* in the frame, or the register's reference */
	uint32_t bytes;
};
int exec_dec_formals(struct exec_decoder *d, const struct ptx_function *f, struct exec_formal *ret,
		     uint32_t *frame, uint32_t *n32, uint32_t *n64, uint32_t *n_pred);

/* decode_operand.c */
enum exec_type exec_dec_type(const char *word); /* TY_COUNT: none */
unsigned exec_dec_type_bytes(enum exec_type t);
bool exec_dec_is_float(enum exec_type t);
bool exec_dec_is_signed(enum exec_type t);
static inline bool exec_dec_is_wide(enum exec_type t)
{
	return exec_dec_type_bytes(t) == 8;
}
bool exec_dec_has(struct exec_decoder *d, const char *modifier); /* and marks it as taken */
int exec_dec_pick(struct exec_decoder *d, const char *const *words, int n,
		  int none); /* index of the word present */
enum exec_type
exec_dec_take_type(struct exec_decoder *d); /* the first type not taken; TY_COUNT: none left */
int exec_dec_modifiers_done(struct exec_decoder *d); /* refuses modifiers that were not taken */
int exec_dec_operands(struct exec_decoder *d, unsigned n); /* refuses another number of operands */
/* Charges bytes that stay with the module, besides operations; refused beyond a limit. */
int exec_dec_module_takes(struct exec_decoder *d, uint64_t bytes);
int exec_dec_constant(struct exec_decoder *d, uint64_t bits, bool wide, uint32_t *ret);
/* Decodes a source of type t: register, constant, special register or address. dec_source requires
 * a register of its width; dec_source_any accepts wider ones and reports that in *ret_wide. */
int exec_dec_source(struct exec_decoder *d, const struct ptx_operand *o, enum exec_type t,
		    uint32_t *ret);
int exec_dec_source_any(struct exec_decoder *d, const struct ptx_operand *o, enum exec_type t,
			uint32_t *ret, bool *ret_wide);
int exec_dec_dest(struct exec_decoder *d, const struct ptx_operand *o, enum exec_type t,
		  uint32_t *ret);
int exec_dec_dest_any(struct exec_decoder *d, const struct ptx_operand *o, enum exec_type t,
		      uint32_t *ret, bool *ret_wide);
int exec_dec_pred(struct exec_decoder *d, const struct ptx_operand *o, uint16_t *ret,
		  uint8_t *ret_not); /* NULL: ! is refused */
/* "[...]": reference, width and offset of an address; *space is refined if the base is a variable.
 */
int exec_dec_address(struct exec_decoder *d, const struct ptx_operand *o,
		     enum exec_space_kind *space, struct exec_op *op);

/* Computes the whole address in a new 64-bit register. */
int exec_dec_address_value(struct exec_decoder *d, const struct ptx_operand *o,
			   enum exec_space_kind *space, uint32_t *ret);

/* decode_undefined.c: begins a function. */
void exec_dec_undefined_begin(struct exec_decoder *d);
void exec_dec_undefined_finish(struct exec_decoder *d);
void exec_dec_undefined_label(struct exec_decoder *d); /* at each label */
/* A register is a destination. */
int exec_dec_written(struct exec_decoder *d, uint32_t ref);
/* A register is a source: *ref becomes a constant, and d->undefined.read true, if nothing has
 * written it on any path to here. */
int exec_dec_read(struct exec_decoder *d, uint32_t *ref, bool wide);
/* The current instruction moved such a value to a register. */
void exec_dec_moved(struct exec_decoder *d, uint32_t ref);

/* decode_special.c: a special register read as type t. Returns 0, or 1 if none has this name and
 * size. */
int exec_dec_special(struct exec_decoder *d, const char *name, enum exec_type t, uint32_t *ret);

/* decode_kernel.c */
/* Emits the poll after an access that may be a spin wait on the first register that it read. */
int exec_dec_poll(struct exec_decoder *d, const struct exec_op *access);
/* Emits the restore before a return, with its guard. */
int exec_dec_restore_stack(struct exec_decoder *d);
int exec_dec_emit(struct exec_decoder *d, const struct exec_op *op);
struct exec_op exec_dec_op(struct exec_decoder *d,
			   exec_op_fn fn); /* with the instruction's guard and line */
int exec_dec_kernel(struct exec_decoder *d, const struct ptx_function *entry,
		    struct exec_function *out);
int exec_dec_shape(struct exec_decoder *d, const char *name,
		   uint32_t *ret); /* the function's number in this kernel */

/* Decodes the function of a shape to the end of the code. */
int exec_dec_function(struct exec_decoder *d, uint32_t index);

/* decode_call.c: adds every function whose address the module takes to a kernel that calls through
 * pointers. */
int exec_dec_reach_pointers(struct exec_decoder *d);

/* decode_finish.c */
void exec_dec_patch_calls(struct exec_decoder *d);
/* Sets the needs of a kernel and its callees; kernel: the number of its shape. */
int exec_dec_sizes(struct exec_decoder *d, uint32_t kernel, struct exec_function *out);
void exec_dec_patch_dynamic_shared(struct exec_decoder *d);
/* Moves code and constants to d->out, and exec_dec_finish the rest. */
int exec_dec_hand_over(struct exec_decoder *d);
void exec_dec_finish(struct exec_decoder *d);

/* decode_family.c: appends what kernels of one family have in common to key. Returns 1; 0 if the
 * kernel calls no functions; -ENOMEM. */
int exec_dec_family_key(const struct strmap *functions, const struct ptx_function *entry,
			struct buf *key);
/* Decodes n kernels of one family. Returns -EAGAIN, without a report, if they must be decoded one
 * by one. */
int exec_dec_family(struct exec_decoder *d, const struct ptx_function *const *entries,
		    struct exec_function **outs, uint32_t n);

/* decode_check.c: emits what precedes an access of that size, bytes: the check while checking, the
 * count while host memory is counted; how: CHECK_* of access_check.h. */
int exec_dec_check(struct exec_decoder *d, const struct exec_op *access, unsigned bytes,
		   unsigned how);
/* The count alone. Shared and local memory never need it. */
int exec_dec_link(struct exec_decoder *d, const struct exec_op *access, unsigned bytes,
		  unsigned how);

/* The decoder of an opcode. */
struct exec_opcode {
	const char *name;
	int (*decode)(struct exec_decoder *d, int a, int b); /* NULL: known but unsupported */
	int a, b;
	const char *missing; /* the reason why it is unsupported */
};
const struct exec_opcode *exec_dec_opcode_find(const char *name);

int exec_dec_arith(struct exec_decoder *d, int alu, int sources);
int exec_dec_mul(struct exec_decoder *d, int lo, int sources);
int exec_dec_mul24(struct exec_decoder *d, int lo, int sources);
int exec_dec_float_op(struct exec_decoder *d, int alu, int sources);
int exec_dec_div(struct exec_decoder *d, int a, int b);
int exec_dec_fma(struct exec_decoder *d, int a, int b);
int exec_dec_logic(struct exec_decoder *d, int alu, int sources);
int exec_dec_shift(struct exec_decoder *d, int alu, int b);
int exec_dec_bits(struct exec_decoder *d, int alu, int b);
int exec_dec_bfe(struct exec_decoder *d, int alu, int b);
int exec_dec_bfind(struct exec_decoder *d, int a, int b);
int exec_dec_prmt(struct exec_decoder *d, int a, int b);
int exec_dec_lop3(struct exec_decoder *d, int a, int b);
int exec_dec_shf(struct exec_decoder *d, int a, int b);
int exec_dec_carry(struct exec_decoder *d, int kind, int in);
int exec_dec_testp(struct exec_decoder *d, int a, int b);
int exec_dec_dot(struct exec_decoder *d, int which, int n);
int exec_dec_integer(struct exec_decoder *d, int which, int n);
int exec_dec_video(struct exec_decoder *d, int which, int n);
int exec_dec_mma(struct exec_decoder *d, int a, int b);
int exec_dec_wmma(struct exec_decoder *d, int a, int b);
int exec_dec_matrix(struct exec_decoder *d, int store, int b);
int exec_dec_movmatrix(struct exec_decoder *d, int a, int b);

int exec_dec_mov(struct exec_decoder *d, int a, int b);
int exec_dec_mov_wide(struct exec_decoder *d); /* .b128 */
int exec_dec_selp(struct exec_decoder *d, int a, int b);
int exec_dec_slct(struct exec_decoder *d, int a, int b);
int exec_dec_setp(struct exec_decoder *d, int a, int b);
int exec_dec_set(struct exec_decoder *d, int a, int b);
int exec_dec_cvt(struct exec_decoder *d, int a, int b);
int exec_dec_cvta(struct exec_decoder *d, int a, int b);
int exec_dec_isspacep(struct exec_decoder *d, int a, int b);

int exec_dec_load(struct exec_decoder *d, int a, int b);
int exec_dec_store(struct exec_decoder *d, int a, int b);
int exec_dec_atom(struct exec_decoder *d, int wants_old, int b);
int exec_dec_prefetch(struct exec_decoder *d, int a, int b);
int exec_dec_fence(struct exec_decoder *d, int a, int b);

int exec_dec_bra(struct exec_decoder *d, int a, int b);
int exec_dec_brx(struct exec_decoder *d, int a, int b);
int exec_dec_call(struct exec_decoder *d, int a, int b);
int exec_dec_plain(struct exec_decoder *d, int which, int b);
int exec_dec_bar(struct exec_decoder *d, int a, int b);
int exec_dec_shfl(struct exec_decoder *d, int a, int b);
int exec_dec_vote(struct exec_decoder *d, int a, int b);
int exec_dec_match(struct exec_decoder *d, int a, int b);
int exec_dec_redux(struct exec_decoder *d, int a, int b);
int exec_dec_nanosleep(struct exec_decoder *d, int a, int b);
int exec_dec_elect(struct exec_decoder *d, int a, int b);
int exec_dec_alloca(struct exec_decoder *d, int a, int b);
int exec_dec_stack(struct exec_decoder *d, int restore, int b);
int exec_dec_cluster(struct exec_decoder *d, int rank, int b);
int exec_dec_hint(struct exec_decoder *d, int least, int most);
int exec_dec_policy(struct exec_decoder *d, int a, int b);
int exec_dec_cp(struct exec_decoder *d, int a, int b);
int exec_dec_mbarrier(struct exec_decoder *d, int a, int b);
int exec_dec_activemask(struct exec_decoder *d, int a, int b);

/* decode_texture.c */
int exec_dec_tex(struct exec_decoder *d, int gather, int b);
int exec_dec_texture_query(struct exec_decoder *d, int surface, int b);
/* The handle in [ ]: a register of 64 bits or the name of a .texref or .surfref variable. */
int exec_dec_texture_handle(struct exec_decoder *d, const struct ptx_operand *o, uint32_t *ret);
/* Returns the first of the registers that hold inputs in the current function. */
int exec_dec_texture_inputs(struct exec_decoder *d, uint32_t *ret);
/* Copies a source into input i. */
int exec_dec_texture_input(struct exec_decoder *d, const struct ptx_operand *o, enum exec_type t,
			   unsigned i);
/* decode_surface.c */
int exec_dec_surface(struct exec_decoder *d, int is_store, int b);
int exec_dec_surface_reduce(struct exec_decoder *d, int a, int b);

#endif
