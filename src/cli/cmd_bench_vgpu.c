/* `gbpf bench vgpu`: shares of virtual GPUs, measured by the program bench-vgpu. */
#include "cli/bench.h"
#include "cli/verbs.h"

enum {
	V_SHARES,
	V_POLICIES,
	V_LANES,
	V_SECONDS,
	V_SETTLE,
	V_SHORT,
	V_LONG,
	V_QUEUE,
	V_BURST,
	V_SAVE,
	V_PROGRESS,
	V_DEVICE
};

static const struct cli_option options[] = {
	[V_SHARES] = { "shares", 0, "LIST[|LIST...]",
		       "percents of the vGPUs (default 50,50|30,70|10,20,30,40)" },
	[V_POLICIES] = { "policies", 0, "LIST", "which (default all)" },
	[V_LANES] = { "lanes", 0, "LIST", "process, shared (default both; soft: process)" },
	[V_SECONDS] = { "seconds", 't', "S", "windows of a second for each (default 10)" },
	[V_SETTLE] = { "settle", 0, "S", "seconds of work before these (default 2)" },
	[V_SHORT] = { "short-us", 0, "US", "length of the short kernels (default 100)" },
	[V_LONG] = { "long-us", 0, "US", "of the long ones (default 10000)" },
	[V_QUEUE] = { "queue-ms", 0, "MS", "work that a tenant queues (default 30)" },
	[V_BURST] = { "burst", 0, NULL, "vGPUs may use what others leave over" },
	[V_SAVE] = { "save", 'o', "FILE", "write the JSON document there" },
	[V_PROGRESS] = { "progress", 0, NULL, "say what is being done, also without a terminal" },
	[V_DEVICE] = { "device", 'd', "soft|nvidia|auto", "which GPU (default auto)" },
	{ NULL, 0, NULL, NULL },
};

static const struct cli_bench_number numbers[] = {
	{ V_SECONDS, 1, 3600 },	 { V_SETTLE, 0, 3600 }, { V_SHORT, 10, 1000000 },
	{ V_LONG, 10, 1000000 }, { V_QUEUE, 1, 1000 },
};
static const char *const policies[] = { "band2",      "vgpu_auto", "band", "credit",
					"fifo_share", "none",	   NULL };
static const char *const lanes[] = { "process", "shared", NULL };

static int cmd_vgpu(struct cli *c)
{
	char *argv[CLI_BENCH_ARGS];
	int n = 0, code = cli_bench_check_numbers(c, numbers, ARRAY_SIZE(numbers));

	code = code ? code : cli_bench_check_shares(c, "bench vgpu", V_SHARES, true);
	code = code ? code : cli_bench_check_list(c, "bench vgpu", V_POLICIES, policies);
	code = code ? code : cli_bench_check_list(c, "bench vgpu", V_LANES, lanes);
	cli_bench_push(argv, &n, "bench-vgpu", NULL);
	code = code ? code : cli_bench_testbed(c, "bench vgpu", c->opt[V_DEVICE], "fifo", argv, &n);
	code = code ? code : cli_bench_push_policies(c, "bench vgpu", argv, &n);
	if (code) {
		return code;
	}
	cli_bench_push_options(c, argv, &n, (const int[]){ V_DEVICE, -1 });
	return cli_bench_run(c, argv);
}

const struct cli_verb verb_bench_vgpu = {
	.name = "vgpu",
	.args = "",
	.doc = "shares of virtual GPUs: error and utilization",
	.page = "gbpf-bench.1",
	.options = options,
	.run = cmd_vgpu,
};
