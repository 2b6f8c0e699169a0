/* `gbpf bench pace`: cost of the block level without interruptions, measured by the program
 * bench-pace. */
#include <limits.h>

#include "base/paths.h"
#include "cli/bench.h"
#include "cli/verbs.h"

enum {
	P_SHAPE,
	P_REPEATS,
	P_MS,
	P_DEPTH,
	P_BURST,
	P_LANE,
	P_CODE,
	P_GATE,
	P_POLICY,
	P_SAVE,
	P_PROGRESS,
	P_DEVICE
};

static const struct cli_option options[] = {
	[P_SHAPE] = { "shape", 0, "BLOCK:KERNEL,...",
		      "microseconds of a block and of a kernel (default a table of them)" },
	[P_REPEATS] = { "repeats", 'r', "N", "windows of each kind (default 6)" },
	[P_MS] = { "ms", 'm', "N", "length of a window (default 300)" },
	[P_DEPTH] = { "depth", 0, "N", "kernels queued (default 16)" },
	[P_BURST] = { "burst", 0, NULL, "no events: one synchronization for all queued" },
	[P_LANE] = { "lane", 0, "process|shared", "gBPF's lane (default process)" },
	[P_CODE] = { "machine-code", 0, NULL, "kernels without PTX" },
	[P_GATE] = { "gate", 0, "default|off|together|flag_first", "mode of machine code's gates" },
	[P_POLICY] = { "policy", 'p', "NAME|FILE", "of gBPF (default: block level always)" },
	[P_SAVE] = { "save", 'o', "FILE", "write the JSON document there" },
	[P_PROGRESS] = { "progress", 0, NULL, "say what is being done, also without a terminal" },
	[P_DEVICE] = { "device", 'd', "soft|nvidia|auto", "which GPU (default auto)" },
	{ NULL, 0, NULL, NULL },
};

static const struct cli_bench_number numbers[] = { { P_REPEATS, 1, 64 },
						   { P_MS, 1, 100000 },
						   { P_DEPTH, 1, 64 } };

static const char *const gates[] = { "default", "off", "together", "flag_first", NULL };

static int cmd_pace(struct cli *c)
{
	const char *policy = c->opt[P_POLICY];
	char own[PATH_MAX], *argv[CLI_BENCH_ARGS];
	int n = 0, code = cli_bench_check_numbers(c, numbers, ARRAY_SIZE(numbers));

	if (!code) {
		code = cli_bench_check_list(c, "bench pace", P_GATE, gates);
	}
	if (!code && policy && c->opt[P_GATE]) {
		code = cli_fail(c, CLI_USAGE, "usage", "Omit --policy",
				"bench pace: --gate is for the bench's own policy");
	}
	if (!policy) {
		policy = path_lib(own, sizeof(own), "bench/pace.bpf.o") == 0 ? own : NULL;
	}
	cli_bench_push(argv, &n, "bench-pace", NULL);
	code = code ? code : cli_bench_testbed(c, "bench pace", c->opt[P_DEVICE], policy, argv, &n);
	if (code) {
		return code;
	}
	if (!c->opt[P_POLICY]) {
		cli_bench_push(argv, &n, "--policy-name", "pace");
	}
	cli_bench_push_options(c, argv, &n, (const int[]){ P_POLICY, P_DEVICE, -1 });
	return cli_bench_run(c, argv);
}

const struct cli_verb verb_bench_pace = {
	.name = "pace",
	.args = "",
	.doc = "cost of the block level without interruptions",
	.page = "gbpf-bench.1",
	.options = options,
	.run = cmd_pace,
};
