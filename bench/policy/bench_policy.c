/* `gbpf bench dev policy`: the cost of policies. Every figure is measured against a control in the
 * same run. */
#include "bench/policy/bench_policy.h"

int bench_policy_goal(const struct bench_policy_settings *s, const char *what, const double *v,
		      const char *unit, double limit)
{
	return bench_program_record(
		"goal", json_pack("{s:s, s:s, s:o, s:f}", "what", what, "unit", unit, "values",
				  bench_program_doubles(v, s->repeat), "limit", limit));
}

int main(int argc, char **argv)
{
	struct bench_policy_settings s = { .repeat = 25, .budget_ms = 1 };
	const struct bench_program_option table[] = {
		{ "--policies", .text = &s.policies },
		{ "--set", .text = &s.set },
		{ "--repeat", .number = &s.repeat },
		{ "--ms", .number = &s.budget_ms },
		{ NULL },
	};
	int err;

	if (!bench_program_options(table, &argc, argv) || argc > 1 || !s.policies || !s.set ||
	    s.repeat < 1 || s.repeat > 1000 || s.budget_ms < 1 || s.budget_ms > 1000) {
		return bench_program_usage();
	}
	err = bench_program_record("set_up", json_pack("{s:i}", "repeat", (int)s.repeat));
	err |= bench_policy_bench_set(&s);
	err |= bench_policy_bench_lookups(&s);
	err |= bench_policy_bench_load(&s);
	return bench_program_end(err != 0);
}
