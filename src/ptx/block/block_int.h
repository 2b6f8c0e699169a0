/* What the block pass's files share. */
#ifndef GBPF_PTX_BLOCK_BLOCK_INT_H
#define GBPF_PTX_BLOCK_BLOCK_INT_H

#include "base/strmap.h"
#include "ptx/block.h"

#define BLOCK_ARG_BYTES ((uint32_t)sizeof(struct ptx_block_arg))

struct block_function;

/* Somebody calls a function by its name. */
struct block_call {
	struct block_function *caller;
	struct block_call *next;
};

/* A name of a function at the module's top, with what is known of the code behind it. After
 * block_graph: of everything that it may call, too. */
struct block_function {
	struct ptx_function *f; /* the one with a body, or a declaration */
	enum ptx_block_why why; /* PTX_BLOCK_UNKNOWN: nothing speaks against it */
	uint32_t line;		/* where that stands */
	bool knows;		/* reads its block's index or the grid's size */
	bool indirect;		/* calls through a pointer, at indirect_line */
	bool taken;		/* its address is used other than by a call */
	uint32_t indirect_line;
	unsigned hidden; /* declarations around here that take the name */
	struct block_call *callers;
	struct block_function *work;  /* list of block_graph */
	const char *clone;	      /* a .func's copy that knows tickets; NULL: none */
	struct block_function *alias; /* what stands for it: ".alias this, that;" */
};

struct block_pass {
	struct ptx_module *m;
	struct report *report;
	struct strmap names;		  /* struct block_function by name */
	struct strmap variables;	  /* what else is declared at the top */
	struct block_function *functions; /* n of them */
	uint32_t n;
	uint32_t n_entries;
	const char *stem;	/* no name of the module begins with it */
	enum ptx_block_why why; /* of all entries: the module itself */
	bool linked;		/* names things of other modules, so pointers may lead there */
	bool failed;		/* no memory */
};

/* Special registers that matter here. */
enum block_sreg {
	BLOCK_SREG_NONE,
	BLOCK_SREG_CTAID, /* the vector */
	BLOCK_SREG_CTAID_X,
	BLOCK_SREG_CTAID_Y,
	BLOCK_SREG_CTAID_Z,
	BLOCK_SREG_NCTAID,
	BLOCK_SREG_NCTAID_X,
	BLOCK_SREG_NCTAID_Y,
	BLOCK_SREG_NCTAID_Z,
	BLOCK_SREG_ZERO, /* .w of both */
	BLOCK_SREG_GRID, /* tells launches apart */
	BLOCK_SREG_CLUSTER,
	BLOCK_SREG_SHARED, /* sizes of shared memory */
};
enum block_sreg block_sreg_of(const char *name);
/* "mov.v4.u32 {a, b, c, d}, %ctaid": BLOCK_SREG_CTAID or _NCTAID; else _NONE. */
enum block_sreg block_vector_move(const struct ptx_insn *insn);

/* The function that a name at this place means; NULL: none, or a name of the body's own. */
struct block_function *block_find(const struct block_pass *p, const char *name);
/* Notes what ".alias a, b;" says; what it cannot read it leaves. */
void block_alias(struct block_pass *p, const struct ptx_directive *d);
/* Names that a list or a function's parameters declare: hidden inside. by: 1 at its beginning, -1
 * at its end. */
void block_hide_list(struct block_pass *p, const struct ptx_list *list, int by);
void block_hide_params(struct block_pass *p, const struct ptx_function *f, int by);
/* The operand of a call that names what is called; NULL when there is none. */
struct ptx_operand *block_callee(const struct ptx_insn *insn);

/* Functions of the driver that depend on nothing that a twin changes. */
bool block_is_harmless(const char *name);
/* block_scan.c: what is written in each function. 0, -EINVAL, -ENOMEM. */
int block_scan(struct block_pass *p);
/* block_graph.c: what each function's callees bring. */
int block_graph(struct block_pass *p);
/* block_params.c: layout of an entry's parameters, and whether there is room behind them. */
int block_params(struct block_pass *p, const struct ptx_function *f, struct ptx_block_entry *e);
/* block_twin.c: the twin of an entry behind it; copies of functions that know their block. */
int block_twin(struct block_pass *p, struct block_function *f);
int block_copy_functions(struct block_pass *p);
/* block_prologue.c: appends to a body what an entry's twin does first, or what a function's copy
 * does to learn its block. Declares names that begin with the stem: the values' registers are
 * block_value()s. */
int block_prologue(struct block_pass *p, bool is_entry, struct ptx_list *ret);
/* Appends what a twin's prologue jumps to, behind the end of the body. */
int block_behind(struct block_pass *p, struct ptx_list *ret);
int block_declare_shared(struct block_pass *p);
const char *block_value(struct block_pass *p, enum block_sreg what); /* NULL: no memory */
const char *block_text(struct block_pass *p, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
