/* `gbpf bench reach`: the share of frameworks' launches that gBPF can stop between blocks, measured
 * by the program bench-reach. */
#include <limits.h>

#include "base/paths.h"
#include "cli/bench.h"
#include "cli/verbs.h"

enum { R_PARTS, R_PROBES, R_PYTHON, R_SECONDS, R_POLICY, R_SAVE, R_PROGRESS, R_DEVICE };

static const struct cli_option options[] = {
	[R_PARTS] = { "parts", 0, "LIST",
		      "of ptx,code,torch,triton,compile,cupy,jax,... (default all)" },
	[R_PROBES] = { "probes", 0, NULL, "also the share that can be probed, by form" },
	[R_PYTHON] = { "python", 0, "PROGRAM", "that has the frameworks (default python3)" },
	[R_SECONDS] = { "seconds", 't', "S", "limit of each part (default 180)" },
	[R_POLICY] = { "policy", 'p', "NAME|FILE", "of gBPF (default auto, or lc_first)" },
	[R_SAVE] = { "save", 'o', "FILE", "write the JSON document there" },
	[R_PROGRESS] = { "progress", 0, NULL, "say what is being done, also without a terminal" },
	[R_DEVICE] = { "device", 'd', "soft|nvidia|auto", "which GPU (default auto)" },
	{ NULL, 0, NULL, NULL },
};

static const struct cli_bench_number numbers[] = { { R_SECONDS, 1, 3600 } };
static const char *const parts[] = { "ptx",	    "code",    "torch", "triton-own", "triton",
				     "compile-own", "compile", "cupy",	"cupy-ptx",   "jax",
				     "jax-ptxas",   "numba",   NULL };

static int cmd_reach(struct cli *c)
{
	char script[PATH_MAX], *argv[CLI_BENCH_ARGS];
	int n = 0, code = cli_bench_check_numbers(c, numbers, ARRAY_SIZE(numbers));

	code = code ? code : cli_bench_check_list(c, "bench reach", R_PARTS, parts);
	cli_bench_push(argv, &n, "bench-reach", NULL);
	code = code ? code
		    : cli_bench_testbed(c, "bench reach", c->opt[R_DEVICE], c->opt[R_POLICY], argv,
					&n);
	if (code) {
		return code;
	}
	if (path_lib(script, sizeof(script), "bench/reach.py") < 0) {
		return cli_fail(c, CLI_FAILED, "install", NULL,
				"bench reach: the path of gBPF is too long");
	}
	cli_bench_push(argv, &n, "--script", script);
	cli_bench_push_options(c, argv, &n, (const int[]){ R_POLICY, R_DEVICE, -1 });
	return cli_bench_run(c, argv);
}

const struct cli_verb verb_bench_reach = {
	.name = "reach",
	.args = "",
	.doc = "share of frameworks' launches that gBPF can stop",
	.page = "gbpf-bench.1",
	.options = options,
	.run = cmd_reach,
};
