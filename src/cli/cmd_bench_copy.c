/* `gbpf bench copy`: copies, measured by the program bench-copy. */
#include "cli/bench.h"
#include "cli/verbs.h"

#define MAX_MAX ((uint64_t)1 << 32)

enum {
	Y_MAX,
	Y_THREADS,
	Y_WAYS,
	Y_REPEATS,
	Y_SHARES,
	Y_POLICIES,
	Y_SECONDS,
	Y_POLICY,
	Y_SAVE,
	Y_PROGRESS,
	Y_DEVICE
};

static const struct cli_option options[] = {
	[Y_MAX] = { "max", 0, "SIZE", "largest copy (default 1G; --shares 256M)" },
	[Y_THREADS] = { "threads", 0, "LIST", "numbers of threads (default 1,2,4,6,8)" },
	[Y_WAYS] = { "ways", 0, "LIST", "of up, down, both (default all)" },
	[Y_REPEATS] = { "repeats", 'r', "N", "rounds (default 5)" },
	[Y_SHARES] = { "shares", 0, "LIST", "measure copy shares in percent instead, as 30,70" },
	[Y_POLICIES] = { "policies", 0, "LIST",
			 "--shares: of copy_fair, vgpu_auto, none (default all)" },
	[Y_SECONDS] = { "seconds", 't', "S", "--shares: windows of a second (default 5)" },
	[Y_POLICY] = { "policy", 'p', "NAME|FILE", "of gBPF (default auto, or lc_first)" },
	[Y_SAVE] = { "save", 'o', "FILE", "write the JSON document there" },
	[Y_PROGRESS] = { "progress", 0, NULL, "say what is being done, also without a terminal" },
	[Y_DEVICE] = { "device", 'd', "soft|nvidia|auto", "which GPU (default auto)" },
	{ NULL, 0, NULL, NULL },
};

static const struct cli_bench_number numbers[] = { { Y_REPEATS, 1, 1000 }, { Y_SECONDS, 1, 3600 } };
static const char *const ways[] = { "up", "down", "both", NULL };
static const char *const policies[] = { "copy_fair", "vgpu_auto", "none", NULL };
static const char *const threads[] = { "1", "2", "3", "4", "5", "6", "7", "8", "16", NULL };

static int check_policies(struct cli *c)
{
	return !c->opt[Y_POLICIES] || c->opt[Y_SHARES]
		       ? cli_bench_check_list(c, "bench copy", Y_POLICIES, policies)
		       : cli_fail(c, CLI_USAGE, "usage", NULL,
				  "bench copy: --policies needs --shares");
}

static int check(struct cli *c, char max[24])
{
	int code = cli_bench_check_numbers(c, numbers, ARRAY_SIZE(numbers));

	code = code ? code
		    : cli_bench_check_size(c, "bench copy", Y_MAX, 1, MAX_MAX,
					   "Use a number with K, M or G, at most 4G", max);
	code = code ? code : cli_bench_check_shares(c, "bench copy", Y_SHARES, false);
	code = code ? code : cli_bench_check_list(c, "bench copy", Y_WAYS, ways);
	code = code ? code : check_policies(c);
	return code ? code : cli_bench_check_list(c, "bench copy", Y_THREADS, threads);
}

static int cmd_copy(struct cli *c)
{
	char *argv[CLI_BENCH_ARGS], max[24];
	int n = 0, code = check(c, max);

	cli_bench_push(argv, &n, "bench-copy", NULL);
	code = code ? code
		    : cli_bench_testbed_client(c, "bench copy", c->opt[Y_DEVICE], c->opt[Y_POLICY],
					       "bench-copy-client", argv, &n);
	code = code ? code : cli_bench_push_policies(c, "bench copy", argv, &n);
	if (code) {
		return code;
	}
	if (c->opt[Y_MAX]) {
		cli_bench_push(argv, &n, "--max", max);
	}
	if (!c->opt[Y_THREADS]) {
		cli_bench_push(argv, &n, "--threads", "1,2,4,6,8");
	}
	cli_bench_push_options(c, argv, &n, (const int[]){ Y_MAX, Y_POLICY, Y_DEVICE, -1 });
	return cli_bench_run(c, argv);
}

const struct cli_verb verb_bench_copy = {
	.name = "copy",
	.args = "",
	.doc = "copies: bandwidth, small sizes, shares",
	.page = "gbpf-bench.1",
	.options = options,
	.run = cmd_copy,
};
