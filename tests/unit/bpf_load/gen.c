/* Generates random programs, see gen.h. */
#include "gen.h"

#include <string.h>

enum {
#define GBPF_CONST(name, value, doc) name = value,
#include "gbpf/hooks.def"
#define GBPF_MAP_TYPE(id, name, ops, doc) GBPF_MAP_##name = id,
#include "gbpf/hooks.def"
#define GBPF_HELPER(id, name, type, params, ret, a1, a2, a3, a4, a5, sides, cost, doc)             \
	HELPER_##name = id,
#include "gbpf/hooks.def"
};

const struct gen_map gen_maps[GEN_MAPS] = {
	{ GBPF_MAP_ARRAY, 4, 24, 3, 0, 0 },
	{ GBPF_MAP_ARRAY, 4, 64, 4, GBPF_F_TENANT, 0 },
	{ GBPF_MAP_ARRAY, 4, 40, 1, GBPF_F_RDONLY, 1 },
	{ GBPF_MAP_ARRAY, 4, 72, 1, GBPF_F_TENANT, 1 },
	{ GBPF_MAP_ARRAY, 4, 16, 2, GBPF_F_DAEMON, 0 },
	[GEN_MAP_HASH] = { GBPF_MAP_HASH, 8, 24, 4, GBPF_F_TENANT, 0 },
	[GEN_MAP_QUEUE] = { GBPF_MAP_QUEUE, 0, 16, 4, GBPF_F_TENANT, 0 },
	[GEN_MAP_RING] = { GBPF_MAP_RINGBUF, 0, 0, 4096, GBPF_F_TENANT, 0 },
	[GEN_MAP_PROGS] = { GBPF_MAP_PROG_ARRAY, 4, 4, 4, 0, 0 },
};

/* Stack offsets: the 64 bytes that are always initialized, and the slots below them. */
enum { AREA = -64, POINTERS = -80, SCRATCH = -96, ITERATOR = -104, RECORD = -112 };

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

/* Remembers that the instruction emitted last names a function. */
static void use(struct gen *g, uint32_t at, enum gen_function f)
{
	g->uses[g->n_uses].at = at;
	g->uses[g->n_uses++].function = f;
}

static int may_call(const struct gen *g)
{
	return !g->in_function && g->n_uses < 8;
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

/* Loads through a pointer to one of a few fields of eight bytes. */
static void ctx_place(struct gen *g)
{
	unsigned dst = target(g), kind = below(g, 3);
	int fields = g->daemon ? 3 : 15, off = 8 * (int)below(g, (uint32_t)fields);
	uint32_t skip;

	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 1, number(g), 0, 0);
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 2, 6, 0, 0);
	g->numbers |= 1u << 1;
	g->numbers &= (uint16_t) ~(1u << 2);
	if (kind == 0 || g->branches >= g->max_branches) {
		emit(g, EBPF_ALU64 | EBPF_AND | EBPF_K, 1, 0, 0, 1);
		emit(g, EBPF_ALU64 | EBPF_LSH | EBPF_K, 1, 0, 0, 3);
		emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_X, 2, 1, 0, 0);
	} else {
		g->branches++;
		skip = emit(g, EBPF_JMP | EBPF_JSET | EBPF_K, 1, 0, 0, 1 + below(g, 7));
		emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_K, 2, 0, 0, 8);
		land(g, skip);
	}
	if (kind == 1) { /* by way of a place outside */
		emit(g, EBPF_ALU64 | EBPF_SUB | EBPF_K, 2, 0, 0, 800);
		off += 800;
	}
	emit(g, EBPF_LDX | EBPF_MEM | EBPF_DW, dst, 2, off, 0);
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
			if (g->branches < g->max_branches + 1 && n < 4) { /* both ends, signed */
				skips[n++] = emit(g, EBPF_JMP | EBPF_JSLT | EBPF_K, 1, 0, 0,
						  below(g, 3));
				g->branches++;
			}
			/* fall through */
		case 4:
			if (g->branches < g->max_branches + 1 && n < 4) {
				skips[n++] = jump(g, 1, (int64_t)below(g, 3) - 1 + limit, 0);
			}
			break;
		default:
			if (g->branches < g->max_branches + 1 && n < 4) {
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

/* Sets r1 to a number that should be an index below limit. */
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
		return below(g, GEN_MAP_HASH);
	}
	return g->daemon ? daemon[below(g, 4)] : local[below(g, 4)];
}

