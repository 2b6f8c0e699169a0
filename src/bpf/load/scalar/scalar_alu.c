/* Arithmetic on sets of numbers: each operation, in each width, computes a set that contains every
 * possible result. */
#include <string.h>

#include "base/compiler.h"
#include "bpf/load/scalar/scalar.h"
#include "bpf/run/interp/alu.h"

typedef struct ebpf_scalar_view view;

static int is_const(const view *v)
{
	return v->t.mask == 0;
}

static void set_unsigned_full(view *v, int w)
{
	v->umin = 0;
	v->umax = ebpf_scalar_umax(w);
}

static void set_signed_full(view *v, int w)
{
	v->smin = ebpf_scalar_smin(w);
	v->smax = ebpf_scalar_smax(w);
}

static int fits_signed(int64_t v, int w)
{
	return v >= ebpf_scalar_smin(w) && v <= ebpf_scalar_smax(w);
}

/* A range remains valid if no sum wraps or if every sum wraps once. */
static void add(view *d, const view *s, int w)
{
	uint64_t top = ebpf_scalar_umax(w), lo = d->umin + s->umin, hi = d->umax + s->umax;
	int lo_wraps = lo > top || lo<d->umin, hi_wraps = hi> top || hi < d->umax;
	int64_t slo, shi;

	d->t = ebpf_tnum_low(ebpf_tnum_add(d->t, s->t), (unsigned)w);
	if (lo_wraps == hi_wraps) {
		d->umin = lo & top;
		d->umax = hi & top;
	} else {
		set_unsigned_full(d, w);
	}
	if (checked_add(d->smin, s->smin, &slo) || checked_add(d->smax, s->smax, &shi) ||
	    !fits_signed(slo, w) || !fits_signed(shi, w)) {
		set_signed_full(d, w);
	} else {
		d->smin = slo;
		d->smax = shi;
	}
}

static void sub(view *d, const view *s, int w)
{
	uint64_t top = ebpf_scalar_umax(w);
	int lo_wraps = d->umin < s->umax, hi_wraps = d->umax < s->umin;
	uint64_t lo = (d->umin - s->umax) & top, hi = (d->umax - s->umin) & top;
	int64_t slo, shi;

	d->t = ebpf_tnum_low(ebpf_tnum_sub(d->t, s->t), (unsigned)w);
	if (lo_wraps == hi_wraps) {
		d->umin = lo;
		d->umax = hi;
	} else {
		set_unsigned_full(d, w);
	}
	if (__builtin_sub_overflow(d->smin, s->smax, &slo) ||
	    __builtin_sub_overflow(d->smax, s->smin, &shi) || !fits_signed(slo, w) ||
	    !fits_signed(shi, w)) {
		set_signed_full(d, w);
	} else {
		d->smin = slo;
		d->smax = shi;
	}
}

static void mul(view *d, const view *s, int w)
{
	const int64_t a[2] = { d->smin, d->smax }, b[2] = { s->smin, s->smax };
	int64_t lo = INT64_MAX, hi = INT64_MIN;
	uint64_t top;
	int fits = 1;

	d->t = ebpf_tnum_low(ebpf_tnum_mul(d->t, s->t), (unsigned)w);
	if (checked_mul(d->umax, s->umax, &top) || top > ebpf_scalar_umax(w)) {
		set_unsigned_full(d, w);
	} else {
		d->umin *= s->umin;
		d->umax = top;
	}
	for (int i = 0; i < 4; i++) {
		int64_t p = 0;

		fits &= !checked_mul(a[i & 1], b[i >> 1], &p) && fits_signed(p, w);
		lo = MIN(lo, p);
		hi = MAX(hi, p);
	}
	if (fits) {
		d->smin = lo;
		d->smax = hi;
	} else {
		set_signed_full(d, w);
	}
}

/* Division by zero gives zero. */
static void udiv(view *d, const view *s, int w)
{
	uint64_t lo = s->umin && s->umax ? d->umin / s->umax : 0, hi = d->umax / MAX(s->umin, 1u);

	ebpf_scalar_view_full(d, w);
	d->umin = lo;
	d->umax = hi;
}

/* Modulo zero leaves the dividend. */
static void umod(view *d, const view *s, int w)
{
	uint64_t hi = s->umin ? MIN(d->umax, s->umax - 1) : d->umax;

	if (s->umin > d->umax) {
		return; /* every dividend is smaller than every divisor */
	}
	ebpf_scalar_view_full(d, w);
	d->umax = hi;
}

/* Handles constant divisors only. Division by -1 reverses the range; the minimum divided by -1 is
 * itself. */
