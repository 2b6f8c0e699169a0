/* `gbpf bench launch`: measures under a private gbpfd in a private folder, so that the policy of
 * other programs is not replaced. */
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"
#include "cli/bench.h"
#include "cli/connect.h"
#include "cli/policy_file.h"
#include "cli/run_env.h"
#include "cli/softgpu_start.h"
#include "cli/verbs.h"

#define BENCH_DIR 80

enum { L_N, L_POLICY, L_DEVICE, L_CLASS };

static const struct cli_option options[] = {
	[L_N] = { "n", 'n', "N", "launches of each kind (default 60000)" },
	[L_POLICY] = { "policy", 'p', "NAME|FILE",
		       "policy during the measurement; none (default): no policy; off: no gbpfd" },
	[L_DEVICE] = { "device", 'd', "soft|nvidia|auto", "which GPU (default auto)" },
	[L_CLASS] = { "class", 'c', "latency|normal|batch",
		      "class of the launches (default normal)" },
	{ NULL, 0, NULL, NULL },
};

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where)
{
	return remove(path);
}

/* Makes a private runtime directory, which also holds the soft GPU's socket. */
static int make_place(struct cli *c, char dir[BENCH_DIR])
{
	const char *tmp = getenv("TMPDIR");

	/* short: the length of socket paths is limited */
	snprintf(dir, BENCH_DIR, "%s/gbpf-bench-XXXXXX",
		 tmp && tmp[0] == '/' && strlen(tmp) < BENCH_DIR - 24 ? tmp : "/tmp");
	if (!mkdtemp(dir)) {
		return cli_fail(c, CLI_FAILED, "runtime", NULL, "bench launch: %s: %s", dir,
				strerror(errno));
	}
	return setenv("GBPF_RUNTIME_DIR", dir, 1) == 0 && setenv("GBPF_STATE_DIR", dir, 1) == 0
		       ? CLI_OK
		       : CLI_FAILED;
}

static int load_policy(struct cli *c, struct gbpf *g, const char *policy)
{
	char path[PATH_MAX];
	int code;

	if (strcmp(policy, "none") == 0) {
		int err = gbpf_policy_unload(g, NULL);

		return err < 0 && err != -ENOENT ? cli_fail_daemon(c, g, "bench launch") : CLI_OK;
	}
	code = cli_object_find(c, CLI_POLICY, "bench launch", policy, path, sizeof(path));
	if (code == CLI_OK && gbpf_policy_load(g, path, NULL, GBPF_LOAD_SWAP, NULL) < 0) {
		code = cli_fail_daemon(c, g, "bench launch");
	}
	return code;
}

static int start_daemon(struct cli *c, const char *policy, const struct cli_run_device *d,
			struct gbpf **ret)
{
	/* if this process is killed, the daemon exits by itself */
	struct gbpf_start_options o = { .size = sizeof(o),
					.device = d->soft ? "soft" : "nvidia",
					.idle_exit_s = 20 };
	int code;

	c->global[CLI_SOCKET] = NULL;
	code = cli_open(c, ret);
	if (code == CLI_OK && gbpf_start_daemon(*ret, &o) < 0) {
		return cli_fail_daemon(c, *ret, "bench launch");
	}
	return code == CLI_OK ? load_policy(c, *ret, policy) : code;
}

/* Removes LD_PRELOAD and the settings of an enclosing `gbpf run`. */
static void set_environment(struct cli *c, const struct cli_run_device *d, bool off)
{
	unsetenv("LD_PRELOAD");
	unsetenv("GBPF_SOFTGPU_SOCKET");
	unsetenv("GBPF_OFF");
	if (off) {
		setenv("GBPF_OFF", "1", 1);
	}
	setenv("GBPF_REAL_CUDA", d->libcuda, 1);
	setenv("GBPF_CLASS", c->opt[L_CLASS] ? c->opt[L_CLASS] : "normal", 1);
}

static int measure(struct cli *c, const char *policy, const struct cli_run_device *d,
		   const char *shim)
{
	bool off = strcmp(policy, "off") == 0;
	struct gbpf *g = NULL;
	char *argv[24];
	int n = 0, code = CLI_OK;

	set_environment(c, d, off);
	if (!off) {
		code = start_daemon(c, policy, d, &g);
	}
	if (code == CLI_OK) {
		cli_bench_push(argv, &n, "bench-launch", NULL);
		cli_bench_push(argv, &n, "--real", d->libcuda);
		cli_bench_push(argv, &n, "--shim", shim);
		cli_bench_push(argv, &n, "--policy", policy);
		cli_bench_push(argv, &n, "--n", c->opt[L_N] ? c->opt[L_N] : "60000");
		code = cli_bench_run(c, argv);
	}
	if (g) {
		gbpf_shutdown(g); /* or it would write into the folder while that is removed */
	}
	gbpf_close(g);
	return code;
}

static int cmd_launch(struct cli *c)
{
	const char *policy = c->opt[L_POLICY] ? c->opt[L_POLICY] : "none";
	char shim[CLI_RUN_PATH], dir[BENCH_DIR];
	struct cli_run_device d;
	struct report r;
	uint64_t v;
	pid_t server = 0;
	int code = CLI_OK;

	if (c->opt[L_N] && cli_number(c, "--n", c->opt[L_N], 64, 10000000, &v)) {
		return CLI_USAGE;
	}
	report_init(&r);
	if (cli_run_choose_device(c->opt[L_DEVICE], &d, &r) < 0) {
		code = cli_fail_report(c, CLI_NOT_FOUND, "bench launch", &r);
	} else if (cli_run_find_shim(shim) < 0) {
		code = cli_fail(
			c, CLI_FAILED, "install",
			"Is gBPF installed whole? GBPF_LIBDIR can say where its libraries are",
			"bench launch: the shim is missing: %s", shim);
	}
	report_finish(&r);
	if (code == CLI_OK) {
		code = make_place(c, dir);
	}
	if (code == CLI_OK) {
		cli_bench_outlive_signals();
		if (d.soft &&
		    cli_softgpu_start(dir, (const char *const[]){ "--idle-exit", "20", NULL },
				      &server) < 0) {
			code = cli_fail(c, CLI_FAILED, "install", "See: gbpf doctor --device soft",
					"bench launch: the soft GPU's server does not start");
		} else {
			code = measure(c, policy, &d, shim);
		}
		cli_softgpu_stop(server);
		nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
	}
	return code;
}

const struct cli_verb verb_bench_launch = {
	.name = "launch",
	.args = "",
	.doc = "cost of the shim at a kernel launch",
	.page = "gbpf-bench.1",
	.options = options,
	.run = cmd_launch,
};
