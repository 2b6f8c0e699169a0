/* `gbpf bench`: the group, `hook`, and the two processes of each benchmark. The measuring program
 * is a separate executable, since it loads libraries that gbpf itself never does; it writes records
 * into a pipe, from which bench/report makes tables, documents and charts. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/paths.h"
#include "cli/bench.h"
#include "cli/interrupt.h"
#include "cli/verbs.h"

#define READER_PRINTED 2 /* exit status: interrupted, after the document of what was measured */

int cli_bench_program(struct cli *c, const char *name, char path[CLI_BENCH_PATH])
{
	char leaf[64];

	snprintf(leaf, sizeof(leaf), "bench/%s", name);
	if (path_lib(path, CLI_BENCH_PATH, leaf) == 0 && access(path, X_OK) == 0) {
		return CLI_OK;
	}
	return cli_fail(c, CLI_FAILED, "install",
			"Is gBPF installed whole? GBPF_LIBDIR can say where its libraries are",
			"%s: the program is missing: %s", name, path);
}

const char *cli_bench_option(struct cli *c, const char *name)
{
	const struct cli_option *o = c->verb->options;

	for (int i = 0; o[i].name; i++) {
		if (strcmp(o[i].name, name) == 0) {
			return c->opt[i];
		}
	}
	return NULL;
}

static volatile sig_atomic_t measuring; /* id of the measuring process */

static void pass_on(int sig)
{
	if (measuring > 0) {
		kill(measuring, sig);
	}
}

void cli_bench_outlive_signals(void)
{
	cli_interrupt_catch(pass_on);
}

/* Starts the reader of the records, which no signal of the terminal ends: the measuring program
 * gets these and ends the records. Returns its process id, or -1 after a message. */
static pid_t start_reader(struct cli *c, int in)
{
	static const char *const files[] = { "save", "svg" };
	char path[CLI_BENCH_PATH], flag[ARRAY_SIZE(files)][8], *argv[16];
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t blocked;
	pid_t pid = -1;
	int n = 0, err = path_lib(path, sizeof(path), "bench/report");

	cli_bench_push(argv, &n, "python3", "-IB");
	cli_bench_push(argv, &n, "-X", "utf8");
	cli_bench_push(argv, &n, path, c->verb->name);
	if (c->json) {
		cli_bench_push(argv, &n, "--json", NULL);
	}
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		if (cli_bench_option(c, files[i])) {
			snprintf(flag[i], sizeof(flag[i]), "--%s", files[i]);
			cli_bench_push(argv, &n, flag[i], cli_bench_option(c, files[i]));
		}
	}
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
	sigfillset(&blocked);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigmask(&attributes, &blocked);
	err = err < 0 ? -err : posix_spawnp(&pid, argv[0], &actions, &attributes, argv, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	if (err) {
		cli_fail(c, CLI_FAILED, "python", "Install the package python3",
			 "bench %s: cannot run python3: %s", c->verb->name, strerror(err));
		return -1;
	}
	return pid;
}

static pid_t start_program(const char *path, char **argv, int out)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		signal(SIGPIPE, SIG_DFL);
		dup2(out, STDOUT_FILENO);
		execv(path, argv);
		_exit(CLI_RUN_CANNOT_EXEC);
	}
	return pid;
}

/* Waits for both processes. If the reader fails first, the measuring program is terminated. Returns
 * whether it did. */
static bool wait_for_both(pid_t program, int *ret_program, pid_t reader, int *ret_reader)
{
	struct pollfd p[] = { { .fd = (int)syscall(SYS_pidfd_open, program, 0), .events = POLLIN },
			      { .fd = (int)syscall(SYS_pidfd_open, reader, 0), .events = POLLIN } };
	bool reader_failed = false;

	while (p[0].fd >= 0 || p[1].fd >= 0) {
		if (poll(p, 2, -1) < 0) {
			continue;
		}
		if (p[0].fd >= 0 && p[0].revents) {
			waitpid(program, ret_program, 0);
			measuring = 0;
			fd_close(p[0].fd);
			p[0].fd = -1;
		}
		if (p[1].fd >= 0 && p[1].revents) {
			waitpid(reader, ret_reader, 0);
			fd_close(p[1].fd);
			p[1].fd = -1;
			if (*ret_reader && measuring) {
				reader_failed = true;
				kill(program, SIGTERM);
			}
		}
	}
	return reader_failed;
}

static int interrupted(struct cli *c)
{
	return cli_fail(c, 128 + cli_interrupted(), "interrupted", NULL, "bench %s: interrupted",
			c->verb->name);
}

