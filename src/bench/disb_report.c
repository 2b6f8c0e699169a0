/* What `gbpf bench disb` says of a workload: latency of each real-time task against the real-time
 * tasks together without batch in the same lane, and requests of all against unrestricted sharing
 * in the same lane. */
#include <stdio.h>
#include <string.h>

#include "bench/disb.h"

static bool is_shared(const struct disb_condition *c)
{
	return c->def->lane == LANE_MPS || c->def->lane == LANE_GBPF_SHARED;
}

/* Without gBPF, in the lane of c or else in the other: real-time tasks alone, or all. */
static const struct disb_condition *plain(const struct disb *b, const struct disb_condition *c,
					  bool batch)
{
	const struct disb_condition *other = NULL;

	for (unsigned i = 0; i < DISB_CONDITIONS; i++) {
		const struct disb_condition *p = &b->condition[i];

		if (!p->rounds || p->def->batch != batch ||
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

struct figures {
	double mean, q[3], mean_ratio, p99_ratio, rate;
	struct stats_range mean_interval;
};

static struct figures figures_of(const struct disb_condition *c, const struct disb_condition *base,
				 unsigned task)
{
	static const double at[3] = { 0.5, 0.99, 0.999 };
	const struct disb_row *r = &c->row[task];
	struct figures f = { .mean = stats_mean(r->us, r->n) };

	for (unsigned i = 0; i < 3; i++) {
		f.q[i] = stats_quantile(r->us, r->n, at[i]);
	}
	f.rate = r->seconds > 0 ? r->n / r->seconds : 0;
	f.mean_interval = stats_bootstrap_mean(r->round_mean, c->rounds, 0.95);
	if (base && base->row[task].n) {
		const struct disb_row *of = &base->row[task];

		f.mean_ratio = f.mean / stats_mean(of->us, of->n);
		f.p99_ratio = f.q[1] / stats_quantile(of->us, of->n, 0.99);
	}
	return f;
}

/* Over the tasks: means of the ratios, and requests a second. */
struct summary {
	double mean_ratio, p99_ratio, rt_rate, be_rate;
	uint64_t dropped;
};

static struct summary summarize(const struct disb *b, const struct disb_workload *w,
				const struct disb_condition *c)
{
	const struct disb_condition *base = plain(b, c, false);
	struct summary s = { 0 };
	unsigned rt = 0;

	for (unsigned i = 0; i < w->tasks; i++) {
		struct figures f = figures_of(c, base, i);

		if (!w->task[i].rt) {
			s.be_rate += f.rate;
			continue;
		}
		rt++;
		s.rt_rate += f.rate;
		s.mean_ratio += f.mean_ratio;
		s.p99_ratio += f.p99_ratio;
		s.dropped += c->row[i].dropped;
	}
	s.mean_ratio /= MAX(rt, 1);
	s.p99_ratio /= MAX(rt, 1);
	return s;
}

static double total_share(const struct disb *b, const struct disb_workload *w,
			  const struct disb_condition *c, const struct summary *s)
{
	const struct disb_condition *all = plain(b, c, true);
	struct summary of;

	if (!all || !c->def->batch) {
		return 0;
	}
	of = summarize(b, w, all);
	return of.rt_rate + of.be_rate > 0 ? (s->rt_rate + s->be_rate) / (of.rt_rate + of.be_rate)
					   : 0;
}

/* ---- the document ---- */

static json_t *task_json(const struct disb *b, const struct disb_workload *w,
			 const struct disb_condition *c, unsigned i)
{
	static const char *const loads[] = { "closed", "periodic", "poisson", "trace" };
	struct figures f = figures_of(c, plain(b, c, false), i);
	json_t *o = json_pack("{s:s, s:b, s:s, s:f, s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:[f,f]}",
			      "model", disb_models[w->task[i].model].name, "real_time",
			      (int)w->task[i].rt, "load", loads[w->task[i].load], "rate",
			      w->task[i].rate, "requests", (int)c->row[i].n, "dropped",
			      (json_int_t)c->row[i].dropped, "per_s", f.rate, "mean_us", f.mean,
			      "p50_us", f.q[0], "p99_us", f.q[1], "p99.9_us", f.q[2],
			      "mean_interval_us", f.mean_interval.low, f.mean_interval.high);

	if (w->task[i].rt && f.mean_ratio > 0) {
		json_object_set_new(o, "mean_ratio", json_real(f.mean_ratio));
		json_object_set_new(o, "p99_ratio", json_real(f.p99_ratio));
	}
	return o;
}

static void add_document(struct disb *b, const struct disb_workload *w)
{
	json_t *conditions = json_array();

	for (unsigned k = 0; k < DISB_CONDITIONS; k++) {
		const struct disb_condition *c = &b->condition[k];
		struct summary s = summarize(b, w, c);
		json_t *tasks = json_array(), *o;

		if (!c->chosen) {
			json_decref(tasks);
			continue;
		}
		for (unsigned i = 0; i < w->tasks && c->rounds; i++) {
			if (w->task[i].rt || c->def->batch) {
				json_array_append_new(tasks, task_json(b, w, c, i));
			}
		}
		o = json_pack("{s:s, s:s, s:s, s:i, s:o, s:f, s:f, s:f, s:f, s:I}", "condition",
			      c->def->name, "is", c->def->doc, "state",
			      c->broken	  ? "failed"
			      : c->rounds ? "run"
					  : "not available",
			      "rounds", (int)c->rounds, "tasks", tasks, "rt_mean_ratio",
			      s.mean_ratio, "rt_p99_ratio", s.p99_ratio, "total_per_s",
			      s.rt_rate + s.be_rate, "total_share", total_share(b, w, c, &s),
			      "rt_dropped", (json_int_t)s.dropped);
		if (c->why[0] && !(c->rounds && !c->broken)) {
			json_object_set_new(o, "why", json_string(c->why));
		}
		json_array_append_new(conditions, o);
	}
	json_array_append_new(
		b->results, json_pack("{s:s, s:o}", "workload", w->name, "conditions", conditions));
}

/* ---- the table ---- */

static void print_condition(const struct disb *b, const struct disb_workload *w,
			    const struct disb_condition *c)
{
	const struct disb_condition *base = plain(b, c, false);
	struct summary s = summarize(b, w, c);
	double share = total_share(b, w, c, &s);

	for (unsigned i = 0; i < w->tasks; i++) {
		struct figures f = figures_of(c, base, i);

		if (w->task[i].rt) {
			printf("%-5s %-12s %-8s %7u %6llu %8.2f %8.2f %8.2f %8.2f %7.3f %7.3f\n",
			       w->name, c->def->name, disb_models[w->task[i].model].name,
			       c->row[i].n, (unsigned long long)c->row[i].dropped, f.mean / 1000,
			       f.q[0] / 1000, f.q[1] / 1000, f.q[2] / 1000, f.mean_ratio,
			       f.p99_ratio);
		}
	}
	printf("%-5s %-12s all: mean %.3f, P99 %.3f of RT alone; %.1f RT/s, %.1f BE/s", w->name,
	       c->def->name, s.mean_ratio, s.p99_ratio, s.rt_rate, s.be_rate);
	if (share > 0) {
		printf(", total %.1f %% of unrestricted", 100 * share);
	}
	putchar('\n');
}

static void print_table(const struct disb *b, const struct disb_workload *w)
{
	printf("%-5s %-12s %-8s %7s %6s %8s %8s %8s %8s %7s %7s\n", "WL", "CONDITION", "RT TASK",
	       "N", "DROPS", "MEAN ms", "P50", "P99", "P99.9", "MEAN/rt", "P99/rt");
	for (unsigned k = 0; k < DISB_CONDITIONS; k++) {
		const struct disb_condition *c = &b->condition[k];

		if (c->chosen && (!c->rounds || c->broken)) {
			printf("%-5s %-12s %s: %s\n", w->name, c->def->name,
			       c->broken ? "FAILED" : "not available", c->why);
		} else if (c->chosen) {
			print_condition(b, w, c);
		}
	}
	fflush(stdout);
}

int disb_report(struct disb *b, const struct disb_workload *w)
{
	for (unsigned k = 0; k < DISB_CONDITIONS; k++) {
		for (unsigned i = 0; i < w->tasks; i++) {
			stats_sort(b->condition[k].row[i].us, b->condition[k].row[i].n);
		}
	}
	add_document(b, w);
	if (!b->world.json) {
		print_table(b, w);
	}
	return 0;
}
