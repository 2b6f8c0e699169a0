/* `gbpf bench lcbe`: requests next to batch work under several sharing modes, run by the program
 * bench-lcbe; this file checks the settings and finds the files it needs. */
#include "cli/bench.h"
#include "cli/verbs.h"

enum {
	L_REQUESTS,
	L_REPEATS,
	L_KINDS,
	L_BLOCK,
	L_GRID,
	L_THREADS,
	L_CLIENTS,
	L_STREAMS,
	L_DEPTH,
	L_KERNELS,
	L_DEFAULT_STREAM,
	L_HINT,
	L_THINK,
	L_POLICY,
	L_CONDITIONS,
	L_LC_CMD,
	L_BE_CMD,
	L_RESTART,
	L_MACHINE_CODE,
	L_PROBE,
	L_SECONDS,
	L_SAVE,
	L_SVG,
	L_PROGRESS,
	L_DEVICE,
};

static const struct cli_option options[] = {
	[L_REQUESTS] = { "requests", 'n', "N", "of each kind (default 1000; soft 100)" },
	[L_REPEATS] = { "repeats", 'r', "N", "rounds (default 5)" },
	[L_KINDS] = { "kinds", 'k', "LIST",
		      "of one,queued,synced,hostbound (default: the first three)" },
	[L_BLOCK] = { "block-us", 'b', "US", "length of batch's blocks (default 30; soft 300)" },
	[L_GRID] = { "grid", 'g', "BLOCKS", "of a batch kernel (default: 3 ms of them)" },
	[L_THREADS] = { "threads", 0, "N", "of a block (default 256; soft 64)" },
	[L_CLIENTS] = { "batch-clients", 0, "N", "processes (default 1)" },
	[L_STREAMS] = { "streams", 's', "N", "of a batch client (default 1)" },
	[L_DEPTH] = { "depth", 0, "N", "kernels queued on a stream (default 2)" },
	[L_KERNELS] = { "kernels", 0, "N", "of a request of many (default 40; soft 8)" },
	[L_DEFAULT_STREAM] = { "default-stream", 0, NULL, "no streams, no stream priorities" },
	[L_HINT] = { "hint-us", 0, "US", "how long ahead gbpf-hint announces (default 500)" },
	[L_THINK] = { "think-us", 0, "US", "host's work after a kernel of hostbound (default 60)" },
	[L_POLICY] = { "policy", 'p', "NAME|FILE", "of gBPF (default auto, or lc_first)" },
	[L_CONDITIONS] = { "conditions", 'c', "LIST", "which (default all)" },
	[L_LC_CMD] = { "lc-cmd", 0, "COMMAND", "prints a latency in us a line" },
	[L_BE_CMD] = { "be-cmd", 0, "COMMAND", "prints a number of units done a line" },
	[L_RESTART] = { "restart", 0, NULL, "new processes in each round" },
	[L_MACHINE_CODE] = { "machine-code", 0, NULL,
			     "each condition also with kernels without PTX" },
	[L_PROBE] = { "probe", 0, "OBJECT",
		      "gBPF's conditions also with this tool in batch's kernels" },
	[L_SECONDS] = { "seconds", 't', "S", "limit, about (default 300; soft 60)" },
	[L_SAVE] = { "save", 'o', "FILE", "write the JSON document there" },
	[L_SVG] = { "svg", 0, "FILE", "draw the distributions" },
	[L_PROGRESS] = { "progress", 0, NULL, "say what is being done, also without a terminal" },
	[L_DEVICE] = { "device", 'd', "soft|nvidia|auto", "which GPU (default auto)" },
	{ NULL, 0, NULL, NULL },
};

static const struct cli_bench_number numbers[] = {
	{ L_REQUESTS, 1, 1000000 }, { L_REPEATS, 1, 64 },    { L_BLOCK, 1, 1000000 },
	{ L_GRID, 1, 1u << 24 },    { L_THREADS, 1, 1024 },  { L_CLIENTS, 1, 16 },
	{ L_STREAMS, 1, 64 },	    { L_DEPTH, 1, 64 },	     { L_KERNELS, 1, 1000 },
	{ L_HINT, 1, 1000000 },	    { L_THINK, 0, 1000000 }, { L_SECONDS, 1, 100000 },
};

static const char *const kinds[] = { "one", "queued", "synced", "hostbound", NULL };
static const char *const conditions[] = { "alone",	 "default",	 "short", "alone-mps",
					  "mps",	 "mps-priority", "gbpf",  "gbpf-hint",
					  "gbpf-shared", "gbpf-auto",	 NULL };

static int cmd_lcbe(struct cli *c)
{
	char *argv[CLI_BENCH_ARGS];
	int n = 0;
	int code = cli_bench_check_numbers(c, numbers, ARRAY_SIZE(numbers));

	code = code ? code : cli_bench_check_list(c, "bench lcbe", L_KINDS, kinds);
	code = code ? code : cli_bench_check_list(c, "bench lcbe", L_CONDITIONS, conditions);
	if (!code && !c->opt[L_LC_CMD] != !c->opt[L_BE_CMD]) {
		code = cli_fail(c, CLI_USAGE, "usage", "Give the other too",
				"bench lcbe: --lc-cmd and --be-cmd go together");
	}
	if (!code && c->opt[L_LC_CMD] && (c->opt[L_MACHINE_CODE] || c->opt[L_PROBE])) {
		code = cli_fail(c, CLI_USAGE, "usage", "Omit one of them",
				"bench lcbe: %s is for the bench's own kernels, not for --lc-cmd",
				c->opt[L_PROBE] ? "--probe" : "--machine-code");
	}
	cli_bench_push(argv, &n, "bench-lcbe", NULL);
	code = code ? code
		    : cli_bench_testbed(c, "bench lcbe", c->opt[L_DEVICE], c->opt[L_POLICY], argv,
					&n);
	if (code) {
		return code;
	}
	cli_bench_push_options(c, argv, &n, (const int[]){ L_POLICY, L_DEVICE, -1 });
	return cli_bench_run(c, argv);
}

const struct cli_verb verb_bench_lcbe = {
	.name = "lcbe",
	.args = "",
	.doc = "requests next to batch work, under each sharing mode",
	.page = "gbpf-bench.1",
	.options = options,
	.run = cmd_lcbe,
};
