/* `gbpf bench tenants`: several latency and batch processes at once, measured by the program
 * bench-tenants. */
#include "cli/bench.h"
#include "cli/verbs.h"

enum {
	T_REPEATS,
	T_LATENCY,
	T_BATCH,
	T_STREAMS,
	T_KERNELS,
	T_KERNEL,
	T_GAP,
	T_CONDITIONS,
	T_POLICY,
	T_SAVE,
	T_PROGRESS,
	T_DEVICE
};

static const struct cli_option options[] = {
	[T_REPEATS] = { "repeats", 'r', "N", "rounds (default 5)" },
	[T_LATENCY] = { "latency-clients", 0, "N", "processes (default 2)" },
	[T_BATCH] = { "batch-clients", 0, "N", "processes (default 4)" },
	[T_STREAMS] = { "streams", 's', "N", "of each process (default 4)" },
	[T_KERNELS] = { "kernels", 0, "N", "of each stream (default 50)" },
	[T_KERNEL] = { "kernel-us", 0, "US", "length of a kernel (default 2000)" },
	[T_GAP] = { "gap-us", 0, "US", "between a latency stream's kernels (default 2000)" },
	[T_CONDITIONS] = { "conditions", 'c', "LIST", "which (default all)" },
	[T_POLICY] = { "policy", 'p', "NAME|FILE", "of gBPF (default auto, or lc_first)" },
	[T_SAVE] = { "save", 'o', "FILE", "write the JSON document there" },
	[T_PROGRESS] = { "progress", 0, NULL, "say what is being done, also without a terminal" },
	[T_DEVICE] = { "device", 'd', "soft|nvidia|auto", "which GPU (default auto)" },
	{ NULL, 0, NULL, NULL },
};

static const struct cli_bench_number numbers[] = {
	{ T_REPEATS, 1, 32 },	{ T_LATENCY, 1, 16 },	{ T_BATCH, 1, 16 },
	{ T_STREAMS, 1, 16 },	{ T_KERNELS, 1, 4096 }, { T_KERNEL, 1, 10000000 },
	{ T_GAP, 0, 10000000 },
};
static const char *const conditions[] = { "default", "slices",	  "gbpf", "shared",
					  "alone",   "alone-mps", NULL };

static int cmd_tenants(struct cli *c)
{
	char *argv[CLI_BENCH_ARGS];
	int n = 0, code = cli_bench_check_numbers(c, numbers, ARRAY_SIZE(numbers));

	code = code ? code : cli_bench_check_list(c, "bench tenants", T_CONDITIONS, conditions);
	cli_bench_push(argv, &n, "bench-tenants", NULL);
	code = code ? code
		    : cli_bench_testbed(c, "bench tenants", c->opt[T_DEVICE], c->opt[T_POLICY],
					argv, &n);
	if (code) {
		return code;
	}
	cli_bench_push_options(c, argv, &n, (const int[]){ T_POLICY, T_DEVICE, -1 });
	return cli_bench_run(c, argv);
}

const struct cli_verb verb_bench_tenants = {
	.name = "tenants",
	.args = "",
	.doc = "two latency and four batch processes at once",
	.page = "gbpf-bench.1",
	.options = options,
	.run = cmd_tenants,
};
