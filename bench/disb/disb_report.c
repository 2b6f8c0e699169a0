/* The report of a workload of `gbpf bench disb`: latency of each real-time task against the
 * real-time tasks together without batch in the same lane, and requests of all tasks against
 * unrestricted sharing in the same lane. */
#include <stdio.h>

#include "bench/disb/disb.h"

/* ---- the document ---- */

static json_t *task_json(const struct bench_disb *b, const struct bench_disb_workload *w,
			 const struct bench_disb_condition *c, unsigned i)
{
	static const char *const loads[] = { "closed", "periodic", "poisson", "trace" };
	struct bench_disb_figures f = bench_disb_figures(c, bench_disb_plain(b, c, false), i);
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
	json_object_update_new(o, bench_disb_parts_json(&c->row[i]));
	return o;
}

static json_t *numbers_json(const double *v, unsigned n)
{
	json_t *a = json_array();

	for (unsigned i = 0; i < n; i++) {
		json_array_append_new(a, json_real(v[i]));
	}
	return a;
}

static json_t *summary_json(const struct bench_disb_summary *s)
{
	json_t *o = json_pack("{s:f, s:f, s:f, s:f, s:I, s:[f,f], s:[f,f], s:[f,f]}",
			      "rt_mean_ratio", s->mean_ratio, "rt_p99_ratio", s->p99_ratio,
			      "total_per_s", s->rt_rate + s->be_rate, "total_share", s->total_share,
			      "rt_dropped", (json_int_t)s->dropped, "rt_mean_ratio_interval",
			      s->mean_range.low, s->mean_range.high, "rt_p99_ratio_interval",
			      s->p99_range.low, s->p99_range.high, "total_share_interval",
			      s->total_range.low, s->total_range.high);

	json_object_set_new(o, "round_mean_ratios", numbers_json(s->round_mean_ratio, s->rounds));
	json_object_set_new(o, "round_p99_ratios", numbers_json(s->round_p99_ratio, s->rounds));
	return o;
}

static void add_document(struct bench_disb *b, const struct bench_disb_workload *w)
{
	json_t *conditions = json_array();

	for (unsigned k = 0; k < DISB_CONDITIONS; k++) {
		const struct bench_disb_condition *c = &b->condition[k];
		struct bench_disb_summary s = bench_disb_summary(b, w, c);
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
		o = json_pack("{s:s, s:s, s:s, s:i, s:o}", "condition", c->def->name, "is",
			      c->def->doc, "state",
			      c->broken	  ? "failed"
			      : c->rounds ? "run"
					  : "not available",
			      "rounds", (int)c->rounds, "tasks", tasks);
		json_object_update_new(o, summary_json(&s));
		if (c->why[0] && !(c->rounds && !c->broken)) {
			json_object_set_new(o, "why", json_string(c->why));
		}
		json_array_append_new(conditions, o);
	}
	json_array_append_new(
		b->results, json_pack("{s:s, s:o}", "workload", w->name, "conditions", conditions));
}

/* ---- the table ---- */

/* Returns the mean over the real-time tasks of a part's increase over the real-time tasks alone. */
static double more_us(const struct bench_disb_workload *w, const struct bench_disb_condition *c,
		      const struct bench_disb_condition *base, enum bench_disb_met met, int part)
{
	double sum = 0;
	unsigned tasks = 0;

	for (unsigned i = 0; i < w->tasks; i++) {
		const struct bench_disb_parts *p = &c->row[i].parts[met],
					      *q = &base->row[i].parts[met];

		if (w->task[i].rt && p->n && q->n) {
			sum += part < 0 ? p->took_us / p->n - q->took_us / q->n
					: p->us[part] / p->n - q->us[part] / q->n;
			tasks++;
		}
	}
	return sum / MAX(tasks, 1);
}

