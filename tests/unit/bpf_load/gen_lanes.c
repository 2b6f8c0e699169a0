/* Random programs of lanes. Registers: r6 is the context, r7-r9 (in functions r8 and r9) are
 * numbers, r7 in functions points into the frame of the main function. */
#include "gen_lanes.h"

#include <string.h>

#include "base/compiler.h"

enum { COUNTERS = 72, KEY = 88, ITERATOR = 96 }; /* below the end of the frame */

static void put(struct gen_lanes *g, unsigned code, unsigned dst, unsigned src, int off, int imm)
{
	if (g->n < LANES_MAX_INSNS) {
		g->insns[g->n++] = (struct ebpf_insn){ .code = (uint8_t)code,
						       .dst = (uint8_t)(dst & 15),
						       .src = (uint8_t)(src & 15),
						       .off = (int16_t)off,
						       .imm = imm };
	}
}

static void mov(struct gen_lanes *g, unsigned dst, unsigned src)
{
	put(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, dst, src, 0, 0);
}

static void mov_imm(struct gen_lanes *g, unsigned dst, int imm)
{
	put(g, EBPF_ALU64 | EBPF_MOV, dst, 0, 0, imm);
}

static void alu_imm(struct gen_lanes *g, unsigned op, unsigned dst, int imm)
{
	put(g, EBPF_ALU64 | op, dst, 0, 0, imm);
}

static void call(struct gen_lanes *g, int helper)
{
	put(g, EBPF_JMP | EBPF_CALL, 0, 0, 0, helper);
}

static void load(struct gen_lanes *g, unsigned size, unsigned dst, unsigned src, int off)
{
	put(g, EBPF_LDX | EBPF_MEM | size, dst, src, off, 0);
}

static void store(struct gen_lanes *g, unsigned size, unsigned dst, int off, unsigned src)
{
	put(g, EBPF_STX | EBPF_MEM | size, dst, src, off, 0);
}

static void wide(struct gen_lanes *g, unsigned dst, unsigned kind, int imm, int next)
{
	put(g, EBPF_LD_IMM64, dst, kind, 0, imm);
	put(g, 0, 0, 0, 0, next);
}

static unsigned below(struct gen_lanes *g, uint32_t n)
{
	return rng_below(g->rng, n);
}

static unsigned number(struct gen_lanes *g)
{
	return g->in_function ? 8 + below(g, 2) : 7 + below(g, 3);
}

/* An initialized word of the running frame. */
static int slot(struct gen_lanes *g)
{
	return -8 * (1 + (int)below(g, g->in_function ? 2 : LANES_SLOTS));
}

/* Loads a field of the context; half of them vary between lanes. */
static void load_field_to(struct gen_lanes *g, unsigned reg)
{
	static const struct {
		int off;
		unsigned size;
	} fields[] = {
		{ 0, EBPF_DW },	 { 68, EBPF_W }, { 72, EBPF_W }, { 92, EBPF_W }, { 92, EBPF_W },
		{ 24, EBPF_DW }, { 32, EBPF_W }, { 80, EBPF_W }, { 88, EBPF_W }, { 96, EBPF_W },
	};
	unsigned i = below(g, ARRAY_SIZE(fields));

	load(g, fields[i].size, reg, 6, fields[i].off);
}

static void load_field(struct gen_lanes *g)
{
	if (g->in_function != 2) {
		load_field_to(g, number(g));
	}
}

static void arithmetic(struct gen_lanes *g)
{
	static const unsigned ops[] = { EBPF_ADD, EBPF_SUB, EBPF_XOR, EBPF_OR,
					EBPF_AND, EBPF_MUL, EBPF_MOV };
	unsigned op = ops[below(g, ARRAY_SIZE(ops))], class = below(g, 4) ? EBPF_ALU64 : EBPF_ALU;

	if (below(g, 2)) {
		put(g, class | op | EBPF_X, number(g), number(g), 0, 0);
	} else if (op != EBPF_MOV) {
		put(g, class | op, number(g), 0, 0, 1 + (int)below(g, 7));
	}
}