static int is_writable(struct gen *g, unsigned map)
{
	if (below(g, 24) == 0) {
		return 1;
	}
	if (gen_maps[map].flags & GBPF_F_RDONLY) {
		return 0;
	}
	return g->daemon || (gen_maps[map].flags & GBPF_F_TENANT);
}

static void map_access(struct gen *g)
{
	unsigned map = pick_map(g), bytes = 1u << below(g, 4), n = 0;
	uint32_t skips[8], limit = gen_maps[map].value_bytes - bytes;
	uint16_t before;
	int off = 0, by_lookup = !gen_maps[map].is_data && below(g, 2), both = (int)below(g, 2);

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

	if (g->in_function || g->branches > g->max_branches - 2) {
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
	if (below(g, 3) == 0 && may_call(g)) {
		unsigned a = number(g), b = number(g);

		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 1, a, 0, 0);
		if (b != 1) {
			emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 2, b, 0, 0);
		} else {
			emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 2, 0, 0, 5);
		}
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 3, 10, 0, 0);
		emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_K, 3, 0, 0, -64);
		use(g, emit(g, EBPF_JMP | EBPF_CALL, 0, EBPF_CALL_LOCAL, 0, 0), GEN_CALLED);
	} else {
		emit(g, EBPF_JMP | EBPF_CALL, 0, 0, 0, below(g, 2) ? 7 : 5);
	}
	g->numbers = (uint16_t)((g->numbers & ~0x3fu) | 1);
}

/* Generates a value for the register of a diamond: harmless, linked to r8, or arbitrary. */
static void diamond_value(struct gen *g)
{
	switch (below(g, 7)) {
	case 0:
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 7, 8, 0, 0);
		break;
	case 5:
	case 6:
		emit(g, (below(g, 3) ? EBPF_ALU64 : EBPF_ALU) | EBPF_MOV | EBPF_X, 7, 8, 0, 0);
		emit(g, (below(g, 3) ? EBPF_ALU64 : EBPF_ALU) | EBPF_ADD | EBPF_K, 7, 0, 0,
		     below(g, 40));
		break;
	case 1:
		emit(g, EBPF_LDX | EBPF_MEM | EBPF_W, 7, 6, g->daemon ? 24 : 72, 0);
		break;
	default:
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 7, 0, 0, below(g, 2) ? 0 : below(g, 24));
	}
}

/* Generates instructions without relevant effects, so that the next meeting point gets a node. */
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

/* Generates two paths that set r7 to different values, meet, and then use r7 as an index that only
 * one of them may allow. */
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
	if (below(g, 3) == 0 && may_call(g)) {
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 1, 7, 0, 0);
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 2, 8, 0, 0);
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 3, 10, 0, 0);
		emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_K, 3, 0, 0, -64);
		if (below(g, 2)) {
			emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 7, 0, 0, 0);
			pause(g, 8);
		}
		use(g, emit(g, EBPF_JMP | EBPF_CALL, 0, EBPF_CALL_LOCAL, 0, 0), GEN_CALLED);
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

/* rN = fp + at */
static void stack_address(struct gen *g, unsigned reg, int at)
{
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, reg, 10, 0, 0);
	emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_K, reg, 0, 0, at);
}

static void map_handle(struct gen *g, unsigned reg, unsigned map)
{
	emit(g, EBPF_LD_IMM64, reg, EBPF_PSEUDO_MAP, 0, map);
	emit(g, 0, 0, 0, 0, 0);
}

static void constant(struct gen *g, unsigned reg, int64_t value)
{
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, reg, 0, 0, value);
}

static void call_helper(struct gen *g, int32_t id)
{
	emit(g, EBPF_JMP | EBPF_CALL, 0, 0, 0, id);
	g->numbers = (uint16_t)((g->numbers & ~0x3fu) | 1);
}