static void print_parts(const struct bench_disb_workload *w, const struct bench_disb_condition *c,
			const struct bench_disb_condition *base)
{
	static const char *const met[DISB_METS] = { "that met no other", "that met others" };
	unsigned n[DISB_METS] = { 0 }, stamped = 0;

	for (unsigned i = 0; i < w->tasks; i++) {
		for (unsigned m = 0; m < DISB_METS; m++) {
			n[m] += c->row[i].parts[m].n;
			stamped += c->row[i].parts[m].stamped;
		}
	}
	for (unsigned m = 0; m < DISB_METS; m++) {
		if (!n[m]) {
			continue;
		}
		printf("%-5s %-12s us more, %u %s: %+.1f", w->name, c->def->name, n[m], met[m],
		       more_us(w, c, base, m, -1));
		if (stamped) {
			printf(" = first kernel %+.1f, the next %u %+.1f, rest %+.1f",
			       more_us(w, c, base, m, PART_FIRST), PAGE_FRONT,
			       more_us(w, c, base, m, PART_FRONT),
			       more_us(w, c, base, m, PART_REST));
		}
		printf("; begun %+.1f later\n", more_us(w, c, base, m, PART_LATE));
	}
}

static void print_ratio(const char *what, double v, struct bench_stats_range r, unsigned rounds)
{
	printf("%s %.3f", what, v);
	if (rounds > 1) {
		printf(" (%.3f-%.3f)", r.low, r.high);
	}
}

static void print_condition(const struct bench_disb *b, const struct bench_disb_workload *w,
			    const struct bench_disb_condition *c)
{
	const struct bench_disb_condition *base = bench_disb_plain(b, c, false);
	struct bench_disb_summary s = bench_disb_summary(b, w, c);

	for (unsigned i = 0; i < w->tasks; i++) {
		struct bench_disb_figures f = bench_disb_figures(c, base, i);

		if (w->task[i].rt) {
			printf("%-5s %-12s %-8s %7u %6llu %8.2f %8.2f %8.2f %8.2f %7.3f %7.3f\n",
			       w->name, c->def->name, disb_models[w->task[i].model].name,
			       c->row[i].n, (unsigned long long)c->row[i].dropped, f.mean / 1000,
			       f.q[0] / 1000, f.q[1] / 1000, f.q[2] / 1000, f.mean_ratio,
			       f.p99_ratio);
		}
	}
	printf("%-5s %-12s all: ", w->name, c->def->name);
	if (base && base != c) {
		print_ratio("mean", s.mean_ratio, s.mean_range, s.rounds);
		print_ratio(", P99", s.p99_ratio, s.p99_range, s.rounds);
		printf(" of RT alone; ");
	}
	printf("%.1f RT/s, %.1f BE/s", s.rt_rate, s.be_rate);
	if (s.total_share > 0 && c != bench_disb_plain(b, c, true)) {
		print_ratio(", total", s.total_share, s.total_range, s.rounds);
		printf(" of unrestricted");
	}
	putchar('\n');
	if (base && base != c) {
		print_parts(w, c, base);
	}
}

static void print_table(const struct bench_disb *b, const struct bench_disb_workload *w)
{
	printf("%-5s %-12s %-8s %7s %6s %8s %8s %8s %8s %7s %7s\n", "WL", "CONDITION", "RT TASK",
	       "N", "DROPS", "MEAN ms", "P50", "P99", "P99.9", "MEAN/rt", "P99/rt");
	for (unsigned k = 0; k < DISB_CONDITIONS; k++) {
		const struct bench_disb_condition *c = &b->condition[k];

		if (c->chosen && (!c->rounds || c->broken)) {
			printf("%-5s %-12s %s: %s\n", w->name, c->def->name,
			       c->broken ? "FAILED" : "not available", c->why);
		} else if (c->chosen) {
			print_condition(b, w, c);
		}
	}
	fflush(stdout);
}

int bench_disb_report(struct bench_disb *b, const struct bench_disb_workload *w)
{
	add_document(b, w);
	if (!b->testbed.json) {
		print_table(b, w);
	}
	return 0;
}
