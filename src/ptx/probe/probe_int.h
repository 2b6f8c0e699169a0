/* Shared by the files of the probe pass. */
#ifndef GBPF_PTX_PROBE_PROBE_INT_H
#define GBPF_PTX_PROBE_PROBE_INT_H

#include "base/strmap.h"
#include "ptx/probe.h"

#define PTX_PROBE_NO_PLACE UINT32_MAX
#define PTX_PROBE_VIA_MAX 64u

enum {
#define GBPF_DEVICE_HOOK(id, name, budget, doc) PTX_PROBE_##name = id,
#include "gbpf/hooks.def"
	PTX_PROBE_HOOK_FIRST = 32,
	PTX_PROBE_HOOK_LAST = 63,
};
#define PTX_PROBE_HOOK_BIT(id) (UINT32_C(1) << ((id)-PTX_PROBE_HOOK_FIRST))

/* A name at the module's top level. */
struct ptx_probe_name {
	const char *name;
	struct ptx_function *f; /* function of that name: its definition, or else a declaration */
	struct ptx_variable *v; /* variable of that name, likewise */
	bool alias;		/* ".alias name, other;" */
	bool reached;
	unsigned hidden; /* number of declarations around the current place that hide the name */
	uint32_t place;	 /* entry of the table; PTX_PROBE_NO_PLACE: none */
	uint32_t line;	 /* line of the first use */
	uint32_t listed; /* a function: its index in the list, plus 1; 0: not listed */
	struct ptx_probe_name *work; /* next name in the slice's work list */
};

/* A field of a hook's context. probe_field.c computes its value. */
struct ptx_probe_field {
	uint32_t hook;
	const char *name;
	uint32_t bytes;
};

#define PTX_PROBE_ANY UINT32_MAX

/* Properties that a filter requires of a site. */
struct ptx_probe_filter {
	uint32_t number, op, space, bytes, scope, after, kind; /* PTX_PROBE_ANY: any */
	const char *file;				       /* NULL: any; file_len bytes */
	size_t file_len;
	uint32_t line;
	const char *function; /* pattern; NULL: any */
};

enum ptx_probe_arg_kind {
	PTX_PROBE_ARG,	       /* by its offset in the parameters */
	PTX_PROBE_PARAM,       /* a parameter by its number; the value is 0 if there is none */
	PTX_PROBE_PARAM_BYTES, /* size of a parameter, by its number */
};

/* An argument of the kernel. */
struct ptx_probe_arg {
	enum ptx_probe_arg_kind kind;
	uint32_t offset; /* or number */
	uint32_t bytes;	 /* 1, 2, 4 or 8 */
};

#define PTX_PROBE_ARGS_MAX 32u				   /* of a program */
#define PTX_PROBE_ARG_WIDTH(bytes) ((bytes) < 8 ? 4u : 8u) /* of the program's parameter */

/* A probe, and what the pass knows of it. */
struct ptx_probe_program {
	const struct ptx_probe *probe;
	const struct ptx_probe_field *fields; /* all fields of its hook; n_fields of them */
	uint32_t n_fields;
	uint32_t place;		   /* table entry of its environment */
	struct ptx_module *module; /* its functions; owned */
	const struct ptx_function *root;
	bool control;		/* the root has the parameter `control` */
	uint64_t maps;		/* maps whose addresses are parameters of the root, as bits */
	uint64_t owns;		/* those of them that are ownN */
	uint32_t scratch;	/* where its tool's maps begin among a warp's bytes */
	bool sums;		/* there are such parameters, and all are sumN */
	bool defers;		/* its calls at accesses can be deferred (probe_defer.c) */
	uint32_t maps_place;	/* table entry of the first address */
	const uint64_t *map_at; /* their addresses, which become constants of the text; NULL: they
				   are in the table */
	struct ptx_probe_filter filter;
	uint32_t n_insns; /* of the root, if it can become part of a body; 0: it cannot */
	bool early;	  /* it begins with a leading test (probe_early.c) */
	bool flat;   /* at sites without a guard it is written under predicates (probe_flat.c) */
	bool called; /* code of the form calls its functions, so these are printed */
	struct ptx_probe_arg args[PTX_PROBE_ARGS_MAX];
	uint32_t n_args;
};

/* Returns the number of addresses, of control words and maps, that the root takes behind its
 * environment. */
