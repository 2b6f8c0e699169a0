/* The merging walk, for programs whose plain loops have too many paths. It walks the unrolled
 * program in the order of its places (verify_order.c). Paths that meet at a place wait there until
 * no path before it is left, and continue as one, from the join of their states. So a loop that
 * keeps a minimum or a count costs its rounds times its body, whatever its branches.
 *
 * A path ends only where the program ends, or by joining a state that was not walked yet, and the
 * joined path has the higher cost of both. So the walk needs no other proof than that a join
 * contains both states: which states are joined, and in which order, is a matter of precision and
 * effort alone. Programs with loops by convergence are not walked this way. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/load/verify/verify_int.h"
#include "bpf/load/verify/walk/verify_order_int.h"

#define MAX_SHAPES 8u /* states that wait at one place because a join would lose a pointer */

/* A state that waits to be walked. */
struct ebpf_waiting {
	struct ebpf_waiting *next; /* at the same place, or at a later one */
	struct ebpf_spot spot;
	struct ebpf_packed_state *state; /* owned */
	uint32_t pc;
	uint64_t path_cost;
};

/* Ends the merging walk; the walk of all paths decides then. Only tests see the text. */
static int give_up(struct ebpf_verifier *v, const char *why)
{
	return ebpf_verify_refuse_err(v, -E2BIG, v->pc, "effort", "no merging walk: %s", why);
}

int ebpf_merge_start(struct ebpf_verifier *v)
{
	int err = ebpf_order_start(v);

	v->merging = 1;
	if (err == -E2BIG || v->converges) {
		return give_up(v, "loops by convergence, or loops nested too deeply");
	}
	return err || v->live ? err : ebpf_verify_live(v);
}

static void free_waiting(struct ebpf_verifier *v, struct ebpf_waiting *w)
{
	if (w->state) {
		v->bytes -= ebpf_verify_packed_bytes(w->state);
		v->states--;
	}
	v->bytes -= sizeof(*w);
	free(w->state);
	free(w);
}

void ebpf_merge_free(struct ebpf_verifier *v)
{
	while (v->waiting) {
		struct ebpf_waiting *w = v->waiting;

		v->waiting = w->next;
		free_waiting(v, w);
	}
	free(v->places);
}

/* Returns the instruction at which frame f is: that of its call, but for the running one. */
static uint32_t pc_of(const struct ebpf_verifier *v, unsigned f)
{
	return f == v->depth ? v->pc : v->frames[f + 1]->ret - 1;
}

/* Sets *ret to the running place. A loop around both this place and the one before is in the same
 * round, or in its next one if this place is its head. */
static int find_spot(const struct ebpf_verifier *v, struct ebpf_spot *ret)
{
	const struct ebpf_spot *old = &v->spot;
	int same = 1;

	ret->n = 0;
	ret->frames = v->depth + 1;
	for (unsigned f = 0; f <= v->depth; f++) {
		const struct ebpf_place *p = &v->places[pc_of(v, f)];
		const uint32_t *was = &old->at[f < old->frames ? old->first[f] : 0];
		uint32_t loops = f < old->frames ? old->loops[f] : 0;

		if (ret->n + 2u * p->loops + 1 > ARRAY_SIZE(ret->at)) {
			return -E2BIG;
		}
		ret->first[f] = ret->n;
		ret->loops[f] = p->loops;
		for (unsigned l = 0; l < p->loops; l++) {
			int next = f == v->depth && p->is_head && l + 1u == p->loops;

			same = same && l < loops && was[2 * l] == p->rank[l];
			ret->at[ret->n++] = p->rank[l];
			ret->at[ret->n++] = same ? was[2 * l + 1] + (uint32_t)next : 0;
		}
		same = same && f < old->frames && loops == p->loops &&
		       was[2 * loops] == p->rank[p->loops];
		ret->at[ret->n++] = p->rank[p->loops];
	}
	return 0;
}

