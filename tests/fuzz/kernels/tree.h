/* The tree of a random kernel, shared by generator, printer and reference. */
#ifndef GBPF_FUZZ_TREE_H
#define GBPF_FUZZ_TREE_H

#include "kernel.h"

enum { N_R = 8, N_W = 6, N_H = 4, N_F = 6, N_D = 4, N_P = 4, FUNCTIONS = 2, DEPTH_MAX = 4 };

/* Kinds of statements. Those after LAST_LOCAL are collective for all lanes of a block and occur
 * only in the outermost list. */
enum kind {
	INSN,
	IF,	/* guard; body[0], body[1] */
	LOOP,	/* while (counter--): body[0]; counter = register & mask */
	REPEAT, /* do body[0] while (counter-- and guard) */
	SWITCH, /* body[register & 3] by brx.idx */
	LEAVE,	/* if guard: leaves `number` loops */
	CALL,	/* function number */
	LOAD,
	STORE,
	SUM, /* red: to a word of the sums, or of the block's sums */
	LAST_LOCAL = SUM,
	SHUFFLE,
	VOTE,
	MATCH,
	REDUX,
	EXCHANGE, /* through shared memory, with barriers */
	BAR_RED,
	KINDS
};

enum space { GLOBAL, SHARED, LOCAL, SPACES };

struct stmt {
	enum kind kind;
	struct stmt *next, *body[4];
	const struct form *form;
	int guard; /* predicate, or -1 */
	bool guard_not;
	uint8_t reg[5]; /* registers, the result first; for constants the number */
	unsigned number, mode, width, mask;
	bool generic, is_signed;
	enum space space;
};

struct form {
	const char *text, *operands;
	int line;
};

struct kernel {
	uint64_t seed;
	unsigned threads;
	struct stmt *body, *functions[FUNCTIONS];
	struct stmt *all[4096]; /* owned */
	unsigned n_all, loops;
};

extern const struct form forms[];
extern const unsigned n_forms;

/* The registers of one lane. */
struct lane {
	uint64_t r[N_R], w[N_W], h[N_H], f[N_F], d[N_D], p[N_P];
	uint8_t memory[SPACES][PRIVATE_BYTES];
};

/* Returns the result of an instruction. */
uint64_t form_value(const struct form *f, const uint64_t *x);

/* Words of sums: each has one operation, so that the order does not matter. */
struct sum_kind {
	const char *op; /* operation of red */
	unsigned bytes, at;
	uint64_t (*apply)(uint64_t old, uint64_t v);
};
extern const struct sum_kind sum_kinds[];
enum { SUM_KINDS = 12 };

#endif