static inline uint32_t ptx_probe_n_addresses(const struct ptx_probe_program *g)
{
	return g->control + (uint32_t)__builtin_popcountll(g->maps);
}

/* Max instructions of programs that become part of the bodies of one form. Sites beyond that call
 * the programs, so that code and compile time grow little with each. */
#define PTX_PROBE_INLINE_MAX 4096u

/* Max instructions of a program that is written under predicates. */
#define PTX_PROBE_FLAT_MAX 32u

#define PTX_PROBE_SPACE_PARAM 99

/* Values of the group of lanes that a program's fields need, as bits. */
enum {
	PTX_PROBE_NEEDS_MASK = 1,
	PTX_PROBE_NEEDS_RANGE = 2,
	PTX_PROBE_NEEDS_SECTORS = 4,
	PTX_PROBE_NEEDS_STRIDE = 8,
	PTX_PROBE_NEEDS_CONFLICTS = 16,
	PTX_PROBE_NEEDS_TAKEN = 32,
	PTX_PROBE_NEEDS_ADDRESS = 2 + 4 + 8 + 16,
};

/* GBPF_STRIDE_* of hooks.def. */
enum {
	PTX_PROBE_STRIDE_MIXED,
	PTX_PROBE_STRIDE_SAME,
	PTX_PROBE_STRIDE_UNIT,
	PTX_PROBE_STRIDE_CONSTANT,
};

/* A place of the kernel at which programs run. */
struct ptx_probe_site {
	uint32_t hook, number;
	uint32_t file, line;	     /* of the source; 0: not known */
	const struct ptx_insn *insn; /* instruction at the site; NULL: the site is a place */
	const char *guard; /* predicate of the lanes that are at the site; NULL: all active lanes */
	bool guard_not;
	uint32_t op, space, bytes; /* of an access */
	const char *size;	   /* register that holds the size, instead of bytes; NULL: none */
	const struct ptx_operand *address; /* of an access */
	uint32_t lanes;			   /* lanes that have an address, from lane 0 on */
	struct {
		uint32_t line;		 /* adjacent bytes of a line; 0: not an access of wmma */
		uint32_t elements, bits; /* elements of a line; bits of an element */
		const struct ptx_operand
			*stride; /* distance of lines in elements; NULL: that of adjacent lines */
	} matrix;
	uint32_t scope;	      /* of a fence */
	uint32_t after, kind; /* of a barrier */
};

#define PTX_PROBE_LOOPS_MAX 64u

/* Lines of the text between which an entry's loops lie. */
struct ptx_probe_loops {
	uint32_t n, first[PTX_PROBE_LOOPS_MAX], last[PTX_PROBE_LOOPS_MAX];
	bool many; /* there are more loops than fit; then every place counts as inside a loop */
};

#define PTX_PROBE_SUMS_MAX 16u
/* Max instructions of a program whose calls are deferred. Each sum has a copy of it. */
#define PTX_PROBE_DEFER_MAX 256u

/* Deferred calls of sites that the program cannot tell apart: a lane keeps one key and one count
 * for them. */
struct ptx_probe_sum {
	struct ptx_probe_program *g;
	struct ptx_probe_site site; /* one of these sites */
	uint32_t needs;		    /* PTX_PROBE_NEEDS_* */
	uint32_t n_sites;
};

#define PTX_PROBE_CLASSES_MAX 8u
#define PTX_PROBE_FOLLOWERS_MAX 256u

/* The sites for which the current one collects and runs its programs, itself included: `total` of
 * them, in n classes of equal collections. total 0: it stands for itself alone. */
struct ptx_probe_merge {
	uint32_t n, total, needs;
	uint32_t label;			       /* of the loop over classes, if there are several */
	int64_t offset[PTX_PROBE_CLASSES_MAX]; /* of one address of each class */
	uint32_t count[PTX_PROBE_CLASSES_MAX]; /* its sites */
	struct ptx_operand address;	       /* of the first class */
	const struct ptx_insn
		*followers[PTX_PROBE_FOLLOWERS_MAX]; /* those to come of this and former sites */
	uint32_t n_followers;
};

