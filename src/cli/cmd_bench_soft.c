/* `gbpf bench soft`: speed of the soft GPU, measured by the program bench-soft with a private
 * server unless the running one is requested. */
#include <limits.h>
#include <string.h>

#include "base/paths.h"
#include "cli/bench.h"
#include "cli/run_env.h"
#include "cli/verbs.h"

enum { S_ROUNDS, S_MS, S_KILLS, S_RUNNING };

static const struct cli_option options[] = {
	[S_ROUNDS] = { "rounds", 'r', "N", "of which the fastest counts (default 7)" },
	[S_MS] = { "ms", 'm', "N", "length of a measurement, about (default 1000)" },
	[S_KILLS] = { "kills", 'k', "N", "clients killed at random (default 100)" },
	[S_RUNNING] = { "running", 0, NULL, "measure the server that runs, not one of its own" },
	{ NULL, 0, NULL, NULL },
};

static int check_numbers(struct cli *c)
{
	uint64_t v;

	return (c->opt[S_ROUNDS] && cli_number(c, "--rounds", c->opt[S_ROUNDS], 1, 1000, &v)) ||
	       (c->opt[S_MS] && cli_number(c, "--ms", c->opt[S_MS], 1, 100000, &v)) ||
	       (c->opt[S_KILLS] && cli_number(c, "--kills", c->opt[S_KILLS], 0, 1000000, &v));
}

static int cmd_soft(struct cli *c)
{
	static const char *const sections[] = { "fma",	  "samples", "empty", "copy",
						"slices", "many",    "kills" };
	char library[CLI_RUN_PATH], server[PATH_MAX], samples[PATH_MAX];
	char *argv[32];
	int n = 0;

	if (check_numbers(c)) {
		return CLI_USAGE;
	}
	for (int i = 0; i < c->n_args; i++) {
		size_t k = 0;

		while (k < ARRAY_SIZE(sections) && strcmp(sections[k], c->arg[i]) != 0) {
			k++;
		}
		if (k == ARRAY_SIZE(sections)) {
			return cli_fail(c, CLI_USAGE, "usage",
					"Sections: fma samples empty copy slices many kills",
					"bench soft: unknown section %s", c->arg[i]);
		}
	}
	if (cli_run_find_soft(library) < 0) {
		return cli_fail(
			c, CLI_FAILED, "install",
			"Is gBPF installed whole? GBPF_LIBDIR can say where its libraries are",
			"bench soft: the soft GPU's library is missing: %s", library);
	}
	if (path_program(server, sizeof(server), "gbpf-softgpu") < 0 ||
	    path_lib(samples, sizeof(samples), "samples/kernels") < 0) {
		return cli_fail(c, CLI_FAILED, "install", NULL,
				"bench soft: the path of gBPF is too long");
	}
	cli_bench_push(argv, &n, "bench-soft", NULL);
	cli_bench_push(argv, &n, "--libcuda", library);
	cli_bench_push(argv, &n, "--server", server);
	cli_bench_push(argv, &n, "--samples", samples);
	cli_bench_push(argv, &n, "--rounds", c->opt[S_ROUNDS] ? c->opt[S_ROUNDS] : "7");
	cli_bench_push(argv, &n, "--ms", c->opt[S_MS] ? c->opt[S_MS] : "1000");
	cli_bench_push(argv, &n, "--kills", c->opt[S_KILLS] ? c->opt[S_KILLS] : "100");
	if (c->opt[S_RUNNING]) {
		cli_bench_push(argv, &n, "--running", NULL);
	}
	for (int i = 0; i < c->n_args; i++) {
		cli_bench_push(argv, &n, c->arg[i], NULL);
	}
	return cli_bench_run(c, argv);
}

const struct cli_verb verb_bench_soft = {
	.name = "soft",
	.args = "[fma|samples|empty|copy|slices|many|kills]...",
	.doc = "speed and fairness of the soft GPU",
	.page = "gbpf-bench.1",
	.options = options,
	.max_args = 7,
	.run = cmd_soft,
};
