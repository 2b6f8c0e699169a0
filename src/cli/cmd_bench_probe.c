/* `gbpf bench probe`: cost of programs inside kernels, measured by the program bench-probe, which
 * is itself the probed program. */
#include <limits.h>

#include "base/paths.h"
#include "cli/bench.h"
#include "cli/run_env.h"
#include "cli/verbs.h"

enum { P_PARTS, P_ROWS, P_SAMPLES, P_ROUNDS, P_ATTACHES, P_CYCLES, P_SAVE, P_PROGRESS, P_DEVICE };

static const struct cli_option options[] = {
	[P_PARTS] = { "parts", 0, "LIST", "cost, samples, budget, attach, cycles (default all)" },
	[P_ROWS] = { "rows", 0, "LIST",
		     "warp, block, sampled, lane, empty, timer, memtrace, retsnoop; only of cost: "
		     "elsewhere, detached (default all)" },
	[P_SAMPLES] = { "samples", 0, "LIST",
			"kernels of samples: their names, gemm-1024, softmax-8192 (default all)" },
	[P_ROUNDS] = { "rounds", 'r', "N",
		       "of cost, a fifth of samples and budget (default 25, soft 2)" },
	[P_ATTACHES] = { "attaches", 'a', "N", "of attach (default 20, soft 4)" },
	[P_CYCLES] = { "cycles", 'n', "N", "of attach, swap, detach (default 1000, soft 5)" },
	[P_SAVE] = { "save", 'o', "FILE", "write the JSON document there" },
	[P_PROGRESS] = { "progress", 0, NULL, "say what is being done, also without a terminal" },
	[P_DEVICE] = { "device", 'd', "soft|nvidia|auto", "which GPU (default auto)" },
	{ NULL, 0, NULL, NULL },
};

static const struct cli_bench_number numbers[] = {
	{ P_ROUNDS, 1, 1000 },
	{ P_ATTACHES, 1, 1000 },
	{ P_CYCLES, 1, 100000 },
};
static const char *const parts[] = { "cost", "samples", "budget", "attach", "cycles", NULL };
static const char *const rows[] = { "warp",	 "block",    "sampled",	 "lane",
				    "empty",	 "timer",    "memtrace", "retsnoop",
				    "elsewhere", "detached", NULL };
static const char *const samples[] = { "vecadd",    "saxpy",	    "transpose", "reduction",
				       "scan",	    "histogram",    "bfs",	 "spmv",
				       "matmul",    "hotspot",	    "nbody",	 "softmax",
				       "gemm-1024", "softmax-8192", NULL };

static int push_files(struct cli *c, char **argv, int *n)
{
	/* argv refers to them until exec */
	static char shim[CLI_RUN_PATH], objects[PATH_MAX], tracers[PATH_MAX];

	if (cli_run_find_shim(shim) < 0) {
		return cli_fail(
			c, CLI_FAILED, "install",
			"Is gBPF installed whole? GBPF_LIBDIR can say where its libraries are",
			"bench probe: the shim is missing: %s", shim);
	}
	if (path_lib(objects, sizeof(objects), "bench/probe") < 0 ||
	    path_lib(tracers, sizeof(tracers), "tracers") < 0) {
		return cli_fail(c, CLI_FAILED, "install", NULL,
				"bench probe: the path of gBPF is too long");
	}
	cli_bench_push(argv, n, "--shim", shim);
	cli_bench_push(argv, n, "--objects", objects);
	cli_bench_push(argv, n, "--tracers", tracers);
	return CLI_OK;
}

static int cmd_probe(struct cli *c)
{
	char *argv[CLI_BENCH_ARGS];
	int n = 0, code = cli_bench_check_numbers(c, numbers, ARRAY_SIZE(numbers));

	code = code ? code : cli_bench_check_list(c, "bench probe", P_PARTS, parts);
	code = code ? code : cli_bench_check_list(c, "bench probe", P_ROWS, rows);
	code = code ? code : cli_bench_check_list(c, "bench probe", P_SAMPLES, samples);
	cli_bench_push(argv, &n, "bench-probe", NULL);
	code = code ? code
		    : cli_bench_testbed(c, "bench probe", c->opt[P_DEVICE], "fifo", argv, &n);
	code = code ? code : push_files(c, argv, &n);
	if (code) {
		return code;
	}
	cli_bench_push_options(c, argv, &n, (const int[]){ P_DEVICE, -1 });
	return cli_bench_run(c, argv);
}

const struct cli_verb verb_bench_probe = {
	.name = "probe",
	.args = "",
	.doc = "cost of programs inside kernels, and of attaching them",
	.page = "gbpf-bench.1",
	.options = options,
	.run = cmd_probe,
};
