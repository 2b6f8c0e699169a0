/* auto: what each way to get batch off the GPU costs a latency tenant's requests: measured for the
 * way in force, predicted for the other one, and forgotten when batch changes. */
#ifndef GBPF_POLICIES_AUTO_COST_H
#define GBPF_POLICIES_AUTO_COST_H

#include "kind.h"

/* Sets the way of a kind, and the time of the change. */
static __always_inline void set_way(struct kind *k, u32 way, u64 now)
{
	if (k->way != way) {
		k->way = way;
		k->ways.changed_ns = now;
	}
}

/* Returns 1 if ways are compared by means, to a few percent: in the shared lane, and where batch may
 * fill gaps. The slower bursts of a service vary by more. */
static __always_inline int by_mean(const struct kind *k)
{
	return batch_lane == GBPF_LANE_SHARED || k->gaps;
}

/* Forgets what both ways cost. Batch that stops between its blocks leaves: this serves requests of
 * any kind in little more than a context switch. So does all batch that may fill gaps, since only a
 * trial can show whether it may. Other batch is sliced, until requests are known for which that is
 * expensive. */
static __always_inline void forget_ways(struct kind *k, u64 now)
{
	struct ways *w = &k->ways;

	w->seen[WAY_SLICED] = w->seen[WAY_LEAVING] = 0;
	w->progress[WAY_SLICED] = w->progress[WAY_LEAVING] = 0;
	w->guesses = w->moved = w->trial = 0;
	w->retry_ns = w->wait_ns = w->noise_ns = w->last_ns = 0;
	if (batch_stops || k->gaps) {
		set_way(k, WAY_LEAVING, now);
	}
}

/* Returns the mean duration of bursts, ns; where bursts are compared by launch, with the usual number
 * of launches. */
static __always_inline u64 usual_ns(const struct kind *k, const struct seen *s)
{
	u64 took_ns = s->bursts_ns / s->n + 1;

	return by_launch(k) ? took_ns * k->launches16 / (s->launches * 16 / s->n + 1) : took_ns;
}

/* Adds the bursts of a scan to those that are not measured yet. Returns 1 if these can be: where
 * bursts are compared by launch, they need half as many launches as a usual one. A service may pause
 * between its first launch and the others, and the time of one says nothing of those of thousands. */
static __always_inline int add_to_sample(struct tenant *x)
{
	struct seen *sum = &x->sample;

	sum->since_ns = sum->n ? sum->since_ns : x->seen.since_ns;
	sum->n += x->seen.n;
	sum->launches += x->seen.launches;
	sum->bursts_ns += x->seen.bursts_ns;
	return !by_launch(&x->kind) || sum->launches * 32 >= x->kind.launches16;
}

/* Sets the shortest burst of a kind, from which the costs count. */
static __always_inline void set_best(struct kind *k, u64 ns)
{
	u64 *cost_ns = k->ways.cost_ns, before = k->best_ns;

	cost_ns[0] = max_u64(cost_ns[0] + before, ns) - ns;
	cost_ns[1] = max_u64(cost_ns[1] + before, ns) - ns;
	k->best_ns = ns;
}

/* Returns 1 if bursts have so many launches that the processor may take their time. */
static __always_inline int has_many_launches(const struct kind *k)
{
	return k->launches16 >= 16 * gappy_min_launches;
}

/* Returns 1 if what counts as the shortest burst is none of this kind: the mean of those next to the
 * way in force is more than 16 times as long. A program that loads its weights in many short bursts, and
 * whose requests come in parts that differ as much, is one kind. */
static __always_inline int is_foreign(const struct kind *k)
{
	u32 way = k->way & 1;

	return by_mean(k) && has_many_launches(k) && k->ways.seen[way] >= way_min_seen &&
	       k->ways.cost_ns[way] > 16 * k->best_ns;
}

/* Returns by how much a burst was longer than the shortest of its kind, ns. n: bursts of which
 * took_ns is the average. odd: they differ from the kind, and say nothing about its shortest. */
static __always_inline u64 extra_ns(struct kind *k, u64 took_ns, u64 n, u32 odd)
{
	u32 foreign = is_foreign(k);
	u64 extra;

	if (!k->best_ns || (took_ns < k->best_ns && !odd) || foreign) {
		if (k->best_ns > 2 * took_ns || foreign) {
			k->ways.batch = NO_PROGRAMS; /* those before were a warm-up */
		}
		set_best(k, took_ns);
	}
	extra = took_ns - min_u64(k->best_ns, took_ns);
	set_best(k, k->best_ns + min_u64(extra, k->best_ns) * min_u64(n, 8) / 1024);
	return extra;
}

/* Counts a burst to the cost of the way in force: the mean of the last trial_bursts where ways are
 * compared by means. Elsewhere, after the first few, it rises fast and falls slowly, so it is that
 * of the slower ones. One exception is none. */
