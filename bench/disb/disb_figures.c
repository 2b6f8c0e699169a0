/* Figures of DISB's conditions: the time of each real-time task divided by its time among the
 * real-time tasks alone, the means of these ratios, and their variation over rounds: both
 * conditions have a turn in every round, so rounds are resampled with their pairs. */
#include <stdlib.h>
#include <string.h>

#include "bench/disb/disb.h"

#define DRAWS 1000u
#define SEED 0x9e3779b97f4a7c15ull

static bool is_shared(const struct bench_disb_condition *c)
{
	return c->def->lane == LANE_MPS || c->def->lane == LANE_GBPF_SHARED;
}

const struct bench_disb_condition *
bench_disb_plain(const struct bench_disb *b, const struct bench_disb_condition *c, bool batch)
{
	const struct bench_disb_condition *other = NULL;

	for (unsigned i = 0; i < DISB_CONDITIONS; i++) {
		const struct bench_disb_condition *p = &b->condition[i];

		if (!p->rounds || p->def->batch != batch || p->def->again ||
		    (p->def->lane != LANE_OWN && p->def->lane != LANE_MPS)) {
			continue;
		}
		if (is_shared(p) == is_shared(c)) {
			return p;
		}
		other = p;
	}
	return other;
}

/* Computes mean and P99 of a task over some of the rounds, concatenated in sorted[]. */
static void of_rounds(const struct bench_disb_row *r, const unsigned *round, unsigned rounds,
		      double *sorted, double *ret_mean, double *ret_p99)
{
	unsigned n = 0;

	for (unsigned i = 0; i < rounds; i++) {
		unsigned from = r->from[round[i]], count = r->from[round[i] + 1] - from;

		if (count) {
			memcpy(&sorted[n], &r->us[from], count * sizeof(*sorted));
			n += count;
		}
	}
	*ret_mean = bench_stats_mean(sorted, n);
	bench_stats_sort(sorted, n);
	*ret_p99 = bench_stats_quantile(sorted, n, 0.99);
}

struct bench_disb_figures bench_disb_figures(const struct bench_disb_condition *c,
					     const struct bench_disb_condition *base, unsigned task)
{
	static const double at[3] = { 0.5, 0.99, 0.999 };
	const struct bench_disb_row *r = &c->row[task];
	struct bench_disb_figures f = { .mean = bench_stats_mean(r->us, r->n) };
	double *sorted = malloc((r->n + 1) * sizeof(double));
	double base_mean = 0, base_p99 = 0;

	if (!sorted) {
		return f;
	}
	memcpy(sorted, r->us ? r->us : sorted, r->n * sizeof(double));
	bench_stats_sort(sorted, r->n);
	for (unsigned i = 0; i < 3; i++) {
		f.q[i] = bench_stats_quantile(sorted, r->n, at[i]);
	}
	free(sorted);
	f.rate = r->seconds > 0 ? r->n / r->seconds : 0;
	f.mean_interval = bench_stats_bootstrap_mean(r->round_mean, c->rounds, 0.95);
	if (base && base->row[task].n) {
		unsigned all[DISB_ROUNDS];
		double *of = malloc(base->row[task].n * sizeof(double));

		for (unsigned i = 0; i < DISB_ROUNDS; i++) {
			all[i] = i;
		}
		if (of) {
			of_rounds(&base->row[task], all, base->rounds, of, &base_mean, &base_p99);
		}
		free(of);
		f.mean_ratio = base_mean > 0 ? f.mean / base_mean : 0;
		f.p99_ratio = base_p99 > 0 ? f.q[1] / base_p99 : 0;
	}
	return f;
}

/* Computes the means of the tasks' ratios over some rounds. */
static void ratios(const struct bench_disb_workload *w, const struct bench_disb_condition *c,
		   const struct bench_disb_condition *base, const unsigned *round, unsigned rounds,
		   double *room, double *ret_mean, double *ret_p99)
{
	unsigned rt = 0;

	*ret_mean = *ret_p99 = 0;
	for (unsigned i = 0; i < w->tasks; i++) {
		double mean, p99, of_mean, of_p99;

		if (!w->task[i].rt) {
			continue;
		}
		of_rounds(&c->row[i], round, rounds, room, &mean, &p99);
		of_rounds(&base->row[i], round, rounds, room, &of_mean, &of_p99);
		if (of_mean > 0 && of_p99 > 0) {
			*ret_mean += mean / of_mean;
			*ret_p99 += p99 / of_p99;
			rt++;
		}
	}
	*ret_mean /= MAX(rt, 1);
	*ret_p99 /= MAX(rt, 1);
}

