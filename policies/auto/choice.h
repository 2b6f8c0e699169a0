/* auto: the choice of the way for one latency tenant, with hysteresis: trials of the other way,
 * which become rare while they fail. docs/POLICIES.md, "The choice of the way", states the rules.
 */
#ifndef GBPF_POLICIES_AUTO_CHOICE_H
#define GBPF_POLICIES_AUTO_CHOICE_H

#include "pairs.h"

/* Ends a trial that gained nothing: each doubles the time until the next. Returns the way from
 * before, to which the tenant returns. */
static __always_inline u32 fail_trial(struct ways *w, u32 way, u64 now)
{
	w->trial = 0;
	w->wait_ns = w->wait_ns ? 2 * w->wait_ns : way_keep_ns;
	w->wait_ns = min_u64(w->wait_ns, way_retry_max_ns);
	w->retry_ns = now + w->wait_ns;
	return (way ^ 1) & 1;
}

/* Returns 1 if a way is in force when one of the latency tenants wants it. */
static __always_inline int decides(u32 way)
{
	return judged_tenants <= 1 || way == (batch_stops ? WAY_LEAVING : WAY_SLICED);
}

/* Ends a trial when the way costs clearly more than the one before, or after trial_bursts unless it
 * is better. Returns the way. */
static __always_inline u32 judge_trial(struct kind *k, u32 way, u64 now)
{
	struct ways *w = &k->ways;
	u32 before = (way ^ 1) & 1;

	if (!decides(way)) {
		return fail_trial(w, way, now); /* another latency tenant has come */
	}
	if (w->seen[way & 1] < trial_min_bursts) {
		return way;
	}
	if (!cheaper(k, w->cost_ns[before] + doubt_ns(k, w->seen[way & 1]), w->cost_ns[way & 1])) {
		if (w->seen[way & 1] < trial_bursts) {
			return way;
		}
		if (is_better(k, way)) {
			w->trial = 0;
			w->wait_ns = way_keep_ns;
			w->retry_ns = now + way_keep_ns;
			return way;
		}
	}
	return fail_trial(w, way, now);
}

/* Returns 1 if a kind may be given this way. Batch that stops serves a mixture of kinds. Where
 * kinds were mixed before, the present one may be a row of similar bursts by chance, so it is not
 * sliced for that. */
static __always_inline int may_change(const struct kind *k, u32 to)
{
	return to == WAY_LEAVING || !batch_stops || k->proof <= 2 || k->bursts >= kind_pure_bursts;
}

/* Returns 1 if slices are worth a trial: they may serve as well as stopping where blocks or huge
 * grids take long to leave and requests have no pauses, and where requests have gaps; or passing,
 * where batch is mostly launches that pass next to such requests. Only a trial can show it. */
static __always_inline int worth_trial(const struct kind *k)
{
	if (k->way != WAY_LEAVING || k->ways.seen[WAY_LEAVING] < trial_bursts) {
		return 0;
	}
	if (batch_lane == GBPF_LANE_SHARED) {
		return batch_short || (batch_passes && has_gaps(k));
	}
	return batch_alone && !no_slices &&
	       (k->gaps ? k->ends_ns > 4 * gaps_end_ns
			: (batch_stops && longest_ns >= trial_min_leave_ns &&
			    pauses16(k) < hold_min_syncs_x16));
}

/* Returns 1 if the way that is not in force is to be tried: it is predicted to be cheaper, or was
 * measured to be, some time ago; or it may be. */
static __always_inline int try_other(const struct kind *k, u32 other)
{
	const struct ways *w = &k->ways;
	u64 cost = w->cost_ns[(other ^ 1) & 1];

	return may_change(k, other) && decides(other) &&
	       (cheaper(k, predicted(k, other), cost) || worth_trial(k) ||
		(w->seen[other & 1] >= way_min_seen && cheaper(k, w->cost_ns[other & 1], cost)));
}

/* Chooses the way for a tenant's requests: until it is measured, by prediction; then the other one
 * when that was measured and is better; or when it is predicted to be cheaper, for a trial. Two
 * changes for one kind are at least way_keep_ns apart, except at the end of a trial and for the
 * first one. */
static __noinline u32 choose_way(struct kind *k, u64 now)
{
	struct ways *w = &k->ways;
	u32 way = k->way & 1, other = way ^ 1;

	if (!longest_ns) {
		return way;
	}
	if (w->trial) {
		return judge_trial(k, way, now);
	}
	if (w->seen[way] < way_min_seen) {
		if (w->seen[other] || !may_change(k, other) || w->guesses >= 2 ||
		    !cheaper(k, predicted(k, other), predicted(k, way))) {
			return way;
		}
		w->guesses++;
		return other;
	}
	if (w->moved && now < w->changed_ns + way_keep_ns) {
		return way;
	}
	if (now < w->retry_ns ? !is_better(k, other) : !try_other(k, other)) {
		return way;
	}
	w->moved = 1;
	if (now >= w->retry_ns || by_mean(k)) {
		w->trial = 1;
		w->seen[other] = w->progress[other] = 0;
	} else {
		w->retry_ns = now + way_keep_ns;
	}
	return other;
}

/* If bursts were next to other batch programs than before, or kernels of them: exchanges what is
 * known of the ways. A trial that this interrupts counts as failed, or batch that comes and goes
 * would be a reason for one each time. */
static __always_inline void change_batch(struct tenant *x, u64 now)
{
	struct kind *k = &x->kind;
	struct ways *w = &k->ways;

	if (!x->seen.n || !batch_changed(w)) {
		return;
	}
	if (w->batch != NO_PROGRAMS) {
		if (w->trial) {
			w->seen[k->way & 1] = 0;
			set_way(k, fail_trial(w, k->way, now), now);
		}
		pair_store(x);
	}
	w->leave_ns = longest_ns;
	w->batch = batch_programs;
	w->stops = batch_stops;
	if (!pair_recall(x, now)) {
		forget_ways(k, now);
	}
	x->batch_busy_ns = 0;
}

/* Learns from the bursts of this scan what the way in force costs them. */
static __always_inline void learn_way(struct tenant *x, u64 now)
{
	if (x->seen.n) {
		measure_way(x, &x->seen, now);
	}
}

/* Learns batch's progress next to the bursts of which the cost was measured. */
static __always_inline void learn_progress(struct tenant *x, u64 now)
{
	struct ways *w = &x->kind.ways;
	u32 way = x->kind.way & 1;

	if (x->seen.measured) {
		measure_progress(w, way, x, &x->seen, now);
		w->seen[way] += w->seen[way] < trial_bursts;
	}
	if (x->seen.n) {
		x->batch_busy_ns = batch_busy_ns;
	}
}

#endif
