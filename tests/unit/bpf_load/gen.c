/* The generator. */
#include "gen.h"

#include <string.h>

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

const uint32_t gen_maps[GEN_MAPS][4] = {
	{ 24, 3, 0, 0 },
	{ 64, 4, GBPF_F_TENANT, 0 },
	{ 40, 1, GBPF_F_RDONLY, 1 },
	{ 72, 1, GBPF_F_TENANT, 1 },
	{ 16, 2, GBPF_F_DAEMON, 0 },
};

static uint32_t below(struct gen *g, uint32_t n)
{
	return rng_below(g->rng, n);
}

static uint32_t emit(struct gen *g, unsigned code, unsigned dst, unsigned src, int off, int64_t imm)
{
	if (g->n < GEN_MAX_INSNS - 2) {
		g->insns[g->n] = (struct ebpf_insn){ (uint8_t)code, dst & 15, src & 15,
						     (int16_t)off, (int32_t)imm };
		g->n++;
	}
	return g->n - 1;
}

/* Lets the jump at that place lead here. */
static void land(struct gen *g, uint32_t jump)
{
	g->insns[jump].off = (int16_t)(g->n - jump - 1);
}

static unsigned number(struct gen *g)
{
	unsigned r;

	do {
		r = below(g, 10);
	} while (!(g->numbers >> r & 1));
	return r;
}

/* A register to overwrite; r6 stays the context, r9 counts rounds. */
static unsigned target(struct gen *g)
{
	static const uint8_t regs[] = { 0, 1, 2, 3, 4, 5, 7, 8 };
	unsigned r = regs[below(g, sizeof(regs))];

	return r;
}

static int64_t small(struct gen *g)
{
	switch (below(g, 6)) {
	case 0:
		return (int32_t)rng_number(g->rng);
	case 1:
		return -(int64_t)below(g, 16);
	case 2:
		return (int64_t)1 << below(g, 31);
	default:
		return below(g, 80);
	}
}

static void alu(struct gen *g)
{
	static const uint8_t ops[] = { EBPF_ADD, EBPF_SUB, EBPF_MUL, EBPF_DIV,	EBPF_OR,
				       EBPF_AND, EBPF_AND, EBPF_LSH, EBPF_RSH,	EBPF_NEG,
				       EBPF_MOD, EBPF_XOR, EBPF_MOV, EBPF_ARSH, EBPF_END };
	unsigned op = ops[below(g, sizeof(ops))], cls = below(g, 2) ? EBPF_ALU64 : EBPF_ALU,
		 dst = number(g);
	int off = 0;

	if (dst == 6 || dst == 9) {
		dst = target(g);
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, dst, number(g), 0, 0);
		g->numbers |= (uint16_t)(1u << dst);
	}
	if (op == EBPF_END) {
		emit(g, cls | EBPF_END | (cls == EBPF_ALU ? below(g, 2) * EBPF_X : 0), dst, 0, 0,
		     16 << below(g, 3));
		return;
	}
	if (op == EBPF_NEG) {
		emit(g, cls | EBPF_NEG, dst, 0, 0, 0);
		return;
	}
	if ((op == EBPF_DIV || op == EBPF_MOD) && below(g, 3) == 0) {
		off = 1;
	}
	if (below(g, 2)) {
		if (op == EBPF_MOV && below(g, 2)) {
			off = 8 << below(g, cls == EBPF_ALU64 ? 3 : 2);
		}
		emit(g, cls | op | EBPF_X, dst, number(g), off, 0);
	} else {
		emit(g, cls | op | EBPF_K, dst, 0, off, small(g));
	}
}

static void ctx_load(struct gen *g)
{
	unsigned dst = target(g);

	if (below(g, 2)) {
		/* whole fields: one of eight bytes or two of four */
		emit(g, EBPF_LDX | EBPF_MEM | EBPF_DW, dst, 6,
		     8 * (int)below(g, g->daemon ? 4 : 16), 0);
	} else {
		static const uint8_t sizes[] = { EBPF_B, EBPF_H, EBPF_W };
		unsigned size = sizes[below(g, 3)];
		unsigned mode = below(g, 2) ? EBPF_MEM : EBPF_MEMSX;

		emit(g, EBPF_LDX | mode | size, dst, 6,
		     (g->daemon ? 24 : 72) + 4 * (int)below(g, 2), 0);
	}
	g->numbers |= (uint16_t)(1u << dst);
}

