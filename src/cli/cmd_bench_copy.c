/* `gbpf bench copy`: copies, measured by the program bench-copy. */
#include <string.h>

#include "cli/bench.h"
#include "cli/verbs.h"

#define MAX_MAX ((uint64_t)1 << 32)
#define MIN_IMAGE ((uint64_t)1 << 16)
#define MIN_LINK ((uint64_t)1 << 20)
#define MAX_LINK ((uint64_t)1 << 40)

enum {
	Y_MAX,
	Y_THREADS,
	Y_WAYS,
	Y_REPEATS,
	Y_SHARES,
	Y_POLICIES,
	Y_OVERLAP,
	Y_LINK,
	Y_SECONDS,
	Y_POLICY,
	Y_SAVE,
	Y_PROGRESS,
	Y_DEVICE
};

static const struct cli_option options[] = {
	[Y_MAX] = { "max", 0, "SIZE",
		    "largest copy (default 1G; --shares 256M, soft 64M; --overlap 64M, soft 4M)" },
	[Y_THREADS] = { "threads", 0, "LIST", "numbers of threads (default 1,2,4,6,8)" },
	[Y_WAYS] = { "ways", 0, "LIST", "of up, down, both (default all)" },
	[Y_REPEATS] = { "repeats", 'r', "N", "rounds (default 5)" },
	[Y_SHARES] = { "shares", 0, "LIST", "measure copy shares in percent instead, as 30,70" },
	[Y_POLICIES] = { "policies", 0, "LIST",
			 "--shares: of copy_fair, vgpu_auto, none (default all)" },
	[Y_OVERLAP] = { "overlap", 0, NULL, "measure how far copies and kernels overlap instead" },
	[Y_LINK] = { "link-bandwidth", 0, "SIZE", "--overlap: of the soft GPU (default 256M)" },
	[Y_SECONDS] = { "seconds", 't', "S",
			"--shares, --overlap: windows of a second (default 5)" },
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

/* --overlap and --shares are measurements of their own; --policies and --link-bandwidth belong to
 * one. */
static int check_parts(struct cli *c)
{
	static const struct {
		int option, needs, not_with;
	} rules[] = { { Y_OVERLAP, -1, Y_SHARES },
		      { Y_POLICIES, Y_SHARES, -1 },
		      { Y_LINK, Y_OVERLAP, -1 } };

	for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
		int other = rules[i].needs >= 0 ? rules[i].needs : rules[i].not_with;
		bool valid = !c->opt[other] == (rules[i].needs < 0);

		if (c->opt[rules[i].option] && !valid) {
			return cli_fail(c, CLI_USAGE, "usage", NULL, "bench copy: --%s %s --%s",
					options[rules[i].option].name,
					rules[i].needs >= 0 ? "needs" : "cannot be combined with",
					options[other].name);
		}
	}
	return CLI_OK;
}

/* The link of an NVIDIA GPU is what it is. */
static int check_link(struct cli *c, char *const *argv)
{
	bool soft = false;

	for (int i = 0; argv[i]; i++) {
		soft |= strcmp(argv[i], "--soft") == 0;
	}
	return soft || !c->opt[Y_LINK]
		       ? CLI_OK
		       : cli_fail(c, CLI_USAGE, "usage", NULL,
				  "bench copy: --link-bandwidth needs --device soft");
}

static int check(struct cli *c, char max[24], char link[24])
{
	int code = cli_bench_check_numbers(c, numbers, ARRAY_SIZE(numbers));

	code = code ? code : check_parts(c);
	code = code ? code
		    : cli_bench_check_size(
			      c, "bench copy", Y_MAX, c->opt[Y_OVERLAP] ? MIN_IMAGE : 1, MAX_MAX,
			      c->opt[Y_OVERLAP] ? "Use a number with K, M or G, from 64K to 4G"
						: "Use a number with K, M or G, at most 4G",
			      max);
	code = code ? code
		    : cli_bench_check_size(c, "bench copy", Y_LINK, MIN_LINK, MAX_LINK,
					   "Use a number with M or G, from 1M to 1024G", link);
	code = code ? code : cli_bench_check_shares(c, "bench copy", Y_SHARES, false);
	code = code ? code : cli_bench_check_list(c, "bench copy", Y_WAYS, ways);
	code = code ? code : cli_bench_check_list(c, "bench copy", Y_POLICIES, policies);
	return code ? code : cli_bench_check_list(c, "bench copy", Y_THREADS, threads);
}

static int cmd_copy(struct cli *c)
{
	char *argv[CLI_BENCH_ARGS], max[24], link[24];
	int n = 0, code = check(c, max, link);

	cli_bench_push(argv, &n, "bench-copy", NULL);
	code = code ? code
		    : cli_bench_testbed_client(c, "bench copy", c->opt[Y_DEVICE], c->opt[Y_POLICY],
					       "bench-copy-client", argv, &n);
	code = code ? code : check_link(c, argv);
	code = code ? code : cli_bench_push_policies(c, "bench copy", argv, &n);
	if (code) {
		return code;
	}
	if (c->opt[Y_MAX]) {
		cli_bench_push(argv, &n, "--max", max);
	}
	if (c->opt[Y_LINK]) {
		cli_bench_push(argv, &n, "--link-bandwidth", link);
	}
	if (!c->opt[Y_THREADS]) {
		cli_bench_push(argv, &n, "--threads", "1,2,4,6,8");
	}
	cli_bench_push_options(c, argv, &n, (const int[]){ Y_MAX, Y_LINK, Y_POLICY, Y_DEVICE, -1 });
	return cli_bench_run(c, argv);
}

const struct cli_verb verb_bench_copy = {
	.name = "copy",
	.args = "",
	.doc = "copies: bandwidth, small sizes, shares, overlap with kernels",
	.page = "gbpf-bench.1",
	.options = options,
	.run = cmd_copy,
};
