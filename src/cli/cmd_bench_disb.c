/* `gbpf bench disb`: the workloads of DISB, run by the program bench-disb. */
#include <limits.h>

#include "base/paths.h"
#include "cli/bench.h"
#include "cli/verbs.h"

enum {
	D_WORKLOADS,
	D_SECONDS,
	D_REPEATS,
	D_BE,
	D_CONDITIONS,
	D_POLICY,
	D_TORCH,
	D_GRAPHS,
	D_PYTHON,
	D_SAVE,
	D_PROGRESS,
	D_DEVICE
};

static const struct cli_option options[] = {
	[D_WORKLOADS] = { "workloads", 'w', "LIST", "of A,B,C,D,E,REAL,Y,Z (default all)" },
	[D_SECONDS] = { "seconds", 't', "S", "of each measurement (default 10)" },
	[D_REPEATS] = { "repeats", 'r', "N", "rounds (default 1)" },
	[D_BE] = { "be", 0, "closed|periodic", "how batch requests come (default closed)" },
	[D_CONDITIONS] = { "conditions", 'c', "LIST", "which (default all)" },
	[D_POLICY] = { "policy", 'p', "NAME|FILE", "of gBPF (default auto, or lc_first)" },
	[D_TORCH] = { "torch", 0, NULL, "networks in PyTorch instead of kernels of their lengths" },
	[D_GRAPHS] = { "graphs", 0, NULL, "with --torch: each network as a CUDA graph" },
	[D_PYTHON] = { "python", 0, "PROGRAM", "that has PyTorch (default python3)" },
	[D_SAVE] = { "save", 'o', "FILE", "write the JSON document there" },
	[D_PROGRESS] = { "progress", 0, NULL, "say what is being done, also without a terminal" },
	[D_DEVICE] = { "device", 'd', "soft|nvidia|auto", "which GPU (default auto)" },
	{ NULL, 0, NULL, NULL },
};

static const struct cli_bench_number numbers[] = { { D_SECONDS, 1, 3600 }, { D_REPEATS, 1, 16 } };
static const char *const workloads[] = { "A", "B", "C", "D", "E", "REAL", "Y", "Z", "micro", NULL };
static const char *const networks[] = { "A", "B", "C", "D", "E", "REAL", "micro", NULL };
static const char *const conditions[] = { "rt",	    "rt-again",	    "default",
					  "rt-mps", "rt-mps-again", "mps",
					  "gbpf",   "gbpf-shared",  NULL };

static int cmd_disb(struct cli *c)
{
	char script[PATH_MAX], *argv[CLI_BENCH_ARGS];
	int n = 0, code = cli_bench_check_numbers(c, numbers, ARRAY_SIZE(numbers));

	if (!code && !c->opt[D_TORCH] && (c->opt[D_GRAPHS] || c->opt[D_PYTHON])) {
		code = cli_fail(c, CLI_USAGE, "usage", "Give --torch as well",
				"bench disb: --%s is for networks in PyTorch",
				c->opt[D_GRAPHS] ? "graphs" : "python");
	}
	code = code ? code
		    : cli_bench_check_list(c, "bench disb", D_WORKLOADS,
					   c->opt[D_TORCH] ? networks : workloads);
	code = code ? code : cli_bench_check_list(c, "bench disb", D_CONDITIONS, conditions);
	cli_bench_push(argv, &n, "bench-disb", NULL);
	code = code ? code
		    : cli_bench_testbed(c, "bench disb", c->opt[D_DEVICE], c->opt[D_POLICY], argv,
					&n);
	if (code) {
		return code;
	}
	if (c->opt[D_TORCH]) {
		if (path_lib(script, sizeof(script), "bench/disb_torch.py") < 0) {
			return cli_fail(c, CLI_FAILED, "install", NULL,
					"bench disb: the path of gBPF is too long");
		}
		cli_bench_push(argv, &n, "--script", script);
	}
	cli_bench_push_options(c, argv, &n, (const int[]){ D_POLICY, D_TORCH, D_DEVICE, -1 });
	return cli_bench_run(c, argv);
}

const struct cli_verb verb_bench_disb = {
	.name = "disb",
	.args = "",
	.doc = "the workloads of DISB, under each sharing mode",
	.page = "gbpf-bench.1",
	.options = options,
	.run = cmd_disb,
};
