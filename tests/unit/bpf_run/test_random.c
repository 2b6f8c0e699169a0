/* Random programs on every engine: arithmetic, forward jumps, counted loops, stack and map memory,
 * atomics, helpers, local calls. Each program is valid by construction (nothing uninitialized is
 * read, no pointer's value reaches the result), so the engines must agree on the result, the map
 * memory and the notes, to the bit. The seed is fixed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "bpf/load/jit/ptx/jit_ptx.h"
#include "bpf/run/decode.h"
#include "bpf/run/interp/interp.h"
#include "engines.h"
#include "ptx_engine.h"

#define GBPF_DEVICE_HOOK(id, name, budget, doc) enum { HOOK_##name = id };
#include "gbpf/hooks.def"

#define SEED UINT64_C(0x6762504620313233)
#define PROGRAMS 6000u
#define BATCH 250u
#define PTX_EACH 12u	/* programs for each that also runs as PTX */
#define DEVICE_EACH 36u /* programs for each that is one inside kernels */
#define CTX_BYTES 160u	/* of the context of such a program */
#define MAX_INSNS 4000u
#define SLOTS 8 /* stack slots that programs use; below them a counter */
#define FUNCS 3

struct program {
	struct ebpf_insn insns[MAX_INSNS];
	uint32_t n;
	int entry;
	uint32_t call_at[64], call_to[64], n_calls; /* local calls to be resolved */
	uint32_t func_at[FUNCS + 1];
	int hook; /* inside kernels, or 0: no context */
};

struct outcome {
	uint64_t r0, notes, hash;
};

static uint64_t rng;
static struct test_env t;
static uint64_t ctx[CTX_BYTES / 8];

