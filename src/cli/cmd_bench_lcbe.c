/* `gbpf bench lcbe`: requests beside batch work under several ways of sharing. The program of
 * src/bench does it; here its settings are checked and the files that it needs are found. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"
#include "cli/bench.h"
#include "cli/policy_file.h"
#include "cli/run_env.h"
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
	L_POLICY,
	L_CONDITIONS,
	L_RESTART,
	L_SECONDS,
	L_SAVE,
	L_SVG,
	L_PROGRESS,
	L_DEVICE,
};

static const struct cli_option options[] = {
	[L_REQUESTS] = { "requests", 'n', "N", "of each kind (default 1000; soft 100)" },
	[L_REPEATS] = { "repeats", 'r', "N", "rounds (default 5)" },
	[L_KINDS] = { "kinds", 'k', "LIST", "of one,queued,synced (default all)" },
	[L_BLOCK] = { "block-us", 'b', "US", "length of batch's blocks (default 30; soft 300)" },
	[L_GRID] = { "grid", 'g', "BLOCKS", "of a batch kernel (default: 3 ms of them)" },
	[L_THREADS] = { "threads", 0, "N", "of a block (default 256; soft 64)" },
	[L_CLIENTS] = { "batch-clients", 0, "N", "processes (default 1)" },
	[L_STREAMS] = { "streams", 's', "N", "of a batch client (default 1)" },
	[L_DEPTH] = { "depth", 0, "N", "kernels queued on a stream (default 2)" },
	[L_KERNELS] = { "kernels", 0, "N", "of a request of many (default 40; soft 8)" },
	[L_DEFAULT_STREAM] = { "default-stream", 0, NULL, "no streams, no stream priorities" },
	[L_HINT] = { "hint-us", 0, "US", "how long ahead gbpf-hint announces (default 500)" },
	[L_POLICY] = { "policy", 'p', "NAME|FILE", "of gBPF (default auto, or lc_first)" },
	[L_CONDITIONS] = { "conditions", 'c', "LIST", "which (default all)" },
	[L_RESTART] = { "restart", 0, NULL, "new processes in each round" },
	[L_SECONDS] = { "seconds", 't', "S", "limit, about (default 300; soft 60)" },
	[L_SAVE] = { "save", 'o', "FILE", "write the JSON document there" },
	[L_SVG] = { "svg", 0, "FILE", "draw the distributions" },
	[L_PROGRESS] = { "progress", 0, NULL, "say what is being done, also without a terminal" },
	[L_DEVICE] = { "device", 'd', "soft|nvidia|auto", "which GPU (default auto)" },
	{ NULL, 0, NULL, NULL },
};

static const struct {
	int option;
	uint64_t min, max;
} numbers[] = {
	{ L_REQUESTS, 1, 1000000 }, { L_REPEATS, 1, 64 },     { L_BLOCK, 1, 1000000 },
	{ L_GRID, 1, 1u << 24 },    { L_THREADS, 1, 1024 },   { L_CLIENTS, 1, 16 },
	{ L_STREAMS, 1, 64 },	    { L_DEPTH, 1, 64 },	      { L_KERNELS, 1, 1000 },
	{ L_HINT, 1, 1000000 },	    { L_SECONDS, 1, 100000 },
};

static const char *const kinds[] = { "one", "queued", "synced", NULL };
static const char *const conditions[] = { "alone",     "default",   "short",
					  "alone-mps", "mps",	    "mps-priority",
					  "gbpf",      "gbpf-hint", "gbpf-shared",
					  NULL };

/* Every word of a list with commas must be one of the names. */
static int check_list(struct cli *c, int option, const char *const *names)
{
	const char *p = c->opt[option];

	while (p && *p) {
		size_t n = strcspn(p, ","), k = 0;

		while (names[k] && (strlen(names[k]) != n || strncmp(names[k], p, n) != 0)) {
			k++;
		}
		if (!names[k]) {
			struct buf all;
			int code;

			buf_init(&all);
			for (k = 0; names[k]; k++) {
				buf_printf(&all, " %s", names[k]);
			}
			buf_printf(&all, " (with commas between them)");
			code = cli_fail(c, CLI_USAGE, "usage", NULL,
					"bench lcbe: --%s: '%.*s' is not one of%s",
					options[option].name, (int)n, p, buf_text(&all));
			buf_finish(&all);
			return code;
		}
		p += n + (p[n] == ',');
	}
	return CLI_OK;
}

