/* `gbpf bench policy`: the cost of policies. Every figure is measured against a control in the same
 * run, as the median of repeats with its quartiles. */
#include "bench/policy/bench_policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *bench_policy_figure_json(const struct bench_policy_figure *f)
{
	return json_pack("{s:f, s:f, s:f}", "p25", f->low, "median", f->median, "p75", f->high);
}

void bench_policy_goal(const struct bench_policy_settings *s, json_t *goals, const char *what,
		       const struct bench_policy_figure *f, const char *unit, double limit)
{
	int kept = f->median <= limit;

	if (s->json) {
		json_array_append_new(goals,
				      json_pack("{s:s, s:s, s:o, s:f, s:b}", "what", what, "unit",
						unit, "value", bench_policy_figure_json(f), "limit",
						limit, "kept", kept));
		return;
	}
	printf("%-44s %9.2f %9.2f %9.2f  %-8s at most %g%s\n", what, f->low, f->median, f->high,
	       unit, limit, kept ? "" : "  EXCEEDED");
}

static int parse(struct bench_policy_settings *s, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0) {
			s->json = 1;
		} else if (i + 1 < argc && strcmp(argv[i], "--policies") == 0) {
			s->policies = argv[++i];
		} else if (i + 1 < argc && strcmp(argv[i], "--set") == 0) {
			s->set = argv[++i];
		} else if (i + 1 < argc && strcmp(argv[i], "--repeat") == 0) {
			s->repeat = (unsigned)strtoul(argv[++i], NULL, 10);
		} else if (i + 1 < argc && strcmp(argv[i], "--ms") == 0) {
			s->budget_ms = (unsigned)strtoul(argv[++i], NULL, 10);
		} else {
			return -EINVAL;
		}
	}
	return s->policies && s->set && s->repeat >= 1 && s->repeat <= 1000 && s->budget_ms >= 1 &&
			       s->budget_ms <= 1000
		       ? 0
		       : -EINVAL;
}

int main(int argc, char **argv)
{
	struct bench_policy_settings s = { .repeat = 25, .budget_ms = 1 };
	json_t *document;
	int err;

	if (parse(&s, argc, argv) < 0) {
		fputs("gbpf: bench policy: started with arguments that make no sense. Use: gbpf "
		      "bench "
		      "policy\n",
		      stderr);
		return 2;
	}
	document = json_pack("{s:s, s:i, s:[], s:[]}", "schema", "gbpf.bench.policy/1", "repeat",
			     (int)s.repeat, "goals", "programs");
	if (!document) {
		return 1;
	}
	err = bench_policy_bench_set(&s, document);
	if (!s.json) {
		printf("\n%-44s %9s %9s %9s\n", "FIGURE", "P25", "MEDIAN", "P75");
	}
	err |= bench_policy_bench_lookups(&s, document);
	err |= bench_policy_bench_load(&s, document);
	if (s.json) {
		json_dumpf(document, stdout, JSON_INDENT(2));
		putchar('\n');
	}
	json_decref(document);
	return err || fflush(stdout) ? 1 : 0;
}