static uint64_t rnd(void)
{
	uint64_t z = rng += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static unsigned below(unsigned n)
{
	return (unsigned)(rnd() % n);
}

static uint64_t value(void)
{
	static const uint64_t edges[] = { 0,
					  1,
					  2,
					  31,
					  32,
					  63,
					  64,
					  0x7f,
					  0x80,
					  0xff,
					  0x7fff,
					  0x8000,
					  0x7fffffff,
					  0x80000000,
					  0xffffffff,
					  0x100000000,
					  INT64_MAX,
					  (uint64_t)INT64_MIN,
					  UINT64_MAX,
					  UINT64_MAX - 1,
					  UINT64_C(0xffffffff80000000) };

	switch (below(4)) {
	case 0:
		return edges[below(ARRAY_SIZE(edges))];
	case 1:
		return (uint64_t)(int64_t)(int32_t)rnd();
	case 2:
		return rnd() & 0xff;
	default:
		return rnd();
	}
}

static void put(struct program *p, unsigned code, unsigned dst, unsigned src, int off, int64_t imm)
{
	if (p->n < MAX_INSNS) {
		p->insns[p->n++] =
			(struct ebpf_insn){ (uint8_t)code, (uint8_t)(dst & 15), (uint8_t)(src & 15),
					    (int16_t)off, (int32_t)imm };
	}
}

static void put_const(struct program *p, unsigned reg, uint64_t v)
{
	if ((int64_t)v == (int32_t)v && below(2)) {
		put(p, EBPF_ALU64 | EBPF_MOV, reg, 0, 0, (int32_t)v);
	} else {
		put(p, EBPF_LD_IMM64, reg, 0, 0, (int32_t)v);
		put(p, 0, 0, 0, 0, (int32_t)(v >> 32));
	}
}

/* Loads a part of a context field into a register. */
static void put_field(struct program *p, unsigned reg)
{
	static const uint8_t sizes[] = { EBPF_B, EBPF_H, EBPF_W, EBPF_DW };
	const struct ebpf_ptx_field *f = NULL;
	unsigned k;

	while (!f) {
		f = ebpf_ptx_field(p->hook, below(32));
	}
	k = below(f->bytes == 8 ? 4 : 3);
	put(p, EBPF_LDX | (k < 3 && below(2) ? EBPF_MEMSX : EBPF_MEM) | sizes[k], reg, 1,
	    f->offset + (int)(below(f->bytes >> k) << k), 0);
}

/* The registers of the program at its beginning; r1 is the context until it is written. */
static void put_first_registers(struct program *p)
{
	for (unsigned k = 0; k <= 9; k++) {
		unsigned reg = (k + 2) % 10;

		if (p->hook && below(3)) {
			put_field(p, reg);
		} else {
			put_const(p, reg, value());
		}
	}
}

static void put_alu(struct program *p)
{
	static const uint8_t ops[] = {
		EBPF_ADD, EBPF_SUB, EBPF_MUL, EBPF_DIV, EBPF_OR,  EBPF_AND,
		EBPF_LSH, EBPF_RSH, EBPF_MOD, EBPF_XOR, EBPF_MOV, EBPF_ARSH
	};
	unsigned op = ops[below(ARRAY_SIZE(ops))], class = below(2) ? EBPF_ALU64 : EBPF_ALU;
	int by_reg = below(2), off = 0;

	if (op == EBPF_DIV || op == EBPF_MOD) {
		off = (int)below(2);
	}
	if (op == EBPF_MOV && by_reg && below(2)) {
		off = 8 << below(class == EBPF_ALU64 ? 3 : 2);
	}
	put(p, class | op | (by_reg ? EBPF_X : EBPF_K), below(10), by_reg ? below(10) : 0, off,
	    by_reg ? 0 : (int32_t)value());
}

static void put_unary(struct program *p)
{
	static const uint8_t codes[] = { EBPF_ALU64 | EBPF_NEG, EBPF_ALU | EBPF_NEG,
					 EBPF_ALU | EBPF_END, EBPF_ALU | EBPF_END | EBPF_X,
					 EBPF_ALU64 | EBPF_END };
	uint8_t code = codes[below(ARRAY_SIZE(codes))];

	put(p, code, below(10), 0, 0, EBPF_OP(code) == EBPF_END ? 16 << below(3) : 0);
}

static void put_stack(struct program *p)
{
	static const uint8_t sizes[] = { EBPF_B, EBPF_H, EBPF_W, EBPF_DW };
	unsigned k = below(4), bytes = 1u << k, size = sizes[k], reg = below(10);
	int off = -(int)(bytes + below(SLOTS * 8 - bytes + 1));

	switch (below(4)) {
	case 0:
		put(p, EBPF_LDX | EBPF_MEM | size, reg, 10, off, 0);
		break;
	case 1:
		put(p, EBPF_LDX | (k < 3 ? EBPF_MEMSX : EBPF_MEM) | size, reg, 10, off, 0);
		break;
	case 2:
		put(p, EBPF_ST | EBPF_MEM | size, 10, 0, off, (int32_t)value());
		break;
	default:
		put(p, EBPF_STX | EBPF_MEM | size, 10, reg, off, 0);
	}
}

/* Sometimes through a copy of the frame pointer in any register, which gets a number again
 * afterwards. */
static void put_atomic(struct program *p)
{
	static const int ops[] = { EBPF_ADD,
				   EBPF_OR,
				   EBPF_AND,
				   EBPF_XOR,
				   EBPF_ADD | EBPF_FETCH,
				   EBPF_OR | EBPF_FETCH,
				   EBPF_AND | EBPF_FETCH,
				   EBPF_XOR | EBPF_FETCH,
				   EBPF_XCHG,
				   EBPF_CMPXCHG };
	int wide = (int)below(2), op = ops[below(ARRAY_SIZE(ops))];
	int off = -(wide ? 8 : 4) * (int)(1 + below(wide ? SLOTS : SLOTS * 2));
	unsigned base = 10, src = below(10);

	if (below(2)) {
		base = below(10);
		src = (base + 1 + below(9)) % 10;
		if (op == EBPF_CMPXCHG && base == 0) {
			base = src == 1 ? 2 : 1; /* r0 is compared: it must be a number */
		}
		put(p, EBPF_ALU64 | EBPF_MOV | EBPF_X, base, 10, 0, 0);
		if (below(2)) {
			put(p, EBPF_ALU64 | EBPF_ADD, base, 0, 0, off);
			off = 0;
		}
	}
	put(p, EBPF_STX | EBPF_ATOMIC | (wide ? EBPF_DW : EBPF_W), base, src, off, op);
	if (base != 10) {
		put_const(p, base, value());
	}
}

/* A key at r10 - 4, in the ways in which the compiler may or may not know it. */
static void put_key(struct program *p)
{
	unsigned reg = below(10), size = below(4) ? EBPF_W : EBPF_H;

	if (size == EBPF_H) { /* it is written over in part */
		put(p, EBPF_ST | EBPF_MEM | EBPF_W, 10, 0, -4, below(7));
	}
	switch (below(4)) {
	case 0:
		put(p, EBPF_ST | EBPF_MEM | size, 10, 0, -4, below(7));
		break;
	case 1:
		put(p, (below(2) ? EBPF_ALU64 : EBPF_ALU) | EBPF_MOV, reg, 0, 0, below(7));
		put(p, EBPF_STX | EBPF_MEM | size, 10, reg, -4, 0);
		break;
	default:
		put(p, EBPF_ALU64 | EBPF_AND, reg, 0, 0, 7);
		put(p, EBPF_STX | EBPF_MEM | size, 10, reg, -4, 0);
		if (!below(4)) { /* what is in the register is not the key any more */
			put(p, EBPF_ALU64 | EBPF_ADD, reg, 0, 0, 1);
		}
	}
	if (!below(6)) {
		put(p, EBPF_ST | EBPF_MEM | EBPF_W, 10, 0, below(2) ? -8 : -4, below(5));
	}
	if (!below(6)) {
		put(p, EBPF_ST | EBPF_MEM | EBPF_B, 10, 0, -1, 0);
	}
	if (!below(6)) {
		put(p, EBPF_ALU64 | EBPF_MOV | EBPF_X, 3, 10, 0, 0);
		put(p, EBPF_ST | EBPF_MEM | EBPF_W, 3, 0, -4, below(5));
		put(p, EBPF_ALU64 | EBPF_MOV, 3, 0, 0, 5);
	}
}

static void put_lookup(struct program *p)
{
	unsigned map = below(3), other = 6 + below(4);
	int via_other = !below(3);
	uint32_t hop;

	put_key(p);
	if (via_other) { /* a handle of which the compiler may or may not know */
		put(p, EBPF_LD_IMM64, other, EBPF_PSEUDO_MAP, 0, map);
		put(p, 0, 0, 0, 0, 0);
		if (below(2)) {
			put(p, EBPF_JMP | EBPF_JA, 0, 0, 0, 0);
		}
	}
	put(p, EBPF_ALU64 | EBPF_MOV | EBPF_X, 2, 10, 0, 0);
	put(p, EBPF_ALU64 | EBPF_ADD, 2, 0, 0, -4);
	if (via_other) {
		put(p, EBPF_ALU64 | EBPF_MOV | EBPF_X, 1, other, 0, 0);
	} else {
		put(p, EBPF_LD_IMM64, 1, EBPF_PSEUDO_MAP, 0, map);
		put(p, 0, 0, 0, 0, 0);
	}
	put(p, EBPF_JMP | EBPF_CALL, 0, 0, 0, 1);
	put(p, EBPF_JMP | EBPF_JEQ, 0, 0, 0, 0);
	hop = p->n - 1;
	for (unsigned r = 1; r <= 3; r++) {
		put_const(p, r, value());
	}
	put(p, EBPF_STX | EBPF_MEM | EBPF_W, 0, below(2) ? 1 : 2, 4, 0);
	put(p, EBPF_STX | EBPF_ATOMIC | EBPF_DW, 0, 3, 0, EBPF_ADD | EBPF_FETCH);
	put(p, EBPF_STX | EBPF_MEM | EBPF_DW, 10, 3, -16, 0);
	p->insns[hop].off = (int16_t)(p->n - hop - 1);
	for (unsigned r = 0; r <= 5; r++) {
		put_const(p, r, value());
	}
	put_const(p, other, value());
}

static void put_helper(struct program *p)
{
	unsigned map = 2 + below(2); /* of one value each */

	switch (p->hook ? 1 + below(3) : below(4)) { /* inside kernels numbers are random */
	case 0:
		put(p, EBPF_JMP | EBPF_CALL, 0, 0, 0, 7);
		break;
	case 1:
		put_const(p, 1, below(18));
		put(p, EBPF_JMP | EBPF_CALL, 0, 0, 0, 1003);
		put_const(p, 0, value());
		break;
	case 2:
		put_lookup(p);
		return;
	default:
		put(p, EBPF_LD_IMM64, 5, EBPF_PSEUDO_MAP_VALUE, 0, map);
		put(p, 0, 0, 0, 0, 8 * below(3));
		put(p, EBPF_STX | EBPF_MEM | EBPF_H, 5, below(5), 2, 0);
		put(p, EBPF_LDX | EBPF_MEM | EBPF_DW, 5, 5, 0, 0);
		return;
	}
	for (unsigned r = 1; r <= 5; r++) {
		put_const(p, r, value());
	}
}

static const uint8_t jump_ops[] = { EBPF_JEQ,  EBPF_JGT, EBPF_JGE, EBPF_JSET, EBPF_JNE, EBPF_JSGT,
				    EBPF_JSGE, EBPF_JLT, EBPF_JLE, EBPF_JSLT, EBPF_JSLE };

/* A number register other than these two. */
static unsigned other_than(unsigned x, unsigned y)
{
	unsigned r = below(10);

	while (r == x || r == y) {
		r = (r + 1) % 10;
	}
	return r;
}

static int32_t small_or_any(void)
{
	return below(2) ? (int32_t)below(300) - 20 : (int32_t)value();
}

/* Generates a load and its use, which the compiler may fuse. The memory is at x + off; x and y hold
 * pointers. */
static void put_use(struct program *p, unsigned x, unsigned y, int off)
{
	static const uint8_t sizes[] = { EBPF_B, EBPF_H, EBPF_W, EBPF_DW };
	static const uint8_t ops[] = { EBPF_ADD, EBPF_SUB, EBPF_MUL, EBPF_OR,
				       EBPF_AND, EBPF_XOR, EBPF_MOV };
	unsigned size = sizes[below(4)], got = x == 10 || below(4) ? other_than(x, y) : x,
		 v = other_than(x, y), alu = below(2) ? EBPF_ALU64 : EBPF_ALU,
		 jmp = below(2) ? EBPF_JMP : EBPF_JMP32, op = ops[below(ARRAY_SIZE(ops))];
	int by_reg = below(2);

	switch (below(6)) {
	case 0:
		put(p, EBPF_LDX | (below(2) && size != EBPF_DW ? EBPF_MEMSX : EBPF_MEM) | size, got,
		    x, off, 0);
		break;
	case 1:
		put(p, below(2) ? EBPF_STX | EBPF_MEM | size : EBPF_ST | EBPF_MEM | size, x, 0, off,
		    0);
		if (EBPF_CLASS(p->insns[p->n - 1].code) == EBPF_STX) {
			p->insns[p->n - 1].src = v & 15;
		} else {
			p->insns[p->n - 1].imm = (int32_t)value();
		}
		break;
	case 2: /* *x op= v, mostly through the same register and with the same size */
		got = other_than(x, y);
		put(p, EBPF_LDX | EBPF_MEM | size, got, x, off, 0);
		put(p, alu | op | (by_reg ? EBPF_X : EBPF_K), got, by_reg ? v : 0, 0,
		    by_reg ? 0 : small_or_any());
		put(p, EBPF_STX | EBPF_MEM | (below(8) ? size : EBPF_W), x, below(8) ? got : v,
		    below(8) ? off : off + 4, 0);
		break;
	case 3:
		put(p, EBPF_LDX | EBPF_MEM | size, got, x, off, 0);
		put(p, alu | op | EBPF_X, v, got, 0, 0);
		break;
	case 4:
		put(p, EBPF_LDX | EBPF_MEM | size, got, x, off, 0);
		put(p, alu | EBPF_MUL, got, 0, 0, small_or_any());
		break;
	default:
		put(p, EBPF_LDX | EBPF_MEM | size, got, x, off, 0);
		put(p, jmp | jump_ops[below(ARRAY_SIZE(jump_ops))] | (by_reg ? EBPF_X : EBPF_K),
		    by_reg && below(2) ? v : got, 0, 1, by_reg ? 0 : small_or_any());
		if (by_reg) {
			p->insns[p->n - 1].src = (p->insns[p->n - 1].dst == got ? v : got) & 15;
		}
		put(p, EBPF_ALU64 | EBPF_ADD, other_than(x, y), 0, 0, 77);
	}
	if (below(3)) { /* the loaded value is not read */
		put(p, EBPF_ALU64 | EBPF_MOV, got, 0, 0, (int32_t)value());
	}
}

/* Generates an address from a base and a scaled index in its various forms, and its use. */
static void put_address(struct program *p)
{
	unsigned b = below(10), a = below(2) ? b : below(10), c = other_than(a, b), x = c;
	unsigned scale = below(4), form = below(4);

	put(p, EBPF_ALU64 | EBPF_AND, b, 0, 0, 6);
	if (form == 1) {
		put(p, EBPF_ALU64 | EBPF_MOV | EBPF_X, c, 10, 0, 0);
	}
	if (a != b) {
		put(p, (below(4) ? EBPF_ALU64 : EBPF_ALU) | EBPF_MOV | EBPF_X, a, b, 0, 0);
	}
	if (scale) {
		put(p, EBPF_ALU64 | EBPF_LSH, a, 0, 0, scale);
	}
	if (form != 1) {
		put(p, EBPF_ALU64 | EBPF_MOV | EBPF_X, c, 10, 0, 0);
		put(p, EBPF_ALU64 | EBPF_ADD | EBPF_X, c, a, 0, 0);
	} else if (below(2)) {
		put(p, EBPF_ALU64 | EBPF_ADD | EBPF_X, c, a, 0, 0);
	} else {
		put(p, EBPF_ALU64 | EBPF_ADD | EBPF_X, a, c, 0, 0);
		x = a;
	}
	for (unsigned k = 1 + !below(4); k; k--) {
		put_use(p, x, x == a ? c : 10, -SLOTS * 8);
		if (k > 1) { /* it may have been loaded into */
			put(p, EBPF_ALU64 | EBPF_MOV | EBPF_X, x, 10, 0, 0);
		}
	}
	put_const(p, c, value());
	if (x == a || below(2)) {
		put_const(p, a, value());
	}
}

static void put_move(struct program *p)
{
	static const int32_t masks[] = { 0xff, 0xffff, 0xfff, -1 };
	unsigned a = below(10), b = below(10), first = below(2) ? EBPF_ALU64 : EBPF_ALU,
		 second = below(4) ? first : first ^ EBPF_ALU64 ^ EBPF_ALU;

	put(p, first | EBPF_MOV | EBPF_X, a, b, 0, 0);
	switch (below(4)) {
	case 0:
		put(p, second | EBPF_ADD, a, 0, 0, (int32_t)value());
		break;
	case 1:
		put(p, second | EBPF_AND, a, 0, 0, masks[below(ARRAY_SIZE(masks))]);
		break;
	case 2:
		put(p, second | EBPF_ADD | EBPF_X, a, below(10), 0, 0);
		break;
	default:
		put(p, second | EBPF_LSH, a, 0, 0, below(5));
	}
}

static void put_call(struct program *p, int level)
{
	if (level < FUNCS && p->n_calls < ARRAY_SIZE(p->call_at)) {
		p->call_at[p->n_calls] = p->n;
		p->call_to[p->n_calls++] = (uint32_t)level + 1 + below((unsigned)(FUNCS - level));
		put(p, EBPF_JMP | EBPF_CALL, 0, EBPF_CALL_LOCAL, 0, 0);
		/* A call leaves r1 to r5 undefined; PTX does not pass them back. */
		for (unsigned r = 1; r <= 5; r++) {
			put_const(p, r, value());
		}
	}
}

static void put_item(struct program *p, int level)
{
	unsigned kind = below(26);

	if (kind < 9) {
		put_alu(p);
	} else if (kind < 11) {
		put_unary(p);
	} else if (kind < 15) {
		put_stack(p);
	} else if (kind < 17) {
		put_atomic(p);
	} else if (kind == 17) {
		put_const(p, below(10), value());
	} else if (kind == 18) {
		put_helper(p);
	} else if (kind < 22) {
		put_address(p);
	} else if (kind == 22) {
		put_use(p, 10, 10, -(int)(12 + below(SLOTS * 8 - 11)));
	} else if (kind < 25) {
		put_move(p);
	} else if (!below(3)) {
		put_call(p, level);
	}
}

static void put_jump(struct program *p)
{
	unsigned op = jump_ops[below(ARRAY_SIZE(jump_ops))],
		 class = below(2) ? EBPF_JMP : EBPF_JMP32;
	int by_reg = below(2);

	if (!below(8)) {
		put(p, below(2) ? EBPF_JMP | EBPF_JA : EBPF_JMP32 | EBPF_JA, 0, 0, 0, 0);
	} else {
		put(p, class | op | (by_reg ? EBPF_X : EBPF_K), below(10), by_reg ? below(10) : 0,
		    0, by_reg ? 0 : (int32_t)value());
	}
}

/* A block that a jump may leave out. */
static void put_skipped(struct program *p, int level)
{
	uint32_t jump = p->n;

	put_jump(p);
	for (unsigned k = below(below(10) ? 8 : 60); k; k--) {
		put_item(p, level);
	}
	if (p->insns[jump].code == (EBPF_JMP32 | EBPF_JA)) {
		p->insns[jump].imm = (int32_t)(p->n - jump - 1);
	} else {
		p->insns[jump].off = (int16_t)(p->n - jump - 1);
	}
}

/* A block that runs a few times; the counter lies below the slots. */
static void put_loop(struct program *p, int level)
{
	unsigned reg = below(10);
	uint32_t top;

	put(p, EBPF_ST | EBPF_MEM | EBPF_DW, 10, 0, -8 * (SLOTS + 1), 1 + below(4));
	top = p->n;
	for (unsigned k = 1 + below(6); k; k--) {
		put_item(p, level);
	}
	put(p, EBPF_LDX | EBPF_MEM | EBPF_DW, reg, 10, -8 * (SLOTS + 1), 0);
	put(p, EBPF_ALU64 | EBPF_ADD, reg, 0, 0, -1);
	put(p, EBPF_STX | EBPF_MEM | EBPF_DW, 10, reg, -8 * (SLOTS + 1), 0);
	if (below(2)) {
		put(p, EBPF_JMP | EBPF_JNE, reg, 0, (int)top - (int)p->n - 1, 0);
	} else { /* as clang ends loops */
		put(p, (below(2) ? EBPF_JMP : EBPF_JMP32) | (below(2) ? EBPF_JEQ : EBPF_JLT), reg,
		    0, 1, 1);
		p->insns[p->n - 1].imm = EBPF_OP(p->insns[p->n - 1].code) == EBPF_JLT;
		put(p, EBPF_JMP | EBPF_JA, 0, 0, (int)top - (int)p->n - 1, 0);
	}
}

/* Folds all registers and slots into r0. */
static void put_result(struct program *p, int level)
{
	for (unsigned r = 1; r <= 9; r++) {
		put(p, EBPF_ALU64 | EBPF_MUL, 0, 0, 0, 31);
		put(p, EBPF_ALU64 | EBPF_XOR | EBPF_X, 0, r, 0, 0);
	}
	for (int k = 1; k <= SLOTS; k++) {
		put(p, EBPF_LDX | EBPF_MEM | EBPF_DW, 1, 10, -8 * k, 0);
		put(p, EBPF_ALU64 | EBPF_MUL, 0, 0, 0, 31);
		put(p, EBPF_ALU64 | EBPF_ADD | EBPF_X, 0, 1, 0, 0);
	}
	if (p->hook && level == 0) { /* it has no result: it stores it */
		put(p, EBPF_LD_IMM64, 1, EBPF_PSEUDO_MAP_VALUE, 0, 3);
		put(p, 0, 0, 0, 0, 56);
		put(p, EBPF_STX | EBPF_MEM | EBPF_DW, 1, 0, 0, 0);
		put(p, EBPF_ALU64 | EBPF_MOV, 0, 0, 0, 0);
	}
	put(p, EBPF_JMP | EBPF_EXIT, 0, 0, 0, 0);
}

static void put_function(struct program *p, int level)
{
	p->func_at[level] = p->n;
	if (!level) {
		put_first_registers(p);
	}
	for (unsigned r = 0; r <= 9 && level; r++) {
		if (r == 0 || r > 5) {
			put_const(p, r, value());
		}
	}
	for (int k = 1; k <= SLOTS; k++) {
		put(p, EBPF_STX | EBPF_MEM | EBPF_DW, 10, below(10), -8 * k, 0);
	}
	for (unsigned k = (level ? 4 : 12) + below(level ? 8 : 30);
	     k && p->n < MAX_INSNS / 5 * (unsigned)(level + 1); k--) {
		switch (below(5)) {
		case 0:
			put_skipped(p, level);
			break;
		case 1:
			put_loop(p, level);
			break;
		default:
			put_item(p, level);
		}
	}
	put_result(p, level);
}

static void generate(struct program *p, int hook)
{
	p->n = p->n_calls = 0;
	p->hook = hook;
	for (unsigned k = 0; hook && k < ARRAY_SIZE(ctx); k++) {
		ctx[k] = value();
	}
	for (int level = 0; level <= FUNCS; level++) {
		put_function(p, level);
	}
	for (uint32_t k = 0; k < p->n_calls; k++) {
		p->insns[p->call_at[k]].imm =
			(int32_t)p->func_at[p->call_to[k]] - (int32_t)p->call_at[k] - 1;
	}
}

static uint64_t hash_maps(void)
{
	uint64_t h = 1469598103934665603u;

	for (int r = 0; r < EBPF_REGIONS; r++) {
		for (size_t i = 0; i < t.bytes[r]; i += 8) {
			uint64_t v;

			memcpy(&v, (char *)t.mem[r] + i, 8);
			h = (h ^ v) * 1099511628211u;
		}
	}
	return h;
}

static struct outcome outcome_of(uint64_t r0)
{
	struct outcome o = { .r0 = r0, .hash = hash_maps() };

	for (int i = 0; i < EBPF_NOTES; i++) {
		o.notes = o.notes * 31 + t.env.notes[i];
	}
	return o;
}

static void same(unsigned number, const char *engine, struct outcome a, struct outcome b)
{
	if (memcmp(&a, &b, sizeof(a)) != 0) {
		fail_msg("program %u of seed 0x%llx: %s gives r0 0x%llx notes 0x%llx maps 0x%llx, "
			 "the checked interpreter 0x%llx 0x%llx 0x%llx",
			 number, (unsigned long long)SEED, engine, (unsigned long long)b.r0,
			 (unsigned long long)b.notes, (unsigned long long)b.hash,
			 (unsigned long long)a.r0, (unsigned long long)a.notes,
			 (unsigned long long)a.hash);
	}
}

static struct outcome interpret(const struct program *p, unsigned number)
{
	struct ebpf_memory context = { (uintptr_t)ctx, sizeof(ctx), 0 };
	struct ebpf_checked_run run = { .fuel = 10000000,
					.env = &t.env,
					.regions = &context,
					.n_regions = 1,
					.r1 = (uintptr_t)ctx };
	struct outcome a;
	uint64_t r0 = 0;
	uint32_t pc = 0;
	int err;

	test_env_reset(&t);
	err = ebpf_interp_checked(p->insns, p->n, &run, &r0, &pc);
	if (err) {
		fail_msg("program %u of seed 0x%llx: %d at %u", number, (unsigned long long)SEED,
			 err, pc);
	}
	a = outcome_of(r0);
	test_env_reset(&t);
	same(number, "the interpreter", a,
	     outcome_of(ebpf_interp_verified(p->insns, p->n, ctx, &t.env)));
	return a;
}

/* A program inside kernels has no result. */
static struct outcome run_ptx(const struct program *p)
{
	struct ptx_batch b;
	uint64_t r0;

	test_env_reset(&t);
	ptx_batch_begin(&b);
	assert_int_equal(ptx_batch_add_device(&b, p->insns, p->n, &t.env, p->hook, 0, NULL), 0);
	ptx_batch_run(&b, &t, (uint8_t *)ctx, sizeof(ctx), sizeof(ctx), 1, &r0);
	return outcome_of(r0);
}

static void setup_env(void)
{
	test_env_init(&t);
	test_env_add(&t, "global", 24, 5, 0, 0);
	test_env_add(&t, "tenant", 16, 4, 0x10000, 0);
	test_env_add(&t, "data", 64, 1, 0x20000, 1);
	test_env_add(&t, "bss", 64, 1, 0x10000, 1);
	assert_int_equal(test_env_bind(&t), 0);
	t.env.maps[1].flags |= 0x100000; /* programs inside kernels take it to be in their memory */
}

static void engines_agree(void **state)
{
	struct program *p = malloc(sizeof(*p));
	static struct outcome expected[BATCH];
	static int entry[BATCH];
	static uint64_t contexts[BATCH][ARRAY_SIZE(ctx)];
	struct code_pool pool;

	setup_env();
	pool_init(&pool, BATCH * 65536u);
	rng = SEED;
	for (unsigned i = 0; i < PROGRAMS; i++) {
		generate(p, i % DEVICE_EACH ? 0 : HOOK_gdev_access);
		assert_true(p->n < MAX_INSNS);
		assert_int_equal(ebpf_program_check(p->insns, p->n, t.env.n_maps, NULL), 0);
		expected[i % BATCH] = interpret(p, i);
		if (i % PTX_EACH == 0) {
			same(i, "PTX", expected[i % BATCH], run_ptx(p));
		}
		memcpy(contexts[i % BATCH], ctx, sizeof(ctx));
		entry[i % BATCH] = pool_add(&pool, p->insns, p->n, &t.env);
		assert_true(entry[i % BATCH] >= 0);
		if (i % BATCH == BATCH - 1) {
			assert_int_equal(pool_map(&pool), 0);
			for (unsigned k = 0; k < BATCH; k++) {
				test_env_reset(&t);
				same(i - BATCH + 1 + k, "compiled code", expected[k],
				     outcome_of(pool_run(&pool, entry[k], contexts[k], &t.env)));
			}
			pool_clear(&pool);
		}
	}
	pool_finish(&pool);
	test_env_finish(&t);
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(engines_agree) };

	return cmocka_run_group_tests_name("bpf random", tests, NULL, NULL);
}