static void stack_word(struct gen_lanes *g)
{
	switch (below(g, 4)) {
	case 0:
		load(g, EBPF_DW, number(g), 10, slot(g));
		break;
	case 1:
		load(g, EBPF_W, number(g), 10, slot(g) + 4 * (int)below(g, 2));
		break;
	case 2:
		store(g, EBPF_B, 10, slot(g) + (int)below(g, 8), number(g));
		break;
	default:
		store(g, EBPF_DW, 10, slot(g), number(g));
	}
}

/* A word of the stack at a place that a number chooses. */
static void stack_variable(struct gen_lanes *g)
{
	if (g->in_function) {
		return;
	}
	mov(g, 2, number(g));
	alu_imm(g, EBPF_AND, 2, below(g, 2) ? 8 : 24);
	mov(g, 3, 10);
	alu_imm(g, EBPF_ADD, 3, below(g, 2) ? -32 : -64);
	put(g, EBPF_ALU64 | EBPF_ADD | EBPF_X, 3, 2, 0, 0);
	if (below(g, 2)) {
		load(g, EBPF_DW, number(g), 3, 0);
	} else {
		store(g, EBPF_DW, 3, 0, number(g));
	}
}

static void stack_atomic(struct gen_lanes *g)
{
	static const int ops[] = { EBPF_ADD, EBPF_ADD | EBPF_FETCH, EBPF_XCHG, EBPF_XOR };

	put(g, EBPF_STX | EBPF_ATOMIC | EBPF_DW, 10, number(g), slot(g),
	    ops[below(g, ARRAY_SIZE(ops))]);
}

/* The two words that the main function has given a pointer to. */
static void foreign_word(struct gen_lanes *g)
{
	if (!g->in_function) {
		return;
	}
	if (below(g, 2)) {
		load(g, EBPF_DW, number(g), 7, 8 * (int)below(g, 2));
	} else {
		store(g, EBPF_DW, 7, 8 * (int)below(g, 2), number(g));
	}
}

static void branch(struct gen_lanes *g)
{
	static const unsigned ops[] = { EBPF_JEQ, EBPF_JNE, EBPF_JGT, EBPF_JSET, EBPF_JSLT };
	unsigned op = ops[below(g, ARRAY_SIZE(ops))];

	if (g->n_open == ARRAY_SIZE(g->open)) {
		return;
	}
	g->open[g->n_open++].at = g->n;
	if (below(g, 3) == 0) {
		put(g, EBPF_JMP | op | EBPF_X, number(g), number(g), 0, 0);
	} else {
		put(g, EBPF_JMP | op, number(g), 0, 0, (int)below(g, 6));
	}
	if (below(g, 4) == 0 && g->n_open < ARRAY_SIZE(g->open)) { /* the other side */
		arithmetic(g);
		g->open[g->n_open++].at = g->n;
		put(g, EBPF_JMP | EBPF_JA, 0, 0, 0, 0);
		g->insns[g->open[g->n_open - 2].at].off =
			(int16_t)(g->n - g->open[g->n_open - 2].at - 1);
		g->open[g->n_open - 2] = g->open[g->n_open - 1];
		g->n_open--;
	}
}

/* Leads an open jump to here. */
static void land(struct gen_lanes *g)
{
	unsigned i;

	if (g->n_open) {
		i = below(g, g->n_open);
		g->insns[g->open[i].at].off = (int16_t)(g->n - g->open[i].at - 1);
		g->open[i] = g->open[--g->n_open];
	}
}

