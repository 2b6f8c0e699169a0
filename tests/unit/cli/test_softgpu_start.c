/* A soft GPU server that is stopped while it starts. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "cli/interrupt.h"
#include "cli/softgpu_start.h"

static char dir[] = "/tmp/gbpf-test-XXXXXX";

static bool has_arrived(void)
{
	sigset_t pending;

	sigpending(&pending);
	return cli_interrupted() || sigismember(&pending, SIGTERM);
}

/* Called in the child between fork and exec: interrupts the parent, which then stops the child. */
int setpgid(pid_t pid, pid_t group)
{
	uint64_t end = clock_now_ns() + clock_patience(UINT64_C(10000000000));

	(void)pid;
	(void)group;
	kill(getppid(), SIGINT);
	while (!has_arrived() && clock_now_ns() < end) {
		clock_sleep_ns(1000000);
	}
	return 0;
}

static const char *in_dir(const char *leaf)
{
	static char path[64];

	snprintf(path, sizeof(path), "%s/%s", dir, leaf);
	return path;
}

/* The parent, once interrupted, may stop its child before the child's exec. */
static void a_server_that_is_stopped_before_its_exec_ends(void **state)
{
	const char *const no_more[] = { NULL };
	pid_t pid = -1;
	FILE *f;

	(void)state;
	assert_non_null(mkdtemp(dir));
	f = fopen(in_dir("gbpf-softgpu"), "we");
	assert_non_null(f);
	fprintf(f, "#!/bin/sh\n: >%s\n", in_dir("ran"));
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(in_dir("gbpf-softgpu"), 0700), 0);
	assert_int_equal(setenv("GBPF_BINDIR", dir, 1), 0);
	(void)signal(SIGINT, SIG_DFL); /* a shell's background job ignores it */
	cli_interrupt_catch(NULL);

	assert_int_equal(cli_softgpu_start(dir, no_more, &pid), -ENOEXEC);
	assert_int_equal(pid, 0);
	assert_int_equal(cli_interrupted(), SIGINT);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(access(in_dir("ran"), F_OK), -1);

	assert_int_equal(unlink(in_dir("gbpf-softgpu")), 0);
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_server_that_is_stopped_before_its_exec_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
