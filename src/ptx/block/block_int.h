/* What the block pass's files share. */
#ifndef GBPF_PTX_BLOCK_BLOCK_INT_H
#define GBPF_PTX_BLOCK_BLOCK_INT_H

#include "base/strmap.h"
#include "ptx/block.h"

#define PTX_BLOCK_ARG_BYTES ((uint32_t)sizeof(struct ptx_block_arg))

struct ptx_block_function;

/* Somebody calls a function by its name. */
struct ptx_block_caller {
	struct ptx_block_function *caller;
	struct ptx_block_caller *next;
};

/* A name of a function at the module's top, with what is known of the code behind it. After
 * block_graph: of everything that it may call, too. */
struct ptx_block_function {
	struct ptx_function *f;	  /* the one with a body, or a declaration */
	enum proto_block_why why; /* PTX_BLOCK_UNKNOWN: nothing speaks against it */
	uint32_t line;		  /* where that stands */
	bool knows;		  /* reads its block's index or the grid's size */
	bool indirect;		  /* calls through a pointer, at indirect_line */
	bool taken;		  /* its address is used other than by a call */
	uint32_t indirect_line;
	unsigned hidden; /* declarations around here that take the name */
	struct ptx_block_caller *callers;
	struct ptx_block_function *work;  /* list of block_graph */
	const char *clone;		  /* a .func's copy that knows tickets; NULL: none */
	struct ptx_block_function *alias; /* what stands for it: ".alias this, that;" */
};

struct ptx_block_work {
	struct ptx_module *m;
	struct report *report;
	struct strmap names;		      /* struct block_function by name */
	struct strmap variables;	      /* what else is declared at the top */
	struct ptx_block_function *functions; /* n of them */
	uint32_t n;
	uint32_t n_entries;
	const char *stem;	  /* no name of the module begins with it */
	enum proto_block_why why; /* of all entries: the module itself */
	bool linked;		  /* names things of other modules, so pointers may lead there */
	bool failed;		  /* no memory */
};

/* Special registers that matter here. */
enum ptx_block_sreg {
	PTX_BLOCK_SREG_NONE,
	PTX_BLOCK_SREG_CTAID, /* the vector */
	PTX_BLOCK_SREG_CTAID_X,
	PTX_BLOCK_SREG_CTAID_Y,
	PTX_BLOCK_SREG_CTAID_Z,
	PTX_BLOCK_SREG_NCTAID,
	PTX_BLOCK_SREG_NCTAID_X,
	PTX_BLOCK_SREG_NCTAID_Y,
	PTX_BLOCK_SREG_NCTAID_Z,
	PTX_BLOCK_SREG_ZERO, /* .w of both */
	PTX_BLOCK_SREG_GRID, /* tells launches apart */
	PTX_BLOCK_SREG_CLUSTER,
	PTX_BLOCK_SREG_SHARED, /* sizes of shared memory */
};
enum ptx_block_sreg ptx_block_sreg_of(const char *name);
/* "mov.v4.u32 {a, b, c, d}, %ctaid": BLOCK_SREG_CTAID or _NCTAID; else _NONE. */
enum ptx_block_sreg ptx_block_vector_move(const struct ptx_insn *insn);

/* The function that a name at this place means; NULL: none, or a name of the body's own. */
struct ptx_block_function *ptx_block_find(const struct ptx_block_work *p, const char *name);
/* Notes what ".alias a, b;" says; what it cannot read it leaves. */
void ptx_block_alias(struct ptx_block_work *p, const struct ptx_directive *d);
/* Names that a list or a function's parameters declare: hidden inside. by: 1 at its beginning, -1
 * at its end. */
void ptx_block_hide_list(struct ptx_block_work *p, const struct ptx_list *list, int by);
void ptx_block_hide_params(struct ptx_block_work *p, const struct ptx_function *f, int by);
/* The operand of a call that names what is called; NULL when there is none. */
struct ptx_operand *ptx_block_callee(const struct ptx_insn *insn);

/* Functions of the driver that depend on nothing that a twin changes. */
bool ptx_block_is_harmless(const char *name);
/* block_scan.c: what is written in each function. 0, -EINVAL, -ENOMEM. */
int ptx_block_scan(struct ptx_block_work *p);
/* block_graph.c: what each function's callees bring. */
int ptx_block_graph(struct ptx_block_work *p);
/* block_params.c: layout of an entry's parameters, and whether there is room behind them. */
int ptx_block_params(struct ptx_block_work *p, const struct ptx_function *f,
		     struct ptx_block_entry *e);
/* block_twin.c: the twin of an entry behind it; copies of functions that know their block. */
int ptx_block_clone(struct ptx_block_work *p, struct ptx_block_function *f);
int ptx_block_copy_functions(struct ptx_block_work *p);
/* block_prologue.c: appends to a body what an entry's twin does first, or what a function's copy
 * does to learn its block. Declares names that begin with the stem: the values' registers are
 * block_value()s. */
int ptx_block_prologue(struct ptx_block_work *p, bool is_entry, struct ptx_list *ret);
/* Appends what a twin's prologue jumps to, behind the end of the body. */
int ptx_block_behind(struct ptx_block_work *p, struct ptx_list *ret);
int ptx_block_declare_shared(struct ptx_block_work *p);
const char *ptx_block_value(struct ptx_block_work *p,
			    enum ptx_block_sreg what); /* NULL: no memory */
const char *ptx_block_text(struct ptx_block_work *p, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
