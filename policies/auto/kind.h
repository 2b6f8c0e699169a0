/* auto: kinds of requests. Learns, from counters, what one burst of a latency tenant is like, and
 * recognizes bursts of another kind. */
#ifndef GBPF_POLICIES_AUTO_KIND_H
#define GBPF_POLICIES_AUTO_KIND_H

#include "state.h"

/* Averages over about 32 bursts; the new value is that of n of them. */
static __always_inline u64 average(u64 old, u64 new, u64 n)
{
	n = n < 8 ? n : 8;
	return old ? old - old * n / 32 + (new *n) / 32 : new;
}

/* Returns the mean of n values and one more. */
static __always_inline u64 mean_with(u64 mean, u64 n, u64 value)
{
	return (mean * n + value) / (n + 1);
}

/* Empties the bursts that are not measured yet. */
static __always_inline void empty_sample(struct tenant *x)
{
	x->sample.n = x->sample.launches = x->sample.bursts_ns = 0;
}

/* Returns 1 if bursts are compared by launch: where the processor's work for each launch takes the
 * time, and where bursts are several requests. The latter may be parts of one, or follow each other
 * without a pause, so that a scan sees as many as fit into its time. */
static __always_inline int by_launch(const struct kind *k)
{
	return k->gaps || !k->single_burst;
}

/* Averages the synchronizations and launches of n bursts, and scales what is known per burst. */
static __always_inline void average_counts(struct kind *k, u64 syncs16, u64 launches16, u64 n)
{
	u64 before = k->launches16;

	k->syncs16 = average(k->syncs16, syncs16, n);
	k->launches16 = average(before, launches16, n);
	if (before) {
		k->gpu_ns = k->gpu_ns * k->launches16 / before;
		k->best_ns = by_launch(k) ? k->best_ns * k->launches16 / before : k->best_ns;
	}
}

/* Learns the GPU time of a burst, from the launches whose duration is known; without any it stays. */
static __always_inline void learn_gpu(struct tenant *x, const struct account *a, u64 n)
{
	struct kind *k = &x->kind;
	u64 known = a->known - x->known;

	if (known && !(k->gaps && x->odd)) {
		k->gpu_ns = average(k->gpu_ns,
				    (a->known_ns - x->known_ns) / known * k->launches16 / 16 + 1,
				    n);
	}
}

/* Returns 1 if two counts per burst, times 16, differ by half of one and a factor of two. */
static __always_inline int differs(u64 a16, u64 b16)
{
	return a16 > 2 * b16 + 8 || b16 > 2 * a16 + 8;
}

/* The row of odd bursts that are alike has ended, and was too short for a new kind: they are averaged
 * with the others. Not before, or the average would come near a new kind, whose bursts were no longer
 * odd then, and what was measured of the kind before would stay. */
static __always_inline void end_row(struct tenant *x)
{
	struct kind *k = &x->kind;

	/* Where batch runs in gaps few bursts are odd, and decisions are for the others. */
	if (x->odd && (!k->gaps || k->odd_bursts * gaps_stay_odd > k->bursts + 2 * gaps_max_odd)) {
		average_counts(k, x->odd_syncs16, x->odd_launches16, x->odd_bursts);
	}
	x->odd = x->odd_bursts = 0;
}

/* Begins a new kind of bursts when some in a row differ from those before and are alike: two, or
 * more when kinds are mixed at random. One alone is an exception, and where kinds are mixed,
 * decisions are for their average. */
static __always_inline void tell_kind(struct tenant *x, u64 syncs16, u64 launches16, u64 n)
{
	struct kind *k = &x->kind;
	u32 proof = k->proof ? k->proof : 2, mixed;

	if (k->bursts >= kind_window_bursts) {
		k->bursts /= 2;
		k->odd_bursts /= 2;
	}
	k->bursts += n;
	if (!k->launches16 ||
	    (!differs(syncs16, k->syncs16) && !differs(launches16, k->launches16))) {
		end_row(x);
		average_counts(k, syncs16, launches16, n);
		return;
	}
	k->odd_bursts += n;
	if (differs(syncs16, x->odd_syncs16) || differs(launches16, x->odd_launches16)) {
		end_row(x);
	}
	x->odd_syncs16 = mean_with(x->odd_syncs16, x->odd, syncs16);
	x->odd_launches16 = mean_with(x->odd_launches16, x->odd, launches16);
	x->odd_bursts += n;
	x->odd++;
	if (x->odd < proof) {
		return;
	}
	mixed = k->odd_bursts > x->odd && (k->odd_bursts - x->odd) * kind_max_odd > k->bursts;
	k->proof = k->proof && (mixed || k->bursts < kind_min_bursts) ? kind_proof_mixed : 2;
	k->syncs16 = syncs16;
	k->launches16 = launches16;
	k->mean_ns = k->gap_ns = k->gpu_ns = k->best_ns = k->ends_ns = 0;
	k->bursts = k->odd_bursts = k->gaps = 0;
	x->odd = x->odd_bursts = 0;
	empty_sample(x);
	k->ways.batch = NO_PROGRAMS; /* nothing is known of the ways */
}