struct ptx_probe_work {
	const struct ptx_module *m;
	struct ptx_probed *ret;
	struct report *report;
	struct buf *out;
	struct strmap names; /* struct ptx_probe_name */
	struct ptx_probe_program programs[PTX_PROBES_MAX];
	uint32_t n_programs;
	uint32_t hooks; /* bit id - 32: some probe has this hook */
	struct ptx_probe_name *entry;
	struct ptx_probe_name *work;
	struct ptx_probe_name *list; /* the list of functions (ptx/prepare.h); NULL: none */
	const struct ptx_function
		*via[PTX_PROBE_VIA_MAX]; /* prototypes of calls through pointers */
	unsigned n_via, via_work;
	uint32_t warp_bytes;  /* that the form has for each warp in shared memory */
	const char *stem;     /* prefix that no name of the module has */
	size_t control_at;    /* brackets: offset in ~launch of the row's offset; 0: no bracket */
	bool has_constants;   /* the slice uses a .const variable */
	uint32_t spaces_line; /* line of an isspacep of constant or global memory; 0: none */
	/* While a function is scanned or printed: */
	const struct ptx_function *in;
	uint32_t loc, loc_file;		    /* source line at the current place; 0: not known */
	uint32_t first_loc, first_file;	    /* source line at the function's beginning */
	const struct ptx_item *entry_place; /* item in front of which the programs of the entry's
					       hooks go; NULL: they have been printed */
	struct strmap scopes[PTX_NESTING_MAX + 2]; /* declarations of the n_scopes scopes around the
						      current place, innermost last */
	unsigned n_scopes;
	uint32_t n_sites[32]; /* sites so far, by hook - 32 */
	uint32_t n_labels;
	uint32_t n_inlined; /* instructions of programs that are part of bodies so far */
	struct ptx_probe_sum sums[PTX_PROBE_SUMS_MAX]; /* sums of the entry; n_sums of them */
	uint32_t n_sums;
	bool defers;		      /* calls of programs in the entry can be deferred */
	struct ptx_probe_loops loops; /* loops of the entry; set if defers is */
	uint32_t leave_label;	      /* label to which threads that leave jump; set if defers is */
	struct ptx_probe_merge merge;
	bool weighted; /* the program being inlined multiplies its additions by the weight */
	int sum_of[PTX_PROBES_MAX]; /* sum of each program at this site; -1: its call is not
				       deferred */
	const struct ptx_kernel_params
		*params;		 /* of the kernel that gets a stub; NULL: not known */
	const struct ptx_function *head; /* the entry's, with the launch's number; NULL: as it is */
	const char *number_passed;	 /* parameter of calls that pass it on */
	bool passes_number; /* functions of the slice have the launch's number as their last
			       parameter */
	bool lacks_number;  /* a program reads it in a function that does not have it */
	const struct ptx_probe_program
		*without_args; /* cannot read its arguments at a site; NULL: none */
	const char *without_why;
	bool line_entered;   /* a label, or the function's beginning, stands behind the last .loc */
	struct strmap files; /* file name of each .file, by its number as text */
};

/* Sets the report's place and reason, with the hint to use another form; late: to load under `gbpf
 * run --probes`. Returns -ENOTSUP. */
int ptx_probe_refuse(struct ptx_probe_work *p, uint32_t line, const char *fmt, ...)
	PRINTF_LIKE(3, 4);
int ptx_probe_refuse_late(struct ptx_probe_work *p, uint32_t line, const char *fmt, ...)
	PRINTF_LIKE(3, 4);

/* probe_names.c */
int ptx_probe_collect(struct ptx_probe_work *p);
/* Returns the top-level meaning of a name here; NULL: none, or the body declares it. */
struct ptx_probe_name *ptx_probe_find(const struct ptx_probe_work *p, const char *name);
/* Hides the names that a list, or a function's parameters, declare. by: 1 on entry, -1 on exit. */
void ptx_probe_hide_list(struct ptx_probe_work *p, const struct ptx_list *list, int by);
void ptx_probe_hide_params(struct ptx_probe_work *p, const struct ptx_function *f, int by);
bool ptx_probe_has_modifier(const struct ptx_insn *insn, const char *modifier);
/* list: ends with NULL. */
bool ptx_probe_is_one_of(const char *word, const char *const *list);

/* probe_slice.c: marks what the entry reaches and gives variables their places in the table. */
int ptx_probe_slice(struct ptx_probe_work *p);

/* Mark a name as reached from that line. */
int ptx_probe_reach_function(struct ptx_probe_work *p, struct ptx_probe_name *n, uint32_t line);
int ptx_probe_reach_variable(struct ptx_probe_work *p, struct ptx_probe_name *n, uint32_t line);