/* A record: reserved, written somewhere, given back; now and then not, or twice, or too late. */
static void ring(struct gen *g)
{
	unsigned bytes = 8 << below(g, 3), give = 1;
	uint32_t skip = 0;

	map_handle(g, 1, GEN_MAP_RING);
	constant(g, 2, bytes);
	constant(g, 3, 0);
	call_helper(g, HELPER_bpf_ringbuf_reserve);
	if (below(g, 20)) {
		skip = emit(g, EBPF_JMP | EBPF_JEQ | EBPF_K, 0, 0, 0, 0);
	}
	emit(g, EBPF_STX | EBPF_MEM | EBPF_DW, 10, 0, RECORD, 0);
	if (below(g, 3)) {
		emit(g, EBPF_STX | EBPF_MEM | EBPF_DW, 0, 7,
		     8 * (int)below(g, bytes / 8 + (below(g, 16) == 0)), 0);
	} else {
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 2, 7, 0, 0);
		emit(g, EBPF_ALU64 | EBPF_AND | EBPF_K, 2, 0, 0,
		     below(g, 8) ? (int)bytes - 1 : (int)bytes);
		emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_X, 2, 0, 0, 0);
		emit(g, EBPF_ST | EBPF_MEM | EBPF_B, 2, 0, 0, 1);
	}
	give = below(g, 24) ? 1 : below(g, 2) * 2;
	while (give-- > 0) {
		emit(g, EBPF_LDX | EBPF_MEM | EBPF_DW, 1, 10, RECORD, 0);
		constant(g, 2, 0);
		call_helper(g,
			    below(g, 2) ? HELPER_bpf_ringbuf_submit : HELPER_bpf_ringbuf_discard);
	}
	if (skip) {
		land(g, skip);
	}
	constant(g, 0, 1);
	g->numbers = (uint16_t)((g->numbers & ~0x3fu) | 1);
}

static void hash(struct gen *g)
{
	static const int32_t ids[] = { HELPER_bpf_map_update_elem, HELPER_bpf_map_lookup_elem,
				       HELPER_bpf_map_lookup_elem, HELPER_bpf_map_delete_elem };
	int32_t id = ids[below(g, 4)];
	uint32_t skip;

	map_handle(g, 1, GEN_MAP_HASH);
	stack_address(g, 2, AREA + 8 * (int)below(g, 8));
	if (id == HELPER_bpf_map_update_elem) {
		stack_address(g, 3, AREA + 8 * (int)below(g, below(g, 16) ? 6 : 8));
		constant(g, 4, below(g, 3));
	}
	call_helper(g, id);
	if (id == HELPER_bpf_map_lookup_elem) {
		unsigned bytes = 1u << below(g, 4);

		skip = emit(g, EBPF_JMP | EBPF_JEQ | EBPF_K, 0, 0, 0, 0);
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 2, 0, 0, 0);
		if (below(g, 2)) {
			emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 1, 8, 0, 0);
			emit(g, EBPF_ALU64 | EBPF_AND | EBPF_K, 1, 0, 0,
			     below(g, 12) ? 16 - bytes : 31);
			emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_X, 2, 1, 0, 0);
		}
		g->numbers = 1u << 7 | 1u << 8;
		access(g, 2, (int)(bytes * below(g, 2)), bytes, 1);
		land(g, skip);
		constant(g, 0, 2);
		g->numbers = 1 | 1u << 7 | 1u << 8;
	}
}

static void queue(struct gen *g)
{
	unsigned kind = below(g, 3);

	map_handle(g, 1, GEN_MAP_QUEUE);
	stack_address(g, 2, kind && below(g, 2) ? SCRATCH - 32 : AREA + 8 * (int)below(g, 6));
	constant(g, 3, below(g, 2) * 2);
	call_helper(g, kind == 0   ? HELPER_bpf_map_push_elem
		       : kind == 1 ? HELPER_bpf_map_pop_elem
				   : HELPER_bpf_map_peek_elem);
	if (kind && below(g, 2)) {
		emit(g, EBPF_LDX | EBPF_MEM | EBPF_W, 7, 10, SCRATCH - 32 + 4 * (int)below(g, 4),
		     0);
	}
}

static void tail_call(struct gen *g)
{
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 1, 6, 0, 0);
	if (below(g, 3)) {
		constant(g, 3, below(g, 5));
	} else {
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 3, number(g), 0, 0);
	}
	map_handle(g, 2, GEN_MAP_PROGS);
	use(g, g->n, GEN_TAIL);
	call_helper(g, HELPER_bpf_tail_call);
}

static void function_value(struct gen *g, unsigned reg, enum gen_function f)
{
	use(g, emit(g, EBPF_LD_IMM64, reg, EBPF_PSEUDO_FUNC, 0, 0), f);
	emit(g, 0, 0, 0, 0, 0);
}