static const uint8_t jumps[] = { EBPF_JEQ,  EBPF_JGT, EBPF_JGE, EBPF_JSET, EBPF_JNE, EBPF_JSGT,
				 EBPF_JSGE, EBPF_JLT, EBPF_JLE, EBPF_JSLT, EBPF_JSLE };

static uint32_t jump(struct gen *g, unsigned reg, int64_t imm, int by_reg)
{
	unsigned cls = below(g, 3) ? EBPF_JMP : EBPF_JMP32, op = jumps[below(g, sizeof(jumps))];

	g->branches++;
	if (by_reg) {
		return emit(g, cls | op | EBPF_X, reg, number(g), 0, 0);
	}
	return emit(g, cls | op | EBPF_K, reg, 0, 0, imm);
}

/* Narrows r1 in one of many ways, right or wrong. Jumps out are collected in skips. */
static unsigned bound(struct gen *g, uint32_t limit, uint32_t skips[4])
{
	static const uint8_t masks[] = { 1, 3, 7, 15, 31, 63, 8, 24, 56 };
	unsigned n = 0;

	for (unsigned round = 1 + below(g, 3); round-- > 0;) {
		switch (below(g, 8)) {
		case 0:
			emit(g, (below(g, 2) ? EBPF_ALU64 : EBPF_ALU) | EBPF_AND | EBPF_K, 1, 0, 0,
			     masks[below(g, sizeof(masks))]);
			break;
		case 1:
			emit(g, (below(g, 2) ? EBPF_ALU64 : EBPF_ALU) | EBPF_RSH | EBPF_K, 1, 0, 0,
			     24 + 5 * below(g, 8));
			break;
		case 2:
			emit(g, (below(g, 2) ? EBPF_ALU64 : EBPF_ALU) | EBPF_MOD | EBPF_K, 1, 0, 0,
			     1 + below(g, limit + 2));
			break;
		case 3:
			if (g->branches < 7 && n < 4) { /* both ends, signed */
				skips[n++] = emit(g, EBPF_JMP | EBPF_JSLT | EBPF_K, 1, 0, 0,
						  below(g, 3));
				g->branches++;
			}
			/* fall through */
		case 4:
			if (g->branches < 7 && n < 4) {
				skips[n++] = jump(g, 1, (int64_t)below(g, 3) - 1 + limit, 0);
			}
			break;
		default:
			if (g->branches < 7 && n < 4) {
				skips[n++] =
					emit(g,
					     (below(g, 3) ? EBPF_JMP : EBPF_JMP32) |
						     (below(g, 2) ? EBPF_JGT : EBPF_JGE) | EBPF_K,
					     1, 0, 0, (int64_t)limit - below(g, 3));
				g->branches++;
			}
		}
	}
	return n;
}

static unsigned size_code(unsigned bytes)
{
	return bytes == 1 ? EBPF_B : bytes == 2 ? EBPF_H : bytes == 4 ? EBPF_W : EBPF_DW;
}

static void access(struct gen *g, unsigned ptr, int off, unsigned bytes, int writable)
{
	unsigned dst, kind = below(g, writable ? 4 : 2);

	switch (kind) {
	case 2:
		emit(g, EBPF_STX | EBPF_MEM | size_code(bytes), ptr, number(g), off, 0);
		break;
	case 3:
		if (bytes >= 4 && below(g, 2)) {
			static const uint8_t ops[] = { EBPF_ADD,  EBPF_OR,	EBPF_AND,
						       EBPF_XOR,  EBPF_ADD | 1, EBPF_XOR | 1,
						       EBPF_XCHG, EBPF_CMPXCHG };

			dst = 3;
			emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, dst, number(g), 0, 0);
			emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 0, 0, 0, small(g));
			emit(g, EBPF_STX | EBPF_ATOMIC | size_code(bytes), ptr, dst, off,
			     ops[below(g, sizeof(ops))]);
			g->numbers |= 1u << 3 | 1;
		} else {
			emit(g, EBPF_ST | EBPF_MEM | size_code(bytes), ptr, 0, off, small(g));
		}
		break;
	default:
		dst = target(g);
		emit(g,
		     EBPF_LDX | (bytes < 8 && below(g, 3) == 0 ? EBPF_MEMSX : EBPF_MEM) |
			     size_code(bytes),
		     dst, ptr, off, 0);
		g->numbers |= (uint16_t)(1u << dst);
	}
}