/* probe_via.c: calls through pointers. */
/* Finds the list of functions. */
int ptx_probe_via_open(struct ptx_probe_work *p);
/* Reaches what a call through a pointer may call. */
int ptx_probe_via_reach(struct ptx_probe_work *p, const struct ptx_insn *insn);
/* Prints the functions that calls through pointers call, behind the table. */
int ptx_probe_via_print(struct ptx_probe_work *p);
/* Returns true for a call through a pointer. */
bool ptx_probe_via_is(const struct ptx_probe_work *p, const struct ptx_insn *insn);
void ptx_probe_via_call(struct ptx_probe_work *p, const struct ptx_insn *insn);

/* probe_program.c: reads the probes' texts and checks them against the contract. */
int ptx_probe_programs(struct ptx_probe_work *p, const struct ptx_probe *probes, uint32_t n);
void ptx_probe_programs_finish(struct ptx_probe_work *p);

/* probe_inline.c: a root as a scope of another body, which defines %~e as the environment,
 * %~zero as 0, %~fN as field N and %~rN as argument N. Returns why it
 * cannot become one, and its number of instructions; NULL: it can. No scope may have been entered.
 */
const char *ptx_probe_inline_why(struct ptx_probe_work *p, const struct ptx_probe_program *g,
				 uint32_t *ret_insns);
/* Returns what the i-th address among the root's parameters is of: a map, or PTX_PROBE_CONTROL. */
uint32_t ptx_probe_root_address_of(const struct ptx_probe_program *g, uint32_t i);
/* Loads that address into a register, likewise. */
void ptx_probe_root_address(struct ptx_probe_work *p, const struct ptx_probe_program *g, uint32_t i,
			    const char *reg);
void ptx_probe_inline(struct ptx_probe_work *p, struct ptx_probe_program *g);
/* Returns the number of the root's parameter that the instruction loads; -1: none. */
int ptx_probe_inline_param(const struct ptx_function *root, const struct ptx_insn *insn);
/* Prints the load of parameter i. */
void ptx_probe_inline_take(struct ptx_probe_work *p, const struct ptx_probe_program *g,
			   const struct ptx_insn *insn, uint32_t i);

/* probe_flat.c: a root under predicates. Returns true if it can be written so. */
bool ptx_probe_is_flat(struct ptx_probe_work *p, const struct ptx_probe_program *g);
/* As ptx_probe_inline(), in all lanes; %~on is true in the elected one. */
void ptx_probe_flat(struct ptx_probe_work *p, const struct ptx_probe_program *g);

/* probe_early.c: a program's leading test of values that all threads of a block share. Returns
 * true if it has one. */
bool ptx_probe_has_early(struct ptx_probe_work *p, const struct ptx_probe_program *g);
/* Prints the program's leading test, if it has one: blocks that the program leaves out jump to the
 * label. */
void ptx_probe_early(struct ptx_probe_work *p, const struct ptx_probe_program *g,
		     const struct ptx_probe_site *s, uint32_t label);
/* probe_loop.c */
void ptx_probe_find_loops(struct ptx_probe_loops *l, const struct ptx_function *f);
bool ptx_probe_in_loop(const struct ptx_probe_loops *l, uint32_t line);

/* probe_defer.c: calls that are deferred until the thread leaves the entry. */
/* Returns true for a program of which several calls with the same fields can become one. */
bool ptx_probe_can_defer(const struct ptx_probe_work *p, const struct ptx_probe_program *g);
/* Declares and clears the sums, at the entry's beginning. */
void ptx_probe_defer_open(struct ptx_probe_work *p);
/* Determines p->sum_of at a site, whose programs of a warp run here if runs[i]. */
void ptx_probe_defer_site(struct ptx_probe_work *p, const struct ptx_probe_site *s,
			  const bool *runs);
/* Defers the call of a program at this site: after the collection, in the lane with %~on. */
void ptx_probe_defer(struct ptx_probe_work *p, uint32_t i);
/* Makes threads that leave the entry at insn jump to the calls of the sums. insn NULL: its end. */
void ptx_probe_defer_leave(struct ptx_probe_work *p, const struct ptx_insn *insn);
/* Prints the calls of all sums, behind the entry's body. */
void ptx_probe_defer_end(struct ptx_probe_work *p);
/* probe_insert.c: runs a program, whose fields are known, in a scope of its own. */
void ptx_probe_run(struct ptx_probe_work *p, struct ptx_probe_program *g,
		   const struct ptx_probe_site *s);

