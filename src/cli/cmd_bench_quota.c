/* `gbpf bench quota`: memory limits, measured by the program bench-quota. */
#include "cli/bench.h"
#include "cli/verbs.h"

#define MEM_MIN (128u << 20) /* in which each path of each thread finds room */

enum {
	Q_PARTS,
	Q_MEM,
	Q_PROCESSES,
	Q_THREADS,
	Q_PATHS,
	Q_SECONDS,
	Q_KILLS,
	Q_GBPFD_KILLS,
	Q_REPEATS,
	Q_CALLS,
	Q_SEED,
	Q_POLICY,
	Q_SAVE,
	Q_PROGRESS,
	Q_DEVICE
};

static const struct cli_option options[] = {
	[Q_PARTS] = { "parts", 0, "LIST", "which (default all)" },
	[Q_MEM] = { "mem", 'm', "SIZE", "limit (default a quarter of the device's memory)" },
	[Q_PROCESSES] = { "processes", 0, "N", "workers (default 2)" },
	[Q_THREADS] = { "threads", 0, "N", "of each worker (default 16)" },
	[Q_PATHS] = { "paths", 0, "LIST", "calls by which workers allocate (default all)" },
	[Q_SECONDS] = { "seconds", 't', "S", "length of the race (default 5)" },
	[Q_KILLS] = { "kills", 'k', "N", "workers killed (default 10)" },
	[Q_GBPFD_KILLS] = { "gbpfd-kills", 0, "N", "kills of gbpfd (default 3)" },
	[Q_REPEATS] = { "repeats", 'r', "N", "rounds of the part latency (default 5)" },
	[Q_CALLS] = { "calls", 'n', "N", "calls in each of these rounds (default 200)" },
	[Q_SEED] = { "seed", 0, "N", "of the random sizes (default 1)" },
	[Q_POLICY] = { "policy", 'p', "NAME|FILE", "of gBPF (default auto, or lc_first)" },
	[Q_SAVE] = { "save", 'o', "FILE", "write the JSON document there" },
	[Q_PROGRESS] = { "progress", 0, NULL, "say what is being done, also without a terminal" },
	[Q_DEVICE] = { "device", 'd', "soft|nvidia|auto", "which GPU (default auto)" },
	{ NULL, 0, NULL, NULL },
};

static const struct cli_bench_number numbers[] = {
	{ Q_PROCESSES, 2, 16 }, { Q_THREADS, 1, 64 },	    { Q_SECONDS, 1, 3600 },
	{ Q_KILLS, 0, 10000 },	{ Q_GBPFD_KILLS, 0, 1000 }, { Q_REPEATS, 1, 1000 },
	{ Q_CALLS, 1, 1024 },	{ Q_SEED, 0, 1000000 },
};
static const char *const parts[] = { "race", "kills", "control", "latency", NULL };
static const char *const paths[] = {
	"alloc", "pitch", "managed", "create", "array", "async", NULL
};

static int cmd_quota(struct cli *c)
{
	char *argv[CLI_BENCH_ARGS], bytes[24];
	int n = 0, code = cli_bench_check_numbers(c, numbers, ARRAY_SIZE(numbers));

	code = code ? code
		    : cli_bench_check_size(c, "bench quota", Q_MEM, MEM_MIN, UINT64_MAX,
					   "Use a number with M or G, at least 128M", bytes);
	code = code ? code : cli_bench_check_list(c, "bench quota", Q_PARTS, parts);
	code = code ? code : cli_bench_check_list(c, "bench quota", Q_PATHS, paths);
	cli_bench_push(argv, &n, "bench-quota", NULL);
	code = code ? code
		    : cli_bench_testbed_client(c, "bench quota", c->opt[Q_DEVICE], c->opt[Q_POLICY],
					       "bench-quota-client", argv, &n);
	if (code) {
		return code;
	}
	if (c->opt[Q_MEM]) {
		cli_bench_push(argv, &n, "--mem", bytes);
	}
	cli_bench_push_options(c, argv, &n, (const int[]){ Q_MEM, Q_POLICY, Q_DEVICE, -1 });
	return cli_bench_run(c, argv);
}

const struct cli_verb verb_bench_quota = {
	.name = "quota",
	.args = "",
	.doc = "memory limits: exactness, exits of processes, cost",
	.page = "gbpf-bench.1",
	.options = options,
	.run = cmd_quota,
};
