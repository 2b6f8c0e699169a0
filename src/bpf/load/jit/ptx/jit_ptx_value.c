/* Values of the data flow: joins, and what arithmetic makes of kinds and low bits. It relies on the
 * verifier: a pointer is only moved, added to and dereferenced within its object, and two pointers
 * are never added. */
#include "base/compiler.h"
#include "bpf/load/jit/ptx/jit_ptx_flow_int.h"

const struct ebpf_ptx_value ebpf_ptx_any = { .kind = PTX_ANY, .map = JIT_NO_MAP };
const struct ebpf_ptx_value ebpf_ptx_scalar = { .kind = PTX_SCALAR, .map = JIT_NO_MAP };

/* Returns a bound of 64 bits as far as it can be kept. */
static uint16_t bound(uint64_t below)
{
	return below <= UINT16_MAX ? (uint16_t)below : 0;
}

struct ebpf_ptx_value ebpf_ptx_constant(int64_t v)
{
	return (struct ebpf_ptx_value){ .kind = PTX_SCALAR,
					.bits = 3,
					.low = (uint8_t)(v & 7),
					.map = JIT_NO_MAP,
					.below = bound((uint64_t)v + 1),
					.set = v >= 0 && v < 256 && v % 4 == 0 ? 1ull << v / 4
									       : 0 };
}

int ebpf_ptx_same(const struct ebpf_ptx_value *a, const struct ebpf_ptx_value *b)
{
	return a->kind == b->kind && a->bits == b->bits && a->low == b->low && a->map == b->map &&
	       a->off == b->off && a->below == b->below && a->high == b->high && a->set == b->set;
}

int ebpf_ptx_is_ctx(const struct ebpf_ptx_value *v)
{
	return v->kind == PTX_CTX || v->kind == PTX_CTX_OR_NOT;
}

int ebpf_ptx_is_frame(const struct ebpf_ptx_value *v)
{
	return v->kind == PTX_FRAME || v->kind == PTX_FRAME_OR_NOT;
}

static int is_pointer(const struct ebpf_ptx_value *v)
{
	return v->kind >= PTX_CTX;
}

int ebpf_ptx_frame_place(const struct ebpf_ptx_value *at, int off, unsigned bytes, unsigned unit,
			 int *ret_off)
{
	int from = at->off + off;

	if (at->kind != PTX_FRAME || at->off == PTX_NO_OFF || from < -(int)PTX_FRAME_BYTES ||
	    from > -(int)bytes || from % (int)unit) {
		return 0;
	}
	*ret_off = from;
	return 1;
}

unsigned ebpf_ptx_value_unit(unsigned bytes)
{
	return bytes % 8 == 0 ? 8 : bytes == 4 || bytes == 2 ? bytes : 1;
}

int ebpf_ptx_may_be_at(const struct ebpf_ptx_value *ctx, int off)
{
	return ctx->set == PTX_ANY_OFFSET ||
	       (off >= 0 && off < 256 && off % 4 == 0 && (ctx->set >> off / 4 & 1));
}

int ebpf_ptx_aligned(const struct ebpf_ptx_value *v, int off, unsigned bytes)
{
	unsigned mask = bytes - 1;

	if ((mask >> v->bits) != 0) {
		return 0;
	}
	return ((v->low + (unsigned)off) & mask) == 0 ? 1 : -1;
}

/* Returns the smallest power of two that is not less. */
static uint64_t power_of_two(uint64_t v)
{
	uint64_t p = 1;

	while (p < v) {
		p *= 2;
	}
	return p;
}

/* Different bounds rise to a power of two, so that they rise a few times only. */
static uint16_t join_bounds(uint16_t a, uint16_t b)
{
	if (!a || !b) {
		return 0;
	}
	return a == b ? a : bound(power_of_two(MAX(a, b)));
}

struct ebpf_ptx_value ebpf_ptx_join(struct ebpf_ptx_value a, struct ebpf_ptx_value b)
{
	struct ebpf_ptx_value v = a;

	if (a.kind == PTX_NONE || b.kind == PTX_NONE) {
		return a.kind == PTX_NONE ? b : a;
	}
	v.bits = MIN(a.bits, b.bits);
	while (v.bits && (a.low ^ b.low) & ((1u << v.bits) - 1)) {
		v.bits--;
	}
	v.low &= (uint8_t)((1u << v.bits) - 1);
	v.set = a.set && b.set ? a.set | b.set : 0;
	v.below = join_bounds(a.below, b.below);
	v.high = join_bounds(a.high, b.high);
	if (a.kind != b.kind) {
		v.kind = ebpf_ptx_is_ctx(&a) || ebpf_ptx_is_ctx(&b)	  ? PTX_CTX_OR_NOT
			 : ebpf_ptx_is_frame(&a) || ebpf_ptx_is_frame(&b) ? PTX_FRAME_OR_NOT
									  : PTX_ANY;
		v.map = JIT_NO_MAP;
		v.off = 0;
	} else if (a.map != b.map) {
		v.map = JIT_NO_MAP;
	} else if (a.off != b.off) {
		v.off = PTX_NO_OFF;
	}
	return v;
}