/* bpf_loop or bpf_for_each_map_elem; the callback gets the area. */
static void call_back(struct gen *g)
{
	static const uint8_t each_local[] = { 0, 1, 1, GEN_MAP_HASH }, each_daemon[] = { 0, 4 };

	if (below(g, 2)) {
		if (below(g, 2)) {
			constant(g, 1, below(g, 20));
		} else {
			emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 1, 7, 0, 0);
			emit(g, EBPF_ALU64 | EBPF_AND | EBPF_K, 1, 0, 0, 7);
		}
		function_value(g, 2, GEN_LOOP);
		stack_address(g, 3, AREA);
		constant(g, 4, 0);
		call_helper(g, HELPER_bpf_loop);
	} else {
		map_handle(g, 1, g->daemon ? each_daemon[below(g, 2)] : each_local[below(g, 4)]);
		function_value(g, 2, GEN_EACH);
		stack_address(g, 3, AREA);
		constant(g, 4, 0);
		call_helper(g, HELPER_bpf_for_each_map_elem);
	}
	if (below(g, 2)) { /* the value that the callback has stored */
		emit(g, EBPF_LDX | EBPF_MEM | EBPF_DW, 7, 10, AREA + 8 * (int)below(g, 8), 0);
	}
}

/* The beginning of a loop by iterator: the jump out of it, and where its rounds begin. */
static uint32_t begin_rounds(struct gen *g, int32_t first, uint32_t *ret_head)
{
	stack_address(g, 1, ITERATOR);
	constant(g, 2, first);
	if (below(g, 3) == 0) {
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 2, 8, 0, 0);
		emit(g, EBPF_ALU64 | EBPF_AND | EBPF_K, 2, 0, 0, 3);
	}
	if (below(g, 3)) {
		constant(g, 3, first + (int32_t)below(g, 9));
	} else {
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 3, 7, 0, 0);
		emit(g, EBPF_ALU64 | EBPF_AND | EBPF_K, 3, 0, 0, 7);
	}
	call_helper(g, HELPER_bpf_iter_num_new);
	*ret_head = g->n;
	stack_address(g, 1, ITERATOR);
	call_helper(g, HELPER_bpf_iter_num_next);
	return emit(g, EBPF_JMP | EBPF_JEQ | EBPF_K, 0, 0, 0, 0);
}

static void end_rounds(struct gen *g, uint32_t head, uint32_t out)
{
	uint32_t back = emit(g, EBPF_JMP | EBPF_JA, 0, 0, 0, 0);

	g->insns[back].off = (int16_t)((int32_t)head - (int32_t)back - 1);
	land(g, out);
	if (below(g, 24)) {
		stack_address(g, 1, ITERATOR);
		call_helper(g, HELPER_bpf_iter_num_destroy);
	}
	constant(g, 0, 3);
	g->numbers = 1 | 1u << 7 | 1u << 8;
}

/* Reads through the stored pointer, usually after a NULL check. */
static void use_stored(struct gen *g, unsigned map)
{
	uint32_t skip = 0;

	emit(g, EBPF_LDX | EBPF_MEM | EBPF_DW, 1, 10, POINTERS, 0);
	if (below(g, 12)) {
		skip = emit(g, EBPF_JMP | EBPF_JEQ | EBPF_K, 1, 0, 0, 0);
	}
	g->numbers = 1u << 7 | 1u << 8;
	access(g, 1, 8 * (int)below(g, 2), 8, is_writable(g, map));
	if (skip) {
		land(g, skip);
	}
}

/* Generates a pointer that is NULL before a loop and set in one of its rounds, or the reverse. */
static void late_pointer(struct gen *g)
{
	static const uint8_t maps[] = { 0, 1, GEN_MAP_HASH };
	unsigned map = g->daemon ? 0 : maps[below(g, 3)];
	uint32_t head, out, skip;

	if (below(g, 2)) {
		emit(g, EBPF_ST | EBPF_MEM | EBPF_DW, 10, 0, POINTERS, 0);
	} else {
		map_handle(g, 1, map);
		stack_address(g, 2, AREA + 8 * (int)below(g, 8));
		call_helper(g, HELPER_bpf_map_lookup_elem);
		emit(g, EBPF_STX | EBPF_MEM | EBPF_DW, 10, 0, POINTERS, 0);
	}
	out = begin_rounds(g, 0, &head);
	if (below(g, 2)) {
		use_stored(g, map);
	}
	skip = jump(g, 7 + below(g, 2), small(g), 0);
	if (below(g, 4)) {
		map_handle(g, 1, map);
		stack_address(g, 2, AREA + 8 * (int)below(g, 8));
		call_helper(g, HELPER_bpf_map_lookup_elem);
		emit(g, EBPF_STX | EBPF_MEM | EBPF_DW, 10, 0, POINTERS, 0);
	} else {
		emit(g, EBPF_ST | EBPF_MEM | EBPF_DW, 10, 0, POINTERS, 0);
	}
	land(g, skip);
	emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_K, 8, 0, 0, 1);
	end_rounds(g, head, out);
	use_stored(g, map);
	constant(g, 0, 1);
	g->numbers = 1 | 1u << 7 | 1u << 8;
}