static unsigned most_requests(const struct bench_disb_workload *w,
			      const struct bench_disb_condition *c)
{
	unsigned most = 0;

	for (unsigned i = 0; i < w->tasks; i++) {
		for (unsigned r = 0; r < c->rounds; r++) {
			most = MAX(most, c->row[i].from[r + 1] - c->row[i].from[r]);
		}
	}
	return most;
}

static void draw_rounds(const struct bench_disb_workload *w, const struct bench_disb_condition *c,
			const struct bench_disb_condition *base, double *room,
			struct bench_disb_summary *s)
{
	static double mean[DRAWS], p99[DRAWS];
	uint64_t seed = SEED;

	for (unsigned r = 0; r < s->rounds; r++) {
		ratios(w, c, base, &r, 1, room, &s->round_mean_ratio[r], &s->round_p99_ratio[r]);
	}
	for (unsigned k = 0; k < DRAWS; k++) {
		unsigned round[DISB_ROUNDS];

		for (unsigned r = 0; r < s->rounds; r++) {
			round[r] = (unsigned)((bench_stats_random(&seed) >> 33) % s->rounds);
		}
		ratios(w, c, base, round, s->rounds, room, &mean[k], &p99[k]);
	}
	bench_stats_sort(mean, DRAWS);
	bench_stats_sort(p99, DRAWS);
	s->mean_range = (struct bench_stats_range){ bench_stats_quantile(mean, DRAWS, 0.025),
						    bench_stats_quantile(mean, DRAWS, 0.975) };
	s->p99_range = (struct bench_stats_range){ bench_stats_quantile(p99, DRAWS, 0.025),
						   bench_stats_quantile(p99, DRAWS, 0.975) };
}

static void add_rates(const struct bench_disb_workload *w, const struct bench_disb_condition *c,
		      double rate[DISB_ROUNDS])
{
	for (unsigned r = 0; r < c->rounds; r++) {
		for (unsigned i = 0; i < w->tasks; i++) {
			rate[r] += c->row[i].round_rate[r];
		}
	}
}

static void share_of_all(const struct bench_disb *b, const struct bench_disb_workload *w,
			 const struct bench_disb_condition *c, struct bench_disb_summary *s)
{
	const struct bench_disb_condition *all =
		c->def->batch ? bench_disb_plain(b, c, true) : NULL;
	double mine[DISB_ROUNDS] = { 0 }, of[DISB_ROUNDS] = { 0 };
	unsigned n = all ? MIN(all->rounds, c->rounds) : 0;

	if (n) {
		add_rates(w, c, mine);
		add_rates(w, all, of);
		s->total_share = bench_stats_mean(mine, n) / MAX(bench_stats_mean(of, n), 1e-9);
		s->total_range = bench_stats_bootstrap_ratio(mine, of, n, 0.95);
	}
}

struct bench_disb_summary bench_disb_summary(const struct bench_disb *b,
					     const struct bench_disb_workload *w,
					     const struct bench_disb_condition *c)
{
	const struct bench_disb_condition *base = bench_disb_plain(b, c, false);
	struct bench_disb_summary s = { .rounds = base ? MIN(base->rounds, c->rounds) : 0 };
	double *room;

	for (unsigned i = 0; i < w->tasks; i++) {
		const struct bench_disb_row *r = &c->row[i];

		*(w->task[i].rt ? &s.rt_rate : &s.be_rate) +=
			r->seconds > 0 ? r->n / r->seconds : 0;
		s.dropped += w->task[i].rt ? r->dropped : 0;
	}
	room = s.rounds ? malloc((MAX(most_requests(w, c), most_requests(w, base)) + 1) * s.rounds *
				 sizeof(double))
			: NULL;
	if (room) {
		static const unsigned all[DISB_ROUNDS] = { 0, 1, 2,  3,	 4,  5,	 6,  7,
							   8, 9, 10, 11, 12, 13, 14, 15 };

		ratios(w, c, base, all, s.rounds, room, &s.mean_ratio, &s.p99_ratio);
		draw_rounds(w, c, base, room, &s);
	}
	free(room);
	share_of_all(b, w, c, &s);
	return s;
}
