/* Starting and awaiting the program of `gbpf trace TOOL -- PROGRAM`. `gbpf run` does all that a
 * program needs under the shim, forwards signals and passes its exit code on. */
#include "cli/trace_program.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/run_start.h"

static const int forwarded[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };

static volatile sig_atomic_t child; /* process to which signals are forwarded; 0: it has ended */

/* The terminal sends its signals to the program, too, which is in the same process group. One that
 * is sent to this process after the program has ended ends this process. */
static void on_signal(int sig, siginfo_t *info, void *context)
{
	int err = errno;

	(void)context;
	if (info->si_code <= 0 && child) {
		kill((pid_t)child, sig);
	} else if (info->si_code <= 0) {
		signal(sig, SIG_DFL);
		raise(sig);
	}
	errno = err;
}

static void forward_signals(void)
{
	struct sigaction sa = { .sa_sigaction = on_signal, .sa_flags = SA_RESTART | SA_SIGINFO };

	for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++) {
		struct sigaction was;

		if (sigaction(forwarded[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN) {
			sigaction(forwarded[i], &sa, NULL);
		}
	}
}

int cli_trace_program_prepare(struct cli *c, struct cli_trace_program_run *p)
{
	struct gbpf *g = NULL;
	struct cli_run_device d;
	bool undecided = false;
	char full[PATH_MAX];
	uint32_t random;
	struct report r;
	int code;

	if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
		return cli_fail(c, CLI_FAILED, "random", NULL, "trace: no random number: %s",
				strerror(errno));
	}
	/* Containers with one gbpfd have processes with the same numbers. */
	snprintf(p->name, sizeof(p->name), "trace-%d-%08x", (int)getpid(), random);
	if (!cli_run_find_command(p->command[0], full)) {
		return cli_run_exec_failed(c, "trace", p->command[0], ENOENT);
	}
	code = cli_run_use_socket(c, "trace", &undecided);
	if (code != CLI_OK) {
		return code;
	}
	report_init(&r);
	/* That gbpfd uses another device is reported by `gbpf run`. */
	code = cli_run_choose_device(NULL, &d, &r) < 0
		       ? cli_fail_report(c, CLI_RUN_FAILED, "trace", &r)
		       : cli_run_start_daemon(c, "trace", &d, undecided, &g);
	report_finish(&r);
	gbpf_close(g);
	return code;
}

/* Runs in the child. A signal that has arrived in it, or that was forwarded to it, ends it. */
static void NORETURN start_child(const struct cli *c, const struct cli_trace_program_run *p,
				 const sigset_t *mask)
{
	const char *const first[] = {
		"gbpf", "run", "--name", p->name, c->quiet ? "-q" : "--", "--"
	};
	size_t n = 0, n_first = ARRAY_SIZE(first) - !c->quiet;
	const char **argv;

	while (p->command[n]) {
		n++;
	}
	argv = calloc(n_first + n + 1, sizeof(*argv));
	if (argv) {
		memcpy(argv, first, n_first * sizeof(*argv));
		memcpy(argv + n_first, p->command, n * sizeof(*argv));
		signal(SIGPIPE, c->sigpipe);
		signal(SIGCHLD, c->sigchld);
		sigprocmask(SIG_SETMASK, mask, NULL);
		execv("/proc/self/exe", (char *const *)unqual(argv));
	}
	fprintf(stderr, "gbpf: trace: cannot start gbpf run: %s\n", strerror(errno));
	_exit(CLI_RUN_FAILED);
}

int cli_trace_program_start(struct cli *c, struct cli_trace_program_run *p)
{
	sigset_t set, old;
	pid_t pid;
	int err;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++) {
		sigaddset(&set, forwarded[i]);
	}
	sigprocmask(SIG_BLOCK, &set, &old); /* a signal that arrives meanwhile is forwarded */
	pid = fork();
	err = errno;
	if (pid == 0) {
		start_child(c, p, &old);
	}
	if (pid > 0) {
		child = pid;
		forward_signals();
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (pid < 0) {
		return cli_fail(c, CLI_FAILED, "fork", NULL, "trace: fork: %s", strerror(err));
	}
	p->pid = pid;
	return CLI_OK;
}

bool cli_trace_program_ended(struct cli_trace_program_run *p, bool wait)
{
	int status = 0;
	pid_t r;

	if (!p->pid || p->ended) {
		return true;
	}
	do {
		r = waitpid(p->pid, &status, wait ? 0 : WNOHANG);
	} while (r < 0 && errno == EINTR);
	if (r == p->pid) {
		child = 0;
		p->ended = true;
		p->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	}
	return r != 0;
}

void cli_trace_program_stop(const struct cli_trace_program_run *p)
{
	if (p->pid && !p->ended) {
		kill(p->pid, SIGTERM);
	}
}
