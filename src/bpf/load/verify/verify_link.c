/* Links between numbers. Numbers with the same id are computed from one number X, whose value is
 * not known: each is X plus a constant, or an extension of the low half of that sum. What a
 * comparison teaches about one of them therefore narrows all. Sums wrap, in 64 and in 32 bits, so
 * the links hold for every X; ranges come from ebpf_scalar_alu() alone. */
#include "bpf/load/verify/verify_int.h"

void ebpf_link_drop(struct ebpf_reg *r)
{
	r->id = 0;
	r->link = LINK_WHOLE;
	r->add = 0;
}

void ebpf_link_name(struct ebpf_verifier *v, struct ebpf_reg *r)
{
	if (r->type == REG_SCALAR && r->id == 0 && !ebpf_scalar_is_const(&r->v)) {
		ebpf_link_drop(r);
		r->id = ++v->next_id;
	}
}

void ebpf_link_low(struct ebpf_reg *r)
{
	if (r->id == 0 || r->v.umax <= UINT32_MAX) {
		return;
	}
	if (r->link == LINK_HIGH) {
		ebpf_link_drop(r);
		return;
	}
	r->link = LINK_ZERO;
	r->add = (uint32_t)r->add;
}

void ebpf_link_extend(struct ebpf_reg *r, int bits)
{
	int64_t top = INT64_MAX >> (64 - bits);

	if (r->id == 0 || (r->v.smin >= -top - 1 && r->v.smax <= top)) {
		return;
	}
	if (bits != 32 || r->link == LINK_HIGH) {
		ebpf_link_drop(r);
		return;
	}
	r->link = LINK_SIGN;
	r->add = (uint32_t)r->add;
}

/* Returns whether by can be added to every value of r without leaving [min, max]. */
static int stays_within(const struct ebpf_reg *r, int64_t by, int64_t min, int64_t max)
{
	int64_t low, high;

	return !checked_add(r->v.smin, by, &low) && !checked_add(r->v.smax, by, &high) &&
	       low >= min && high <= max;
}

static void add(struct ebpf_reg *r, int is64, uint64_t by)
{
	if (is64 && r->link == LINK_WHOLE) {
		r->add += by;
		return;
	}
	/* A 64-bit sum of an extended half is the extension of a sum only if that does not wrap. */
	if (r->link == LINK_HIGH ||
	    (is64 && r->link == LINK_ZERO && !stays_within(r, (int64_t)by, 0, UINT32_MAX)) ||
	    (is64 && r->link == LINK_SIGN && !stays_within(r, (int64_t)by, INT32_MIN, INT32_MAX))) {
		ebpf_link_drop(r);
		return;
	}
	r->link = is64 ? r->link : LINK_ZERO;
	r->add = (uint32_t)(r->add + by);
}

/* A mask that covers every bit that may be set changes nothing. */
static void mask(struct ebpf_reg *r, int is64, uint64_t by)
{
	uint64_t bits = r->v.t.value | r->v.t.mask;

	if (!is64) {
		bits = (uint32_t)bits;
	}
	if (bits & ~by) {
		ebpf_link_drop(r);
	} else if (!is64) {
		ebpf_link_low(r);
	}
}

/* Compilers extend a 32-bit number by << 32, followed by >> 32 or s>> 32. */
static void shift_half(struct ebpf_reg *r, unsigned op)
{
	if (op == EBPF_LSH && r->link != LINK_HIGH) {
		r->link = LINK_HIGH;
		r->add = (uint32_t)r->add;
	} else if (op != EBPF_LSH && r->link == LINK_HIGH) {
		r->link = op == EBPF_RSH ? LINK_ZERO : LINK_SIGN;
	} else {
		ebpf_link_drop(r);
	}
}

void ebpf_link_alu(struct ebpf_reg *dst, unsigned op, int is64, const struct ebpf_scalar *src)
{
	uint64_t by = src->t.value;

	if (dst->id == 0) {
		return;
	}
	if (!ebpf_scalar_is_const(src)) {
		op = EBPF_MUL; /* no operation with an unknown number keeps a link */
	}
	switch (op) {
	case EBPF_ADD:
		add(dst, is64, by);
		break;
	case EBPF_SUB:
		add(dst, is64, 0 - by);
		break;
	case EBPF_AND:
		mask(dst, is64, by);
		break;
	case EBPF_LSH:
	case EBPF_RSH:
	case EBPF_ARSH:
		if (is64 && (by & 63) == 32) {
			shift_half(dst, op);
			break;
		}
		/* fall through */
	default:
		ebpf_link_drop(dst);
	}
}

void ebpf_link_implied(const struct ebpf_reg *from, const struct ebpf_reg *to,
		       struct ebpf_scalar *ret)
{
	struct ebpf_scalar by, half = from->v, shift;
	struct ebpf_scalar_view low;

	*ret = from->v;
	if (from->link == to->link && from->add == to->add) {
		return;
	}
	ebpf_scalar_const(&by, to->add - from->add);
	if (from->link == LINK_WHOLE && to->link == LINK_WHOLE) {
		ebpf_scalar_alu(EBPF_ADD, 1, 0, ret, &by);
		return;
	}
	/* otherwise only the low halves of the two sums are related */
	ebpf_scalar_const(&shift, 32);
	if (from->link == LINK_HIGH) {
		ebpf_scalar_alu(EBPF_RSH, 1, 0, &half, &shift);
	}
	ebpf_scalar_alu(EBPF_ADD, 0, 0, &half, &by);
	*ret = half;
	if (to->link == LINK_SIGN) {
		ebpf_scalar_alu(EBPF_MOV, 1, 32, ret, &half);
	} else if (to->link == LINK_HIGH) {
		ebpf_scalar_alu(EBPF_LSH, 1, 0, ret, &shift);
	} else if (to->link == LINK_WHOLE) {
		ebpf_scalar_view_get(&half, 32, &low);
		ebpf_scalar_unknown(ret);
		ebpf_scalar_view_put(ret, 32, &low);
		ebpf_scalar_sync(ret);
	}
}

int ebpf_link_origin(const struct ebpf_reg *r, uint64_t value, uint64_t *ret)
{
	*ret = value - r->add;
	switch (r->link) {
	case LINK_WHOLE:
		return 1;
	case LINK_ZERO:
		return value <= UINT32_MAX;
	case LINK_SIGN:
		return (int64_t)value == (int32_t)value;
	default:
		*ret = (value >> 32) - r->add;
		return (uint32_t)value == 0;
	}
}
