/* Counters since the beginning of a window, from the tenants' statistics pages: each page is
 * compared with its state when the window began or its tenant connected. Tenants that leave are
 * added to a sum. A counter that runs backwards counts as zero: a tenant can falsify its own
 * numbers only. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "daemon/policy/policies.h"
#include "daemon/watch/watch_int.h"

#define WORD_MAX (UINT64_C(1) << 48) /* so that no sum overflows */
#define RATE_FROM_NS 1000000000u     /* a rate is known after a second */
#define QUANTILE_LEAST 10u /* requests needed for a quantile, or as many as put one beyond it */

static void read_page(const struct daemon_session *s, struct daemon_window_sum *at)
{
	const struct proto_stats *st = s->stats.map;

#define READ(name) at->counter[DAEMON_WINDOW_##name] = min_once(load_relaxed(&st->name), WORD_MAX)
	READ(requests);
	READ(launches);
	READ(copies);
	READ(holds);
	READ(deferred);
	READ(limit_hits);
	READ(helper_errors);
	READ(verdict_errors);
	READ(held_ns);
	READ(busy_ns);
#undef READ
	for (unsigned i = 0; i < PROTO_HIST_BUCKETS; i++) {
		at->hist[i] = min_once(load_relaxed(&st->request_hist[i]), WORD_MAX);
	}
}

static bool counts(const struct daemon_window *w, const struct daemon_session *s)
{
	return s->state == DAEMON_SESSION_READY && s->tenant >= 0 && s->stats.map &&
	       (s->gpu_mask & w->gpu_mask);
}

/* Returns the base of a tenant. Pages of tenants that connected after the beginning started with
 * zeros; those of tenants that reattached did not. */
static struct daemon_window_base *base_of(struct daemon_window *w, const struct daemon_session *s,
					  uint64_t now)
{
	struct daemon_window_base **b = &w->base[s->tenant];

	if (*b && (*b)->connected_ns == s->connected_ns) {
		return *b;
	}
	free(*b);
	*b = calloc(1, sizeof(**b));
	if (*b) {
		(*b)->connected_ns = s->connected_ns;
		(*b)->since_ns = MAX(s->connected_ns, w->begin_ns);
		if (s->connected_ns <= w->begin_ns || s->hello.reattached) {
			read_page(s, &(*b)->at);
			(*b)->since_ns = now;
		}
	}
	return *b;
}

static void add_since(struct daemon_window_sum *sum, const struct daemon_session *s,
		      const struct daemon_window_base *b, uint64_t now)
{
	struct daemon_window_sum at;

	read_page(s, &at);
	for (unsigned i = 0; i < DAEMON_WINDOW_COUNTERS; i++) {
		sum->counter[i] +=
			at.counter[i] > b->at.counter[i] ? at.counter[i] - b->at.counter[i] : 0;
	}
	for (unsigned i = 0; i < PROTO_HIST_BUCKETS; i++) {
		sum->hist[i] += at.hist[i] > b->at.hist[i] ? at.hist[i] - b->at.hist[i] : 0;
	}
	sum->present_ns += now > b->since_ns ? now - b->since_ns : 0;
}

static void add_sum(struct daemon_window_sum *to, const struct daemon_window_sum *from)
{
	for (unsigned i = 0; i < DAEMON_WINDOW_COUNTERS; i++) {
		to->counter[i] += from->counter[i];
	}
	for (unsigned i = 0; i < PROTO_HIST_BUCKETS; i++) {
		to->hist[i] += from->hist[i];
	}
	to->present_ns += from->present_ns;
}

void daemon_window_begin(struct daemon_window *w, struct daemon *d, uint32_t gpu_mask, uint64_t now)
{
	*w = (struct daemon_window){ .d = d,
				     .gpu_mask = gpu_mask,
				     .begin_ns = now,
				     .tick_overruns = d->counters.tick_overruns,
				     .late = d->counters.late,
				     .failed_prepares = d->counters.failed_prepares,
				     .verdict_errors = d->counters.verdict_errors };
	daemon_session_each(d, s)
	{
		if (counts(w, s)) {
			base_of(w, s, now);
		}
	}
}

void daemon_window_finish(struct daemon_window *w)
{
	for (unsigned i = 0; i < PROTO_MAX_TENANTS; i++) {
		free(w->base[i]);
		w->base[i] = NULL;
	}
}

void daemon_window_session_ended(struct daemon_window *w, const struct daemon_session *s)
{
	if (counts(w, s)) {
		uint64_t now = clock_now_ns();
		const struct daemon_window_base *b = base_of(w, s, now);

		if (b) {
			add_since(&w->gone[MIN(s->class_id, DAEMON_WATCH_CLASSES - 1)], s, b, now);
		}
	}
	if (s->tenant >= 0) {
		free(w->base[s->tenant]);
		w->base[s->tenant] = NULL;
	}
}

/* ---- values of terms ---- */

static bool is_tenant(const struct daemon_session *s, const char *name)
{
	char *end;
	unsigned long n = strtoul(name, &end, 10);

	return strcmp(s->name, name) == 0 || (!*end && (int)n == s->tenant);
}

static bool chosen(const struct daemon_window *w, const struct daemon_watch_term *t,
		   const struct daemon_session *s)
{
	return counts(w, s) && (t->class_id == DAEMON_WATCH_ANY || s->class_id == t->class_id) &&
	       (!t->tenant[0] || is_tenant(s, t->tenant));
}

