/* Points at which tests kill or stop a process: which pass counts, and arming a running process.
 * Each case is a child process, and the file under test is compiled as in test builds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/point.h"

#include "../eventually.h"

#define PASSED 50 /* exit code of a child that came through */

/* As in tools/point-test. */
struct control {
	int32_t signal;
	uint32_t left;
	int32_t met;
	char name[64];
};

/* Runs a child with this environment that passes other points and then this one a few times.
 * Returns 0 if it came through, the signal that killed it, or that stopped it (then it is
 * killed). */
static int passes(const char *point, const char *control, const char *name, unsigned times)
{
	int status, result;
	pid_t pid;

	setenv("GBPF_POINT", point, 1);
	setenv("GBPF_POINT_CONTROL", control ? control : "", 1);
	if (!*point) {
		unsetenv("GBPF_POINT");
	}
	if (!control) {
		unsetenv("GBPF_POINT_CONTROL");
	}
	pid = fork();
	if (pid == 0) {
		close(0);
		errno = ERANGE;
		point_reached("another");
		if (fcntl(0, F_GETFD) >= 0 || errno != EBADF) {
			_exit(2); /* a descriptor stays open */
		}
		errno = ERANGE;
		while (times--) {
			point_reached(name);
		}
		_exit(errno == ERANGE ? PASSED : 1);
	}
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	if (WIFSTOPPED(status)) {
		result = WSTOPSIG(status);
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		return result;
	}
	assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == PASSED);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void a_process_is_killed_or_stopped_at_its_point(void **state)
{
	assert_int_equal(passes("a.b:kill", NULL, "a.b", 1), SIGKILL);
	assert_int_equal(passes("a.b:stop", NULL, "a.b", 1), SIGSTOP);
	assert_int_equal(passes("a.b:kill", NULL, "a.bc", 3), 0);
	assert_int_equal(passes("a.b:kill", NULL, "a", 3), 0);
	assert_int_equal(passes("", NULL, "a.b", 3), 0);
	assert_int_equal(passes("", NULL, "", 3), 0);
}

static void the_pass_is_counted(void **state)
{
	assert_int_equal(passes("p:kill:3", NULL, "p", 2), 0);
	assert_int_equal(passes("p:kill:3", NULL, "p", 3), SIGKILL);
	assert_int_equal(passes("p:stop:3", NULL, "p", 2), 0);
	assert_int_equal(passes("p:stop:3", NULL, "p", 4), SIGSTOP);
	assert_int_equal(passes("p:kill:0", NULL, "p", 5), 0);
}

static void names_have_63_letters(void **state)
{
	char name[80], point[100];

	for (size_t n = 63; n <= 64; n++) {
		memset(name, 'n', sizeof(name));
		name[n] = 0;
		snprintf(point, sizeof(point), "%s:kill", name);
		assert_int_equal(passes(point, NULL, name, 1), n == 63 ? SIGKILL : 0);
	}
	assert_int_equal(passes("name", NULL, "name", 1), 0); /* no action */
}

static void a_page_arms_a_running_process(void **state)
{
	char path[] = "/tmp/gbpf-point-XXXXXX";
	int fd = mkstemp(path);
	struct control *c;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 4096), 0);
	c = mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(c != MAP_FAILED);
	assert_int_equal(passes("", path, "point", 3), 0);
	memcpy(c->name, "point", 6);
	c->left = 2;
	c->signal = SIGSTOP;
	assert_int_equal(passes("", path, "point", 1), 0);
	assert_int_equal(c->met, 0);
	assert_int_equal(c->left, 1);
	assert_int_equal(passes("", path, "point", 1), SIGSTOP);
	assert_true(c->met > 0);
	assert_int_equal(c->signal, 0);
	c->left = 1;
	c->signal = SIGURG; /* ignored: the process goes on, with its errno, and once only */
	assert_int_equal(passes("", path, "point", 3), 0);
	assert_int_equal(c->signal, 0);
	assert_int_equal(c->left, 0);
	/* both: the variable arms the page */
	memset(c->name, 'x', sizeof(c->name));
	assert_int_equal(passes("other:kill:2", path, "other", 1), 0);
	assert_string_equal(c->name, "other");
	assert_int_equal(c->name[63], 0);
	assert_int_equal(c->signal, SIGKILL);
	assert_int_equal(c->left, 1);
	munmap(c, sizeof(*c));
	close(fd);
	unlink(path);
	assert_int_equal(passes("p:kill", path, "p", 1), SIGKILL); /* without the page */
}

/* The first pass waits while the file is there; other points and later passes do not. */
static void a_thread_is_held_while_the_file_exists(void **state)
{
	char folder[] = "/tmp/gbpf-point-XXXXXX", path[64], value[96];
	int status = -1;
	pid_t pid;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/held", folder);
	snprintf(value, sizeof(value), "a.b:%s", path);
	setenv("GBPF_POINT_HOLD", value, 1);
	pid = fork();
	if (pid == 0) {
		point_held("a");
		point_held("a.bc");
		point_held("a.b");
		point_held("a.b");
		_exit(PASSED);
	}
	eventually(access(path, F_OK) == 0);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), PASSED);
	assert_int_equal(rmdir(folder), 0); /* it was not made again */
	unsetenv("GBPF_POINT_HOLD");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_process_is_killed_or_stopped_at_its_point),
		cmocka_unit_test(the_pass_is_counted),
		cmocka_unit_test(names_have_63_letters),
		cmocka_unit_test(a_page_arms_a_running_process),
		cmocka_unit_test(a_thread_is_held_while_the_file_exists),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
