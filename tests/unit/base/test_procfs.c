/* A process is known by its command, which may look like other fields, and a zombie does not count.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
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

static void test_fields(void **state)
{
	long long start, nice, none = 7;
	struct timespec now;
	char text;

	assert_int_equal(prctl(PR_SET_NAME, "odd) Z 1 2 3 4"), 0);
	assert_int_equal(procfs_stat_field(getpid(), PROCFS_NICE, &nice, &text), 0);
	assert_int_equal(nice, getpriority(PRIO_PROCESS, 0));
	assert_int_equal(text, 'R');
	assert_int_equal(procfs_stat_field(getpid(), PROCFS_START, &start, NULL), 0);
	assert_int_equal(clock_gettime(CLOCK_BOOTTIME, &now), 0);
	assert_in_range(now.tv_sec - start / sysconf(_SC_CLK_TCK), 0, 600);
	assert_int_equal(procfs_stat_field(getpid(), 4, &start, NULL), 0);
	assert_int_equal(start, getppid());
	assert_int_equal(procfs_stat_field(getpid(), PROCFS_EXIT_CODE, &none, NULL), 0);
	assert_int_equal(none, 0);
	none = 7;
	assert_int_equal(procfs_stat_field(getpid(), PROCFS_EXIT_CODE + 1, &none, NULL), -1);
	assert_int_equal(procfs_stat_field(0, PROCFS_NICE, &none, NULL), -1);
	assert_int_equal(procfs_stat_field(-1, PROCFS_NICE, &none, NULL), -1);
	assert_int_equal(none, 7);
}

static void test_zombie(void **state)
{
	long long status;
	siginfo_t info;
	char text;
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
	assert_int_equal(procfs_stat_field(child, PROCFS_EXIT_CODE, &status, &text), 0);
	assert_int_equal(text, 'Z');
	assert_int_equal(status, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_false(procfs_runs(child, "process", NULL));
	assert_int_equal(procfs_stat_field(child, PROCFS_EXIT_CODE, &status, &text), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_command),
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_zombie),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