static __always_inline void measure_cost(struct kind *k, u32 way, u64 extra)
{
	struct ways *w = &k->ways;
	u64 cost = w->seen[way] ? w->cost_ns[way] : extra;
	u64 usual = by_mean(k) ? k->best_ns / 4 : 0, n = min_u64(w->seen[way], trial_bursts - 1);
	u64 a, b;

	extra = min_u64(extra, 4 * (cost + max_u64(way_min_gain_ns, usual)));
	a = extra + w->cost_ns[w->last_way & 1];
	b = w->last_ns + cost;
	w->noise_ns = mean_with(w->noise_ns, n, max_u64(a, b) - min_u64(a, b));
	w->last_ns = extra;
	w->last_way = way;
	if (by_mean(k) || w->seen[way] < way_min_seen) {
		w->cost_ns[way] = mean_with(cost, n, extra);
	} else {
		w->cost_ns[way] =
			extra > cost ? cost + (extra - cost) / 4 : cost - (cost - extra) / 16;
	}
}

/* Measures batch's GPU time since the last burst, unless batch was not the same then. At most 2048
 * of 1024: launches may overlap. */
static __always_inline void measure_progress(struct ways *w, u32 way, const struct tenant *x,
					     const struct seen *s, u64 now)
{
	u64 before = w->progress[way], n = min_u64(w->seen[way], trial_bursts - 1), progress;

	if (!x->batch_busy_ns || batch_busy_ns < x->batch_busy_ns || now <= s->since_ns) {
		return;
	}
	progress = (batch_busy_ns - x->batch_busy_ns) * 1024 / (now - s->since_ns);
	progress = min_u64(progress, 2048) + 1;
	w->progress[way] = mean_with(before, before ? n : 0, progress);
}

/* Returns 1 if bursts say nothing of the way in force, which changed while or shortly before they ran.
 * Long ones after a change do: the way was in force for most of their time. */
static __always_inline int began_before(const struct ways *w, const struct seen *s)
{
	u64 in_force_ns = w->changed_ns + (batch_stops ? way_switch_ns : 0);
	int is_long = s->since_ns >= w->changed_ns && s->bursts_ns >= 8 * way_switch_ns * s->n;

	return w->changed_ns && s->since_ns <= in_force_ns && !is_long;
}

/* Measures what the way in force costs a burst, unless it began before the way was in force. Those
 * for which batch does not want the GPU say nothing: without it any way costs nothing. Nor do those
 * for which another latency tenant decides. */
static __noinline void measure_way(struct tenant *x, u64 now)
{
	struct seen *s = &x->sample;
	struct kind *k = &x->kind;
	u32 way = k->way & 1;
	u64 extra;

	if (!add_to_sample(x)) {
		return;
	}
	extra = extra_ns(k, usual_ns(k, s), s->n, x->odd && !by_launch(k));
	if (batch_wants && way == way_in_force && !began_before(&k->ways, s)) {
		measure_cost(k, way, extra);
		x->seen.measured = 1;
	}
	empty_sample(x);
}

/* Returns 1 if bursts that take took_ns have many launches, which use the GPU for less than a part of
 * that, in percent. */
static __always_inline int is_idle(const struct kind *k, u64 took_ns, u32 percent)
{
	return has_many_launches(k) && k->gpu_ns && k->gpu_ns * 100 < took_ns * percent;
}

/* Returns 1 if bursts are bound by the processor: the GPU is mostly idle between their launches. */
static __always_inline int is_gappy(const struct kind *k)
{
	return is_idle(k, k->best_ns, 50);
}

/* Returns how long bursts usually take while batch is held, ns, in the shared lane: the shortest, and
 * what they cost beyond that, at most half of it. Of GPT-2 that generates tokens the shortest takes 40
 * ms without its pauses, and the usual 50 (H200). In the process lane gaps decide how long slices are, and with it what
 * the cost is. */
static __always_inline u64 held_ns(const struct kind *k)
{
	u32 known = k->ways.seen[WAY_LEAVING] || k->ways.trial; /* which begins with neither seen */
	u64 cost = known ? k->ways.cost_ns[WAY_LEAVING] : 0;

	return k->best_ns + (batch_lane == GBPF_LANE_SHARED ? min_u64(cost, k->best_ns / 2) : 0);
}

/* Returns 1 if synchronizations before the last one, which finds batch switched off, are so few that
 * a trial of slices is worth it: if the kernels of none have ended, and each waits for half a slice,
 * requests take half as long again; or twice as long, where a trial has shown that they do not. */
static __always_inline int slices_fit(const struct kind *k)
{
	u64 waits16 = max_u64(k->syncs16, 16) - 16;

	return waits16 * batch_slice_gaps_us * NSEC_PER_USEC <= (k->gaps ? 2 : 1) * 16 * k->best_ns;
}

/* Returns 1 if batch may fill the gaps of such bursts: few of their kernels are awaited one by one,
 * so what a block, or a time slice, delays is done before the processor has the next one. Where
 * batch does so already, kernels may look longer, since they wait for it. In the process lane a burst
 * of another kind in between waits for a whole slice, so these must be rare; and so does one of
 * another latency tenant, while the first one's is open. */
