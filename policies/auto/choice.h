/* auto: the choice of the way for one latency tenant, with hysteresis: trials of the other way,
 * which become rare while they fail. docs/POLICIES.md, "The choice of the way", states the rules.
 */
#ifndef GBPF_POLICIES_AUTO_CHOICE_H
#define GBPF_POLICIES_AUTO_CHOICE_H

#include "cost.h"

/* Ends a trial when the way costs clearly more than the one before, or after trial_bursts unless it
 * is better. Each trial that fails doubles the time until the next. Returns the way. */
static __always_inline u32 judge_trial(struct ways *w, u32 way, u64 now)
{
	u32 before = (way ^ 1) & 1;

	if (w->seen[way & 1] < trial_min_bursts) {
		return way;
	}
	if (!cheaper(w->cost_ns[before], w->cost_ns[way & 1])) {
		if (w->seen[way & 1] < trial_bursts) {
			return way;
		}
		if (is_better(w, way)) {
			w->trial = 0;
			w->wait_ns = way_keep_ns;
			w->retry_ns = now + way_keep_ns;
			return way;
		}
	}
	w->trial = 0;
	w->wait_ns = w->wait_ns ? 2 * w->wait_ns : way_keep_ns;
	w->wait_ns = min_u64(w->wait_ns, way_retry_max_ns);
	w->retry_ns = now + w->wait_ns;
	return before;
}

/* Returns 1 if a kind may be given this way. Batch that stops serves a mixture of kinds. Where
 * kinds were mixed before, the present one may be a row of similar bursts by chance, so it is not
 * sliced for that. */
static __always_inline int may_change(const struct kind *k, u32 to)
{
	return to == WAY_LEAVING || !batch_stops || k->proof <= 2 || k->bursts >= kind_pure_bursts;
}

/* Returns 1 if slices are worth a trial: they may serve as well as stopping where blocks or huge
 * grids take long to leave and requests have no pauses; only a trial can show it. */
static __always_inline int worth_trial(const struct kind *k)
{
	return batch_alone && batch_stops && k->way == WAY_LEAVING &&
	       k->ways.seen[WAY_LEAVING] >= trial_bursts && longest_ns >= trial_min_leave_ns &&
	       pauses16(k) < hold_min_syncs_x16 && !no_slices;
}

/* Chooses the way for a tenant's requests: until it is measured, by prediction; then the other one
 * when that was measured and is better; or when it is predicted to be cheaper, for a trial. Two
 * changes for one kind are at least way_keep_ns apart, except at the end of a trial and for the
 * first one. */
static __always_inline u32 choose_way(struct kind *k, u64 now)
{
	struct ways *w = &k->ways;
	u32 way = k->way & 1, other = way ^ 1;

	if (!longest_ns) {
		return way;
	}
	if (w->trial) {
		return judge_trial(w, way, now);
	}
	if (w->seen[way] < way_min_seen) {
		if (w->seen[other] || !may_change(k, other) || w->guesses >= 2 ||
		    !cheaper(predicted(k, other), predicted(k, way))) {
			return way;
		}
		w->guesses++;
		return other;
	}
	if (w->moved && now < w->changed_ns + way_keep_ns) {
		return way;
	}
	if (now < w->retry_ns) {
		if (!is_better(w, other)) {
			return way;
		}
	} else if (may_change(k, other) &&
		   (cheaper(predicted(k, other), w->cost_ns[way]) || worth_trial(k))) {
		w->trial = 1;
		w->seen[other] = 0;
	} else {
		return way;
	}
	w->moved = 1;
	w->retry_ns = w->trial ? w->retry_ns : now + way_keep_ns;
	return other;
}

#endif
