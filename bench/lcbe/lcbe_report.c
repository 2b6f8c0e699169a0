/* The report of `gbpf bench lcbe`: the figures of each condition and kind, as a table, a document
 * and curves. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/common/chart.h"
#include "bench/lcbe/lcbe.h"

/* ---- figures ---- */

static const char *kind_name(const struct bench_lcbe *b, unsigned kind)
{
	return b->set.lc_cmd ? "command" : lcbe_kind_names[kind];
}

static bool is_shared(const struct bench_lcbe_condition *c)
{
	return c->def->lane == LANE_GBPF_AUTO
		       ? c->shared
		       : c->def->lane == LANE_MPS || c->def->lane == LANE_GBPF_SHARED;
}

static const struct bench_lcbe_condition *find(const struct bench_lcbe *b, bool shared, bool batch)
{
	for (unsigned i = 0; i < LCBE_CONDITIONS; i++) {
		const struct bench_lcbe_condition *c = &b->condition[i];

		if (c->rounds && c->def->batch == batch && !c->def->priority && !c->def->brief &&
		    is_shared(c) == shared) {
			return c;
		}
	}
	return NULL;
}

/* Returns the reference of c: alone in the same lane, or, if that was not run, in the process lane;
 * NULL: neither was run. */
static const struct bench_lcbe_condition *alone_of(const struct bench_lcbe *b,
						   const struct bench_lcbe_condition *c)
{
	const struct bench_lcbe_condition *same = find(b, is_shared(c), false);

	return same ? same : find(b, false, false);
}

/* Returns the condition without gBPF in the same lane, or c itself if that was not run. */
static const struct bench_lcbe_condition *plain_batch(const struct bench_lcbe *b,
						      const struct bench_lcbe_condition *c)
{
	const struct bench_lcbe_condition *same = find(b, is_shared(c), true);

	return same ? same : c;
}

static int pool(const struct bench_lcbe_condition *c, unsigned kind, struct bench_lcbe_result *r)
{
	double round_q[3][LCBE_ROUNDS];
	unsigned n = 0;

	for (unsigned k = 0; k < c->rounds; k++) {
		n += c->cell[kind][k].n;
	}
	r->us = calloc(n ? n : 1, sizeof(double));
	if (!r->us) {
		return -ENOMEM;
	}
	for (unsigned k = 0; k < c->rounds; k++) {
		const struct bench_lcbe_cell *cell = &c->cell[kind][k];

		memcpy(r->us + r->n, cell->us, cell->n * sizeof(double));
		r->n += cell->n;
		bench_stats_sort(cell->us, cell->n);
		for (unsigned i = 0; i < 3; i++) {
			round_q[i][k] = bench_stats_quantile(cell->us, cell->n, lcbe_at[i]);
		}
	}
	bench_stats_sort(r->us, r->n);
	for (unsigned i = 0; i < 3; i++) {
		r->q[i] = bench_stats_quantile(r->us, r->n, lcbe_at[i]);
		r->sure[i] = bench_stats_quantile_interval(r->us, r->n, lcbe_at[i], LCBE_CONFIDENCE,
							   &r->interval[i]);
		r->spread[i] = bench_stats_extremes(round_q[i], c->rounds);
	}
	return 0;
}

/* Computes batch's share in each round: its work divided by its work alone in the time that
 * requests leave. */
static void share(const struct bench_lcbe *b, const struct bench_lcbe_condition *c, unsigned kind,
		  double alone_us, struct bench_lcbe_result *r)
{
	const struct bench_lcbe_condition *plain = plain_batch(b, c);
	double did[LCBE_ROUNDS], could[LCBE_ROUNDS], each[LCBE_ROUNDS];
	double seconds = 0, begun = 0, all_did = 0, all_could = 0;
	unsigned n = MIN(c->rounds, plain->rounds);

	for (unsigned k = 0; k < n; k++) {
		const struct bench_lcbe_cell *cell = &c->cell[kind][k];
		double left = 1 - cell->n * alone_us * 1e-6 / cell->seconds;

		did[k] = cell->begun;
		could[k] = plain->alone[k] * cell->seconds * MAX(left, 0.01);
		each[k] = could[k] > 0 ? did[k] / could[k] : 0;
		seconds += cell->seconds;
		begun += cell->begun;
		all_did += did[k];
		all_could += could[k];
		r->busy += cell->n * alone_us * 1e-6;
	}
	r->busy = seconds > 0 ? r->busy / seconds : 0;
	r->batch_rate = seconds > 0 ? begun / seconds : 0;
	if (all_could > 0) {
		r->share = all_did / all_could;
		r->share_interval = bench_stats_bootstrap_ratio(did, could, n, LCBE_CONFIDENCE);
		r->share_spread = bench_stats_extremes(each, n);
	}
}

