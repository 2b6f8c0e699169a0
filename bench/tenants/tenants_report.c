/* The report of `gbpf bench tenants`: launch and completion latency of each class, compared with
 * those under the device's own time slices. */
#include <stdio.h>

#include "bench/tenants/bench_tenants.h"

const char *const tenants_whats[TENANT_WHATS] = { "call", "start", "completion" };
static const char *const classes[TENANT_CLASSES] = { "latency", "batch" };

struct figures {
	double mean, p50, p99, variance, rate;
	struct bench_stats_range p99_rounds, p99_interval;
};

static struct figures figures_of(const struct bench_tenants_condition *c, unsigned k, unsigned what)
{
	const struct bench_tenants_cell *cell = &c->cell[k];
	struct figures f = { .mean = bench_stats_mean(cell->us[what], cell->n),
			     .p50 = bench_stats_quantile(cell->us[what], cell->n, 0.5),
			     .p99 = bench_stats_quantile(cell->us[what], cell->n, 0.99),
			     .variance = bench_stats_variance(cell->us[what], cell->n),
			     .rate = bench_stats_mean(cell->rate, c->rounds) };

	f.p99_rounds = bench_stats_extremes(cell->round_p99[what], c->rounds);
	f.p99_interval = bench_stats_bootstrap_mean(cell->round_p99[what], c->rounds, 0.95);
	return f;
}

/* Returns the change against the first condition in per cent; 0 if that was not run. */
static double change(double v, double of)
{
	return of > 0 ? 100 * (v / of - 1) : 0;
}

static json_t *condition_json(const struct bench_tenants *b,
			      const struct bench_tenants_condition *c)
{
	const struct bench_tenants_condition *first = &b->condition[0];
	json_t *a = json_array();
	json_t *o = json_pack("{s:s, s:s, s:s, s:i, s:o}", "condition", c->def->name, "is",
			      c->def->doc, "state",
			      c->broken	  ? "failed"
			      : c->rounds ? "run"
					  : "not available",
			      "rounds", (int)c->rounds, "figures", a);

	if (c->why[0]) {
		json_object_set_new(o, "why", json_string(c->why));
	}
	for (unsigned k = 0; k < TENANT_CLASSES && c->rounds && c->cell[k].n; k++) {
		for (unsigned w = 0; w < TENANT_WHATS; w++) {
			struct figures f = figures_of(c, k, w), of = figures_of(first, k, w);
			json_t *j = json_pack(
				"{s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:[f,f], s:[f,f], s:f}",
				"class", classes[k], "latency", tenants_whats[w], "kernels",
				(int)c->cell[k].n, "mean_us", f.mean, "p50_us", f.p50, "p99_us",
				f.p99, "variance_us2", f.variance, "p99_rounds_us",
				f.p99_rounds.low, f.p99_rounds.high, "p99_interval_us",
				f.p99_interval.low, f.p99_interval.high, "kernels_per_s", f.rate);

			if (first->rounds && c != first) {
				json_object_set_new(j, "p99_change_percent",
						    json_real(change(f.p99, of.p99)));
				json_object_set_new(j, "variance_change_percent",
						    json_real(change(f.variance, of.variance)));
				json_object_set_new(j, "rate_change_percent",
						    json_real(change(f.rate, of.rate)));
			}
			json_array_append_new(a, j);
		}
	}
	return o;
}

/* Prints the change in per cent, or as a factor if that is clearer. */
static void print_change(double value, double of)
{
	double percent = change(value, of);
	char text[32];

	snprintf(text, sizeof(text), percent < 1000 ? "%+.1f" : "x%.3g",
		 percent < 1000 ? percent : percent / 100 + 1);
	printf(" %8s", text);
}

static void print_row(const struct bench_tenants *b, const struct bench_tenants_condition *c,
		      unsigned k, unsigned w)
{
	const struct bench_tenants_condition *first = &b->condition[0];
	struct figures f = figures_of(c, k, w), of = figures_of(first, k, w);

	printf("%-9s %-8s %-10s %6u %11.1f %11.1f %11.1f %13.4g", c->def->name, classes[k],
	       tenants_whats[w], c->cell[k].n, f.mean, f.p50, f.p99, f.variance);
	if (first->rounds && c != first) {
		print_change(f.p99, of.p99);
		print_change(f.variance, of.variance);
		print_change(f.rate, of.rate);
	}
	putchar('\n');
}

static void print_table(const struct bench_tenants *b)
{
	printf("%s; %u latency and %u batch processes, %u streams x %u kernels of %g ms, "
	       "%u round%s, policy %s\n",
	       b->device, b->processes[TENANT_LC], b->processes[TENANT_BE], b->streams, b->kernels,
	       b->kernel_ms, b->rounds, PLURAL(b->rounds), b->policy_name);
	printf("%-9s %-8s %-10s %6s %11s %11s %11s %13s %8s %8s %8s\n", "", "CLASS", "LATENCY", "N",
	       "MEAN us", "P50", "P99", "VARIANCE us2", "P99 %", "VAR %", "RATE %");
	for (unsigned i = 0; i < TENANTS_CONDITIONS; i++) {
		const struct bench_tenants_condition *c = &b->condition[i];

		for (unsigned k = 0; k < TENANT_CLASSES && c->rounds && c->cell[k].n; k++) {
			for (unsigned w = 0; w < TENANT_WHATS; w++) {
				print_row(b, c, k, w);
			}
		}
		if (c->chosen && (!c->rounds || c->broken)) {
			printf("%-9s %s: %s\n", c->def->name,
			       c->broken ? "FAILED" : "not available", c->why);
		}
	}
	puts("call: of the launch; start: from before it until the kernel runs; completion: until "
	     "its end is known;\n%: change against default, x: factor");
}

int bench_tenants_report(struct bench_tenants *b)
{
	json_t *conditions = json_array(), *doc;
	int err;

	for (unsigned i = 0; i < TENANTS_CONDITIONS; i++) {
		struct bench_tenants_condition *c = &b->condition[i];

		for (unsigned k = 0; k < TENANT_CLASSES; k++) {
			for (unsigned w = 0; w < TENANT_WHATS && c->cell[k].us[w]; w++) {
				bench_stats_sort(c->cell[k].us[w], c->cell[k].n);
			}
		}
	}
	for (unsigned i = 0; i < TENANTS_CONDITIONS; i++) {
		if (b->condition[i].chosen) {
			json_array_append_new(conditions, condition_json(b, &b->condition[i]));
		}
	}
	doc = json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:o}", "schema",
			"gbpf.bench.tenants/1", "device", b->device, "policy", b->policy_name,
			"rounds", (int)b->rounds, "latency_processes", (int)b->processes[TENANT_LC],
			"batch_processes", (int)b->processes[TENANT_BE], "streams", (int)b->streams,
			"kernels", (int)b->kernels, "kernel_ms", b->kernel_ms, "gap_ms", b->gap_ms,
			"conditions", conditions);
	if (!b->testbed.json) {
		print_table(b);
	}
	err = bench_testbed_document(&b->testbed, doc, b->save);
	json_decref(doc);
	return err;
}