static void sdiv(view *d, const view *s, int w)
{
	int64_t by = s->smin, lo = d->smin, hi = d->smax;

	ebpf_scalar_view_full(d, w);
	if (s->smin != s->smax || by == 0 || (by == -1 && lo == ebpf_scalar_smin(w))) {
		return;
	}
	d->smin = by > 0 ? lo / by : hi / by;
	d->smax = by > 0 ? hi / by : lo / by;
}

/* The result has the sign of the dividend, and its magnitude is less than that of the divisor. */
static void smod(view *d, const view *s, int w)
{
	int64_t by = s->smin, lo = d->smin, hi = d->smax;
	uint64_t most;

	ebpf_scalar_view_full(d, w);
	if (s->smin != s->smax || by == 0) {
		return;
	}
	most = (by < 0 ? 0 - (uint64_t)by : (uint64_t)by) - 1; /* at most 2^63 - 1 */
	d->smin = lo >= 0 ? 0 : MAX(lo, -(int64_t)most);
	d->smax = hi <= 0 ? 0 : MIN(hi, (int64_t)most);
}

static void bitwise(unsigned op, view *d, const view *s, int w)
{
	uint64_t umin = 0, umax = ebpf_scalar_umax(w);

	if (op == EBPF_AND) {
		d->t = ebpf_tnum_and(d->t, s->t);
		umax = MIN(d->umax, s->umax);
	} else if (op == EBPF_OR) {
		d->t = ebpf_tnum_or(d->t, s->t);
		umin = MAX(d->umin, s->umin);
	} else {
		d->t = ebpf_tnum_xor(d->t, s->t);
	}
	set_signed_full(d, w);
	d->umin = MAX(umin, d->t.value);
	d->umax = MIN(umax, d->t.value | d->t.mask);
}

/* Sets the range of shift counts. Only the low bits of the operand count. */
static void shift_amounts(const view *s, int w, unsigned *lo, unsigned *hi)
{
	if (is_const(s)) {
		*lo = *hi = (unsigned)(s->t.value & (uint64_t)(w - 1));
	} else if (s->umax < (uint64_t)w) {
		*lo = (unsigned)s->umin;
		*hi = (unsigned)s->umax;
	} else {
		*lo = 0;
		*hi = (unsigned)w - 1;
	}
}

static void lsh(view *d, const view *s, int w)
{
	uint64_t top = ebpf_scalar_umax(w);
	unsigned lo, hi;

	shift_amounts(s, w, &lo, &hi);
	d->t = lo == hi ? ebpf_tnum_low(ebpf_tnum_lsh(d->t, lo), (unsigned)w)
			: ebpf_tnum_low(TNUM_UNKNOWN, (unsigned)w);
	if (lo == hi && d->smin >= ebpf_scalar_smin(w) >> lo &&
	    d->smax <= ebpf_scalar_smax(w) >> lo) {
		d->smin = (int64_t)((uint64_t)d->smin << lo);
		d->smax = (int64_t)((uint64_t)d->smax << lo);
	} else {
		set_signed_full(d, w);
	}
	if (d->umax <= top >> hi) {
		d->umin <<= lo;
		d->umax <<= hi;
	} else {
		set_unsigned_full(d, w);
	}
}

static void rsh(view *d, const view *s, int w)
{
	unsigned lo, hi;

	shift_amounts(s, w, &lo, &hi);
	d->t = lo == hi ? ebpf_tnum_rsh(d->t, lo) : ebpf_tnum_low(TNUM_UNKNOWN, (unsigned)w);
	set_signed_full(d, w);
	d->umin >>= hi;
	d->umax >>= lo;
}

static void arsh(view *d, const view *s, int w)
{
	unsigned lo, hi;

	shift_amounts(s, w, &lo, &hi);
	d->t = lo == hi ? ebpf_tnum_arsh(d->t, lo, w) : ebpf_tnum_low(TNUM_UNKNOWN, (unsigned)w);
	set_unsigned_full(d, w);
	d->smin >>= d->smin < 0 ? lo : hi;
	d->smax >>= d->smax < 0 ? hi : lo;
}

/* Sign-extends the low n bits. */
static void sign_extend(view *d, int n, int w)
{
	int64_t lo = -(1ll << (n - 1)), hi = (1ll << (n - 1)) - 1;
	struct ebpf_tnum t = ebpf_tnum_lsh(ebpf_tnum_low(d->t, (unsigned)n), (unsigned)(64 - n));

	t = ebpf_tnum_low(ebpf_tnum_arsh(t, (unsigned)(64 - n), 64), (unsigned)w);
	if (d->smin >= lo && d->smax <= hi) {
		return; /* nothing to extend */
	}
	ebpf_scalar_view_full(d, w);
	d->t = t;
	d->smin = lo;
	d->smax = hi;
}

