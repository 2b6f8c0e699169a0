/* The program that `gbpf trace` starts: its signals, words and name. This file is `gbpf run`, too:
 * the command starts what is at /proc/self/exe. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/run_start.h"
#include "cli/trace_program.h"

/* ---- what is not tested here ---- */

bool cli_run_find_command(const char *command, char full[PATH_MAX])
{
	return true;
}

int cli_run_exec_failed(struct cli *c, const char *what, const char *program, int err)
{
	return CLI_RUN_NO_COMMAND;
}

int cli_run_use_socket(struct cli *c, const char *what, bool *ret_undecided)
{
	return 0;
}

int cli_run_choose_device(const char *name, struct cli_run_device *d, struct report *r)
{
	return 0;
}

int cli_run_start_daemon(struct cli *c, const char *what, const struct cli_run_device *d,
			 bool undecided, struct gbpf **ret)
{
	return CLI_OK;
}

int cli_fail_report(struct cli *c, int exit_code, const char *what, const struct report *r)
{
	return exit_code;
}

int cli_fail(struct cli *c, int exit_code, const char *code, const char *hint, const char *fmt, ...)
{
	return exit_code;
}

void gbpf_close(struct gbpf *g)
{
}

/* ---- the program ---- */

/* Does what the first word of the command names, or checks it: returns 0 or 7 if it is so. */
static int run(int argc, char **argv)
{
	int dashes = 1;

	while (dashes < argc - 1 && strcmp(argv[dashes], "--") != 0) {
		dashes++;
	}
	if (strcmp(argv[dashes + 1], "pause") == 0) {
		for (;;) {
			pause();
		}
	}
	if (strcmp(argv[dashes + 1], "quiet") == 0) {
		return strcmp(argv[dashes - 1], "-q") != 0;
	}
	if (strcmp(argv[dashes + 1], "ignores SIGCHLD") == 0) {
		return signal(SIGCHLD, SIG_DFL) != SIG_IGN;
	}
	return argc == 7 && strcmp(argv[1], "run") == 0 && strcmp(argv[2], "--name") == 0 &&
			       strcmp(argv[3], "name") == 0 && dashes == 4 &&
			       strcmp(argv[6], "word") == 0
		       ? 7
		       : 99;
}

/* ---- tests ---- */

static struct cli c;
static int in_parent, in_child; /* signals that arrive right after fork */

static void raise_in_parent(void)
{
	if (in_parent) {
		raise(in_parent);
	}
}

static void raise_in_child(void)
{
	if (in_child) {
		raise(in_child);
	}
}

/* Returns the exit code of the program. */
static int start(const char *word)
{
	char first[32], second[] = "word", *command[] = { first, second, NULL };
	struct cli_trace_program_run p = { .command = command, .name = "name" };

	snprintf(first, sizeof(first), "%s", word);
	if (cli_trace_program_start(&c, &p) != CLI_OK || !cli_trace_program_ended(&p, true) ||
	    !p.ended) {
		return 98;
	}
	return p.code;
}

/* Returns how a process has ended in which the program runs; then: a signal for the process after
 * that. One process starts one program. */
static int alone(const char *word, int then)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		int code;

		pthread_atfork(NULL, raise_in_parent, raise_in_child);
		code = start(word);
		if (then) {
			raise(then);
		}
		_exit(code);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	in_parent = in_child = 0;
	c = (struct cli){ 0 };
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void exit_code_is_that_of_gbpf_run(void **state)
{
	assert_int_equal(alone("program", 0), 7);
}

static void signal_for_the_new_process_ends_it(void **state)
{
	in_child = SIGTERM;
	assert_int_equal(alone("pause", 0), 128 + SIGTERM);
}

static void signal_while_the_process_starts_is_forwarded(void **state)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 };

	signal(SIGINT, SIG_DFL); /* a shell ignores it in what it starts in the background */
	signal(SIGHUP, SIG_DFL); /* as nohup(1) does */
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
		in_parent = signals[i];
		assert_int_equal(alone("pause", 0), 128 + signals[i]);
	}
}

static void signal_after_the_end_ends_the_trace(void **state)
{
	assert_int_equal(alone("program", SIGTERM), -SIGTERM);
}

static void ignored_signals_stay_ignored(void **state)
{
	signal(SIGHUP, SIG_IGN);
	assert_int_equal(alone("program", SIGHUP), 7);
	signal(SIGHUP, SIG_DFL);
	c.sigchld = SIG_IGN;
	assert_int_equal(alone("ignores SIGCHLD", 0), 0);
}

static void quiet_holds_for_gbpf_run(void **state)
{
	c.quiet = true;
	assert_int_equal(alone("quiet", 0), 0);
	assert_int_equal(alone("quiet", 0), 1);
}

/* Processes in two containers may have the same number. */
static void names_differ_between_traces_of_one_process_number(void **state)
{
	char program[] = "program", *command[] = { program, NULL };
	struct cli_trace_program_run a = { .command = command }, b = a;

	assert_int_equal(cli_trace_program_prepare(&c, &a), CLI_OK);
	assert_int_equal(cli_trace_program_prepare(&c, &b), CLI_OK);
	assert_int_equal(strncmp(a.name, "trace-", 6), 0);
	assert_string_not_equal(a.name, b.name);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exit_code_is_that_of_gbpf_run),
		cmocka_unit_test(signal_for_the_new_process_ends_it),
		cmocka_unit_test(signal_while_the_process_starts_is_forwarded),
		cmocka_unit_test(signal_after_the_end_ends_the_trace),
		cmocka_unit_test(ignored_signals_stay_ignored),
		cmocka_unit_test(quiet_holds_for_gbpf_run),
		cmocka_unit_test(names_differ_between_traces_of_one_process_number),
	};

	if (argc > 2) {
		return run(argc, argv);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
