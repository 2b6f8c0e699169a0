/* Shared by the files of the block pass. */
#ifndef GBPF_PTX_BLOCK_BLOCK_INT_H
#define GBPF_PTX_BLOCK_BLOCK_INT_H

#include "base/strmap.h"
#include "ptx/block.h"
#include "ptx/block_facts.h"

#define PTX_BLOCK_ARG_BYTES ((uint32_t)sizeof(struct ptx_block_arg))

struct ptx_block_function;

/* One call of a function by its name; element of the callee's list. */
struct ptx_block_caller {
	struct ptx_block_function *caller;
	struct ptx_block_caller *next;
};

/* A function name at the module's top level, and facts about its code; after ptx_block_graph, also
 * about everything that it may call. */
struct ptx_block_function {
	struct ptx_function *f;	  /* the definition, or a declaration */
	enum proto_block_why why; /* PROTO_BLOCK_UNKNOWN: nothing prevents a clone */
	uint32_t line;		  /* where the reason was found */
	bool knows;		  /* reads its block index or the grid's size */
	bool indirect;		  /* calls through a pointer, in indirect_line */
	bool taken;		  /* its address is used other than by a call */
	uint32_t indirect_line;
	unsigned hidden; /* number of enclosing declarations that hide the name */
	struct ptx_block_caller *callers;
	struct ptx_block_function *work;  /* work list of ptx_block_graph */
	const char *clone;		  /* name of a .func's copy that uses tickets; NULL: none */
	struct ptx_block_function *alias; /* its definition: ".alias this, that;" */
};

struct ptx_block_work {
	struct ptx_module *m;
	struct report *report;
	struct strmap names;		      /* struct ptx_block_function by name */
	struct strmap variables;	      /* other names declared at the top level */
	struct ptx_block_function *functions; /* n of them */
	uint32_t n;
	uint32_t n_entries;
	const char *stem;	  /* prefix that no name of the module has */
	enum proto_block_why why; /* reason that applies to all entries */
	bool linked;		  /* uses names of other modules, so pointers may lead there */
	bool failed;		  /* out of memory */
};

/* Returns PTX_BLOCK_SREG_CTAID or _NCTAID for "mov.v4.u32 {a, b, c, d}, %ctaid" and the like, else
 * _NONE. */
enum ptx_block_sreg ptx_block_vector_move(const struct ptx_insn *insn);

/* Returns true for the read of its dynamic shared memory that a clone can imitate: block.h. */
bool ptx_block_reads_bytes(const struct ptx_insn *insn);

/* Returns the function that a name means here; NULL: none, or a name that the body declares. */
struct ptx_block_function *ptx_block_find(const struct ptx_block_work *p, const char *name);
/* Notes ".alias a, b;"; ignores what it cannot parse. */
void ptx_block_alias(struct ptx_block_work *p, const struct ptx_directive *d);
/* Hides the names that a list, or a function's parameters, declare. by: 1 on entry, -1 on exit. */
void ptx_block_hide_list(struct ptx_block_work *p, const struct ptx_list *list, int by);
void ptx_block_hide_params(struct ptx_block_work *p, const struct ptx_function *f, int by);

/* block_scan.c: collects facts from each function's text. Returns 0, -EINVAL, -ENOMEM. */
int ptx_block_scan(struct ptx_block_work *p);
/* block_graph.c: adds the facts of callees. */
int ptx_block_graph(struct ptx_block_work *p);
/* block_params.c: lays an entry's parameters out, and checks that there is room behind them. */
int ptx_block_params(struct ptx_block_work *p, const struct ptx_function *f,
		     struct ptx_block_entry *e);
/* block_clone.c: adds the clone of an entry behind it; copies functions that read their block
 * index. */
int ptx_block_clone(struct ptx_block_work *p, struct ptx_block_function *f);
int ptx_block_copy_functions(struct ptx_block_work *p);
/* block_prologue.c: appends to a body the first instructions of an entry's clone, or those by which
 * a function's copy reads its block index. Declares names that begin with the stem; ptx_block_value
 * returns the registers of the values. */
int ptx_block_prologue(struct ptx_block_work *p, bool is_entry, struct ptx_list *ret);
/* Appends the code that a clone's prologue jumps to, behind the end of the body. */
int ptx_block_behind(struct ptx_block_work *p, struct ptx_list *ret);
int ptx_block_declare_shared(struct ptx_block_work *p);
const char *ptx_block_value(struct ptx_block_work *p,
			    enum ptx_block_sreg what); /* NULL: out of memory */
const char *ptx_block_text(struct ptx_block_work *p, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