static void shared(struct gen_lanes *g)
{
	if (below(g, 2)) {
		wide(g, 2, EBPF_PSEUDO_MAP_VALUE, LANES_DATA, 8 * (int)below(g, 2));
	} else {
		mov(g, 2, number(g));
		alu_imm(g, EBPF_AND, 2, 3);
		store(g, EBPF_W, 10, -KEY, 2);
		mov(g, 2, 10);
		alu_imm(g, EBPF_ADD, 2, -KEY);
		wide(g, 1, EBPF_PSEUDO_MAP, LANES_SHARED, 0);
		call(g, 1);
		put(g, EBPF_JMP | EBPF_JEQ, 0, 0, 2, 0);
		mov(g, 2, 0);
		put(g, EBPF_JMP | EBPF_JA, 0, 0, 2, 0);
		wide(g, 2, EBPF_PSEUDO_MAP_VALUE, LANES_DATA, 0);
	}
	switch (below(g, 5)) {
	case 0:
		store(g, EBPF_DW, 2, 0, number(g));
		break;
	case 1:
		load(g, EBPF_DW, number(g), 2, 0);
		break;
	default:
		put(g, EBPF_STX | EBPF_ATOMIC | EBPF_DW, 2, number(g), 0, EBPF_ADD);
	}
}

static void constant(struct gen_lanes *g)
{
	mov(g, 3, number(g));
	alu_imm(g, EBPF_AND, 3, 24);
	wide(g, 2, EBPF_PSEUDO_MAP_VALUE, LANES_CONSTANT, 0);
	put(g, EBPF_ALU64 | EBPF_ADD | EBPF_X, 2, 3, 0, 0);
	load(g, EBPF_DW, number(g), 2, 0);
}

static void helper(struct gen_lanes *g)
{
	call(g, 7);
	mov(g, number(g), 0);
}

static void use_function(struct gen_lanes *g, int back)
{
	int words = -8 * (2 + (int)below(g, LANES_SLOTS - 1));

	if (g->in_function || g->n_calls == ARRAY_SIZE(g->calls)) {
		return;
	}
	if (back) {
		if (below(g, 2)) {
			mov_imm(g, 1, 1 + (int)below(g, 3));
		} else {
			mov(g, 1, number(g));
			alu_imm(g, EBPF_AND, 1, 3);
		}
		mov(g, 3, 10);
		alu_imm(g, EBPF_ADD, 3, words);
		mov_imm(g, 4, 0);
		g->calls[g->n_calls].back = 1;
		g->calls[g->n_calls++].at = g->n;
		wide(g, 2, EBPF_PSEUDO_FUNC, 0, 0);
		call(g, 181);
	} else {
		mov(g, 1, 6);
		mov(g, 2, 10);
		alu_imm(g, EBPF_ADD, 2, words);
		mov(g, 3, number(g));
		g->calls[g->n_calls].back = 0;
		g->calls[g->n_calls++].at = g->n;
		put(g, EBPF_JMP | EBPF_CALL, 0, EBPF_CALL_LOCAL, 0, 0);
	}
	mov(g, number(g), 0);
}

static void iterator(struct gen_lanes *g)
{
	uint32_t head;

	if (g->in_function) {
		return;
	}
	mov(g, 1, 10);
	alu_imm(g, EBPF_ADD, 1, -ITERATOR);
	mov_imm(g, 2, 0);
	if (below(g, 2)) {
		mov_imm(g, 3, 2);
	} else {
		mov(g, 3, number(g));
		alu_imm(g, EBPF_AND, 3, 3);
	}
	call(g, 1010);
	if (below(g, 2)) { /* one number less for some */
		put(g, EBPF_JMP | EBPF_JGT, number(g), 0, 3, (int)below(g, 4));
		mov(g, 1, 10);
		alu_imm(g, EBPF_ADD, 1, -ITERATOR);
		call(g, 1011);
	}
	head = g->n;
	mov(g, 1, 10);
	alu_imm(g, EBPF_ADD, 1, -ITERATOR);
	call(g, 1011);
	put(g, EBPF_JMP | EBPF_JEQ, 0, 0, 3, 0);
	load(g, EBPF_W, number(g), 0, 0);
	arithmetic(g);
	put(g, EBPF_JMP | EBPF_JA, 0, 0, (int)head - (int)g->n - 1, 0);
	mov(g, 1, 10);
	alu_imm(g, EBPF_ADD, 1, -ITERATOR);
	call(g, 1012);
}

static void element(struct gen_lanes *g);