/* r1 becomes a number that is meant to be an index below limit. */
static unsigned make_index(struct gen *g, uint32_t limit, unsigned bytes, uint32_t skips[4])
{
	unsigned n;

	emit(g, (below(g, 2) ? EBPF_ALU64 : EBPF_ALU) | EBPF_MOV | EBPF_X, 1, number(g), 0, 0);
	n = bound(g, limit, skips);
	if (bytes > 1 && below(g, 8)) {
		emit(g, EBPF_ALU64 | EBPF_AND | EBPF_K, 1, 0, 0, -(int64_t)bytes);
	}
	return n;
}

/* p = lookup(map, key): the pointer is in r0, checked, then moved to r2. Returns the skip jump. */
static uint32_t lookup(struct gen *g, unsigned map)
{
	uint32_t skip;

	emit(g, EBPF_ST | EBPF_MEM | EBPF_W, 10, 0, -4, below(g, 6));
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 2, 10, 0, 0);
	emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_K, 2, 0, 0, -4);
	emit(g, EBPF_LD_IMM64, 1, EBPF_PSEUDO_MAP, 0, map);
	emit(g, 0, 0, 0, 0, 0);
	emit(g, EBPF_JMP | EBPF_CALL, 0, 0, 0, 1);
	g->numbers &= (uint16_t)~0x3fu;
	g->branches++;
	skip = emit(g, EBPF_JMP | EBPF_JEQ | EBPF_K, 0, 0, 0, 0);
	return below(g, 16) ? skip : emit(g, EBPF_JMP | EBPF_JNE | EBPF_K, 0, 0, 0, 0);
}

static unsigned pick_map(struct gen *g)
{
	static const uint8_t local[] = { 0, 1, 2, 3 }, daemon[] = { 0, 0, 2, 4 };

	if (below(g, 24) == 0) {
		return below(g, GEN_MAPS);
	}
	return g->daemon ? daemon[below(g, 4)] : local[below(g, 4)];
}

static int is_writable(struct gen *g, unsigned map)
{
	if (below(g, 24) == 0) {
		return 1;
	}
	if (gen_maps[map][2] & GBPF_F_RDONLY) {
		return 0;
	}
	return g->daemon || (gen_maps[map][2] & GBPF_F_TENANT);
}

static void map_access(struct gen *g)
{
	unsigned map = pick_map(g), bytes = 1u << below(g, 4), n = 0;
	uint32_t skips[8], limit = gen_maps[map][0] - bytes;
	uint16_t before;
	int off = 0, by_lookup = !gen_maps[map][3] && below(g, 2), both = (int)below(g, 2);

	if (by_lookup) {
		skips[n++] = lookup(g, map);
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 2, 0, 0, 0);
	}
	g->numbers &= (uint16_t)~0x6u;
	before = g->numbers;
	n += make_index(g, limit, bytes, skips + n);
	if (!by_lookup) {
		emit(g, EBPF_LD_IMM64, 2, EBPF_PSEUDO_MAP_VALUE, 0, map);
		emit(g, 0, 0, 0, 0, 0);
	}
	emit(g, EBPF_ALU64 | (below(g, 8) ? EBPF_ADD : EBPF_SUB) | EBPF_X, 2, 1, 0, 0);
	if (below(g, 6) == 0) {
		off = (int)below(g, 4) * (int)bytes - (int)bytes;
	}
	access(g, 2, off, bytes, is_writable(g, map));
	for (unsigned i = 0; i < n; i++) {
		land(g, skips[i]);
	}
	g->numbers = n ? before & (uint16_t)~0x7u : g->numbers & (uint16_t)~0x6u;
	if (both || !g->numbers) {
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 0, 0, 0, small(g));
		g->numbers |= 1;
	}
}

