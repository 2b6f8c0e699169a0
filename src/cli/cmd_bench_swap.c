/* `gbpf bench swap`: effect of a swap on concurrent hook calls, measured by the program bench-swap
 * with a private gbpfd. */
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"
#include "cli/bench.h"
#include "cli/verbs.h"

enum { S_PROCESSES, S_SWAPS };

static const struct cli_option options[] = {
	[S_PROCESSES] = { "processes", 'p', "N",
			  "processes that call hooks (default 8, or 2 fewer than CPUs)" },
	[S_SWAPS] = { "swaps", 'n', "N", "how many (default 1000)" },
	{ NULL, 0, NULL, NULL },
};

static const char *processes_of(char out[16])
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN), n = cpus >= 10 ? 8 : cpus > 3 ? cpus - 2 : 1;

	snprintf(out, 16, "%ld", n);
	return out;
}

static int cmd_swap(struct cli *c)
{
	char object[PATH_MAX], daemon[PATH_MAX], processes[16];
	char *argv[16];
	uint64_t v;
	int n = 0;

	if ((c->opt[S_PROCESSES] && cli_number(c, "--processes", c->opt[S_PROCESSES], 1, 64, &v)) ||
	    (c->opt[S_SWAPS] && cli_number(c, "--swaps", c->opt[S_SWAPS], 1, 20000, &v))) {
		return CLI_USAGE;
	}
	if (path_lib(object, sizeof(object), "bench/swap.bpf.o") < 0 ||
	    path_program(daemon, sizeof(daemon), "gbpfd") < 0) {
		return cli_fail(c, CLI_FAILED, "install", NULL,
				"bench swap: the path of gBPF is too long");
	}
	cli_bench_push(argv, &n, "bench-swap", NULL);
	cli_bench_push(argv, &n, "--object", object);
	cli_bench_push(argv, &n, "--gbpfd", daemon);
	cli_bench_push(argv, &n, "--processes",
		       c->opt[S_PROCESSES] ? c->opt[S_PROCESSES] : processes_of(processes));
	cli_bench_push(argv, &n, "--swaps", c->opt[S_SWAPS] ? c->opt[S_SWAPS] : "1000");
	return cli_bench_run(c, argv);
}

const struct cli_verb verb_bench_swap = {
	.name = "swap",
	.args = "",
	.doc = "effect of a swap on concurrent hook calls",
	.page = "gbpf-bench.1",
	.options = options,
	.run = cmd_swap,
};