static __always_inline int has_gaps(const struct kind *k)
{
	return is_idle(k, held_ns(k), k->gaps ? 67 : 50) && k->syncs16 * 4 < k->launches16 &&
	       (batch_lane == GBPF_LANE_SHARED ||
		(judged_tenants <= 1 && slices_fit(k) &&
		 k->odd_bursts * (k->gaps ? gaps_stay_odd : gaps_max_odd) <=
			 k->bursts + 2 * gaps_max_odd));
}

/* Returns the pauses of a burst, times 16. Short slices let batch return in each pause of the
 * request: after synchronizations, or between many short launches. */
static __always_inline u64 pauses16(const struct kind *k)
{
	return k->syncs16 + (is_gappy(k) ? 16 * (u64)gappy_gaps : 0);
}

/* Returns the predicted cost of a way per burst, ns. Sliced: batch_return_ns for each pause.
 * Leaving: batch leaves once. Where it stops, the longest time that this takes counts, since slices
 * would be as good; where it drains, half of its longest launch. Batch in gaps is never predicted to
 * be cheaper: it cannot be, but may cost as little. */
static __always_inline u64 predicted(const struct kind *k, u32 way)
{
	u64 leave_ns = batch_stops ? longest_ns : longest_ns / 2;

	if (way == WAY_LEAVING) {
		return batch_lane == GBPF_LANE_SHARED ? leave_ns : leave_ns + batch_return_ns;
	}
	return by_mean(k) ? way_retry_max_ns : pauses16(k) * batch_return_ns / 16;
}

/* Returns the difference below which two ways cost the same, ns: of means what requests may lose, and
 * half of the standard error of the difference of two means of trial_bursts. */
static __always_inline u64 tolerance_ns(const struct kind *k)
{
	u64 least = min_u64(k->best_ns / way_shared_tolerance, way_min_gain_ns);

	if (!by_mean(k)) {
		return way_min_gain_ns;
	}
	return max_u64(least, k->best_ns * way_percent / 100) + k->ways.noise_ns / 8;
}

/* Returns by how much the difference of two means of so few bursts may be wrong, ns: about twice its
 * standard error after three of them, and once after ten. */
static __always_inline u64 doubt_ns(const struct kind *k, u32 bursts)
{
	return by_mean(k) && bursts ? k->ways.noise_ns * 4 / bursts : 0;
}

/* Returns 1 if a cost is lower by as much as makes a change pay. */
static __always_inline int cheaper(const struct kind *k, u64 cost, u64 than)
{
	u64 gain = tolerance_ns(k);

	return cost + gain + (by_mean(k) ? gain : cost / 4) < than;
}

/* Returns 1 if a way costs no more than the other one, to what is not known of that after so few
 * bursts, and batch makes more progress. */
static __always_inline int serves_batch(const struct kind *k, u32 way, u64 unknown_ns)
{
	const struct ways *w = &k->ways;
	u32 a = way & 1, b = a ^ 1;

	return w->cost_ns[a] + unknown_ns <= w->cost_ns[b] + tolerance_ns(k) &&
	       w->progress[a] >
		       w->progress[b] + w->progress[b] / (by_mean(k) ? way_shared_min_progress : 4);
}

/* Returns 1 if a way is better than the other one, both measured: it costs less, or costs the same
 * and batch makes more progress. */
static __always_inline int is_better(const struct kind *k, u32 way)
{
	const struct ways *w = &k->ways;
	u32 a = way & 1, b = a ^ 1;

	return cheaper(k, w->cost_ns[a], w->cost_ns[b]) ||
	       (w->seen[a] >= trial_bursts && w->seen[b] >= trial_bursts && serves_batch(k, a, 0));
}

/* Returns 1 if the way that is not in force is better, although it was measured some time ago. The
 * host may have made a program slower since: means say so only if they differ by a shortest burst. */
static __always_inline int has_become_better(const struct kind *k, u32 way)
{
	const struct ways *w = &k->ways;
	u32 a = way & 1;

	if (!by_mean(k)) {
		return is_better(k, a);
	}
	return w->seen[a] && w->cost_ns[a] + k->best_ns < w->cost_ns[a ^ 1];
}

/* Returns the time to leave below which batch serves requests alike, ns: what they may lose. */
static __always_inline u64 alike_ns(const struct kind *k)
{
	return max_u64(by_mean(k) ? k->best_ns * way_percent / 100 : 0, way_min_gain_ns);
}

/* Returns 1 if the batch programs or their kernels have changed since the ways were measured. While
 * there is no batch nothing has. */
static __always_inline int batch_changed(const struct kind *k)
{
	const struct ways *w = &k->ways;
	u64 alike = alike_ns(k);

	if (!longest_ns && w->batch != NO_PROGRAMS) {
		return 0;
	}
	return w->batch != batch_programs || w->stops != batch_stops ||
	       longest_ns > 2 * w->leave_ns + alike || w->leave_ns > 2 * longest_ns + alike;
}

#endif