static void stack_access(struct gen *g)
{
	unsigned bytes = 1u << below(g, 4), n;
	uint32_t skips[4];
	uint16_t before;

	g->numbers &= (uint16_t)~0x6u;
	before = g->numbers;
	n = make_index(g, 64 - bytes, bytes, skips);
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 2, 10, 0, 0);
	emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_X, 2, 1, 0, 0);
	access(g, 2, -64, bytes, 1);
	for (unsigned i = 0; i < n; i++) {
		land(g, skips[i]);
	}
	g->numbers = n ? before & (uint16_t)~0x7u : g->numbers & (uint16_t)~0x6u;
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 0, 0, 0, small(g));
	g->numbers |= 1;
}

static void spill(struct gen *g)
{
	unsigned bytes = below(g, 2) ? 8 : 1u << below(g, 4);

	access(g, 10, -8 * (int)(1 + below(g, 7)) + (int)(below(g, 8 / bytes) * bytes), bytes, 1);
}

static void pointer_spill(struct gen *g)
{
	unsigned map = pick_map(g), dst = 2;
	int at = -72 - 8 * (int)below(g, 2);

	emit(g, EBPF_LD_IMM64, 2, EBPF_PSEUDO_MAP_VALUE, 0, map);
	emit(g, 0, 0, 0, 0, below(g, 24));
	emit(g, EBPF_STX | EBPF_MEM | EBPF_DW, 10, 2, at, 0);
	g->numbers &= (uint16_t)~0x4u;
	if (below(g, 12) == 0) {
		emit(g, EBPF_ST | EBPF_MEM | EBPF_B, 10, 0, at + (int)below(g, 8), 0);
	}
	emit(g, EBPF_LDX | EBPF_MEM | EBPF_DW, dst, 10, at, 0);
	access(g, dst, 0, 1, is_writable(g, map));
}

static void block(struct gen *g, unsigned n);

static void branch(struct gen *g)
{
	uint32_t at, over;
	uint16_t before = g->numbers;

	at = jump(g, number(g), small(g), (int)below(g, 2));
	block(g, 1 + below(g, 3));
	if (below(g, 2)) {
		uint16_t then = g->numbers;

		over = emit(g, EBPF_JMP | EBPF_JA, 0, 0, 0, 0);
		land(g, at);
		g->numbers = before;
		block(g, 1 + below(g, 2));
		land(g, over);
		g->numbers &= then;
	} else {
		land(g, at);
		g->numbers &= before;
	}
	if (!g->numbers) {
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 0, 0, 0, 1);
		g->numbers |= 1;
	}
}

static void loop(struct gen *g)
{
	uint32_t head, at;
	uint16_t keep = g->numbers;

	if (g->in_function || g->branches > 4) {
		return;
	}
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 9, 0, 0, 1 + below(g, 5));
	head = g->n;
	for (unsigned i = 1 + below(g, 3); i-- > 0;) {
		below(g, 3) ? alu(g) : spill(g);
	}
	g->numbers = keep;
	emit(g, EBPF_ALU64 | EBPF_SUB | EBPF_K, 9, 0, 0, 1);
	at = emit(g, EBPF_JMP | EBPF_JNE | EBPF_K, 9, 0, 0, 0);
	g->insns[at].off = (int16_t)((int32_t)head - (int32_t)at - 1);
}

static void helper(struct gen *g)
{
	if (below(g, 3) == 0 && !g->in_function && g->n_calls < 8) {
		unsigned a = number(g), b = number(g);

		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 1, a, 0, 0);
		if (b != 1) {
			emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 2, b, 0, 0);
		} else {
			emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 2, 0, 0, 5);
		}
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 3, 10, 0, 0);
		emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_K, 3, 0, 0, -64);
		g->calls[g->n_calls++] = emit(g, EBPF_JMP | EBPF_CALL, 0, EBPF_CALL_LOCAL, 0, 0);
	} else {
		emit(g, EBPF_JMP | EBPF_CALL, 0, 0, 0, below(g, 2) ? 7 : 5);
	}
	g->numbers = (uint16_t)((g->numbers & ~0x3fu) | 1);
}