/* Returns the exit code for the statuses of the measuring program and of the reader. */
static int code_of(struct cli *c, const char *path, int program, int reader, bool reader_failed)
{
	if (cli_interrupted()) {
		/* A document of what was measured is the one object of standard output. */
		return c->json && WIFEXITED(reader) && WEXITSTATUS(reader) == READER_PRINTED
			       ? 128 + cli_interrupted()
			       : interrupted(c);
	}
	if (WIFSIGNALED(reader)) {
		return cli_fail(c, CLI_FAILED, "failed", NULL, "bench %s: python3: %s",
				c->verb->name, strsignal(WTERMSIG(reader)));
	}
	if (reader_failed) {
		return CLI_FAILED; /* after its own message */
	}
	if (WIFSIGNALED(program)) {
		return cli_fail(c, CLI_FAILED, "failed", NULL, "bench %s: %s: %s", c->verb->name,
				path, strsignal(WTERMSIG(program)));
	}
	return program ? WEXITSTATUS(program) : reader ? CLI_FAILED : CLI_OK;
}

int cli_bench_run(struct cli *c, char **argv)
{
	char path[CLI_BENCH_PATH];
	int fd[2], program_status = 0, reader_status = 0;
	pid_t reader, program;
	bool reader_failed;

	if (cli_bench_program(c, argv[0], path)) {
		return CLI_FAILED;
	}
	if (cli_interrupted()) {
		return interrupted(c);
	}
	if (pipe2(fd, O_CLOEXEC) < 0) {
		return cli_fail(c, CLI_FAILED, "failed", NULL, "bench %s: pipe: %s", c->verb->name,
				strerror(errno));
	}
	reader = start_reader(c, fd[0]);
	program = reader > 0 ? start_program(path, argv, fd[1]) : -1;
	measuring = MAX(program, 0);
	cli_bench_outlive_signals();
	fd_close(fd[0]);
	fd_close(fd[1]);
	if (program < 0) {
		return reader < 0 ? CLI_FAILED
				  : cli_fail(c, CLI_FAILED, "failed", NULL, "bench %s: fork: %s",
					     c->verb->name, strerror(errno));
	}
	reader_failed = wait_for_both(program, &program_status, reader, &reader_status);
	return code_of(c, path, program_status, reader_status, reader_failed);
}

void cli_bench_push(char **argv, int *n, const char *flag, const char *value)
{
	argv[(*n)++] = (char *)(uintptr_t)flag;
	if (value) {
		argv[(*n)++] = (char *)(uintptr_t)value;
	}
	argv[*n] = NULL;
}

enum { H_REPEAT, H_CALLS };

static const struct cli_option hook_options[] = {
	[H_REPEAT] = { "repeat", 'r', "N", "measurements of each program (default 25)" },
	[H_CALLS] = { "calls", 'n', "N", "calls in one measurement (default 200000)" },
	{ NULL, 0, NULL, NULL },
};

static int cmd_hook(struct cli *c)
{
	char policies[PATH_MAX];
	char *argv[24];
	uint64_t v;
	int n = 0;

	if ((c->opt[H_REPEAT] && cli_number(c, "--repeat", c->opt[H_REPEAT], 1, 10000, &v)) ||
	    (c->opt[H_CALLS] && cli_number(c, "--calls", c->opt[H_CALLS], 1000, 100000000, &v))) {
		return CLI_USAGE;
	}
	if (path_lib(policies, sizeof(policies), "policies") < 0) {
		return cli_fail(c, CLI_FAILED, "install", NULL,
				"bench hook: the path of the policies is too long");
	}
	cli_bench_push(argv, &n, "bench-hook", NULL);
	cli_bench_push(argv, &n, "--policies", policies);
	cli_bench_push(argv, &n, "--repeat", c->opt[H_REPEAT] ? c->opt[H_REPEAT] : "25");
	cli_bench_push(argv, &n, "--calls", c->opt[H_CALLS] ? c->opt[H_CALLS] : "200000");
	for (int i = 0; i < c->n_args && n < 20; i++) {
		cli_bench_push(argv, &n, c->arg[i], NULL);
	}
	return cli_bench_run(c, argv);
}

const struct cli_verb verb_bench_hook = {
	.name = "hook",
	.args = "[NAME|FILE]...",
	.doc = "cost of policy programs, compiled and interpreted",
	.page = "gbpf-bench.1",
	.options = hook_options,
	.max_args = 12,
	.run = cmd_hook,
};

static const struct cli_verb *const subs[] = {
	&verb_bench_launch, &verb_bench_hook,	 &verb_bench_policy,
	&verb_bench_soft,   &verb_bench_swap,	 &verb_bench_lcbe,
	&verb_bench_disb,   &verb_bench_tenants, &verb_bench_pace,
	&verb_bench_reach,  &verb_bench_quota,	 &verb_bench_vgpu,
	&verb_bench_copy,   &verb_bench_probe,	 NULL
};

const struct cli_verb verb_bench = {
	.name = "bench",
	.args = "...",
	.doc = "measure the overhead of gBPF on this machine",
	.page = "gbpf-bench.1",
	.subs = subs,
};
