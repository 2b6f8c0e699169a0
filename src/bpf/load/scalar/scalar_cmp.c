/* Refines two operands by the outcome of their comparison. Each refinement only drops values for
 * which the comparison could not have had that outcome. */
#include <string.h>

#include "base/compiler.h"
#include "bpf/load/scalar/scalar.h"
#include "bpf/run/interp/alu.h"

typedef struct ebpf_scalar_view view;

static int is_const(const view *v)
{
	return v->t.mask == 0;
}

static int equal(view *a, view *b)
{
	if (!ebpf_tnum_meet(a->t, b->t, &a->t)) {
		return 0;
	}
	a->umin = MAX(a->umin, b->umin);
	a->umax = MIN(a->umax, b->umax);
	a->smin = MAX(a->smin, b->smin);
	a->smax = MIN(a->smax, b->smax);
	*b = *a;
	return 1;
}

/* Narrows a, which differs from the constant c: removes c if it is an end of a range. */
static int without(view *a, const view *c)
{
	if (is_const(a) && a->t.value == c->t.value) {
		return 0;
	}
	if (a->umin == c->umin) {
		a->umin++; /* no wrap: a has another value, so umin < umax */
	} else if (a->umax == c->umin) {
		a->umax--;
	}
	if (a->smin == c->smin) {
		a->smin++;
	} else if (a->smax == c->smin) {
		a->smax--;
	}
	return 1;
}

static int not_equal(view *a, view *b)
{
	if (is_const(b)) {
		return without(a, b);
	}
	return !is_const(a) || without(b, a);
}

/* Narrows both to a < b (strict) or a <= b. */
static int unsigned_below(view *a, view *b, int strict)
{
	if (strict && (b->umax == 0 || a->umin == UINT64_MAX)) {
		return 0;
	}
	a->umax = MIN(a->umax, b->umax - (uint64_t)strict);
	b->umin = MAX(b->umin, a->umin + (uint64_t)strict);
	return a->umin <= a->umax && b->umin <= b->umax;
}

static int signed_below(view *a, view *b, int strict)
{
	if (strict && (b->smax == INT64_MIN || a->smin == INT64_MAX)) {
		return 0;
	}
	a->smax = MIN(a->smax, b->smax - strict);
	b->smin = MAX(b->smin, a->smin + strict);
	return a->smin <= a->smax && b->smin <= b->smax;
}

/* Narrows both to (a & b) != 0, or to == 0. */
static int bits_set(view *a, view *b, int outcome)
{
	uint64_t may = (a->t.value | a->t.mask) & (b->t.value | b->t.mask);

	if (outcome) {
		if (is_const(b) && (may & (may - 1)) == 0) {
			a->t.value |= may; /* only this bit can be set in both */
			a->t.mask &= ~may;
		}
		return may != 0;
	}
	if (a->t.value & b->t.value) {
		return 0;
	}
	/* A bit that is 1 in one operand is 0 in the other. */
	a->t.mask &= ~b->t.value;
	b->t.mask &= ~a->t.value;
	return 1;
}

static int refine(unsigned op, int outcome, view *a, view *b)
{
	switch (op) {
	case EBPF_JEQ:
		return outcome ? equal(a, b) : not_equal(a, b);
	case EBPF_JNE:
		return outcome ? not_equal(a, b) : equal(a, b);
	case EBPF_JSET:
		return bits_set(a, b, outcome);
	case EBPF_JLT:
		return outcome ? unsigned_below(a, b, 1) : unsigned_below(b, a, 0);
	case EBPF_JLE:
		return outcome ? unsigned_below(a, b, 0) : unsigned_below(b, a, 1);
	case EBPF_JGT:
		return outcome ? unsigned_below(b, a, 1) : unsigned_below(a, b, 0);
	case EBPF_JGE:
		return outcome ? unsigned_below(b, a, 0) : unsigned_below(a, b, 1);
	case EBPF_JSLT:
		return outcome ? signed_below(a, b, 1) : signed_below(b, a, 0);
	case EBPF_JSLE:
		return outcome ? signed_below(a, b, 0) : signed_below(b, a, 1);
	case EBPF_JSGT:
		return outcome ? signed_below(b, a, 1) : signed_below(a, b, 0);
	case EBPF_JSGE:
		return outcome ? signed_below(b, a, 0) : signed_below(a, b, 1);
	default:
		return 1;
	}
}

/* Stores a narrowed view; an unchanged one is already consistent with the others. */
static int learn(struct ebpf_scalar *s, int width, const view *before, const view *after)
{
	if (memcmp(before, after, sizeof(*before)) == 0) {
		return 1;
	}
	ebpf_scalar_view_put(s, width, after);
	return ebpf_scalar_sync(s);
}

int ebpf_scalar_refine(unsigned op, int is64, int outcome, struct ebpf_scalar *a,
		       struct ebpf_scalar *b)
{
	int width = is64 ? 64 : 32;
	view va, vb, na, nb;

	if (ebpf_scalar_is_const(a) && ebpf_scalar_is_const(b)) {
		return outcome ==
		       (is64 ? ebpf_taken64(op, a->t.value, b->t.value)
			     : ebpf_taken32(op, (uint32_t)a->t.value, (uint32_t)b->t.value));
	}
	ebpf_scalar_view_get(a, width, &va);
	ebpf_scalar_view_get(b, width, &vb);
	na = va;
	nb = vb;
	return refine(op, outcome, &na, &nb) && learn(a, width, &va, &na) &&
	       learn(b, width, &vb, &nb);
}
