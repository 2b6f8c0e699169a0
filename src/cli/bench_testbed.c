/* Shared by the verbs of `gbpf bench` that start clients on a GPU: the paths that their programs
 * need, and checks of numbers and lists. */
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"
#include "cli/bench.h"
#include "cli/policy_file.h"
#include "cli/run_env.h"

static int find_policy(struct cli *c, const char *what, char path[PATH_MAX], const char **name)
{
	if (!*name) {
		*name = path_lib(path, PATH_MAX, "policies/auto.bpf.o") == 0 &&
					access(path, R_OK) == 0
				? "auto"
				: "lc_first";
	}
	return cli_object_find(c, CLI_POLICY, what, *name, path, PATH_MAX);
}

static const char *const reader_files[] = { "save", "svg" };

/* Checks before the measurement that --save and --svg can be written. */
static int check_files(struct cli *c, const char *what)
{
	for (size_t i = 0; i < ARRAY_SIZE(reader_files); i++) {
		const char *path = cli_bench_option(c, reader_files[i]);
		char folder[PATH_MAX];

		if (!path || access(path, W_OK) == 0) {
			continue;
		}
		snprintf(folder, sizeof(folder), "%s", path);
		if (errno != ENOENT || access(dirname(folder), W_OK | X_OK) < 0) {
			return cli_fail(c, CLI_USAGE, "usage",
					"Give a file in a folder that exists and that you "
					"may write to",
					"%s: --%s: %s: %s", what, reader_files[i], path,
					strerror(errno));
		}
	}
	return CLI_OK;
}

int cli_bench_testbed(struct cli *c, const char *what, const char *device, const char *policy,
		      char **argv, int *n)
{
	/* the argument vector refers to them until exec */
	static char gbpf[PATH_MAX], gbpfd[PATH_MAX], server[PATH_MAX], client[CLI_BENCH_PATH];
	static char object[PATH_MAX];
	static struct cli_run_device d;
	struct report r;
	int code;

	code = check_files(c, what);
	code = code ? code : find_policy(c, what, object, &policy);
	report_init(&r);
	if (!code && cli_run_choose_device(device, &d, &r) < 0) {
		code = cli_fail_report(c, CLI_NOT_FOUND, what, &r);
	}
	report_finish(&r);
	code = code ? code : cli_bench_program(c, "bench-client", client);
	if (code) {
		return code;
	}
	if (path_program(gbpf, sizeof(gbpf), "gbpf") < 0 ||
	    path_program(gbpfd, sizeof(gbpfd), "gbpfd") < 0 ||
	    path_program(server, sizeof(server), "gbpf-softgpu") < 0) {
		return cli_fail(c, CLI_FAILED, "install", NULL, "%s: the path of gBPF is too long",
				what);
	}
	if (d.soft) {
		cli_bench_push(argv, n, "--soft", NULL);
	}
	cli_bench_push(argv, n, "--libcuda", d.libcuda);
	cli_bench_push(argv, n, "--gbpf", gbpf);
	cli_bench_push(argv, n, "--gbpfd", gbpfd);
	cli_bench_push(argv, n, "--server", server);
	cli_bench_push(argv, n, "--client", client);
	cli_bench_push(argv, n, "--policy", object);
	cli_bench_push(argv, n, "--policy-name", policy);
	return CLI_OK;
}

int cli_bench_testbed_client(struct cli *c, const char *what, const char *device,
			     const char *policy, const char *client, char **argv, int *n)
{
	static char path[CLI_BENCH_PATH];
	int code = cli_bench_testbed(c, what, device, policy, argv, n);

	code = code ? code : cli_bench_program(c, client, path);
	if (!code) {
		cli_bench_push(argv, n, "--client", path);
	}
	return code;
}

int cli_bench_push_policies(struct cli *c, const char *what, char **argv, int *n)
{
	static char object[PATH_MAX];
	int code = cli_object_find(c, CLI_POLICY, what, "fifo", object, sizeof(object));

	if (!code) {
		cli_bench_push(argv, n, "--policy-dir", dirname(object));
	}
	return code;
}