/* probe_merge.c: accesses that one collection serves. */
/* Determines p->merge of a site whose programs read `needs` of the warp. */
void ptx_probe_merge_find(struct ptx_probe_work *p, const struct ptx_probe_site *s, uint32_t needs);
/* Returns true, once, for an instruction whose programs a site in front of it has run. */
bool ptx_probe_merge_take(struct ptx_probe_work *p, const struct ptx_insn *insn);
/* Begin a round for each class, behind the address's computation, and end it. */
void ptx_probe_merge_begin(struct ptx_probe_work *p);
void ptx_probe_merge_end(struct ptx_probe_work *p);
/* Writes the operand, of 32 bits, that says for how many sites the programs run in this round. */
void ptx_probe_merge_weight(const struct ptx_probe_work *p, char *ret, size_t size);

/* probe_scratch.c: maps in shared memory. */
/* Gives each tool whose programs use such maps its part of a warp's bytes, and determines
 * p->warp_bytes. Returns 0 or a negative error. */
int ptx_probe_scratch_find(struct ptx_probe_work *p);
/* At the entry's beginning: the lanes of each warp clear its bytes. */
void ptx_probe_scratch_clear(struct ptx_probe_work *p);
/* Behind the programs of the entry's hooks: what they have stored is there for all lanes. */
void ptx_probe_scratch_entered(struct ptx_probe_work *p);
/* Stores the generic address of the warp's instance of a map in a register. */
void ptx_probe_scratch_address(struct ptx_probe_work *p, const struct ptx_probe_program *g,
			       uint32_t map, const char *reg);

/* probe_call.c: calls a root in a scope that defines the same registers, and %~d. */
void ptx_probe_call(struct ptx_probe_work *p, const struct ptx_probe_program *g);

/* probe_late.c: programs of gdev_block_exit outside of the kernel (ptx/probe_late.h). */
/* Returns the reason why a program cannot run late; NULL: it can. */
const char *ptx_probe_late_why(const struct ptx_probe_program *g);
/* In an entry stub: stores this block's record and sets %~b to the number of the block that had its
 * place, or branches to $~endLABEL. In a scope with %~p, %~x and %~z, which is 0. */
void ptx_probe_late_begin(struct ptx_probe_work *p, uint32_t label);
/* Computes field k of that block. Returns false for a field that is not known of it. */
bool ptx_probe_late_field(struct ptx_probe_work *p, const struct ptx_probe_field *f, uint32_t k);
/* In a bracket: calls them for each record of its launch, with %~block, %~sm and %~warp. */
void ptx_probe_late_entry(struct ptx_probe_work *p, void (*call_all)(struct ptx_probe_work *p));

/* probe_wmma.c: wmma.load and wmma.store. Takes shape and type; false: neither, or not known. */
bool ptx_probe_wmma(const struct ptx_insn *insn, struct ptx_probe_site *s);
/* Returns whether the distance of lines can be read here. */
bool ptx_probe_wmma_known(const struct ptx_probe_work *p, const struct ptx_probe_site *s);
/* Adds the offset of the lane's part to the address in %~x. Changes %~y, %~z, %~i and %~w. */
void ptx_probe_wmma_share(struct ptx_probe_work *p, const struct ptx_probe_site *s);

/* probe_args.c: arguments of the kernel. Reads those that a root has as parameters from number
 * `first` on. Returns 0 or -EINVAL. */
int ptx_probe_read_args(struct ptx_probe_program *g, const struct ptx_function *root,
			uint32_t first);
/* Returns how many bytes of a parameter gbpf_param() reads: 1, 2, 4 or 8, or 0 of an empty one. */
uint32_t ptx_probe_first_bytes(uint64_t offset, uint64_t size);
/* Stores what an argument by its number reads: ret->bytes at ret->offset. If ret->bytes is 0 it is
 * a constant, which is returned. */
uint32_t ptx_probe_param_part(const struct ptx_kernel_params *params, const struct ptx_probe_arg *a,
			      struct ptx_kernel_param *ret);
