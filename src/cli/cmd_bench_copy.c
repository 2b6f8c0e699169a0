/* `gbpf bench copy`: copies of pageable memory, measured by the program bench-copy. */
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>

#include "cli/bench.h"
#include "cli/policy_file.h"
#include "cli/verbs.h"

#define MAX_MAX ((uint64_t)1 << 32)

enum {
	Y_MAX,
	Y_THREADS,
	Y_WAYS,
	Y_REPEATS,
	Y_SHARES,
	Y_SECONDS,
	Y_POLICY,
	Y_SAVE,
	Y_PROGRESS,
	Y_DEVICE
};

static const struct cli_option options[] = {
	[Y_MAX] = { "max", 0, "SIZE", "largest copy (default 1G)" },
	[Y_THREADS] = { "threads", 0, "LIST", "numbers of threads (default 1,2,4,6,8)" },
	[Y_WAYS] = { "ways", 0, "LIST", "of up, down, both (default all)" },
	[Y_REPEATS] = { "repeats", 'r', "N", "rounds (default 5)" },
	[Y_SHARES] = { "shares", 0, "LIST", "measure copy shares in percent instead, as 30,70" },
	[Y_SECONDS] = { "seconds", 't', "S", "--shares: windows of a second (default 5)" },
	[Y_POLICY] = { "policy", 'p', "NAME|FILE", "of gBPF (default auto, or lc_first)" },
	[Y_SAVE] = { "save", 'o', "FILE", "write the JSON document there" },
	[Y_PROGRESS] = { "progress", 0, NULL, "say what is being done, also without a terminal" },
	[Y_DEVICE] = { "device", 'd', "soft|nvidia|auto", "which GPU (default auto)" },
	{ NULL, 0, NULL, NULL },
};

static const struct cli_bench_number numbers[] = { { Y_REPEATS, 1, 1000 }, { Y_SECONDS, 1, 3600 } };
static const char *const ways[] = { "up", "down", "both", NULL };
static const char *const threads[] = { "1", "2", "3", "4", "5", "6", "7", "8", "16", NULL };

static int check_max(struct cli *c, char bytes[24])
{
	uint64_t v = (uint64_t)1 << 30;

	if (c->opt[Y_MAX] && (cli_parse_bytes(c->opt[Y_MAX], &v) < 0 || !v || v > MAX_MAX)) {
		return cli_fail(c, CLI_USAGE, "usage", "Use a number with K, M or G, at most 4G",
				"bench copy: invalid size '%s' for --max", c->opt[Y_MAX]);
	}
	snprintf(bytes, 24, "%" PRIu64, v);
	return CLI_OK;
}

/* 2 to 16 percents with a sum of at most 100. */
static int check_shares(struct cli *c)
{
	const char *p = c->opt[Y_SHARES];
	unsigned long sum = 0, n = 0;
	bool valid = true;

	while (p && *p && valid) {
		char *end;
		unsigned long v = strtoul(p, &end, 10);

		valid = end != p && *p != '-' && v >= 1 && v <= 99 && ++n <= 16 &&
			(!*end || (*end == ',' && end[1]));
		sum += valid ? v : 0;
		p = *end ? end + 1 : end;
	}
	if (c->opt[Y_SHARES] && (!valid || n < 2 || sum > 100)) {
		return cli_fail(
			c, CLI_USAGE, "usage",
			"Use 2 to 16 percents with a sum of at most 100, as in --shares 30,70",
			"bench copy: invalid list '%s' for --shares", c->opt[Y_SHARES]);
	}
	return CLI_OK;
}

static int cmd_copy(struct cli *c)
{
	static char object[CLI_BENCH_PATH];
	char *argv[CLI_BENCH_ARGS], client[CLI_BENCH_PATH], bytes[24];
	int n = 0, code = cli_bench_check_numbers(c, numbers, ARRAY_SIZE(numbers));

	code = code ? code : check_max(c, bytes);
	code = code ? code : check_shares(c);
	code = code ? code : cli_bench_check_list(c, "bench copy", Y_WAYS, ways);
	code = code ? code : cli_bench_check_list(c, "bench copy", Y_THREADS, threads);
	cli_bench_push(argv, &n, "bench-copy", NULL);
	code = code ? code
		    : cli_bench_testbed(c, "bench copy", c->opt[Y_DEVICE], c->opt[Y_POLICY], argv,
					&n);
	code = code ? code : cli_bench_program(c, "bench-copy-client", client);
	code = code ? code : cli_policy_find(c, "bench copy", "fifo", object, sizeof(object));
	if (code) {
		return code;
	}
	cli_bench_push(argv, &n, "--policy-dir", dirname(object));
	cli_bench_push(argv, &n, "--client", client); /* in place of bench-client */
	cli_bench_push(argv, &n, "--max", bytes);
	if (!c->opt[Y_THREADS]) {
		cli_bench_push(argv, &n, "--threads", "1,2,4,6,8");
	}
	cli_bench_push_options(c, argv, &n, (const int[]){ Y_MAX, Y_POLICY, Y_DEVICE, -1 });
	return cli_bench_run(c, argv);
}

const struct cli_verb verb_bench_copy = {
	.name = "copy",
	.args = "",
	.doc = "copies of pageable memory: bandwidth, small sizes",
	.page = "gbpf-bench.1",
	.options = options,
	.run = cmd_copy,
};
