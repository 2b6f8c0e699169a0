/* `gbpf bench soft`: speed of the soft GPU. Each section measures in child processes that are
 * clients of one server, and writes records of it and of the machine without the soft GPU. */
#include "bench/soft/bench_soft.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/compiler.h"

static const struct {
	const char *name;
	void (*run)(struct bench_soft *b);
} sections[SOFT_BENCH_SECTIONS] = {
	{ "fma", bench_soft_fma },	 { "samples", bench_soft_samples },
	{ "empty", bench_soft_empty },	 { "copy", bench_soft_copy },
	{ "slices", bench_soft_slices }, { "many", bench_soft_many },
	{ "kills", bench_soft_kills },
};

void bench_soft_broken(struct bench_soft *b, const char *section, const char *why)
{
	b->failed++;
	bench_program_record("broken", json_pack("{s:s, s:s}", "section", section, "why", why));
}

static bool take_sections(struct bench_soft *b, int n, char **names)
{
	for (int k = 0; k < n; k++) {
		size_t i = 0;

		while (i < ARRAY_SIZE(sections) && strcmp(sections[i].name, names[k]) != 0) {
			i++;
		}
		if (i == ARRAY_SIZE(sections)) {
			return false;
		}
		b->only[i] = b->some = true;
	}
	return true;
}

static int measure(struct bench_soft *b)
{
	bench_program_record("set_up", json_pack("{s:i, s:i, s:i, s:i}", "rounds", (int)b->rounds,
						 "ms", (int)b->ms, "workers", (int)b->hello.workers,
						 "sms", (int)b->hello.sms));
	for (size_t i = 0; i < ARRAY_SIZE(sections); i++) {
		if (!b->some || b->only[i]) {
			sections[i].run(b);
		}
	}
	return bench_program_end(b->failed > 0);
}

static volatile sig_atomic_t measuring, interrupted;
static const int signals[] = { SIGINT, SIGTERM, SIGHUP };

static void pass_on(int sig)
{
	interrupted = 1;
	if (measuring > 0) {
		kill(measuring, sig);
	}
}

/* From now on these signals end the measuring child only, and this process removes server and
 * folder. */
static void catch_signals(void)
{
	struct sigaction sa = { .sa_handler = pass_on, .sa_flags = SA_RESTART };

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		sigaction(signals[i], &sa, NULL);
	}
}

/* Runs the measurement in a child process, so that server and folder are removed however it ends.
 */
static int supervise(struct bench_soft *b)
{
	sigset_t all, before;
	int status = 0;
	pid_t pid;

	fflush(stdout);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before); /* until both processes know what to do */
	pid = interrupted ? -1 : fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
			signal(signals[i], SIG_DFL);
		}
		sigprocmask(SIG_SETMASK, &before, NULL);
		_exit(measure(b));
	}
	measuring = MAX(pid, 0);
	sigprocmask(SIG_SETMASK, &before, NULL);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
	}
	return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
	static struct bench_soft b = { .rounds = 7, .ms = 1000, .kills = 100 };
	const struct bench_program_option table[] = {
		{ "--libcuda", .text = &b.libcuda }, { "--server", .text = &b.server },
		{ "--samples", .text = &b.samples }, { "--rounds", .number = &b.rounds },
		{ "--ms", .number = &b.ms },	     { "--kills", .number = &b.kills },
		{ "--running", .flag = &b.running }, { NULL },
	};
	int err, code;

	if (!bench_program_options(table, &argc, argv) || !take_sections(&b, argc - 1, argv + 1) ||
	    !b.libcuda || !b.server || !b.samples || b.rounds < 1 || b.rounds > 1000 || b.ms < 1 ||
	    b.ms > 100000 || b.kills > 1000000) {
		return bench_program_usage("soft");
	}
	catch_signals();
	err = bench_soft_server_start(&b);
	if (err < 0) {
		bench_program_fail("the soft GPU's server %s: %s",
				   b.running ? "cannot be reached" : "does not start",
				   strerror(-err));
		bench_soft_server_stop(&b);
		return 1;
	}
	code = supervise(&b);
	bench_soft_server_stop(&b);
	return code;
}
