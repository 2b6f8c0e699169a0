/* Sets of numbers: creates and compares them, and keeps the views of one set consistent. */
#include "bpf/load/scalar/scalar.h"

#include <string.h>

#include "base/compiler.h"
#include "bpf/run/insn.h"

void ebpf_scalar_view_full(struct ebpf_scalar_view *v, int width)
{
	v->t = ebpf_tnum_low(TNUM_UNKNOWN, (unsigned)width);
	v->umin = 0;
	v->umax = ebpf_scalar_umax(width);
	v->smin = ebpf_scalar_smin(width);
	v->smax = ebpf_scalar_smax(width);
}

void ebpf_scalar_view_get(const struct ebpf_scalar *s, int width, struct ebpf_scalar_view *v)
{
	if (width == 64) {
		*v = (struct ebpf_scalar_view){ s->t, s->umin, s->umax, s->smin, s->smax };
	} else {
		*v = (struct ebpf_scalar_view){ ebpf_tnum_low(s->t, 32), s->u32min, s->u32max,
						s->s32min, s->s32max };
	}
}

void ebpf_scalar_view_put(struct ebpf_scalar *s, int width, const struct ebpf_scalar_view *v)
{
	if (width == 64) {
		s->t = v->t;
		s->umin = v->umin;
		s->umax = v->umax;
		s->smin = v->smin;
		s->smax = v->smax;
		return;
	}
	s->t.value = (s->t.value & ~(uint64_t)UINT32_MAX) | v->t.value;
	s->t.mask = (s->t.mask & ~(uint64_t)UINT32_MAX) | v->t.mask;
	s->u32min = (uint32_t)v->umin;
	s->u32max = (uint32_t)v->umax;
	s->s32min = (int32_t)v->smin;
	s->s32max = (int32_t)v->smax;
}

void ebpf_scalar_unknown(struct ebpf_scalar *s)
{
	*s = (struct ebpf_scalar){
		.t = TNUM_UNKNOWN,
		.umax = UINT64_MAX,
		.smin = INT64_MIN,
		.smax = INT64_MAX,
		.u32max = UINT32_MAX,
		.s32min = INT32_MIN,
		.s32max = INT32_MAX,
	};
}

void ebpf_scalar_const(struct ebpf_scalar *s, uint64_t v)
{
	*s = (struct ebpf_scalar){
		.t = TNUM_CONST(v),
		.umin = v,
		.umax = v,
		.smin = (int64_t)v,
		.smax = (int64_t)v,
		.u32min = (uint32_t)v,
		.u32max = (uint32_t)v,
		.s32min = (int32_t)v,
		.s32max = (int32_t)v,
	};
}

void ebpf_scalar_urange(struct ebpf_scalar *s, uint64_t min, uint64_t max)
{
	ebpf_scalar_unknown(s);
	s->umin = min;
	s->umax = max;
	ebpf_scalar_sync(s);
}

void ebpf_scalar_loaded(struct ebpf_scalar *s, unsigned bytes, int sign_extend)
{
	ebpf_scalar_unknown(s);
	if (bytes >= 8) {
		return;
	}
	if (sign_extend) {
		s->smin = -(1ll << (bytes * 8 - 1));
		s->smax = (1ll << (bytes * 8 - 1)) - 1;
	} else {
		s->umax = (1ull << (bytes * 8)) - 1;
	}
	ebpf_scalar_sync(s);
}

/* Bounds a range by its known bits. The smallest signed number has every unknown sign bit set. */
static void learn_from_bits(struct ebpf_scalar_view *v, int width)
{
	uint64_t sign = 1ull << (width - 1), least = v->t.value, most = v->t.value | v->t.mask;
	uint64_t sleast = least | (v->t.mask & sign), smost = most & ~(v->t.mask & sign);

	v->umin = MAX(v->umin, least);
	v->umax = MIN(v->umax, most);
	if (width == 64) {
		v->smin = MAX(v->smin, (int64_t)sleast);
		v->smax = MIN(v->smax, (int64_t)smost);
	} else {
		v->smin = MAX(v->smin, (int32_t)sleast);
		v->smax = MIN(v->smax, (int32_t)smost);
	}
}

static int64_t as_signed(uint64_t v, int width)
{
	return width == 64 ? (int64_t)v : (int32_t)v;
}