/* Generates an open-coded iterator whose number becomes an index. */
static void iterate(struct gen *g)
{
	uint32_t head, out = begin_rounds(g, (int32_t)below(g, 4) - (below(g, 8) == 0), &head);

	emit(g, EBPF_LDX | (below(g, 2) ? EBPF_MEM : EBPF_MEMSX) | EBPF_W, 1, 0, 0, 0);
	stack_address(g, 2, AREA);
	emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_X, 2, 1, 0, 0);
	g->numbers = 1u << 7 | 1u << 8;
	access(g, 2, (int)below(g, 4), 1, 1);
	if (below(g, 2)) {
		emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_K, 8, 0, 0, small(g));
		emit(g, EBPF_ALU64 | EBPF_AND | EBPF_K, 8, 0, 0, 63);
	}
	end_rounds(g, head, out);
}

/* A constant by which linked numbers differ: mostly small, now and then one that wraps. */
static int64_t distance(struct gen *g)
{
	static const int32_t far[] = { INT32_MIN, INT32_MAX, -64, 64, INT32_MIN + 1 };

	return below(g, 12) ? (int64_t)below(g, 9) - 4 : far[below(g, 5)];
}

/* One step that links dst to src, or changes the link of dst. */
static void link_step(struct gen *g, unsigned dst, unsigned src)
{
	unsigned cls = below(g, 2) ? EBPF_ALU64 : EBPF_ALU;
	static const uint8_t ups[] = { EBPF_RSH, EBPF_RSH, EBPF_ARSH };

	switch (below(g, 9)) {
	case 0:
		emit(g, cls | EBPF_MOV | EBPF_X, dst, src, 0, 0);
		break;
	case 1:
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, dst, src, below(g, 4) ? 32 : 16, 0);
		break;
	case 2:
		emit(g, EBPF_STX | EBPF_MEM | (below(g, 2) ? EBPF_DW : EBPF_W), 10, src, SCRATCH,
		     0);
		emit(g, EBPF_LDX | (below(g, 4) ? EBPF_MEM : EBPF_MEMSX) | EBPF_W, dst, 10, SCRATCH,
		     0);
		break;
	case 3:
		emit(g, EBPF_STX | EBPF_MEM | EBPF_DW, 10, src, SCRATCH, 0);
		emit(g, EBPF_LDX | EBPF_MEM | EBPF_DW, dst, 10, SCRATCH, 0);
		break;
	case 4:
		emit(g, EBPF_ALU64 | EBPF_LSH | EBPF_K, dst, 0, 0, 32);
		if (below(g, 3) == 0) {
			emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, src, dst, 0, 0);
		}
		emit(g, EBPF_ALU64 | ups[below(g, 3)] | EBPF_K, dst, 0, 0, 32);
		break;
	case 5:
		emit(g, cls | EBPF_AND | EBPF_K, dst, 0, 0, below(g, 2) ? -1 : 127);
		break;
	default:
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, dst, src, 0, 0);
		emit(g, cls | (below(g, 4) ? EBPF_ADD : EBPF_SUB) | EBPF_K, dst, 0, 0, distance(g));
	}
}

/* Numbers that differ by constants: one of them is compared, another becomes an index. */
static void linked(struct gen *g)
{
	static const uint8_t regs[] = { 1, 3, 4, 5 };
	uint32_t skips[4];
	unsigned n = 0;

	for (unsigned i = 0; i < 4; i++) {
		emit(g, (below(g, 2) ? EBPF_ALU64 : EBPF_ALU) | EBPF_MOV | EBPF_X, regs[i], 7, 0,
		     0);
	}
	for (unsigned i = 1 + below(g, 5); i-- > 0;) {
		link_step(g, regs[below(g, 4)], regs[below(g, 4)]);
	}
	for (unsigned i = 1 + below(g, 3); i-- > 0;) {
		unsigned cls = below(g, 2) ? EBPF_JMP : EBPF_JMP32, r = regs[below(g, 4)];

		if (below(g, 3)) {
			skips[n++] = emit(g, cls | EBPF_JGT | EBPF_K, r, 0, 0, 40 + below(g, 24));
		} else {
			skips[n++] = jump(g, r, below(g, 64), 0);
		}
		if (below(g, 3) == 0) {
			link_step(g, regs[below(g, 4)], regs[below(g, 4)]);
		}
	}
	g->branches += n;
	stack_address(g, 2, AREA);
	emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_X, 2, regs[below(g, 4)], 0, 0);
	emit(g, EBPF_LDX | EBPF_MEM | EBPF_B, 0, 2, (int)below(g, 9) - 4, 0);
	while (n-- > 0) {
		land(g, skips[n]);
	}
	constant(g, 0, 1);
	g->numbers = (uint16_t)((g->numbers & ~0x3fu) | 1);
}