static int check(struct cli *c)
{
	char what[40];
	uint64_t v;

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		const char *text = c->opt[numbers[i].option];

		snprintf(what, sizeof(what), "--%s", options[numbers[i].option].name);
		if (text && cli_number(c, what, text, numbers[i].min, numbers[i].max, &v)) {
			return CLI_USAGE;
		}
	}
	if (check_list(c, L_KINDS, kinds)) {
		return CLI_USAGE;
	}
	return check_list(c, L_CONDITIONS, conditions);
}

static int find_policy(struct cli *c, char path[PATH_MAX], const char **ret_name)
{
	*ret_name = c->opt[L_POLICY];
	if (!*ret_name) {
		*ret_name = path_lib(path, PATH_MAX, "policies/auto.bpf.o") == 0 &&
					    access(path, R_OK) == 0
				    ? "auto"
				    : "lc_first";
	}
	return cli_policy_find(c, "bench lcbe", *ret_name, path, PATH_MAX);
}

static void push_settings(struct cli *c, char **argv, int *n)
{
	char flag[40];

	for (int i = 0; options[i].name; i++) {
		if (!c->opt[i] || i == L_POLICY || i == L_DEVICE) {
			continue;
		}
		snprintf(flag, sizeof(flag), "--%s", options[i].name);
		bench_push(argv, n, strdup(flag), options[i].arg ? c->opt[i] : NULL);
	}
}

static int cmd_lcbe(struct cli *c)
{
	char gbpf[PATH_MAX], gbpfd[PATH_MAX], server[PATH_MAX], client[BENCH_PATH],
		policy[PATH_MAX];
	const char *name = NULL;
	struct run_device d;
	struct report r;
	char *argv[96];
	int n = 0, code = check(c);

	if (code) {
		return code;
	}
	code = find_policy(c, policy, &name);
	report_init(&r);
	if (!code && run_choose_device(c->opt[L_DEVICE], &d, &r) < 0) {
		code = cli_fail_report(c, CLI_NOT_FOUND, "bench lcbe", &r);
	}
	report_finish(&r);
	code = code ? code : bench_program(c, "bench-client", client);
	if (code) {
		return code;
	}
	if (path_program(gbpf, sizeof(gbpf), "gbpf") < 0 ||
	    path_program(gbpfd, sizeof(gbpfd), "gbpfd") < 0 ||
	    path_program(server, sizeof(server), "gbpf-softgpu") < 0) {
		return cli_fail(c, CLI_FAILED, "install", NULL,
				"bench lcbe: the path of gBPF is too long");
	}
	bench_push(argv, &n, "bench-lcbe", NULL);
	if (d.soft) {
		bench_push(argv, &n, "--soft", NULL);
	}
	bench_push(argv, &n, "--libcuda", d.libcuda);
	bench_push(argv, &n, "--gbpf", gbpf);
	bench_push(argv, &n, "--gbpfd", gbpfd);
	bench_push(argv, &n, "--server", server);
	bench_push(argv, &n, "--client", client);
	bench_push(argv, &n, "--policy", policy);
	bench_push(argv, &n, "--policy-name", name);
	push_settings(c, argv, &n);
	if (c->json) {
		bench_push(argv, &n, "--json", NULL);
	}
	return bench_exec(c, "lcbe", argv);
}

const struct cli_verb verb_bench_lcbe = {
	.name = "lcbe",
	.args = "",
	.doc = "requests beside batch work, under each way of sharing",
	.page = "gbpf-bench.1",
	.options = options,
	.run = cmd_lcbe,
};