/* If both ends of a range have the same sign, signed and unsigned order agree. */
static void learn_sign(struct ebpf_scalar_view *v, int width)
{
	int64_t lo = as_signed(v->umin, width), hi = as_signed(v->umax, width);
	uint64_t ulo, uhi;

	if (lo <= hi) {
		v->smin = MAX(v->smin, lo);
		v->smax = MIN(v->smax, hi);
	}
	ulo = (uint64_t)v->smin & ebpf_scalar_umax(width);
	uhi = (uint64_t)v->smax & ebpf_scalar_umax(width);
	if (ulo <= uhi) {
		v->umin = MAX(v->umin, ulo);
		v->umax = MIN(v->umax, uhi);
	}
}

static int sync_view(struct ebpf_scalar_view *v, int width)
{
	learn_from_bits(v, width);
	learn_sign(v, width);
	if (v->umin > v->umax || v->smin > v->smax) {
		return 0;
	}
	return ebpf_tnum_meet(v->t, ebpf_tnum_range(v->umin, v->umax), &v->t);
}

/* Narrows the low half by the whole number. Ranges carry over only if the upper half is constant.
 */
static void learn_low(const struct ebpf_scalar_view *w, struct ebpf_scalar_view *h)
{
	if (w->umin >> 32 == w->umax >> 32) {
		h->umin = MAX(h->umin, w->umin & UINT32_MAX);
		h->umax = MIN(h->umax, w->umax & UINT32_MAX);
	}
	if (w->smin >> 32 == w->smax >> 32) {
		h->umin = MAX(h->umin, (uint64_t)w->smin & UINT32_MAX);
		h->umax = MIN(h->umax, (uint64_t)w->smax & UINT32_MAX);
	}
	if (w->smin >= INT32_MIN && w->smax <= INT32_MAX) {
		h->smin = MAX(h->smin, w->smin);
		h->smax = MIN(h->smax, w->smax);
	}
}

/* Narrows the whole number by its low half. Numbers are ordered by their upper halves first, so
 * replacing the low half of a bound by the bound of the low half gives a valid bound. */
static void learn_whole(struct ebpf_scalar_view *w, const struct ebpf_scalar_view *h)
{
	const uint64_t up = ~(uint64_t)UINT32_MAX;

	w->umin = MAX(w->umin, (w->umin & up) | h->umin);
	w->umax = MIN(w->umax, (w->umax & up) | h->umax);
	w->smin = MAX(w->smin, (int64_t)(((uint64_t)w->smin & up) | h->umin));
	w->smax = MIN(w->smax, (int64_t)(((uint64_t)w->smax & up) | h->umax));
	if (w->smin >= INT32_MIN && w->smax <= INT32_MAX) {
		w->smin = MAX(w->smin, h->smin);
		w->smax = MIN(w->smax, h->smax);
	}
}

int ebpf_scalar_sync(struct ebpf_scalar *s)
{
	if (s->t.mask == 0) {
		if (!ebpf_scalar_has(s, s->t.value)) {
			return 0;
		}
		ebpf_scalar_const(s, s->t.value);
		return 1;
	}
	for (int pass = 0; pass < 3; pass++) {
		struct ebpf_scalar_view w, h;
		struct ebpf_tnum before;

		ebpf_scalar_view_get(s, 64, &w);
		ebpf_scalar_view_get(s, 32, &h);
		before = w.t;
		if (!sync_view(&w, 64)) {
			return 0;
		}
		learn_low(&w, &h);
		if (!sync_view(&h, 32)) {
			return 0;
		}
		learn_whole(&w, &h);
		if (w.umin > w.umax || w.smin > w.smax) {
			return 0;
		}
		/* h.t was the low half of w.t before this pass; combine what both have learned
		 * since. */
		if (!ebpf_tnum_meet(
			    w.t, (struct ebpf_tnum){ h.t.value, h.t.mask | ~(uint64_t)UINT32_MAX },
			    &w.t)) {
			return 0;
		}
		ebpf_scalar_view_put(s, 64, &w);
		h.t = ebpf_tnum_low(w.t, 32);
		ebpf_scalar_view_put(s, 32, &h);
		if (pass > 0 && before.mask == w.t.mask) {
			break;
		}
	}
	if (s->umin == s->umax) {
		ebpf_scalar_const(s, s->umin);
	}
	return 1;
}