/* Returns 0, or -ENOTSUP: the entry has no such argument. */
int ptx_probe_check_args(struct ptx_probe_work *p);
/* Declares %~r0, %~r1 ... and loads the arguments into them. */
void ptx_probe_args(struct ptx_probe_work *p, const struct ptx_probe_program *g);
/* Returns 0, or -ENOTSUP: a program has a site at which they cannot be loaded. */
int ptx_probe_refuse_args(struct ptx_probe_work *p);

/* probe_number.c: the launch's number, a parameter behind those of the entry. Determines whether it
 * has one. Returns 0, or -ENOTSUP. */
int ptx_probe_number_open(struct ptx_probe_work *p);
/* Prints what is in front of a function's body, with that parameter if it has one. */
void ptx_probe_number_head(struct ptx_probe_work *p, const struct ptx_function *f);
/* Loads it into a register of the function, at the beginning of its body, if calls pass it on. */
void ptx_probe_number_begin(struct ptx_probe_work *p);
/* Stores it to a register. */
void ptx_probe_number_load(struct ptx_probe_work *p, const char *reg);
/* Returns true for a function that has the parameter: the driver does not provide it, and calls
 * pass the number on. */
bool ptx_probe_number_has(const struct ptx_probe_work *p, const struct ptx_function *f);
/* Returns true for a call of such a function. */
bool ptx_probe_number_passed(const struct ptx_probe_work *p, const struct ptx_insn *insn);
/* If calls pass it on, print an argument variable with it in a scope of its own, and return that as
 * an operand of the call. */
void ptx_probe_number_store(struct ptx_probe_work *p);
struct ptx_operand ptx_probe_number_arg(const struct ptx_probe_work *p);
/* Adds it to the arguments of such a call, whose operands are a copy with room for one more, in a
 * scope of its own. Returns 0 or -ENOMEM. */
int ptx_probe_number_pass(struct ptx_probe_work *p, struct ptx_insn *call);
/* Returns true for the field of that name. */
bool ptx_probe_number_is(const char *field);

/* probe_hooks.c: fields of a hook, from hooks.def. NULL: no such hook inside kernels. */
const struct ptx_probe_field *ptx_probe_fields(uint32_t hook, uint32_t *ret_n);

/* probe_old.c: a program's functions for a target older than sm_70. */
/* Returns the number of the kernel's target: 90 of sm_90a. */
unsigned ptx_probe_target(const struct ptx_probe_work *p);
bool ptx_probe_is_old(const struct ptx_probe_work *p);
/* Returns true if it cannot be written for such a target. */
bool ptx_probe_is_new_insn(const struct ptx_insn *insn);
void ptx_probe_print_old_insn(struct ptx_probe_work *p, const struct ptx_insn *insn);
int ptx_probe_print_old(struct ptx_probe_work *p, const struct ptx_probe_program *g);

/* probe_print.c: the new module. */
int ptx_probe_print(struct ptx_probe_work *p);

/* probe_regs.c: the declarations of scopes, as printing enters and leaves them. Those that fail
 * return -ENOMEM; entering has to be undone even then. */
void ptx_probe_enter(struct ptx_probe_work *p);
/* Adds to the innermost scope. */
int ptx_probe_declare(struct ptx_probe_work *p, const struct ptx_variable *v);
int ptx_probe_enter_params(struct ptx_probe_work *p, const struct ptx_function *f);
int ptx_probe_enter_list(struct ptx_probe_work *p, const struct ptx_list *list);
void ptx_probe_leave_scope(struct ptx_probe_work *p);
/* Returns the declaration of a body's name here, a range for a register of it; NULL: none. */
const struct ptx_variable *ptx_probe_declared(const struct ptx_probe_work *p, const char *name);
/* Returns true if the operand is an address of memory, and not of a parameter. */
bool ptx_probe_has_address(const struct ptx_probe_work *p, const struct ptx_operand *o);
/* Computes such an address into %~x. Uses %~t. */
void ptx_probe_address(struct ptx_probe_work *p, const struct ptx_operand *o);

/* probe_access.c: returns true for an access, and fills in its part of s. */
bool ptx_probe_access(const struct ptx_insn *insn, struct ptx_probe_site *s);
/* Returns whether an instruction may access memory, other than parameters and what prefetches,
 * mbarriers and tensor maps concern. */