static void loop(struct gen_lanes *g)
{
	int counter = -COUNTERS - 8 * (int)g->depth;
	uint32_t head;

	if (g->in_function || g->depth == 1) {
		return;
	}
	g->depth++;
	put(g, EBPF_ST | EBPF_MEM | EBPF_DW, 10, 0, counter, 0);
	head = g->n;
	for (unsigned k = 1 + below(g, 4); k > 0; k--) {
		element(g);
	}
	load(g, EBPF_DW, 2, 10, counter);
	alu_imm(g, EBPF_ADD, 2, 1);
	store(g, EBPF_DW, 10, counter, 2);
	if (below(g, 2)) {
		put(g, EBPF_JMP | EBPF_JLT, 2, 0, (int)head - (int)g->n - 1, 3);
	} else {
		mov(g, 3, number(g));
		alu_imm(g, EBPF_AND, 3, 3);
		put(g, EBPF_JMP | EBPF_JLT | EBPF_X, 2, 3, (int)head - (int)g->n - 1, 0);
	}
	g->depth--;
}

static void leave(struct gen_lanes *g)
{
	put(g, EBPF_JMP | EBPF_JEQ, number(g), 0, 2, (int)below(g, 4));
	mov_imm(g, 0, 0);
	put(g, EBPF_JMP | EBPF_EXIT, 0, 0, 0, 0);
}

static void element(struct gen_lanes *g)
{
	static void (*const kinds[])(struct gen_lanes * g) = {
		load_field, load_field, load_field, load_field,	    arithmetic,	  arithmetic,
		stack_word, stack_word, stack_word, stack_variable, foreign_word, foreign_word,
		branch,	    branch,	branch,	    branch,	    branch,	  land,
		land,	    land,	shared,	    shared,	    shared,	  constant,
		helper,	    loop,	loop,	    stack_atomic,   iterator,
	};
	unsigned k = below(g, ARRAY_SIZE(kinds) + 3);

	if (k < ARRAY_SIZE(kinds)) {
		kinds[k](g);
	} else if (k == ARRAY_SIZE(kinds) && below(g, 4) == 0) {
		leave(g);
	} else {
		use_function(g, k == ARRAY_SIZE(kinds) + 1);
	}
}

static void start_slots(struct gen_lanes *g, unsigned n)
{
	for (unsigned k = 1; k <= n; k++) {
		put(g, EBPF_ST | EBPF_MEM | EBPF_DW, 10, 0, -8 * (int)k, (int)k);
	}
}

/* Ends a function, with r0 a number. */
static void end(struct gen_lanes *g, unsigned result)
{
	while (g->n_open) {
		land(g);
	}
	if (result) {
		mov(g, 0, result);
	} else {
		mov_imm(g, 0, 0);
	}
	put(g, EBPF_JMP | EBPF_EXIT, 0, 0, 0, 0);
}

/* One function for all calls of its kind. */
static void add_function(struct gen_lanes *g, struct ebpf_prog *prog, int back)
{
	uint32_t from = g->n;

	for (unsigned i = 0; i < g->n_calls; i++) {
		if (g->calls[i].back == back) {
			g->insns[g->calls[i].at].imm = (int)from - (int)g->calls[i].at - 1;
		}
	}
	memcpy(prog->subprog_name[prog->n_subprogs], "f", 2);
	prog->subprog[prog->n_subprogs++] = from;
	g->in_function = 1 + back;
	mov(g, 6, 1);
	mov(g, 7, 2);
	mov(g, 8, back ? 1 : 3);
	mov_imm(g, 9, 1);
	start_slots(g, 2);
	for (unsigned k = 2 + below(g, 6); k > 0; k--) {
		element(g);
	}
	if (back && below(g, 2)) {
		end(g, 0);
	} else {
		end(g, number(g));
	}
}