/* Learns when a burst ends at the earliest, unlike the shortest one whatever its launches. */
static __always_inline void learn_end(struct tenant *x, u64 took_ns)
{
	struct kind *k = &x->kind;

	if (!k->ends_ns || (took_ns < k->ends_ns && !x->odd)) {
		k->ends_ns = took_ns;
	}
	k->ends_ns += (took_ns - min_u64(k->ends_ns, took_ns)) / 256;
}

/* Learns what the s->n bursts of this scan were like. */
static __always_inline void learn_burst(struct tenant *x, const struct account *a, u64 now)
{
	struct seen *s = &x->seen;
	struct kind *k = &x->kind;
	u64 launches = a->launches - x->launches, n = s->n;

	s->launches = launches;
	tell_kind(x, s->syncs * 16 / n + 1, launches * 16 / n + 1, n);
	k->mean_ns = average(k->mean_ns, s->bursts_ns / n + 1, n);
	k->gap_ns = average(k->gap_ns, (now - s->since_ns) / n + 1, n);
	learn_end(x, s->bursts_ns / n);
	k->lane = x->lane;
	learn_gpu(x, a, n);
}

/* Returns 1 if a counter of the account is lower than at the previous scan. */
static __always_inline int went_back(const struct tenant *x, const struct account *a)
{
	return a->bursts < x->bursts || a->launches < x->launches || a->known < x->known ||
	       a->known_ns < x->known_ns || a->span_ns < x->span_ns;
}

/* Returns 1 if the last burst may go on, so that what has ended may be a part of it. */
static __always_inline int goes_on(const struct account *a, u64 n, u64 now)
{
	return n < bursts_awaited && now < a->end_ns + burst_gap_ns;
}

/* Returns the duration of the bursts of this scan: that of their requests, or the time between
 * their launches where requests are parts of bursts. */
static __always_inline u64 bursts_ns(const struct tenant *x, const struct account *a, u64 now)
{
	return max_u64(x->seen.took_ns, min_u64(a->span_ns - x->span_ns, now - x->scanned_ns));
}

/* Learns what the requests of a latency tenant look like from the change of its statistics since
 * the last scan. A burst counts as one request: while the close delay is still too short, gBPF
 * reports each gap as the end of a request. Where there are fewer requests than bursts, requests
 * count: in a request that waits for batch the launches are far apart. Not inlined, as
 * measure_way() and choose_way(), so that the verifier goes on with one state. */
static __noinline void learn_latency(struct tenant *x, u32 t, u64 now)
{
	u64 requests = gbpf_tenant_stat(t, GBPF_STAT_REQUESTS);
	u64 syncs = gbpf_tenant_stat(t, GBPF_STAT_SYNCS);
	u64 took = gbpf_tenant_stat(t, GBPF_STAT_REQUEST_NS), n;
	struct account *a;
	u32 key = 0;

	x->seen.n = x->seen.measured = 0;
	a = gbpf_tenant_lookup(&accounts, t, &key);
	if (!a) {
		return; /* it has no maps yet, or has left */
	}
	n = a->bursts - x->bursts;
	if (requests < x->requests || !x->scanned_ns || went_back(x, a)) {
		n = 0; /* another program has the number, or two threads have counted at once */
	} else if (now < x->scanned_ns + NSEC_PER_SEC && (!n || goes_on(a, n, now))) {
		return;
	} else if (requests > x->requests) {
		x->seen.since_ns = x->scanned_ns;
		x->seen.requests = requests - x->requests;
		x->seen.syncs = syncs - x->syncs;
		x->seen.took_ns = took - x->request_ns;
		x->seen.n = min_u64(n ? n : 1, x->seen.requests); /* 0: it never pauses */
		x->seen.bursts_ns = bursts_ns(x, a, now);
		learn_burst(x, a, now);
	} else {
		return;
	}
	x->requests = requests;
	x->syncs = syncs;
	x->request_ns = took;
	x->bursts = a->bursts;
	x->span_ns = a->span_ns;
	x->launches = a->launches;
	x->known = a->known;
	x->known_ns = a->known_ns;
	x->scanned_ns = now;
}

#endif