int cli_bench_check_size(struct cli *c, const char *what, int option, uint64_t min, uint64_t max,
			 const char *hint, char bytes[24])
{
	const char *text = c->opt[option];
	uint64_t v = 0;

	if (text && (cli_parse_bytes(text, &v) < 0 || v < min || v > max)) {
		return cli_fail(c, CLI_USAGE, "usage", hint, "%s: invalid size '%s' for --%s", what,
				text, c->verb->options[option].name);
	}
	snprintf(bytes, 24, "%" PRIu64, v);
	return CLI_OK;
}

/* Stores the end of the list. Returns whether the list up to there is valid. */
static bool shares_are_valid(const char *p, const char **ret_end)
{
	unsigned long sum = 0, n = 0;
	char *end;

	for (;; p = end + 1) {
		unsigned long v = strtoul(p, &end, 10);

		if (*p < '0' || *p > '9' || v < 1 || v > 99 || ++n > 16) {
			return false;
		}
		sum += v;
		if (*end != ',') {
			*ret_end = end;
			return n >= 2 && sum <= 100;
		}
	}
}

int cli_bench_check_shares(struct cli *c, const char *what, int option, bool sets)
{
	const char *p = c->opt[option];
	bool valid = true;

	while (p && valid) {
		valid = shares_are_valid(p, &p) && (!*p || (sets && *p == '|'));
		p = valid && *p ? p + 1 : NULL;
	}
	return valid ? CLI_OK
		     : cli_fail(c, CLI_USAGE, "usage",
				sets ? "Use 2 to 16 percents with a sum of at most 100, as in "
				       "--shares '50,50|30,70'"
				     : "Use 2 to 16 percents with a sum of at most 100, as in "
				       "--shares 30,70",
				"%s: invalid list '%s' for --%s", what, c->opt[option],
				c->verb->options[option].name);
}

int cli_bench_check_numbers(struct cli *c, const struct cli_bench_number *numbers, size_t n)
{
	char what[40];
	uint64_t v;

	for (size_t i = 0; i < n; i++) {
		const char *text = c->opt[numbers[i].option];

		snprintf(what, sizeof(what), "--%s", c->verb->options[numbers[i].option].name);
		if (text && cli_number(c, what, text, numbers[i].min, numbers[i].max, &v)) {
			return CLI_USAGE;
		}
	}
	return CLI_OK;
}

static int not_one_of(struct cli *c, const char *what, int option, const char *word, size_t len,
		      const char *const *names)
{
	struct buf all;
	int code;

	buf_init(&all);
	for (size_t k = 0; names[k]; k++) {
		buf_printf(&all, " %s", names[k]);
	}
	code = cli_fail(c, CLI_USAGE, "usage", "Several go with commas between them",
			"%s: --%s: '%.*s' is not one of%s", what, c->verb->options[option].name,
			(int)len, word, buf_text(&all));
	buf_finish(&all);
	return code;
}

int cli_bench_check_list(struct cli *c, const char *what, int option, const char *const *names)
{
	const char *p = c->opt[option];

	while (p && *p) {
		size_t n = strcspn(p, ","), k = 0;

		while (names[k] && (strlen(names[k]) != n || strncmp(names[k], p, n) != 0)) {
			k++;
		}
		if (!names[k]) {
			return not_one_of(c, what, option, p, n, names);
		}
		p += n + (p[n] == ',');
	}
	return CLI_OK;
}

void cli_bench_push_options(struct cli *c, char **argv, int *n, const int *not_these)
{
	static char flag[CLI_MAX_OPTIONS][40];
	const struct cli_option *o = c->verb->options;

	for (int i = 0; o[i].name; i++) {
		bool skip = !c->opt[i];

		for (const int *s = not_these; *s >= 0; s++) {
			skip |= *s == i;
		}
		for (size_t k = 0; k < ARRAY_SIZE(reader_files); k++) {
			skip |= strcmp(reader_files[k], o[i].name) == 0;
		}
		if (!skip) {
			snprintf(flag[i], sizeof(flag[i]), "--%s", o[i].name);
			cli_bench_push(argv, n, flag[i], o[i].arg ? c->opt[i] : NULL);
		}
	}
}