static int evaluate(struct bench_lcbe *b)
{
	for (unsigned i = 0; i < LCBE_CONDITIONS; i++) {
		for (unsigned k = 0; k < PAGE_KINDS; k++) {
			if (b->set.kind[k] && pool(&b->condition[i], k, &b->result[i][k]) < 0) {
				return bench_testbed_fail(&b->testbed, "no memory");
			}
		}
	}
	for (unsigned i = 0; i < LCBE_CONDITIONS; i++) {
		const struct bench_lcbe_condition *c = &b->condition[i];
		const struct bench_lcbe_condition *a = alone_of(b, c);

		for (unsigned k = 0; a && c->rounds && k < PAGE_KINDS; k++) {
			struct bench_lcbe_result *r = &b->result[i][k];
			const struct bench_lcbe_result *of = &b->result[a - b->condition][k];

			if (!r->n || !of->n) {
				continue;
			}
			for (unsigned q = 0; q < 3; q++) {
				r->ratio[q] = r->q[q] / of->q[q];
			}
			if (c->def->batch) {
				share(b, c, k, of->q[0], r);
			}
		}
	}
	return 0;
}

/* ---- the document ---- */

static json_t *range_json(struct bench_stats_range r)
{
	return json_pack("[f, f]", r.low, r.high);
}

static json_t *kind_json(const struct bench_lcbe *b, const struct bench_lcbe_condition *c,
			 unsigned kind, const struct bench_lcbe_result *r)
{
	static const char *const names[3] = { "p50", "p99", "p99.9" };
	json_t *o = json_pack("{s:s, s:i}", "kind", kind_name(b, kind), "requests", (int)r->n);
	json_t *rounds = json_array();

	for (unsigned i = 0; i < 3; i++) {
		json_object_set_new(o, names[i],
				    json_pack("{s:f, s:o, s:b, s:o}", "us", r->q[i], "interval",
					      range_json(r->interval[i]), "both_ends",
					      (int)r->sure[i], "rounds", range_json(r->spread[i])));
		if (r->ratio[i] > 0) {
			json_object_set_new(json_object_get(o, names[i]), "ratio",
					    json_real(r->ratio[i]));
		}
	}
	for (unsigned k = 0; k < c->rounds; k++) {
		const struct bench_lcbe_cell *cell = &c->cell[kind][k];

		json_array_append_new(
			rounds, json_pack("{s:i, s:f, s:f, s:f, s:f}", "requests", (int)cell->n,
					  "seconds", cell->seconds, "batch_kernels", cell->begun,
					  "p50_us", bench_stats_quantile(cell->us, cell->n, 0.5),
					  "p99_us", bench_stats_quantile(cell->us, cell->n, 0.99)));
	}
	json_object_set_new(o, "rounds", rounds);
	if (c->def->batch && r->share > 0) {
		json_object_set_new(o, "batch",
				    json_pack("{s:f, s:f, s:f, s:o, s:o}", "kernels_per_s",
					      r->batch_rate, "busy", r->busy, "share", r->share,
					      "interval", range_json(r->share_interval), "rounds",
					      range_json(r->share_spread)));
	}
	return o;
}

static json_t *condition_json(const struct bench_lcbe *b, unsigned i)
{
	static const char *const states[] = { "out", "run", "not available", "failed" };
	const struct bench_lcbe_condition *c = &b->condition[i], *a = alone_of(b, c);
	json_t *kinds = json_array();
	json_t *o = json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:o}", "condition", c->def->name,
			      "is", c->def->doc, "state", states[c->state], "rounds",
			      (int)c->rounds, "checked", (json_int_t)c->checked, "wrong",
			      (json_int_t)c->wrong, "kinds", kinds);

	if (c->why[0]) {
		json_object_set_new(o, "why", json_string(c->why));
	}
	if (a && c->rounds) {
		json_object_set_new(o, "alone", json_string(a->def->name));
	}
	if (c->cpu_seconds > 0) {
		json_object_set_new(o, "cores_of_other_threads",
				    json_pack("{s:f, s:f}", "latency",
					      c->cpu_ns[0] * 1e-9 / c->cpu_seconds, "batch",
					      c->cpu_ns[1] * 1e-9 / c->cpu_seconds));
	}
	if (c->tenants) {
		json_object_set(o, "tenants", c->tenants);
	}
	if (c->def->batch && c->rounds) {
		json_object_set_new(o, "batch_alone_per_s",
				    json_real(bench_stats_mean(c->alone, c->rounds)));
	}
	for (unsigned k = 0; k < PAGE_KINDS && c->rounds; k++) {
		if (b->set.kind[k]) {
			json_array_append_new(kinds, kind_json(b, c, k, &b->result[i][k]));
		}
	}
	return o;
}