/* One of the values that a diamond gives its register: harmless, linked to r8, or anything. */
static void diamond_value(struct gen *g)
{
	switch (below(g, 5)) {
	case 0:
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 7, 8, 0, 0);
		break;
	case 1:
		emit(g, EBPF_LDX | EBPF_MEM | EBPF_W, 7, 6, g->daemon ? 24 : 72, 0);
		break;
	default:
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 7, 0, 0, below(g, 2) ? 0 : below(g, 24));
	}
}

/* Instructions that change nothing that matters, so that the next place where paths meet gets a
 * node. */
static void pause(struct gen *g, unsigned n)
{
	while (n-- > 0) {
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 0, 0, 0, below(g, 9));
	}
	emit(g, EBPF_JMP | EBPF_JA, 0, 0, 0, 0);
}

/* Takes the detour over the stack: r7 is stored, partly overwritten, partly loaded. */
static void diamond_stack(struct gen *g)
{
	unsigned bytes = 1u << below(g, 4), at = below(g, 8 / bytes) * bytes;

	emit(g, EBPF_STX | EBPF_MEM | EBPF_DW, 10, 7, -96, 0);
	pause(g, below(g, 12));
	if (below(g, 2)) {
		emit(g, EBPF_ST | EBPF_MEM | EBPF_B, 10, 0, -96 + (int)below(g, 8), below(g, 3));
	}
	emit(g, EBPF_LDX | EBPF_MEM | size_code(bytes), 7, 10, -96 + (int)at, 0);
}

/* Two paths give r7 different values, meet, and then r7 is an index: what one path allows the other
 * may not. */
static void diamond(struct gen *g)
{
	uint32_t at, over, skip = 0;
	int check = (int)below(g, 2);

	emit(g, EBPF_LDX | EBPF_MEM | EBPF_DW, 8, 6, 8 * (int)below(g, 3), 0);
	emit(g, EBPF_LDX | EBPF_MEM | EBPF_W, 0, 6, g->daemon ? 28 : 76, 0);
	at = emit(g, EBPF_JMP | EBPF_JGT | EBPF_K, 0, 0, 0, below(g, 9));
	diamond_value(g);
	over = emit(g, EBPF_JMP | EBPF_JA, 0, 0, 0, 0);
	land(g, at);
	diamond_value(g);
	for (unsigned i = below(g, 10); i-- > 0;) {
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 0, 0, 0, below(g, 9));
	}
	land(g, over);
	if (below(g, 2)) {
		diamond_stack(g);
	}
	if (check) {
		skip = emit(g, EBPF_JMP | EBPF_JGT | EBPF_K, below(g, 2) ? 8 : 7, 0, 0,
			    below(g, 30));
	}
	g->branches += 1 + (unsigned)check;
	if (below(g, 3) == 0 && g->n_calls < 8 && !g->in_function) {
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 1, 7, 0, 0);
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 2, 8, 0, 0);
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 3, 10, 0, 0);
		emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_K, 3, 0, 0, -64);
		if (below(g, 2)) {
			emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 7, 0, 0, 0);
			pause(g, 8);
		}
		g->calls[g->n_calls++] = emit(g, EBPF_JMP | EBPF_CALL, 0, EBPF_CALL_LOCAL, 0, 0);
	} else {
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 2, 10, 0, 0);
		emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_X, 2, 7, 0, 0);
		emit(g, EBPF_LDX | EBPF_MEM | EBPF_B, 0, 2, -64, 0);
	}
	if (check) {
		land(g, skip);
	}
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 0, 0, 0, 1);
	g->numbers = 1 | 1u << 7 | 1u << 8;
}

