/* The text of a form: the slice with code at its sites. Stubs and brackets are written with the
 * same parts. Each member of the work struct is written by the file that its comment names. */
#ifndef GBPF_PTX_PROBE_EMIT_PROBE_EMIT_H
#define GBPF_PTX_PROBE_EMIT_PROBE_EMIT_H

#include "ptx/probe/site/probe_site.h"

/* Max instructions of programs that become part of the bodies of one form. Sites beyond that call
 * the programs, so that code and compile time grow little with each. */
#define PTX_PROBE_INLINE_MAX 4096u

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

/* How a program is written in this form. */
struct ptx_probe_code {
	uint32_t maps_place;	/* table entry of the first address; 0: none */
	const uint64_t *map_at; /* addresses of maps, which become constants of the text; NULL: they
				   are in the table */
	uint32_t n_insns;	/* of the root, if it can become part of a body; 0: it cannot */
	bool early;		/* it begins with a leading test (probe_early.c) */
	bool flat;   /* at sites without a guard it is written under predicates (probe_flat.c) */
	bool defers; /* its calls at accesses can be deferred (probe_defer.c) */
	bool called; /* code of the form calls its functions, so these are printed */
	int sum;     /* of this site; -1: its call is not deferred (probe_defer.c) */
};

#define PTX_PROBE_SUMS_MAX 16u

/* Deferred calls of sites that the program cannot tell apart: a lane keeps one key and one count
 * for them. */
struct ptx_probe_sum {
	const struct ptx_probe_program *g;
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
	const struct ptx_probe_read *read;
	const struct ptx_probe_slice *slice; /* NULL: an entry stub or brackets */
	struct ptx_probed *ret;		     /* NULL likewise */
	struct report *report;
	struct buf *out;
	const char *stem;   /* prefix that no name of the module has */
	const char *kernel; /* its name */
	struct ptx_probe_code code[PTX_PROBES_MAX];
	uint32_t n_labels;
	uint32_t n_inlined; /* instructions of programs that are part of bodies so far */
	bool weighted;	    /* the program being inlined multiplies its additions by the weight */
	struct ptx_probe_scopes
		scopes; /* around the current place (probe_print.c, probe_inline.c) */
	struct {	/* the current place (probe_print.c, probe_site.c) */
		const struct ptx_function *in;
		uint32_t loc, loc_file;		/* source line; 0: not known */
		uint32_t first_loc, first_file; /* at the function's beginning */
		bool line_entered; /* a label, or the function's beginning, is behind the last .loc
				    */
		const struct ptx_item *entry_place; /* item in front of which the programs of the
						       entry's hooks go; NULL: they are printed */
		uint32_t n_sites[32];		    /* sites so far, by hook - 32 */
	} at;
	struct { /* of the entry (probe_defer.c) */
		struct ptx_probe_sum at[PTX_PROBE_SUMS_MAX];
		uint32_t n;
		bool any; /* calls of programs can be deferred; then: */
		struct ptx_probe_loops loops;
		uint32_t leave_label; /* to which threads that leave jump */
	} sums;
	struct ptx_probe_merge merge;		 /* probe_merge.c */
	struct {				 /* of the launch (probe_number.c) */
		const struct ptx_function *head; /* the entry's, with it; NULL: as it is */
		const char *passed;		 /* parameter of calls that pass it on */
		bool passes; /* functions of the slice have it as their last parameter */
		bool lacks;  /* a program reads it in a function that does not have it */
	} number;
	struct { /* probe_load.c */
		const struct ptx_probe_program
			*g; /* cannot read its arguments at a site; NULL: none */
		const char *why;
	} without;
	const struct ptx_kernel_params
		*params;   /* of the kernel that gets a stub; NULL: not known */
	size_t control_at; /* brackets: offset in ~launch of the row's offset; 0: no bracket */
};

/* Appends text in which ~ stands for the stem. */
void ptx_probe_text(struct ptx_probe_work *p, const char *fmt, ...) PRINTF_LIKE(2, 3);

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
void ptx_probe_inline(struct ptx_probe_work *p, const struct ptx_probe_program *g);
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

/* probe_defer.c: calls that are deferred until the thread leaves the entry. */
/* Returns true for a program of which several calls with the same fields can become one. */
bool ptx_probe_can_defer(const struct ptx_probe_work *p, const struct ptx_probe_program *g);
/* Declares and clears the sums, at the entry's beginning. */
void ptx_probe_defer_open(struct ptx_probe_work *p);
/* Determines the sums of a site, whose programs of a warp run here if runs[i]. */
void ptx_probe_defer_site(struct ptx_probe_work *p, const struct ptx_probe_site *s,
			  const bool *runs);
/* Defers the call of a program at this site: after the collection, in the lane with %~on. */
void ptx_probe_defer(struct ptx_probe_work *p, uint32_t i);
/* Makes threads that leave the entry at insn jump to the calls of the sums. insn NULL: its end. */
void ptx_probe_defer_leave(struct ptx_probe_work *p, const struct ptx_insn *insn);
/* Prints the calls of all sums, behind the entry's body. */
void ptx_probe_defer_end(struct ptx_probe_work *p);
/* probe_insert.c: runs a program, whose fields are known, in a scope of its own. */
void ptx_probe_run(struct ptx_probe_work *p, const struct ptx_probe_program *g,
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

/* probe_address.c: computes an address of memory (ptx_probe_has_address) into %~x. Uses %~t. */
void ptx_probe_address(struct ptx_probe_work *p, const struct ptx_operand *o);
/* Adds the offset of the lane's part of a matrix. Changes %~y, %~z, %~i and %~w. */
void ptx_probe_wmma_share(struct ptx_probe_work *p, const struct ptx_probe_site *s);

/* probe_load.c: arguments of the kernel. */
/* Returns how many bytes of a parameter gbpf_param() reads: 1, 2, 4 or 8, or 0 of an empty one. */
uint32_t ptx_probe_first_bytes(uint64_t offset, uint64_t size);
/* Stores what an argument by its number reads: ret->bytes at ret->offset. If ret->bytes is 0 it is
 * a constant, which is returned. */
uint32_t ptx_probe_param_part(const struct ptx_kernel_params *params, const struct ptx_probe_arg *a,
			      struct ptx_kernel_param *ret);
/* Returns 0, or -ENOTSUP: the entry has no such argument. */
int ptx_probe_check_args(const struct ptx_probe_slice *p);
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

/* probe_via_call.c: calls through pointers. Prints the functions that these call, behind the table.
 */
int ptx_probe_via_print(struct ptx_probe_work *p);
/* Returns true for a call through a pointer. */
bool ptx_probe_via_is(const struct ptx_probe_work *p, const struct ptx_insn *insn);
void ptx_probe_via_call(struct ptx_probe_work *p, const struct ptx_insn *insn);

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

/* probe_site.c: inserts programs in front of and behind an instruction. */
void ptx_probe_before(struct ptx_probe_work *p, const struct ptx_insn *insn);
void ptx_probe_after(struct ptx_probe_work *p, const struct ptx_insn *insn);
/* Inserts programs of gdev_line; the line has just been noted. */
void ptx_probe_line(struct ptx_probe_work *p);
/* Inserts the code at the beginning of the function that is printed; ptx_probe_end(): at its
 * end. */
void ptx_probe_begin(struct ptx_probe_work *p);
/* Inserts programs of the entry's hooks, at p->at.entry_place or as part of ptx_probe_begin(). */
void ptx_probe_enter_entry(struct ptx_probe_work *p);
void ptx_probe_end(struct ptx_probe_work *p);

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

#endif
