/* `gbpf bench policy`: cost of policies against controls in the same run, measured by the program
 * bench-policy with the installed objects and native code. */
#include <limits.h>
#include <string.h>

#include "base/paths.h"
#include "cli/bench.h"
#include "cli/verbs.h"

enum { P_REPEAT, P_MS };

static const struct cli_option options[] = {
	[P_REPEAT] = { "repeat", 'r', "N", "measurements of each figure (default 25)" },
	[P_MS] = { "ms", 'm', "N", "length of one measurement in milliseconds (default 1)" },
	{ NULL, 0, NULL, NULL },
};

static int cmd_policy(struct cli *c)
{
	char policies[PATH_MAX], set[PATH_MAX];
	char *argv[24];
	uint64_t v;
	int n = 0;

	if ((c->opt[P_REPEAT] && cli_number(c, "--repeat", c->opt[P_REPEAT], 1, 1000, &v)) ||
	    (c->opt[P_MS] && cli_number(c, "--ms", c->opt[P_MS], 1, 1000, &v))) {
		return CLI_USAGE;
	}
	if (path_lib(policies, sizeof(policies), "policies") < 0 ||
	    path_lib(set, sizeof(set), "bench/policy") < 0) {
		return cli_fail(c, CLI_FAILED, "install", NULL,
				"bench policy: the path of the policies is too long");
	}
	cli_bench_push(argv, &n, "bench-policy", NULL);
	cli_bench_push(argv, &n, "--policies", policies);
	cli_bench_push(argv, &n, "--set", set);
	cli_bench_push(argv, &n, "--repeat", c->opt[P_REPEAT] ? c->opt[P_REPEAT] : "25");
	cli_bench_push(argv, &n, "--ms", c->opt[P_MS] ? c->opt[P_MS] : "1");
	return cli_bench_run(c, argv);
}

const struct cli_verb verb_bench_policy = {
	.name = "policy",
	.args = "",
	.doc = "cost of policies: compiled code against clang, lookups, loading",
	.page = "gbpf-bench.1",
	.options = options,
	.run = cmd_policy,
};
