/* auto: the choice of the way for one latency tenant, with hysteresis: trials of the other way,
 * which become rare while they fail. docs/POLICIES.md, "The choice of the way", states the rules.
 */
#ifndef GBPF_POLICIES_AUTO_CHOICE_H
#define GBPF_POLICIES_AUTO_CHOICE_H

#include "pairs.h"

/* Ends a trial; the next begins wait_ns later at the earliest. Returns the way from now on. */
static __always_inline u32 end_trial(struct ways *w, u32 way, u64 wait_ns, u64 now)
{
	w->trial = 0;
	w->wait_ns = min_u64(wait_ns, way_retry_max_ns);
	w->retry_ns = now + w->wait_ns;
	return way & 1;
}

/* Ends a trial that gained nothing: each doubles the time until the next. Returns the way from
 * before, to which the tenant returns. */
static __always_inline u32 fail_trial(struct ways *w, u64 now)
{
	return end_trial(w, w->tried ^ 1, w->wait_ns ? 2 * w->wait_ns : way_keep_ns, now);
}

/* Ends a trial that was worth it. Where the ways took turns there is little reason for another one. */
static __always_inline u32 keep_tried(struct kind *k, u64 now)
{
	return end_trial(&k->ways, k->ways.tried, by_mean(k) ? way_kept_ns : way_keep_ns, now);
}

/* Begins a trial of the other way. Where ways are compared by means, that of both is of the trial, so
 * that it does not matter if the program as such is slower than before. Returns the way to try. */
static __always_inline u32 begin_trial(struct kind *k)
{
	struct ways *w = &k->ways;
	u32 tried = (k->way ^ 1) & 1;

	w->trial = 1;
	w->tried = tried;
	w->run = 0;
	w->seen[tried] = w->progress[tried] = 0;
	if (by_mean(k)) {
		w->seen[tried ^ 1] = w->progress[tried ^ 1] = 0;
	}
	return tried;
}

/* Returns the way for the next burst of a trial that goes on. Where ways are compared by means, they
 * take turns: of one burst, or as many as take four times as long as the change. */
static __always_inline u32 next_of_trial(struct kind *k)
{
	struct ways *w = &k->ways;
	u64 run = 1 + 4 * way_switch_ns / (k->best_ns + 1);

	if (!by_mean(k) || w->run < min_u64(run, trial_bursts / 4)) {
		return k->way & 1;
	}
	w->run = 0;
	return (k->way ^ 1) & 1;
}

/* Returns 1 if a way is in force when one of the latency tenants wants it. */
static __always_inline int decides(u32 way)
{
	return judged_tenants <= 1 || way == (batch_stops ? WAY_LEAVING : WAY_SLICED);
}

/* Ends a trial when the way that is tried costs clearly more than the one before, or, where they take
 * turns, when one of them clearly serves batch better at the same cost; else after trial_bursts, and
 * it is kept if it is better. Returns the way. */
static __always_inline u32 judge_trial(struct kind *k, u64 now)
{
	struct ways *w = &k->ways;
	u32 tried = w->tried & 1, before = tried ^ 1, seen = w->seen[tried];

	if (!decides(tried)) {
		return fail_trial(w, now); /* another latency tenant has come */
	}
	if (seen < trial_min_bursts) {
		return next_of_trial(k);
	}
	if (cheaper(k, w->cost_ns[before] + doubt_ns(k, seen), w->cost_ns[tried])) {
		return fail_trial(w, now);
	}
	seen = by_mean(k) ? (u32)min_u64(seen, w->seen[before]) : seen;
	if (seen >= trial_bursts) {
		return is_better(k, tried) ? keep_tried(k, now) : fail_trial(w, now);
	}
	if (by_mean(k) && seen >= trial_bursts / 2) {
		if (serves_batch(k, tried, doubt_ns(k, seen))) {
			return keep_tried(k, now);
		}
		if (serves_batch(k, before, doubt_ns(k, seen))) {
			return fail_trial(w, now);
		}
	}
	return next_of_trial(k);
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
	u32 known = by_mean(k) ? way_min_seen : trial_bursts; /* a trial measures it again */

	if (k->way != WAY_LEAVING || k->ways.seen[WAY_LEAVING] < known) {
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
 * changes for one kind are at least way_keep_ns apart, except within and at the end of a trial and
 * for the first one. */
static __noinline u32 choose_way(struct kind *k, u64 now)
{
	struct ways *w = &k->ways;
	u32 way = k->way & 1, other = way ^ 1;

	if (!longest_ns) {
		return way;
	}
	if (w->trial) {
		return judge_trial(k, now);
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
	if (now < w->retry_ns ? !has_become_better(k, other) : !try_other(k, other)) {
		return way;
	}
	w->moved = 1;
	if (now >= w->retry_ns || by_mean(k)) {
		return begin_trial(k);
	}
	w->retry_ns = now + way_keep_ns;
	return other;
}

/* If bursts were next to other batch programs than before, or kernels of them: exchanges what is
 * known of the ways. A trial that this interrupts counts as failed, or batch that comes and goes
 * would be a reason for one each time. */
static __always_inline void change_batch(struct tenant *x, u64 now)
{
	struct kind *k = &x->kind;
	struct ways *w = &k->ways;

	if (!x->seen.n || !batch_changed(k)) {
		return;
	}
	if (w->batch != NO_PROGRAMS) {
		if (w->trial) {
			w->seen[w->tried & 1] = 0;
			set_way(k, fail_trial(w, now), now);
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
		measure_way(x, now);
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
		w->run++;
	}
	if (x->seen.n) {
		x->batch_busy_ns = batch_busy_ns;
	}
}

#endif