static void block(struct gen *g, unsigned n)
{
	while (n-- > 0 && g->n < GEN_MAX_INSNS - 80) {
		switch (below(g, 14)) {
		case 0:
			ctx_load(g);
			break;
		case 1:
			spill(g);
			break;
		case 2:
			map_access(g);
			break;
		case 3:
			stack_access(g);
			break;
		case 4:
			g->branches < 6 ? branch(g) : alu(g);
			break;
		case 5:
			helper(g);
			break;
		case 6:
			below(g, 2) ? loop(g) : pointer_spill(g);
			break;
		case 7:
			g->branches < 5 && !g->in_function && below(g, 3) == 0 ? diamond(g)
									       : alu(g);
			break;
		default:
			alu(g);
		}
	}
}

static void finish(struct gen *g)
{
	unsigned r = number(g);
	uint32_t at;

	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 0, r, 0, 0);
	if (g->daemon) {
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 0, 0, 0, 0);
	} else if (below(g, 2)) {
		emit(g, (below(g, 2) ? EBPF_ALU64 : EBPF_ALU) | EBPF_AND | EBPF_K, 0, 0, 0, 3);
	} else {
		at = emit(g, EBPF_JMP | EBPF_JLE | EBPF_K, 0, 0, 0, 2 + below(g, 2));
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 0, 0, 0, 1);
		land(g, at);
	}
	emit(g, EBPF_JMP | EBPF_EXIT, 0, 0, 0, 0);
}

/* A function of two numbers and a pointer to 64 bytes of the caller's stack. */
static void function(struct gen *g, struct ebpf_prog *prog)
{
	uint32_t start = g->n;

	g->in_function = 1;
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 7, 1, 0, 0);
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 8, 2, 0, 0);
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 9, 3, 0, 0);
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 0, 0, 0, small(g));
	g->numbers = 1 | 1u << 7 | 1u << 8;
	for (unsigned i = below(g, 4); i-- > 0;) {
		alu(g);
	}
	if (below(g, 3) == 0) {
		emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_X, 9, 7, 0, 0);
		access(g, 9, 0, 1, 1);
	} else {
		access(g, 9, 8 * (int)below(g, 7), 1u << below(g, 4), 1);
	}
	if (!(g->numbers & 1)) {
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 0, 7, 0, 0);
	}
	emit(g, EBPF_JMP | EBPF_EXIT, 0, 0, 0, 0);
	for (unsigned i = 0; i < g->n_calls; i++) {
		g->insns[g->calls[i]].imm = (int32_t)start - (int32_t)g->calls[i] - 1;
	}
	prog->subprog[1] = start;
	prog->n_subprogs = 2;
}

static void mutate(struct gen *g)
{
	struct ebpf_insn *in = &g->insns[below(g, g->n)];

	switch (below(g, 4)) {
	case 0:
		in->imm = (int32_t)rng_number(g->rng);
		break;
	case 1:
		in->off = (int16_t)(in->off + (int)below(g, 17) - 8);
		break;
	case 2:
		in->code ^= (uint8_t)(1u << below(g, 8));
		break;
	default:
		in->src = below(g, 11) & 15;
	}
}

void gen_program(struct gen *g, struct rng *r, struct ebpf_prog *prog)
{
	memset(g, 0, sizeof(*g));
	memset(prog, 0, sizeof(*prog));
	g->rng = r;
	g->daemon = below(g, 3) == 0;
	prog->hook = g->daemon ? 6 : 3;
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 6, 1, 0, 0);
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 0, 0, 0, small(g));
	emit(g, EBPF_LDX | EBPF_MEM | EBPF_DW, 7, 6, 8 * (int)below(g, 3), 0);
	emit(g, EBPF_LDX | EBPF_MEM | EBPF_W, 8, 6, (g->daemon ? 24 : 72), 0);
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 9, 0, 0, 0);
	for (int at = -64; at < 0; at += 8) {
		emit(g, EBPF_ST | EBPF_MEM | EBPF_DW, 10, 0, at, below(g, 3) ? 0 : small(g));
	}
	g->numbers = 1 | 1u << 7 | 1u << 8;
	block(g, 3 + below(g, 10));
	finish(g);
	prog->n_subprogs = 1;
	if (g->n_calls) {
		function(g, prog);
	}
	if (below(g, 5) == 0) {
		mutate(g);
	}
	prog->insns = g->insns;
	prog->n_insns = g->n;
}