static void view_op(unsigned op, int off, view *d, const view *s, int w)
{
	view zero = { TNUM_CONST(0), 0, 0, 0, 0 };

	switch (op) {
	case EBPF_ADD:
		add(d, s, w);
		break;
	case EBPF_SUB:
		sub(d, s, w);
		break;
	case EBPF_MUL:
		mul(d, s, w);
		break;
	case EBPF_DIV:
		(off ? sdiv : udiv)(d, s, w);
		break;
	case EBPF_MOD:
		(off ? smod : umod)(d, s, w);
		break;
	case EBPF_AND:
	case EBPF_OR:
	case EBPF_XOR:
		bitwise(op, d, s, w);
		break;
	case EBPF_LSH:
		lsh(d, s, w);
		break;
	case EBPF_RSH:
		rsh(d, s, w);
		break;
	case EBPF_ARSH:
		arsh(d, s, w);
		break;
	case EBPF_NEG:
		sub(&zero, d, w);
		*d = zero;
		break;
	case EBPF_MOV:
		*d = *s;
		if (off) {
			sign_extend(d, off, w);
		}
		break;
	default:
		ebpf_scalar_view_full(d, w);
	}
}

/* Compilers sign-extend a 32-bit register by << 32, s>> 32. A shift by 32 depends only on the low
 * half and keeps its order. */
static void shift_half_up(view *d, const struct ebpf_scalar *old)
{
	d->umin = (uint64_t)old->u32min << 32;
	d->umax = (uint64_t)old->u32max << 32;
	d->smin = (int64_t)((uint64_t)(uint32_t)old->s32min << 32);
	d->smax = (int64_t)((uint64_t)(uint32_t)old->s32max << 32);
}

/* Returns whether the low half of the result depends only on the low halves of the operands. */
static int low_closed(unsigned op, int off, const struct ebpf_scalar *s)
{
	switch (op) {
	case EBPF_ADD:
	case EBPF_SUB:
	case EBPF_MUL:
	case EBPF_AND:
	case EBPF_OR:
	case EBPF_XOR:
	case EBPF_NEG:
		return 1;
	case EBPF_MOV:
		return off == 0 || off == 8 || off == 16;
	case EBPF_LSH:
		return ebpf_scalar_is_const(s) && (s->t.value & 63) < 32;
	default:
		return 0;
	}
}

void ebpf_scalar_alu(unsigned op, int is64, int off, struct ebpf_scalar *d,
		     const struct ebpf_scalar *s)
{
	view dw, sw, dh, sh;

	if ((ebpf_scalar_is_const(d) || op == EBPF_MOV) && ebpf_scalar_is_const(s)) {
		ebpf_scalar_const(
			d, is64 ? ebpf_alu64(op, d->t.value, s->t.value, off)
				: ebpf_alu32(op, (uint32_t)d->t.value, (uint32_t)s->t.value, off));
		return;
	}
	ebpf_scalar_view_get(d, 32, &dh);
	ebpf_scalar_view_get(s, 32, &sh);
	if (is64) {
		ebpf_scalar_view_get(d, 64, &dw);
		ebpf_scalar_view_get(s, 64, &sw);
		if (low_closed(op, off, s)) {
			view_op(op, off, &dh, &sh, 32);
		} else {
			ebpf_scalar_view_full(&dh, 32);
		}
		view_op(op, off, &dw, &sw, 64);
		if (op == EBPF_LSH && ebpf_scalar_is_const(s) && (s->t.value & 63) == 32) {
			shift_half_up(&dw, d);
		}
		ebpf_scalar_view_put(d, 64, &dw);
		/* Both describe the low half: keep what either of them knows. */
		if (!ebpf_tnum_meet(ebpf_tnum_low(dw.t, 32), dh.t, &dh.t)) {
			dh.t = ebpf_tnum_low(dw.t, 32);
		}
	} else {
		view_op(op, off, &dh, &sh, 32);
		*d = (struct ebpf_scalar){
			.umin = dh.umin, .umax = dh.umax, .smin = 0, .smax = UINT32_MAX
		};
	}
	ebpf_scalar_view_put(d, 32, &dh);
	if (!ebpf_scalar_sync(d)) {
		ebpf_scalar_unknown(d); /* cannot happen: a result exists */
	}
}

void ebpf_scalar_end(uint8_t code, int bits, struct ebpf_scalar *d)
{
	uint64_t value = ebpf_end(code, d->t.value, bits), mask = ebpf_end(code, d->t.mask, bits);
	int swapped = ebpf_end(code, 1, bits) != 1;

	if (!swapped) {
		ebpf_scalar_truncate(d, (unsigned)bits);
		return;
	}
	ebpf_scalar_unknown(d);
	d->t = (struct ebpf_tnum){ value, mask };
	ebpf_scalar_sync(d);
}