/* Generates constructs that need the main function, r7 and r8. */
static void construct(struct gen *g)
{
	if (!may_call(g) || (g->numbers & 0x180) != 0x180 || g->branches >= g->max_branches) {
		alu(g);
		return;
	}
	g->branches++;
	switch (below(g, 8)) {
	case 7:
		late_pointer(g);
		break;
	case 0:
		ring(g);
		break;
	case 1:
	case 2:
		hash(g);
		break;
	case 3:
		queue(g);
		break;
	case 4:
		g->plain ? hash(g) : call_back(g);
		break;
	case 5:
		g->plain ? queue(g) : iterate(g);
		break;
	default:
		tail_call(g);
	}
}

static void block(struct gen *g, unsigned n)
{
	while (n-- > 0 && g->n < GEN_MAX_INSNS - 220) {
		switch (below(g, 16)) {
		case 0:
			if (below(g, 3)) {
				ctx_load(g);
			} else {
				ctx_place(g);
			}
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
			g->branches < g->max_branches ? branch(g) : alu(g);
			break;
		case 5:
			helper(g);
			break;
		case 6:
			below(g, 2) ? loop(g) : pointer_spill(g);
			break;
		case 7:
			g->branches < g->max_branches - 1 && !g->in_function && below(g, 3) == 0
				? diamond(g)
				: alu(g);
			break;
		case 8:
		case 9:
			construct(g);
			break;
		case 10:
			!g->in_function && (g->numbers & 0x80) && g->branches < g->max_branches
				? linked(g)
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
static void function(struct gen *g)
{
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
}

/* long cb(u32 i, u64 area[8]) */
static void loop_callback(struct gen *g)
{
	g->in_function = 1;
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 7, 1, 0, 0);
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 9, 2, 0, 0);
	emit(g, EBPF_LDX | EBPF_MEM | EBPF_DW, 8, 2, 8 * (int)below(g, 8), 0);
	constant(g, 0, below(g, 2));
	g->numbers = 1 | 1u << 7 | 1u << 8;
	for (unsigned i = below(g, 4); i-- > 0;) {
		alu(g);
	}
	emit(g, EBPF_STX | EBPF_MEM | EBPF_DW, 10, number(g), -8, 0);
	switch (below(g, 4)) {
	case 0:
		emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_X, 9, 7, 0, 0);
		access(g, 9, 0, 1, 1);
		break;
	case 1:
		emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_K, 8, 0, 0, 1);
		emit(g, EBPF_STX | EBPF_MEM | EBPF_DW, 9, 8, 8 * (int)below(g, 8), 0);
		break;
	default:
		access(g, 9, 8 * (int)below(g, 8), 1u << below(g, 4), 1);
	}
	if (below(g, 2)) {
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 0, 7, 0, 0);
		emit(g, EBPF_ALU64 | EBPF_AND | EBPF_K, 0, 0, 0, below(g, 16) ? 1 : 3);
	} else {
		constant(g, 0, below(g, 8) == 0);
	}
	emit(g, EBPF_JMP | EBPF_EXIT, 0, 0, 0, 0);
}

/* long cb(map, key, value, area) */
static void each_callback(struct gen *g)
{
	g->in_function = 1;
	emit(g, EBPF_LDX | EBPF_MEM | EBPF_W, 7, 2, 4 * (int)(below(g, 12) == 0), 0);
	emit(g, EBPF_LDX | EBPF_MEM | EBPF_DW, 8, 3, 8 * (int)below(g, 3), 0);
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 9, 3, 0, 0);
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 2, 4, 0, 0);
	g->numbers = 1u << 7 | 1u << 8;
	if (below(g, 2)) {
		access(g, 9, (int)below(g, 16), 1, below(g, 2) == 0);
	}
	emit(g, EBPF_STX | EBPF_MEM | EBPF_DW, 2, 8, 8 * (int)below(g, 8), 0);
	constant(g, 0, below(g, 8) == 0);
	emit(g, EBPF_JMP | EBPF_EXIT, 0, 0, 0, 0);
}