void gen_lanes(struct gen_lanes *g, struct rng *r, struct ebpf_prog *prog)
{
	int used[2] = { 0, 0 };

	memset(g, 0, sizeof(*g));
	memset(prog, 0, sizeof(*prog));
	g->rng = r;
	prog->hook = 32;
	prog->lane = 1;
	prog->n_subprogs = 1;
	mov(g, 6, 1);
	start_slots(g, LANES_SLOTS + 3);
	for (unsigned k = 7; k < 10; k++) {
		load_field_to(g, k);
	}
	for (unsigned k = 8 + below(g, 20); k > 0; k--) {
		element(g);
	}
	end(g, 0);
	for (unsigned i = 0; i < g->n_calls; i++) {
		used[g->calls[i].back] = 1;
	}
	for (int back = 0; back < 2; back++) {
		if (used[back]) {
			add_function(g, prog, back);
		}
	}
	prog->insns = g->insns;
	prog->n_insns = g->n;
}

static const struct ebpf_insn wide_side[] = {
	{ .code = EBPF_LDX | EBPF_MEM | EBPF_W, .dst = 2, .src = 1, .off = 80 },
	{ .code = EBPF_LDX | EBPF_MEM | EBPF_W, .dst = 3, .src = 1, .off = 92 },
	{ .code = EBPF_JMP | EBPF_JSET, .dst = 3, .off = 2, .imm = 1 },
	{ .code = EBPF_ALU64 | EBPF_ADD | EBPF_X, .dst = 2, .src = 3 },
	{ .code = EBPF_STX | EBPF_MEM | EBPF_DW, .dst = 10, .src = 2, .off = -8 },
	{ .code = EBPF_LDX | EBPF_MEM | EBPF_DW, .dst = 4, .src = 10, .off = -8 },
	{ .code = EBPF_JMP | EBPF_JGT, .dst = 2, .off = 1, .imm = 4 },
	{ .code = EBPF_ALU64 | EBPF_MOV | EBPF_X, .dst = 4, .src = 2 },
};

enum { SIDES = 20, SIDE_INSNS = 203, HEAD_INSNS = 34 };

/* One side: the instructions of wide_side[] as often as they fit, then a jump to the end. */
static void wide_fill(struct ebpf_insn *insns, uint32_t from)
{
	const uint32_t end = LANES_WIDE_INSNS - 2;

	for (uint32_t i = 0; i + 1 < SIDE_INSNS; i++) {
		uint32_t whole = (SIDE_INSNS - 1) / ARRAY_SIZE(wide_side) * ARRAY_SIZE(wide_side);

		insns[from + i] = wide_side[i < whole ? i % ARRAY_SIZE(wide_side) : 0];
	}
	insns[from + SIDE_INSNS - 1] =
		(struct ebpf_insn){ .code = EBPF_JMP | EBPF_JA,
				    .off = (int16_t)(end - (from + SIDE_INSNS - 1) - 1) };
}

void gen_lanes_wide(struct ebpf_insn insns[LANES_WIDE_INSNS], struct ebpf_prog *prog)
{
	uint32_t at = 0;

	memset(prog, 0, sizeof(*prog));
	insns[at++] =
		(struct ebpf_insn){ .code = EBPF_ST | EBPF_MEM | EBPF_DW, .dst = 10, .off = -8 };
	while (at < HEAD_INSNS - SIDES) {
		insns[at++] = (struct ebpf_insn){
			.code = EBPF_LDX | EBPF_MEM | EBPF_W, .dst = 5, .src = 1, .off = 92
		};
	}
	for (int k = 0; k < SIDES; k++, at++) {
		uint32_t to = HEAD_INSNS + (uint32_t)k * SIDE_INSNS;

		insns[at] = (struct ebpf_insn){
			.code = EBPF_JMP | (k + 1 < SIDES ? EBPF_JEQ : EBPF_JA),
			.dst = k + 1 < SIDES ? 5 : 0,
			.off = (int16_t)(to - at - 1),
			.imm = k + 1 < SIDES ? k : 0,
		};
		wide_fill(insns, to);
	}
	insns[LANES_WIDE_INSNS - 2] = (struct ebpf_insn){ .code = EBPF_ALU64 | EBPF_MOV };
	insns[LANES_WIDE_INSNS - 1] = (struct ebpf_insn){ .code = EBPF_JMP | EBPF_EXIT };
	prog->hook = 32;
	prog->lane = 1;
	prog->n_subprogs = 1;
	prog->insns = insns;
	prog->n_insns = LANES_WIDE_INSNS;
}