int ebpf_scalar_meet(struct ebpf_scalar *a, const struct ebpf_scalar *b)
{
	struct ebpf_scalar out = {
		.umin = MAX(a->umin, b->umin),
		.umax = MIN(a->umax, b->umax),
		.smin = MAX(a->smin, b->smin),
		.smax = MIN(a->smax, b->smax),
		.u32min = MAX(a->u32min, b->u32min),
		.u32max = MIN(a->u32max, b->u32max),
		.s32min = MAX(a->s32min, b->s32min),
		.s32max = MIN(a->s32max, b->s32max),
	};

	if (!ebpf_tnum_meet(a->t, b->t, &out.t) || !ebpf_scalar_sync(&out)) {
		return 0;
	}
	*a = out;
	return 1;
}

void ebpf_scalar_truncate(struct ebpf_scalar *s, unsigned bits)
{
	struct ebpf_tnum t = ebpf_tnum_low(s->t, bits);
	uint64_t top = bits >= 64 ? UINT64_MAX : (1ull << bits) - 1;
	struct ebpf_scalar_view h;

	if (bits == 32) {
		ebpf_scalar_view_get(s, 32, &h);
		ebpf_scalar_unknown(s);
		ebpf_scalar_view_put(s, 32, &h);
		s->umin = h.umin;
		s->umax = h.umax;
	} else if (bits < 32) {
		uint64_t min = s->umin, max = s->umax;

		ebpf_scalar_unknown(s);
		s->umin = max <= top ? min : 0;
		s->umax = MIN(max, top);
	}
	if (bits < 64) {
		s->t = t;
		ebpf_scalar_sync(s);
	}
}

void ebpf_scalar_unite(struct ebpf_scalar *s, const struct ebpf_scalar *other)
{
	struct ebpf_tnum t = { 0, s->t.mask | other->t.mask | (s->t.value ^ other->t.value) };

	t.value = s->t.value & ~t.mask;
	*s = (struct ebpf_scalar){
		.t = t,
		.umin = MIN(s->umin, other->umin),
		.umax = MAX(s->umax, other->umax),
		.smin = MIN(s->smin, other->smin),
		.smax = MAX(s->smax, other->smax),
		.u32min = MIN(s->u32min, other->u32min),
		.u32max = MAX(s->u32max, other->u32max),
		.s32min = MIN(s->s32min, other->s32min),
		.s32max = MAX(s->s32max, other->s32max),
	};
}

enum { CANDIDATES_MAX = 64 };

unsigned ebpf_scalar_values(const struct ebpf_scalar *s, int64_t *ret, unsigned max)
{
	uint64_t step = s->t.mask & -s->t.mask, low = (uint64_t)s->smin, at, last;
	unsigned n = 0;

	if (ebpf_scalar_is_const(s)) {
		ret[0] = (int64_t)s->t.value;
		return 1;
	}
	/* offsets from smin, since these cannot wrap; the first one that the known low bits allow
	 */
	at = (s->t.value - low) & (step - 1);
	last = (uint64_t)s->smax - low;
	if (last / step >= CANDIDATES_MAX) {
		return 0;
	}
	for (; at <= last; at += step) {
		if (!ebpf_scalar_has(s, low + at)) {
			continue;
		}
		if (n == max) {
			return 0;
		}
		ret[n++] = (int64_t)(low + at);
	}
	return n;
}

int ebpf_scalar_has(const struct ebpf_scalar *s, uint64_t v)
{
	return (v & ~s->t.mask) == s->t.value && v >= s->umin && v <= s->umax &&
	       (int64_t)v >= s->smin && (int64_t)v <= s->smax && (uint32_t)v >= s->u32min &&
	       (uint32_t)v <= s->u32max && (int32_t)v >= s->s32min && (int32_t)v <= s->s32max;
}

int ebpf_scalar_within(const struct ebpf_scalar *o, const struct ebpf_scalar *i)
{
	return o->umin <= i->umin && o->umax >= i->umax && o->smin <= i->smin &&
	       o->smax >= i->smax && o->u32min <= i->u32min && o->u32max >= i->u32max &&
	       o->s32min <= i->s32min && o->s32max >= i->s32max && ebpf_tnum_within(o->t, i->t);
}

int ebpf_scalar_same(const struct ebpf_scalar *a, const struct ebpf_scalar *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}
