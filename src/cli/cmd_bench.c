/* `gbpf bench`: becomes bench/report, a Python program that parses the options of a benchmark, runs
 * its measuring program and shows what that measures. This file finds what these need. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"
#include "cli/run_env.h"
#include "cli/verbs.h"

#define OWN_WORDS 16 /* in front of the user's */

/* Returns the value of --device in words that bench/report parses, or NULL. */
static const char *device_of(const struct cli *c)
{
	static const char name[] = "--device";
	const char *device = NULL;

	for (int i = 0; i < c->n_args; i++) {
		const char *a = c->arg[i];
		bool equals = strncmp(a, "--device=", sizeof(name)) == 0;

		if (strcmp(a, name) == 0 || strcmp(a, "-d") == 0) {
			device = c->arg[i + 1];
		} else if (equals || strncmp(a, "-d", 2) == 0) {
			device = a + (equals ? sizeof(name) : 2);
		}
	}
	return device;
}

/* Appends the driver's library, or why there is none, as r has it: not every benchmark needs it. */
static int push_device(const struct cli *c, struct cli_run_device *d, struct report *r,
		       const char **argv)
{
	int n = 0;

	if (cli_run_choose_device(device_of(c), d, r) == 0) {
		argv[n++] = "--libcuda";
		argv[n++] = d->libcuda;
	} else {
		argv[n++] = "--no-gpu";
		argv[n++] = r->code;
		argv[n++] = buf_text(&r->message);
		argv[n++] = buf_text(&r->hint);
	}
	if (d->soft) {
		argv[n++] = "--soft";
	}
	return n;
}

static int become_report(struct cli *c, const char *report, const char *gbpf)
{
	const char **argv = calloc((size_t)c->n_args + OWN_WORDS, sizeof(*argv));
	const char *const begin[] = { "python3", "-IB", "-X", "utf8", report, "--gbpf", gbpf };
	struct cli_run_device d = { 0 };
	struct report r;
	int n = ARRAY_SIZE(begin);

	if (!argv) {
		return cli_fail(c, CLI_FAILED, "failed", NULL, "bench: out of memory");
	}
	report_init(&r);
	memcpy(argv, begin, sizeof(begin));
	if (c->json) {
		argv[n++] = "--json";
	}
	n += push_device(c, &d, &r, argv + n);
	argv[n++] = c->verb->name;
	memcpy(argv + n, c->arg, (size_t)c->n_args * sizeof(*argv));
	signal(SIGPIPE, c->sigpipe);
	unsetenv("LD_PRELOAD"); /* of an enclosing `gbpf run` */
	execvp(argv[0], (char **)(uintptr_t)argv);
	free(argv);
	report_finish(&r);
	return cli_fail(c, CLI_FAILED, "python", "Install the package python3",
			"bench %s: cannot run python3: %s", c->verb->name, strerror(errno));
}

static int cmd_bench(struct cli *c)
{
	char report[PATH_MAX], gbpf[PATH_MAX];

	for (int i = 0; i < c->n_args; i++) {
		c->json |= strcmp(c->arg[i], "--json") == 0;
	}
	if (path_lib(report, sizeof(report), "bench/report") < 0 ||
	    path_program(gbpf, sizeof(gbpf), "gbpf") < 0) {
		return cli_fail(c, CLI_FAILED, "install", NULL,
				"bench %s: the path of gBPF is too long", c->verb->name);
	}
	if (access(report, R_OK) < 0) {
		return cli_fail(
			c, CLI_FAILED, "install",
			"Is gBPF installed whole? GBPF_LIBDIR can say where its libraries are",
			"bench %s: the benchmarks are missing: %s", c->verb->name, report);
	}
	return become_report(c, report, gbpf);
}

#define BENCH(verb, words, text)                                                                   \
	static const struct cli_verb verb = {                                                      \
		.name = #verb,                                                                     \
		.args = words,                                                                     \
		.doc = text,                                                                       \
		.page = "gbpf-bench.1",                                                            \
		.max_args = -1,                                                                    \
		.unparsed = true,                                                                  \
		.run = cmd_bench,                                                                  \
	}

BENCH(latency, "[OPTION]...", "cost of the shim at a kernel launch");
BENCH(preempt, "[OPTION]...", "requests next to batch work, under each sharing mode");
BENCH(memory, "[OPTION]...", "memory limits: exactness, exits of processes, cost");
BENCH(probe, "[OPTION]...", "cost of programs inside kernels, and of attaching them");
BENCH(dev, "[copy|disb|hook|pace|policy|reach|soft|swap|tenants|vgpu [OPTION]...]",
      "the benchmarks of gBPF's own development");

static const struct cli_verb *const subs[] = { &latency, &preempt, &memory, &probe, &dev, NULL };

const struct cli_verb verb_bench = {
	.name = "bench",
	.args = "...",
	.doc = "measure what gBPF costs and achieves on this machine",
	.page = "gbpf-bench.1",
	.subs = subs,
};