/* ---- arithmetic ---- */

static unsigned low_bits(unsigned op, unsigned a, unsigned b)
{
	switch (op) {
	case EBPF_ADD:
		return a + b;
	case EBPF_SUB:
		return a - b;
	case EBPF_MUL:
		return a * b;
	case EBPF_AND:
		return a & b;
	case EBPF_OR:
		return a | b;
	case EBPF_XOR:
		return a ^ b;
	default:
		return 0;
	}
}

/* Returns the number of known low bits of a & b: those known of both, and zeros of either. */
static unsigned known_of_and(const struct ebpf_ptx_value *a, const struct ebpf_ptx_value *b)
{
	unsigned n = 0;

	while (n < 3 && ((n < a->bits && n < b->bits) || (n < a->bits && !(a->low >> n & 1)) ||
			 (n < b->bits && !(b->low >> n & 1)))) {
		n++;
	}
	return n;
}

/* The low bits of a product are known as far as one factor is a multiple of a power of two. */
static unsigned known_of_product(const struct ebpf_ptx_value *a, const struct ebpf_ptx_value *b)
{
	unsigned za = 0, zb = 0;

	while (za < a->bits && !(a->low >> za & 1)) {
		za++;
	}
	while (zb < b->bits && !(b->low >> zb & 1)) {
		zb++;
	}
	return MIN(3u, MIN(a->bits + zb, b->bits + za));
}

static unsigned kind_of_sum(unsigned op, const struct ebpf_ptx_value *a,
			    const struct ebpf_ptx_value *b)
{
	if (is_pointer(a) && is_pointer(b)) {
		return PTX_ANY; /* a difference: no pointer, but the verifier decides that */
	}
	if (is_pointer(a) && (op == EBPF_ADD || b->kind == PTX_SCALAR)) {
		return a->kind;
	}
	if (is_pointer(b) && op == EBPF_ADD) {
		return b->kind;
	}
	return a->kind == PTX_SCALAR && b->kind == PTX_SCALAR ? PTX_SCALAR : PTX_ANY;
}

/* Returns the offset of a pointer into the stack after an addition or subtraction. */
static int16_t moved(const struct ebpf_ptx_value *a, const struct ebpf_insn *i)
{
	int64_t by = EBPF_OP(i->code) == EBPF_ADD ? i->imm : -(int64_t)i->imm;

	if (EBPF_SRC(i->code) == EBPF_X || a->kind != PTX_FRAME || a->off == PTX_NO_OFF ||
	    a->off + by < -(int)PTX_FRAME_BYTES || a->off + by > EBPF_STACK_BYTES) {
		return PTX_NO_OFF;
	}
	return (int16_t)(a->off + by);
}

/* Returns the multiples of 4 below 256 that a number may have, or 0 if it may have others. */
static uint64_t numbers_of(const struct ebpf_ptx_value *v)
{
	uint64_t set = 0;

	if (v->kind != PTX_SCALAR || v->set) {
		return v->kind == PTX_SCALAR ? v->set : 0;
	}
	if (!v->below || v->below > 256 || v->bits < 2 || v->low % 4) {
		return 0;
	}
	for (unsigned n = v->low; n < v->below; n += 1u << v->bits) {
		set |= 1ull << n / 4;
	}
	return set;
}

/* Returns the offsets of a pointer into the context after an addition or subtraction. */
static uint64_t ctx_offsets(unsigned op, const struct ebpf_ptx_value *ctx,
			    const struct ebpf_ptx_value *by, const struct ebpf_insn *i)
{
	struct ebpf_ptx_value negated = ebpf_ptx_constant(-(int64_t)i->imm);
	int down = (op == EBPF_SUB) != (EBPF_SRC(i->code) == EBPF_K && i->imm < 0);
	uint64_t numbers = numbers_of(EBPF_SRC(i->code) == EBPF_K && i->imm < 0 ? &negated : by);
	uint64_t set = 0;

	for (unsigned n = 0; n < 64; n++) {
		if (!(numbers >> n & 1)) {
			continue;
		}
		/* an offset outside of the context may come back later */
		if (down ? ctx->set & ((1ull << n) - 1) : n && ctx->set >> (64 - n)) {
			return PTX_ANY_OFFSET;
		}
		set |= down ? ctx->set >> n : ctx->set << n;
	}
	return ctx->set == PTX_ANY_OFFSET || !numbers ? PTX_ANY_OFFSET : set;
}