static json_t *document(const struct bench_lcbe *b)
{
	const struct bench_lcbe_settings *s = &b->set;
	json_t *conditions = json_array();
	json_t *o = json_pack(
		"{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:b, s:f, s:s, s:o}",
		"schema", "gbpf.bench.lcbe/1", "device", b->device, "policy", s->policy_name,
		"multiprocessors", (int)b->sms, "rounds", (int)s->rounds, "batch_clients",
		(int)s->batch_clients, "streams", (int)s->streams, "depth", (int)s->depth,
		"threads", (int)s->threads, "grid", (int)s->grid, "block_us", b->block_us[1],
		"lc_block_us", b->block_us[0], "default_stream", (int)s->default_stream,
		"confidence", LCBE_CONFIDENCE, "intervals",
		"quantiles: order statistics of all requests; share: bootstrap over rounds",
		"conditions", conditions);

	for (unsigned i = 0; i < LCBE_CONDITIONS; i++) {
		if (b->condition[i].state != LCBE_OUT) {
			json_array_append_new(conditions, condition_json(b, i));
		}
	}
	return o;
}

/* ---- the table ---- */

static void print_row(const struct bench_lcbe *b, const struct bench_lcbe_condition *c,
		      unsigned kind, const struct bench_lcbe_result *r, FILE *to)
{
	fprintf(to, "%-13s %-7s %6u", c->def->name, kind_name(b, kind), r->n);
	for (unsigned i = 0; i < 3; i++) {
		fprintf(to, " %9.1f", r->q[i]);
	}
	for (unsigned i = 0; i < 2; i++) {
		char range[40];

		snprintf(range, sizeof(range), "%.1f-%.1f%s", r->interval[i].low,
			 r->interval[i].high, r->sure[i] ? "" : "+");
		fprintf(to, " %17s", range);
	}
	if (r->ratio[0] > 0) {
		fprintf(to, " %6.2f %6.2f", r->ratio[0], r->ratio[1]);
	} else {
		fprintf(to, " %6s %6s", "-", "-");
	}
	if (c->def->batch && r->share > 0) {
		fprintf(to, " %6.1f %5.1f-%.1f", 100 * r->share, 100 * r->share_interval.low,
			100 * r->share_interval.high);
	}
	putc('\n', to);
}

/* Prints gbpfd's counters of batch since its clients began. */
static void print_treatment(const struct bench_lcbe_condition *c, FILE *to)
{
	static const char *const names[] = { "launches", "block_launches", "interruptions",
					     "forced",	 "holds",	   "limit_hits" };
	static const char *const words[] = { "launches", "at block level", "interruptions",
					     "forced",	 "holds",	   "over the limit" };
	const json_t *t;
	size_t i;

	json_array_foreach(c->tenants, i, t)
	{
		const char *class_name = json_string_value(json_object_get(t, "class"));
		const json_t *stats = json_object_get(t, "stats");

		if (!class_name || strcmp(class_name, "batch") != 0) {
			continue;
		}
		fprintf(to, "%-13s batch:", c->def->name);
		for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
			fprintf(to, "%s %lld %s", k ? "," : "",
				(long long)json_integer_value(json_object_get(stats, names[k])),
				words[k]);
		}
		putc('\n', to);
	}
	if (c->tenants && c->cpu_seconds > 0) {
		fprintf(to,
			"%-13s threads of gBPF and CUDA: %.1f %% of a core in the latency client, "
			"%.1f %% in batch\n",
			c->def->name, c->cpu_ns[0] * 1e-7 / c->cpu_seconds,
			c->cpu_ns[1] * 1e-7 / c->cpu_seconds);
	}
}