/* Generates the target of tail calls, which sometimes calls itself. */
static void tail_target(struct gen *g)
{
	g->in_function = 1;
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 6, 1, 0, 0);
	emit(g, EBPF_LDX | EBPF_MEM | EBPF_DW, 7, 6, 8 * (int)below(g, 3), 0);
	emit(g, EBPF_LDX | EBPF_MEM | EBPF_W, 8, 6, (g->daemon ? 24 : 72), 0);
	emit(g, EBPF_ST | EBPF_MEM | EBPF_DW, 10, 0, -8, small(g));
	g->numbers = 1u << 7 | 1u << 8;
	for (unsigned i = below(g, 4); i-- > 0;) {
		alu(g);
	}
	if (below(g, 6) == 0) {
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 1, 6, 0, 0);
		map_handle(g, 2, GEN_MAP_PROGS);
		constant(g, 3, below(g, 4));
		call_helper(g, HELPER_bpf_tail_call);
	}
	finish(g);
}

/* Appends the functions that are named, and points their names at them. */
static void functions(struct gen *g, struct ebpf_prog *prog)
{
	for (unsigned f = GEN_CALLED; f < GEN_FUNCTIONS; f++) {
		uint32_t start = g->n;
		int used = 0;

		for (unsigned i = 0; i < g->n_uses; i++) {
			uint32_t at = g->uses[i].at;

			if (g->uses[i].function == f) {
				used = 1;
				if (f != GEN_TAIL) {
					g->insns[at].imm = (int32_t)start - (int32_t)at - 1;
				}
			}
		}
		if (!used) {
			continue;
		}
		if (f == GEN_TAIL) {
			for (unsigned i = 0; i < 2; i++) {
				g->tails[i] = (struct ebpf_tail){ GEN_MAP_PROGS, 2 * i,
								  prog->n_subprogs };
			}
			prog->tails = g->tails;
			prog->n_tails = 2;
		}
		prog->subprog[prog->n_subprogs++] = start;
		switch (f) {
		case GEN_CALLED:
			function(g);
			break;
		case GEN_LOOP:
			loop_callback(g);
			break;
		case GEN_EACH:
			each_callback(g);
			break;
		default:
			tail_target(g);
		}
	}
}

/* Keeps the least, the largest, the sum or a count of what it loads, in r7 or r8. */
static void statistic(struct gen *g)
{
	unsigned keep = 7 + below(g, 2);
	uint32_t skip;

	emit(g, EBPF_LDX | EBPF_MEM | EBPF_DW, 0, 6, 8 * (int)below(g, 3), 0);
	g->numbers |= 1;
	if (below(g, 3) == 0) {
		emit(g, EBPF_ALU64 | EBPF_AND | EBPF_K, 0, 0, 0, below(g, 2) ? 31 : 255);
	}
	if (below(g, 2)) {
		skip = jump(g, 0, small(g), 0);
	} else {
		skip = emit(g,
			    (below(g, 3) ? EBPF_JMP : EBPF_JMP32) | jumps[below(g, sizeof(jumps))] |
				    EBPF_X,
			    0, keep, 0, 0);
	}
	switch (below(g, 4)) {
	case 0:
		emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, keep, below(g, 2) ? 0 : 9, 0, 0);
		break;
	case 1:
		emit(g, EBPF_ALU | EBPF_ADD | EBPF_X, keep, 0, 0, 0);
		break;
	default:
		emit(g, (below(g, 2) ? EBPF_ALU64 : EBPF_ALU) | EBPF_ADD | EBPF_K, keep, 0, 0, 1);
	}
	land(g, skip);
}

/* Uses the number of the round or a statistic as an index. */
static void indexed(struct gen *g)
{
	unsigned bytes = 1u << below(g, 4), n = 0, reg = 7 + below(g, 3);
	uint32_t skips[4];
	uint16_t before = g->numbers;

	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 1, reg, 0, 0);
	if (reg != 9) {
		n = bound(g, 8 - 1, skips);
	}
	emit(g, EBPF_ALU64 | EBPF_LSH | EBPF_K, 1, 0, 0, 3);
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_X, 2, 10, 0, 0);
	emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_X, 2, 1, 0, 0);
	g->numbers &= (uint16_t)~0x6u;
	access(g, 2, AREA, bytes, 1);
	for (unsigned i = 0; i < n; i++) {
		land(g, skips[i]);
	}
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 0, 0, 0, small(g));
	g->numbers = (before & (uint16_t)~0xeu) | 1;
}

