/* Instructions in which lanes see each other: shuffle, vote, match, reduce. */
#include "soft/server/exec/handlers.h"

/* Lanes that never existed or have ended cannot be waited for. */
bool exec_sync_ready(struct warp *w, uint32_t members)
{
	if (likely((members & ~w->idle & ~w->mask) == 0) || w->sync_forced) {
		w->sync_forced = false;
		return true;
	}
	w->pc--;
	w->state = GROUP_SYNC;
	return false;
}

/* The members' mask of a .sync instruction: the first lane's, as they must all name the same. */
static uint32_t members_of(struct warp *w, uint32_t ref, uint32_t m)
{
	return REF(const uint32_t, w, ref)[__builtin_ctz(m)];
}

/* d = value of the lane that mode, b and c choose; p = whether it lay in range. e: members, with
 * FLAG_VOTE_SYNC. */
int op_shfl(struct warp *w, const struct op *o, uint32_t m)
{
	const uint32_t *a = REF(const uint32_t, w, o->a);
	const uint32_t *b = REF(const uint32_t, w, o->b);
	const uint32_t *c = REF(const uint32_t, w, o->c);
	uint32_t *d = REF(uint32_t, w, o->d);
	uint32_t value[EXEC_LANES], in_range = 0;

	if (o->flags & FLAG_VOTE_SYNC && !exec_sync_ready(w, members_of(w, o->e, m))) {
		return STEP_SWITCH;
	}
	each_lane (m, lane) {
		uint32_t by = b[lane] & 31, clamp = c[lane] & 31, segment = c[lane] >> 8 & 31;
		uint32_t low = lane & segment, high = low | (clamp & ~segment);
		int32_t from;
		bool ok;

		switch (o->sub) {
		case SHFL_UP:
			from = (int32_t)lane - (int32_t)by;
			ok = from >= (int32_t)high;
			break;
		case SHFL_DOWN:
			from = (int32_t)(lane + by);
			ok = from <= (int32_t)high;
			break;
		case SHFL_BFLY:
			from = (int32_t)(lane ^ by);
			ok = from <= (int32_t)high;
			break;
		default:
			from = (int32_t)(low | (by & ~segment));
			ok = from <= (int32_t)high;
			break;
		}
		value[lane] = a[ok ? from : (int32_t)lane];
		in_range |= (uint32_t)ok << lane;
	}
	each_lane (m, lane) {
		d[lane] = value[lane];
	}
	if (o->p != EXEC_NO_PRED) {
		pred_set(w, o->p, m, in_range);
	}
	return STEP_NEXT;
}

/* Of predicate r; sub = VOTE_*. ballot writes d, the others p. e: members. */
int op_vote(struct warp *w, const struct op *o, uint32_t m)
{
	uint32_t bits = w->preds[o->r] ^ (o->r_not ? ~0u : 0);
	bool result;

	if (o->flags & FLAG_VOTE_SYNC) {
		uint32_t members = members_of(w, o->e, m);

		if (!exec_sync_ready(w, members)) {
			return STEP_SWITCH;
		}
	}
	bits &= m;
	if (o->sub == VOTE_BALLOT) {
		uint32_t *d = REF(uint32_t, w, o->d);

		each_lane (m, lane) {
			d[lane] = bits;
		}
		return STEP_NEXT;
	}
	result = o->sub == VOTE_ALL   ? bits == m
		 : o->sub == VOTE_ANY ? bits != 0
				      : bits == 0 || bits == m;
	pred_set(w, o->p, m, result ? ~0u : 0);
	return STEP_NEXT;
}

int op_activemask(struct warp *w, const struct op *o, uint32_t m)
{
	uint32_t *d = REF(uint32_t, w, o->d);

	each_lane (m, lane) {
		d[lane] = m;
	}
	return STEP_NEXT;
}

int op_match(struct warp *w, const struct op *o, uint32_t m)
{
	uint32_t *d = REF(uint32_t, w, o->d), same[EXEC_LANES];
	bool wide = o->wide & WIDE_A, all = true;

	if (!exec_sync_ready(w, members_of(w, o->e, m))) {
		return STEP_SWITCH;
	}
	each_lane (m, lane) {
		uint64_t v = lane_get(w, o->a, wide, lane);

		same[lane] = 0;
		for (unsigned other = 0; other < EXEC_LANES; other++) {
			same[lane] |= (uint32_t)(lane_get(w, o->a, wide, other) == v) << other;
		}
		same[lane] &= m;
		all = all && same[lane] == m;
	}
	each_lane (m, lane) {
		d[lane] = o->sub == 0 ? same[lane] : all ? m : 0;
	}
	if (o->p != EXEC_NO_PRED) {
		pred_set(w, o->p, m, all ? ~0u : 0);
	}
	return STEP_NEXT;
}

static uint32_t reduce(const struct op *o, uint32_t r, uint32_t v)
{
	switch (o->sub) {
	case ATOM_ADD:
		return r + v;
	case ATOM_MIN:
		return o->type == TY_S32 ? ((int32_t)v < (int32_t)r ? v : r) : MIN(v, r);
	case ATOM_MAX:
		return o->type == TY_S32 ? ((int32_t)v > (int32_t)r ? v : r) : MAX(v, r);
	case ATOM_AND:
		return r & v;
	case ATOM_OR:
		return r | v;
	default:
		return r ^ v;
	}
}

int op_redux(struct warp *w, const struct op *o, uint32_t m)
{
	const uint32_t *a = REF(const uint32_t, w, o->a);
	uint32_t *d = REF(uint32_t, w, o->d), first = (uint32_t)__builtin_ctz(m), r = a[first];

	if (!exec_sync_ready(w, members_of(w, o->e, m))) {
		return STEP_SWITCH;
	}
	each_lane (m &(m - 1), lane) {
		r = reduce(o, r, a[lane]);
	}
	each_lane (m, lane) {
		d[lane] = r;
	}
	return STEP_NEXT;
}

int op_warp_sync(struct warp *w, const struct op *o, uint32_t m)
{
	return exec_sync_ready(w, members_of(w, o->e, m)) ? STEP_NEXT : STEP_SWITCH;
}