static void print_table(const struct bench_lcbe *b, FILE *to)
{
	if (b->set.lc_cmd) {
		fprintf(to, "%s; %u round%s; policy %s\n", b->device, b->set.rounds,
			PLURAL(b->set.rounds), b->set.policy_name);
	} else {
		fprintf(to,
			"%s; %u round%s; requests: %u blocks of %.1f us; batch: %u x %u stream%s, "
			"%u blocks of %.1f us, policy %s\n",
			b->device, b->set.rounds, PLURAL(b->set.rounds), b->sms, b->block_us[0],
			b->set.batch_clients, b->set.streams, PLURAL(b->set.streams), b->set.grid,
			b->block_us[1], b->set.policy_name);
	}
	fprintf(to, "%-13s %-7s %6s %9s %9s %9s %17s %17s %6s %6s %6s %s\n", "CONDITION", "KIND",
		"N", "P50 us", "P99", "P99.9", "P50 95 %", "P99 95 %", "P50/al", "P99/al", "BATCH%",
		"95 %");
	for (unsigned i = 0; i < LCBE_CONDITIONS; i++) {
		const struct bench_lcbe_condition *c = &b->condition[i];

		for (unsigned k = 0; k < PAGE_KINDS; k++) {
			if (b->set.kind[k] && b->result[i][k].n) {
				print_row(b, c, k, &b->result[i][k], to);
			}
		}
		print_treatment(c, to);
		if (c->state == LCBE_NOT_AVAILABLE || c->state == LCBE_BROKEN) {
			fprintf(to, "%-13s %s: %s\n", c->def->name,
				c->state == LCBE_BROKEN ? "FAILED" : "not available", c->why);
		}
	}
	fputs("BATCH%: of its plain rate alone in the lane times the time that requests leave; 95 "
	      "%: order statistics\n"
	      "of the requests, bootstrap over rounds for BATCH%; al: alone in the lane\n",
	      to);
}

/* ---- curves ---- */

static unsigned curves(const struct bench_lcbe *b, unsigned kind, struct bench_chart_curve *curve)
{
	unsigned n = 0;

	for (unsigned i = 0; i < LCBE_CONDITIONS; i++) {
		if (b->result[i][kind].n) {
			curve[n++] = (struct bench_chart_curve){ b->condition[i].def->name,
								 b->result[i][kind].us,
								 b->result[i][kind].n };
		}
	}
	return n;
}

static void chart_title(const struct bench_lcbe *b, unsigned kind, char out[160])
{
	snprintf(out, 160, "%s, requests of kind %s: latency in us", b->device, kind_name(b, kind));
}

static int write_svg(struct bench_lcbe *b)
{
	struct bench_chart_panel panel[PAGE_KINDS];
	struct bench_chart_curve curve[PAGE_KINDS][LCBE_CONDITIONS];
	char title[PAGE_KINDS][160];
	unsigned n = 0;
	FILE *f = fopen(b->set.svg, "we");

	if (!f) {
		return bench_testbed_fail(&b->testbed, "%s: %s", b->set.svg, strerror(errno));
	}
	for (unsigned k = 0; k < PAGE_KINDS; k++) {
		unsigned m = curves(b, k, curve[k]);

		if (m) {
			chart_title(b, k, title[k]);
			panel[n++] = (struct bench_chart_panel){ title[k], curve[k], m };
		}
	}
	bench_chart_svg(f, panel, n);
	return fclose(f) ? bench_testbed_fail(&b->testbed, "%s: %s", b->set.svg, strerror(errno))
			 : 0;
}

static void print_charts(const struct bench_lcbe *b, FILE *to)
{
	struct bench_chart_curve curve[LCBE_CONDITIONS];
	char title[160];

	for (unsigned k = 0; k < PAGE_KINDS; k++) {
		unsigned n = curves(b, k, curve);

		if (n) {
			chart_title(b, k, title);
			bench_chart_text(to, &(struct bench_chart_panel){ title, curve, n },
					 isatty(fileno(to)));
		}
	}
}

int bench_lcbe_report(struct bench_lcbe *b)
{
	json_t *doc;
	int err = evaluate(b);

	if (err) {
		return err;
	}
	doc = document(b);
	if (!b->testbed.json) {
		print_table(b, stdout);
		if (isatty(1)) {
			print_charts(b, stdout);
		}
	}
	err = bench_testbed_document(&b->testbed, doc, b->set.save);
	json_decref(doc);
	if (!err && b->set.svg) {
		err = write_svg(b);
	}
	return err;
}