/* Instructions of a loop's body. Afterwards r7 and r8 are numbers. */
static void body(struct gen *g)
{
	for (unsigned i = 1 + below(g, 4); i-- > 0 && g->n < GEN_MAX_INSNS - 220;) {
		switch (below(g, 6)) {
		case 0:
			block(g, 1);
			break;
		case 1:
			indexed(g);
			break;
		case 2:
			spill(g);
			break;
		default:
			statistic(g);
		}
		for (unsigned r = 7; r < 9; r++) {
			if (!(g->numbers >> r & 1)) {
				emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, r, 0, 0, small(g));
			}
		}
		g->numbers = (g->numbers & 1) | 1u << 7 | 1u << 8;
		if (!(g->numbers & 1)) {
			emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 0, 0, 0, small(g));
			g->numbers |= 1;
		}
	}
}

/* A loop inside another, with its counter on the stack. */
static void inner_loop(struct gen *g)
{
	uint32_t head, at;

	emit(g, EBPF_ST | EBPF_MEM | EBPF_DW, 10, 0, SCRATCH, 1 + below(g, 4));
	head = g->n;
	body(g);
	emit(g, EBPF_LDX | EBPF_MEM | EBPF_DW, 1, 10, SCRATCH, 0);
	emit(g, EBPF_ALU64 | EBPF_SUB | EBPF_K, 1, 0, 0, 1);
	emit(g, EBPF_STX | EBPF_MEM | EBPF_DW, 10, 1, SCRATCH, 0);
	at = emit(g, EBPF_JMP | EBPF_JNE | EBPF_K, 1, 0, 0, 0);
	g->insns[at].off = (int16_t)((int32_t)head - (int32_t)at - 1);
}

/* for (r9 = 0; r9 < 2 to 8 [&& r9 < number]; r9++), with a break now and then. */
static void rich_loop(struct gen *g)
{
	uint32_t head, at, out[3], n_out = 0;

	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 9, 0, 0, 0);
	if (below(g, 3) == 0) { /* its bound lies on the stack */
		emit(g, EBPF_STX | EBPF_MEM | EBPF_DW, 10, 7 + below(g, 2), SCRATCH + 8, 0);
	} else {
		emit(g, EBPF_ST | EBPF_MEM | EBPF_DW, 10, 0, SCRATCH + 8, 1000);
	}
	head = g->n;
	emit(g, EBPF_LDX | EBPF_MEM | EBPF_DW, 0, 10, SCRATCH + 8, 0);
	out[n_out++] = emit(g, EBPF_JMP | EBPF_JGE | EBPF_X, 9, 0, 0, 0);
	g->numbers = 1 | 1u << 7 | 1u << 8;
	body(g);
	if (below(g, 2)) {
		inner_loop(g);
	}
	if (below(g, 3) == 0) {
		out[n_out++] = jump(g, 7 + below(g, 2), small(g), 0);
		body(g);
	}
	emit(g, EBPF_ALU64 | EBPF_ADD | EBPF_K, 9, 0, 0, 1);
	at = emit(g, EBPF_JMP | EBPF_JNE | EBPF_K, 9, 0, 0, 2 + below(g, 7));
	g->insns[at].off = (int16_t)((int32_t)head - (int32_t)at - 1);
	for (uint32_t i = 0; i < n_out; i++) {
		land(g, out[i]);
	}
	emit(g, EBPF_ALU64 | EBPF_MOV | EBPF_K, 0, 0, 0, small(g));
	g->numbers = 1 | 1u << 7 | 1u << 8;
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

/* Starts a program: r6 is the context, r7 and r8 are numbers, the area is initialized. */
static void prologue(struct gen *g, struct rng *r, struct ebpf_prog *prog, unsigned branches)
{
	memset(g, 0, sizeof(*g));
	memset(prog, 0, sizeof(*prog));
	g->rng = r;
	g->max_branches = branches;
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
}

static void epilogue(struct gen *g, struct ebpf_prog *prog)
{
	finish(g);
	prog->n_subprogs = 1;
	functions(g, prog);
	if (below(g, 5) == 0) {
		mutate(g);
	}
	prog->insns = g->insns;
	prog->n_insns = g->n;
}

void gen_program(struct gen *g, struct rng *r, struct ebpf_prog *prog, unsigned blocks,
		 unsigned branches)
{
	prologue(g, r, prog, branches);
	block(g, 3 + below(g, blocks));
	epilogue(g, prog);
}

void gen_loops(struct gen *g, struct rng *r, struct ebpf_prog *prog)
{
	prologue(g, r, prog, 40);
	g->plain = 1;
	for (unsigned i = 1 + below(g, 2); i-- > 0;) {
		if (below(g, 2)) {
			constant(g, 7 + below(g, 2), small(g));
		}
		rich_loop(g);
		if (below(g, 2)) {
			indexed(g);
		}
	}
	epilogue(g, prog);
}