/* Returns whether a lies before (-1), at (0) or after (1) b. */
static int compare(const struct ebpf_spot *a, const struct ebpf_spot *b)
{
	for (uint32_t i = 0; i < a->n && i < b->n; i++) {
		if (a->at[i] != b->at[i]) {
			return a->at[i] < b->at[i] ? -1 : 1;
		}
	}
	return a->n == b->n ? 0 : a->n < b->n ? -1 : 1;
}

/* Stores the running state in w, which has none. */
static int keep(struct ebpf_verifier *v, struct ebpf_waiting *w)
{
	w->state = ebpf_verify_pack(v);
	if (!w->state) {
		return -ENOMEM;
	}
	v->work += 2u * ebpf_verify_packed_work(w->state);
	v->states++;
	v->peak_states = MAX(v->peak_states, v->states);
	return 0;
}

/* Replaces the state of w by its join with the running one. */
static int join(struct ebpf_verifier *v, struct ebpf_waiting *w)
{
	int err = ebpf_verify_join(v, w->state, 0);

	if (err) {
		return err;
	}
	v->bytes -= ebpf_verify_packed_bytes(w->state);
	v->states--;
	v->joins++;
	free(w->state);
	w->path_cost = MAX(w->path_cost, v->path_cost);
	return keep(v, w);
}

/* Adds the running state to those that wait, after `after`, or as the first if that is NULL. */
static int add(struct ebpf_verifier *v, const struct ebpf_spot *spot, struct ebpf_waiting *after)
{
	struct ebpf_waiting *w = calloc(1, sizeof(*w));
	int err = w ? keep(v, w) : -ENOMEM;

	if (err) {
		free(w);
		return err;
	}
	w->spot = *spot;
	w->pc = v->pc;
	w->path_cost = v->path_cost;
	v->bytes += sizeof(*w);
	if (after) {
		w->next = after->next;
		after->next = w;
	} else {
		w->next = v->waiting;
		v->waiting = w;
	}
	return v->bytes > VERIFY_MAX_BYTES ? give_up(v, "too many states wait") : 0;
}

/* Joins the running state with one of those that wait at this place, or adds it to them. */
static int wait_at(struct ebpf_verifier *v, const struct ebpf_spot *spot)
{
	struct ebpf_waiting *before = NULL, *w = v->waiting, *lossy = NULL;
	unsigned shapes = 0;

	for (; w && compare(&w->spot, spot) < 0; w = w->next) {
		v->work += 1 + spot->n / 16;
		before = w;
	}
	for (; w && compare(&w->spot, spot) == 0; w = w->next) {
		enum ebpf_fit fit = ebpf_verify_fit(v, w->state);

		if (fit == FIT_WHOLE) {
			return join(v, w);
		}
		lossy = !lossy && fit == FIT_LOSSY ? w : lossy;
		shapes++;
		before = w;
	}
	return lossy && shapes >= MAX_SHAPES ? join(v, lossy) : add(v, spot, before);
}

int ebpf_merge_meet(struct ebpf_verifier *v)
{
	struct ebpf_spot spot;
	int err;

	if (find_spot(v, &spot)) {
		return give_up(v, "too many loops around this place in all functions");
	}
	ebpf_verify_drop_dead(v);
	v->work++;
	if (!v->todo && (!v->waiting || compare(&spot, &v->waiting->spot) < 0)) {
		v->spot = spot; /* nothing comes before this path */
		return 0;
	}
	err = wait_at(v, &spot);
	return err ? err : 1;
}

int ebpf_merge_next(struct ebpf_verifier *v)
{
	struct ebpf_waiting *w = v->waiting;

	if (!w) {
		return 0;
	}
	v->waiting = w->next;
	ebpf_verify_unpack(v, w->state);
	v->spot = w->spot;
	v->pc = w->pc;
	v->path_cost = w->path_cost;
	v->entering = 0;
	free_waiting(v, w);
	return 1;
}

int ebpf_merge_end(struct ebpf_verifier *v)
{
	v->root->best = MAX(v->root->best, (int64_t)v->path_cost);
	return 0;
}
