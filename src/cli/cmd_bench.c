/* `gbpf bench`: the group, and `hook`. The measuring programs are separate executables, since they
 * load libraries that gbpf itself never does. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"
#include "cli/bench.h"
#include "cli/verbs.h"

int cli_bench_program(struct cli *c, const char *name, char path[BENCH_PATH])
{
	char leaf[64];

	snprintf(leaf, sizeof(leaf), "bench/%s", name);
	if (path_lib(path, BENCH_PATH, leaf) == 0 && access(path, X_OK) == 0) {
		return CLI_OK;
	}
	return cli_fail(c, CLI_FAILED, "install",
			"Is gBPF installed whole? GBPF_LIBDIR can say where its libraries are",
			"%s: the program is missing: %s", name, path);
}

int cli_bench_exec(struct cli *c, const char *verb, char **argv)
{
	char name[32], path[BENCH_PATH];

	snprintf(name, sizeof(name), "bench-%s", verb);
	if (cli_bench_program(c, name, path)) {
		return CLI_FAILED;
	}
	execv(path, argv);
	return cli_fail(c, CLI_FAILED, "exec", NULL, "bench %s: %s: %s", verb, path,
			strerror(errno));
}

void cli_bench_push(char **argv, int *n, const char *flag, const char *value)
{
	argv[(*n)++] = (char *)(uintptr_t)flag;
	if (value) {
		argv[(*n)++] = (char *)(uintptr_t)value;
	}
	argv[*n] = NULL;
}

enum { H_REPEAT, H_CALLS };

static const struct cli_option hook_options[] = {
	[H_REPEAT] = { "repeat", 'r', "N", "measurements of each program (default 25)" },
	[H_CALLS] = { "calls", 'n', "N", "calls in one measurement (default 200000)" },
	{ NULL, 0, NULL, NULL },
};

static int cmd_hook(struct cli *c)
{
	char policies[PATH_MAX];
	char *argv[24];
	uint64_t v;
	int n = 0;

	if ((c->opt[H_REPEAT] && cli_number(c, "--repeat", c->opt[H_REPEAT], 1, 10000, &v)) ||
	    (c->opt[H_CALLS] && cli_number(c, "--calls", c->opt[H_CALLS], 1000, 100000000, &v))) {
		return CLI_USAGE;
	}
	if (path_lib(policies, sizeof(policies), "policies") < 0) {
		return cli_fail(c, CLI_FAILED, "install", NULL,
				"bench hook: the path of the policies is too long");
	}
	cli_bench_push(argv, &n, "bench-hook", NULL);
	cli_bench_push(argv, &n, "--policies", policies);
	cli_bench_push(argv, &n, "--repeat", c->opt[H_REPEAT] ? c->opt[H_REPEAT] : "25");
	cli_bench_push(argv, &n, "--calls", c->opt[H_CALLS] ? c->opt[H_CALLS] : "200000");
	if (c->json) {
		cli_bench_push(argv, &n, "--json", NULL);
	}
	for (int i = 0; i < c->n_args && n < 20; i++) {
		cli_bench_push(argv, &n, c->arg[i], NULL);
	}
	return cli_bench_exec(c, "hook", argv);
}

const struct cli_verb verb_bench_hook = {
	.name = "hook",
	.args = "[NAME|FILE]...",
	.doc = "cost of policy programs, compiled and interpreted",
	.page = "gbpf-bench.1",
	.options = hook_options,
	.max_args = 12,
	.run = cmd_hook,
};

static const struct cli_verb *const subs[] = { &verb_bench_launch,
					       &verb_bench_hook,
					       &verb_bench_policy,
					       &verb_bench_soft,
					       &verb_bench_swap,
					       &verb_bench_lcbe,
					       &verb_bench_disb,
					       &verb_bench_tenants,
					       &verb_bench_pace,
					       &verb_bench_reach,
					       NULL };

const struct cli_verb verb_bench = {
	.name = "bench",
	.args = "...",
	.doc = "measure the overhead of gBPF on this machine",
	.page = "gbpf-bench.1",
	.subs = subs,
};