static uint16_t below_of_shift(const struct ebpf_ptx_value *a, const struct ebpf_insn *i)
{
	unsigned width = EBPF_CLASS(i->code) == EBPF_ALU64 ? 64 : 32;
	unsigned by = (unsigned)i->imm & (width - 1);

	if (EBPF_SRC(i->code) == EBPF_X) {
		return 0;
	}
	if (EBPF_OP(i->code) == EBPF_RSH) {
		return a->below		 ? (uint16_t)(((uint64_t)(a->below - 1u) >> by) + 1)
		       : width - by < 16 ? (uint16_t)(1u << (width - by))
					 : 0;
	}
	return a->below && by < 16 ? bound(((uint64_t)(a->below - 1u) << by) + 1) : 0;
}

/* Returns a bound of the result. Operands below 65536 are the same in 32 bits; a division by 0
 * gives 0, and a remainder the dividend. */
static uint16_t below_of(const struct ebpf_ptx_value *a, const struct ebpf_ptx_value *b,
			 const struct ebpf_insn *i)
{
	uint64_t x = a->below, y = b->below;

	switch (EBPF_OP(i->code)) {
	case EBPF_AND:
		return (uint16_t)(x && y ? MIN(x, y) : x + y);
	case EBPF_LSH:
	case EBPF_RSH:
		return below_of_shift(a, i);
	case EBPF_DIV: /* by a negative number, if it is signed */
		return (uint16_t)(i->off && !y ? 0 : x);
	case EBPF_MOD:
		if (EBPF_SRC(i->code) == EBPF_K && y > 1 && (x || !i->off)) {
			return (uint16_t)(x ? MIN(x, y - 1) : y - 1);
		}
		return (uint16_t)x;
	default:
		break;
	}
	if (!x || !y) {
		return 0;
	}
	switch (EBPF_OP(i->code)) {
	case EBPF_ADD:
		return bound(x + y - 1);
	case EBPF_MUL:
		return bound((x - 1) * (y - 1) + 1);
	case EBPF_OR:
	case EBPF_XOR:
		return bound(power_of_two(MAX(x, y)));
	default:
		return 0;
	}
}

static struct ebpf_ptx_value shifted(struct ebpf_ptx_value a, const struct ebpf_insn *i)
{
	unsigned by = (unsigned)i->imm & (EBPF_CLASS(i->code) == EBPF_ALU64 ? 63 : 31);

	struct ebpf_ptx_value v = ebpf_ptx_scalar;

	if (EBPF_SRC(i->code) == EBPF_K) {
		by = MIN(by, 3u);
		v.bits = (uint8_t)MIN(3u, a.bits + by);
		v.low = (uint8_t)(a.low << by & 7);
		v.below = below_of_shift(&a, i);
	}
	return v;
}

struct ebpf_ptx_value ebpf_ptx_computed(const struct ebpf_ptx_value *regs,
					const struct ebpf_insn *i)
{
	struct ebpf_ptx_value a = regs[i->dst], b = ebpf_ptx_constant(i->imm), v = ebpf_ptx_scalar;
	unsigned op = EBPF_OP(i->code);

	if (EBPF_SRC(i->code) == EBPF_X && op != EBPF_END && op != EBPF_NEG) {
		b = regs[i->src];
	}
	switch (op) {
	case EBPF_MOV:
		if (EBPF_CLASS(i->code) == EBPF_ALU64 && !i->off) {
			return b;
		}
		v.bits = b.bits;
		v.low = b.low;
		v.below = i->off ? 0 : b.below;
		return v;
	case EBPF_LSH:
		return shifted(a, i);
	case EBPF_ADD:
	case EBPF_SUB:
	case EBPF_OR:
	case EBPF_XOR:
		v.bits = MIN(a.bits, b.bits);
		break;
	case EBPF_AND:
		v.bits = (uint8_t)known_of_and(&a, &b);
		break;
	case EBPF_MUL:
		v.bits = (uint8_t)known_of_product(&a, &b);
		break;
	default:
		v.below = below_of(&a, &b, i);
		return v;
	}
	v.below = below_of(&a, &b, i);
	v.low = (uint8_t)(low_bits(op, a.low, b.low) & ((1u << v.bits) - 1));
	if (EBPF_CLASS(i->code) == EBPF_ALU64 && (op == EBPF_ADD || op == EBPF_SUB)) {
		v.kind = (uint8_t)kind_of_sum(op, &a, &b);
		v.map = v.kind == a.kind ? a.map : v.kind == b.kind ? b.map : JIT_NO_MAP;
		v.off = v.kind == PTX_FRAME ? moved(&a, i) : 0;
		if (v.kind == PTX_CTX) {
			v.set = a.kind == PTX_CTX ? ctx_offsets(op, &a, &b, i)
						  : ctx_offsets(op, &b, &a, i);
		}
	}
	return v;
}