bool ptx_probe_accesses(const struct ptx_insn *insn);
/* probe_known.c: returns whether this version knows what the instruction does. */
bool ptx_probe_is_known(const struct ptx_insn *insn);
bool ptx_probe_is_bulk(const struct ptx_probe_site *s);
bool ptx_probe_is_shared(const struct ptx_probe_site *s);
/* Returns true if the addresses of its space have 32 bits. */
bool ptx_probe_is_narrow(const struct ptx_probe_site *s);
/* Stores the property that a filter's word names. Returns 0, or -1 for a word that is not of
 * accesses. */
int ptx_probe_access_word(const char *word, size_t len, uint32_t *space, uint32_t *op);

/* probe_filter.c: reads the filter of a probe. Returns 0 or -EINVAL. */
int ptx_probe_filter(struct ptx_probe_work *p, struct ptx_probe_program *g);
/* Returns the name in the .file of that number, with its length; NULL: there is none. */
const char *ptx_probe_file_name(const struct ptx_probe_work *p, uint32_t n, size_t *ret_len);
/* Returns true if the filter lets the program run there. */
bool ptx_probe_matches(const struct ptx_probe_work *p, const struct ptx_probe_program *g,
		       const struct ptx_probe_site *s);

/* probe_site.c: inserts programs in front of and behind an instruction. */
void ptx_probe_before(struct ptx_probe_work *p, const struct ptx_insn *insn);
void ptx_probe_after(struct ptx_probe_work *p, const struct ptx_insn *insn);
/* Inserts programs of gdev_line; the line has just been noted. */
void ptx_probe_line(struct ptx_probe_work *p);
/* Inserts the code at the beginning of the function that is printed; ptx_probe_end(): at its
 * end. */
void ptx_probe_begin(struct ptx_probe_work *p);
/* Inserts programs of the entry's hooks, at p->entry_place or as part of ptx_probe_begin(). */
void ptx_probe_enter_entry(struct ptx_probe_work *p);
void ptx_probe_end(struct ptx_probe_work *p);

/* probe_place.c: returns the item of the entry's body in front of which programs of its hooks
 * are printed; NULL: at its beginning. */
const struct ptx_item *ptx_probe_entry_place(const struct ptx_probe_work *p,
					     const struct ptx_function *f);

/* probe_insert.c: code at sites. Each appends to p->out. */
/* Inserts the programs of a site: the modes' scopes one after the other. */
void ptx_probe_insert(struct ptx_probe_work *p, const struct ptx_probe_site *s);
/* Computes the address behind the launch's shared memory into %~a. */
void ptx_probe_shared_end(struct ptx_probe_work *p);
/* Counts the threads of the block, and those that leave at a site of gdev_block_exit. */
void ptx_probe_count_all(struct ptx_probe_work *p);
void ptx_probe_leave_block(struct ptx_probe_work *p, const struct ptx_probe_site *s);

/* probe_collect.c: what a group of lanes knows together, into registers of the site's scope.
 * single: of one lane. */
void ptx_probe_collect_access(struct ptx_probe_work *p, const struct ptx_probe_site *s,
			      uint32_t needs, bool single);
void ptx_probe_collect_taken(struct ptx_probe_work *p, const struct ptx_probe_site *s, bool single);
/* probe_match.c: the same by instructions of a warp. Sectors: %~z is the number of a lane's. full:
 * the mask has all lanes. */
void ptx_probe_match_sectors(struct ptx_probe_work *p, const struct ptx_probe_site *s, bool full);
void ptx_probe_match_conflicts(struct ptx_probe_work *p, const struct ptx_probe_site *s);
void ptx_probe_reduce_range(struct ptx_probe_work *p, const struct ptx_probe_site *s);
/* Stores the bytes of an access to a register of 64 bits. */
void ptx_probe_size(struct ptx_probe_work *p, const struct ptx_probe_site *s, const char *reg);

/* probe_field.c: computes a field into register %STEMfN. */
void ptx_probe_field(struct ptx_probe_work *p, const struct ptx_probe_program *g, unsigned n,
		     const struct ptx_probe_site *s);
/* Returns PTX_PROBE_NEEDS_* of a field. */
uint32_t ptx_probe_field_needs(const char *name);
/* Returns true if it is a time, which is read last. */
bool ptx_probe_field_is_time(const char *name);
/* Returns whether a program of the hook reads the field. */
bool ptx_probe_reads_field(const struct ptx_probe_work *p, uint32_t hook, const char *name);

/* Appends text in which ~ stands for the stem. */
void ptx_probe_text(struct ptx_probe_work *p, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