static void sum_of(struct daemon_window *w, const struct daemon_watch_term *t, uint64_t now,
		   struct daemon_window_sum *sum)
{
	memset(sum, 0, sizeof(*sum));
	daemon_session_each(w->d, s)
	{
		const struct daemon_window_base *b = chosen(w, t, s) ? base_of(w, s, now) : NULL;

		if (b) {
			add_since(sum, s, b, now);
		}
	}
	for (unsigned c = 0; c < DAEMON_WATCH_CLASSES && !t->tenant[0]; c++) {
		if (t->class_id == DAEMON_WATCH_ANY || t->class_id == c) {
			add_sum(sum, &w->gone[c]);
		}
	}
}

/* Interpolates between the bounds of the bucket that contains the quantile. With too few requests
 * for it (a bad policy may let few end) the highest known one is a lower bound: enough to find the
 * quantile too large, not to find it small. */
static double quantile(const struct daemon_window_sum *sum, const struct daemon_watch_term *t)
{
	bool max = t->metric == DAEMON_WATCH_max,
	     above = t->op == DAEMON_WATCH_GT || t->op == DAEMON_WATCH_GE;
	uint64_t total = 0, seen = 0;
	double want, q = t->quantile;

	for (unsigned i = 0; i < PROTO_HIST_BUCKETS; i++) {
		total += sum->hist[i];
	}
	if ((double)total < (max ? 1 : QUANTILE_LEAST)) {
		return NAN;
	}
	if (!max && (double)total < ceil(1 / (1 - q) - 1e-9)) {
		if (!above) {
			return NAN;
		}
		q = 1 - 1 / (double)total;
	}
	want = max ? (double)total : q * (double)total;
	for (unsigned i = 0; i < PROTO_HIST_BUCKETS; i++) {
		uint64_t n = sum->hist[i];

		if (n && (double)(seen + n) >= want) {
			double low = (double)proto_hist_floor(i);
			double high = (double)proto_hist_floor(i + 1);
			double part = (want - (double)seen) / (double)n;

			return max ? low : low + (high - low) * MAX(part, 0.0);
		}
		seen += n;
	}
	return NAN;
}

static double note_of(struct daemon_window *w, const struct daemon_watch_term *t, uint64_t version)
{
	uint64_t n = 0;

	if (!daemon_version_find(w->d, version)) {
		return NAN;
	}
	for (const struct daemon_version *l = daemon_policy_next_live(w->d, NULL); l; l = l->next) {
		if (t->class_id == DAEMON_WATCH_ANY && !t->tenant[0] && l->version == version) {
			n += load_relaxed(&l->run.env.notes[t->note]);
		}
	}
	daemon_session_each(w->d, s)
	{
		const struct proto_stats *st = s->stats.map;

		if (chosen(w, t, s) && load_acquire(&st->notes_version) == version) {
			n += load_relaxed(&st->notes[t->note]);
		}
	}
	return (double)n;
}

static enum daemon_window_counter counter_of(enum daemon_watch_metric m)
{
	switch (m) {
	case DAEMON_WATCH_requests:
		return DAEMON_WINDOW_requests;
	case DAEMON_WATCH_copies:
		return DAEMON_WINDOW_copies;
	case DAEMON_WATCH_holds:
		return DAEMON_WINDOW_holds;
	case DAEMON_WATCH_deferred:
		return DAEMON_WINDOW_deferred;
	case DAEMON_WATCH_limit_hits:
		return DAEMON_WINDOW_limit_hits;
	case DAEMON_WATCH_helper_errors:
		return DAEMON_WINDOW_helper_errors;
	case DAEMON_WATCH_verdict_errors:
		return DAEMON_WINDOW_verdict_errors;
	case DAEMON_WATCH_held:
		return DAEMON_WINDOW_held_ns;
	case DAEMON_WATCH_busy:
		return DAEMON_WINDOW_busy_ns;
	default:
		return DAEMON_WINDOW_launches;
	}
}

static double value_of(struct daemon_window *w, const struct daemon_watch_term *t, uint64_t version,
		       uint64_t now)
{
	const struct daemon_counters *c = &w->d->counters;
	struct daemon_window_sum sum;
	double v;

	switch (t->metric) {
	case DAEMON_WATCH_note:
		return note_of(w, t, version);
	case DAEMON_WATCH_tick_overruns:
		return (double)(c->tick_overruns - w->tick_overruns);
	case DAEMON_WATCH_late:
		return (double)(c->late - w->late);
	case DAEMON_WATCH_failed_prepares:
		return (double)(c->failed_prepares - w->failed_prepares);
	default:
		break;
	}
	sum_of(w, t, now, &sum);
	if (t->metric == DAEMON_WATCH_quantile || t->metric == DAEMON_WATCH_max) {
		return quantile(&sum, t);
	}
	v = (double)sum.counter[counter_of(t->metric)];
	if (t->metric == DAEMON_WATCH_verdict_errors && t->class_id == DAEMON_WATCH_ANY &&
	    !t->tenant[0]) {
		v += (double)(c->verdict_errors - w->verdict_errors);
	}
	if (t->percent) {
		return sum.present_ns ? v / (double)sum.present_ns : NAN;
	}
	return v;
}

void daemon_window_evaluate(struct daemon_window *w, const struct daemon_watch_expr *e,
			    uint64_t version, uint64_t now, double value[DAEMON_WATCH_TERMS])
{
	double seconds = (double)(now - w->begin_ns) / 1e9;

	for (unsigned i = 0; i < e->n_terms; i++) {
		value[i] = value_of(w, &e->term[i], version, now);
		if (e->term[i].per_second) {
			value[i] = now - w->begin_ns >= RATE_FROM_NS ? value[i] / seconds : NAN;
		}
	}
}
