/* A process is known by its command, and a zombie does not count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/procfs.h"

static void test_command(void **state)
{
	uid_t owner = (uid_t)-1;

	assert_int_equal(prctl(PR_SET_NAME, "odd) Z (name"), 0);
	assert_true(procfs_runs(getpid(), "odd) Z (name", NULL));
	assert_false(procfs_runs(getpid(), "odd", NULL));
	assert_false(procfs_runs(getpid(), "odd) Z (name)", NULL));
	assert_true(procfs_runs(getpid(), "odd) Z (name", &owner));
	assert_int_equal(owner, geteuid());
	assert_false(procfs_runs(0, "odd) Z (name", NULL));
	assert_false(procfs_runs(-1, "odd) Z (name", NULL));
}

static void test_zombie(void **state)
{
	siginfo_t info;
	pid_t child;

	assert_int_equal(prctl(PR_SET_NAME, "process"), 0);
	child = fork();
	if (child == 0) {
		pause();
	}
	assert_true(child > 0);
	assert_true(procfs_runs(child, "process", NULL));
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	assert_false(procfs_runs(child, "process", NULL)); /* a zombie */
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_false(procfs_runs(child, "process", NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_command),
		cmocka_unit_test(test_zombie),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
