/* Instructions in which lanes exchange data: vote, match, reduce. Shuffles are in alu_cross.h. */
#include "soft/server/exec/handlers.h"

/* Lanes that never existed or have exited are not awaited. */
bool exec_sync_ready(struct exec_warp *w, uint32_t members)
{
	if (likely((members & ~w->idle & ~w->mask) == 0) || w->sync_forced) {
		w->sync_forced = false;
		return true;
	}
	w->pc--;
	w->state = GROUP_SYNC;
	return false;
}

/* The member mask of a .sync instruction may differ between lanes, as in a warp divided into tiles.
 * Takes the lanes of *rest whose mask equals the first one's. */
static uint32_t take_party(const struct exec_warp *w, uint32_t ref, uint32_t *rest)
{
	const uint32_t *members = REF(const uint32_t, w, ref);
	uint32_t mask = members[__builtin_ctz(*rest)], party = 0;

	exec_each_lane (*rest, lane) {
		party |= (uint32_t)(members[lane] == mask) << lane;
	}
	*rest &= ~party;
	return party;
}

/* Waits for the union of the lanes' members. */
static bool parties_ready(struct exec_warp *w, uint32_t ref, uint32_t m)
{
	const uint32_t *members = REF(const uint32_t, w, ref);
	uint32_t all = 0;

	exec_each_lane (m, lane) {
		all |= members[lane];
	}
	return exec_sync_ready(w, all);
}

static void vote(struct exec_warp *w, const struct exec_op *o, uint32_t party, uint32_t bits)
{
	bool result;

	bits &= party;
	if (o->sub == VOTE_BALLOT) {
		uint32_t *d = REF(uint32_t, w, o->d);

		exec_each_lane (party, lane) {
			d[lane] = bits;
		}
		return;
	}
	result = o->sub == VOTE_ALL   ? bits == party
		 : o->sub == VOTE_ANY ? bits != 0
				      : bits == 0 || bits == party;
	exec_pred_set(w, o->p, party, result ? ~0u : 0);
}

/* Votes on predicate r; sub: VOTE_*. ballot writes d, the others p. e: members, with
 * FLAG_VOTE_SYNC. */
int exec_op_vote(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	uint32_t bits = w->preds[o->r] ^ (o->r_not ? ~0u : 0), rest = m;

	if (!(o->flags & FLAG_VOTE_SYNC)) {
		vote(w, o, m, bits);
		return STEP_NEXT;
	}
	if (!parties_ready(w, o->e, m)) {
		return STEP_SWITCH;
	}
	while (rest) {
		vote(w, o, take_party(w, o->e, &rest), bits);
	}
	return STEP_NEXT;
}

int exec_op_activemask(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	uint32_t *d = REF(uint32_t, w, o->d);

	exec_each_lane (m, lane) {
		d[lane] = m;
	}
	return STEP_NEXT;
}

static void match(struct exec_warp *w, const struct exec_op *o, uint32_t party)
{
	uint32_t *d = REF(uint32_t, w, o->d), same[EXEC_LANES] = { 0 };
	bool wide = o->wide & WIDE_A, all = true;

	exec_each_lane (party, lane) {
		uint64_t v = exec_lane_get(w, o->a, wide, lane);

		same[lane] = 0;
		for (unsigned other = 0; other < EXEC_LANES; other++) {
			same[lane] |= (uint32_t)(exec_lane_get(w, o->a, wide, other) == v) << other;
		}
		same[lane] &= party;
		all = all && same[lane] == party;
	}
	exec_each_lane (party, lane) {
		d[lane] = o->sub == 0 ? same[lane] : all ? party : 0;
	}
	if (o->p != EXEC_NO_PRED) {
		exec_pred_set(w, o->p, party, all ? ~0u : 0);
	}
}

int exec_op_match(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	uint32_t rest = m;

	if (!parties_ready(w, o->e, m)) {
		return STEP_SWITCH;
	}
	while (rest) {
		match(w, o, take_party(w, o->e, &rest));
	}
	return STEP_NEXT;
}

static uint32_t reduce(const struct exec_op *o, uint32_t r, uint32_t v)
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

int exec_op_redux(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	const uint32_t *a = REF(const uint32_t, w, o->a);
	uint32_t *d = REF(uint32_t, w, o->d), rest = m;

	if (!parties_ready(w, o->e, m)) {
		return STEP_SWITCH;
	}
	while (rest) {
		uint32_t party = take_party(w, o->e, &rest), r = a[__builtin_ctz(party)];

		exec_each_lane (party &(party - 1), lane) {
			r = reduce(o, r, a[lane]);
		}
		exec_each_lane (party, lane) {
			d[lane] = r;
		}
	}
	return STEP_NEXT;
}

/* d = the first lane of the members, p = whether this lane is it. */
int exec_op_elect(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	uint32_t *d = REF(uint32_t, w, o->d), rest = m;

	if (!parties_ready(w, o->e, m)) {
		return STEP_SWITCH;
	}
	while (rest) {
		uint32_t party = take_party(w, o->e, &rest), first = (uint32_t)__builtin_ctz(party);

		exec_each_lane (party, lane) {
			d[lane] = first;
		}
		if (o->p != EXEC_NO_PRED) {
			exec_pred_set(w, o->p, party, 1u << first);
		}
	}
	return STEP_NEXT;
}

int exec_op_warp_sync(struct exec_warp *w, const struct exec_op *o, uint32_t m)
{
	return parties_ready(w, o->e, m) ? STEP_NEXT : STEP_SWITCH;
}
