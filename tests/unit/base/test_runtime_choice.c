/* Which gbpfd a user's programs belong to, by what listens in /run/gbpf. The test has a /run of its
 * own, in a mount namespace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/runtime_choice.h"
#include "base/runtime_state.h"

#include "../users.h"

#define SOCKET RUNTIME_OF_ROOT "/control.sock"
#define STATE RUNTIME_OF_ROOT "/" RUNTIME_STATE_FILE
#define QUEUE_MAX 4096

static bool private_run;

static int make_run(void **state)
{
	(void)unsetenv("GBPF_RUNTIME_DIR");
	(void)unsetenv("XDG_RUNTIME_DIR");
	if (geteuid() != 0) {
		return 0;
	}
	private_run = unshare(CLONE_NEWNS) == 0 &&
		      mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		      mount("none", "/run", "tmpfs", 0, "mode=755") == 0;
	return 0;
}

static int empty_run(void **state)
{
	if (private_run) {
		(void)unlink(SOCKET);
		(void)unlink(STATE);
		(void)rmdir(RUNTIME_OF_ROOT);
	}
	(void)unsetenv("GBPF_RUNTIME_DIR");
	(void)unsetenv("XDG_RUNTIME_DIR");
	return 0;
}

#define NEED_RUN()                                                                                 \
	do {                                                                                       \
		NEED_TWO_USERS();                                                                  \
		if (!private_run) {                                                                \
			fprintf(stderr, "%s: skipped: mounting is not permitted\n", __func__);     \
			skip();                                                                    \
		}                                                                                  \
	} while (0)

/* Makes /run/gbpf with this mode, and a listener of a user in it. */
static int listener(mode_t mode, uid_t uid, int backlog)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(sock >= 0);
	assert_int_equal(mkdir(RUNTIME_OF_ROOT, 0755), 0);
	assert_int_equal(chmod(RUNTIME_OF_ROOT, mode), 0);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", SOCKET);
	assert_int_equal(bind(sock, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(chmod(SOCKET, 0666), 0);
	AS_USER(uid, assert_int_equal(listen(sock, backlog), 0));
	return sock;
}

static void assert_user_path(const char *path)
{
	char out[128];

	AS_USER(USER_A, {
		assert_int_equal(runtime_path(out, sizeof(out), "x.sock"), 0);
		assert_string_equal(out, path);
	});
}

static void without_a_listener_users_have_their_own(void **state)
{
	NEED_RUN();
	assert_user_path("/tmp/gbpf-65533/x.sock");
	close(listener(0755, 0, 8)); /* the file is left */
	assert_user_path("/tmp/gbpf-65533/x.sock");
	assert_int_equal(setenv("XDG_RUNTIME_DIR", "/xr", 1), 0);
	assert_user_path("/xr/gbpf/x.sock");
}

static void roots_gbpfd_serves_users_that_name_no_directory(void **state)
{
	char out[128];
	int sock;

	NEED_RUN();
	assert_int_equal(setenv("XDG_RUNTIME_DIR", "relative", 1), 0); /* does not count */
	sock = listener(0755, 0, 8);
	assert_user_path(RUNTIME_OF_ROOT "/x.sock");
	assert_int_equal(setenv("GBPF_RUNTIME_DIR", "", 1), 0);
	assert_user_path(RUNTIME_OF_ROOT "/x.sock");
	assert_int_equal(setenv("GBPF_RUNTIME_DIR", "/r", 1), 0);
	assert_user_path("/r/x.sock");
	assert_int_equal(unsetenv("GBPF_RUNTIME_DIR"), 0);
	assert_false(runtime_is_roots()); /* root's own is not a choice */
	assert_int_equal(runtime_path(out, sizeof(out), NULL), 0);
	assert_string_equal(out, RUNTIME_OF_ROOT);
	AS_USER(USER_A, assert_int_equal(runtime_path(out, 9, NULL), -ENAMETOOLONG));
	AS_USER(USER_A, assert_int_equal(runtime_path(out, 10, NULL), 0));
	close(sock);
}

/* Neither the owner of the directory nor that of the socket decides. */
static void a_listener_of_another_user_is_not_used(void **state)
{
	int sock;

	NEED_RUN();
	sock = listener(0755, USER_B, 8);
	assert_user_path("/tmp/gbpf-65533/x.sock");
	assert_false(runtime_root_serves());
	close(sock);
}

static void a_full_queue_counts_where_only_root_writes(void **state)
{
	static int queued[QUEUE_MAX];
	int sock, n = 0;

	NEED_RUN();
	sock = listener(0755, 0, 0);
	while (n < QUEUE_MAX &&
	       (queued[n] = unix_connect(SOCKET, SOCK_STREAM | SOCK_NONBLOCK)) >= 0) {
		n++;
	}
	assert_int_equal(queued[n], -EAGAIN);
	assert_user_path(RUNTIME_OF_ROOT "/x.sock");
	assert_int_equal(chmod(RUNTIME_OF_ROOT, 0775), 0);
	assert_user_path("/tmp/gbpf-65533/x.sock");
	assert_int_equal(chmod(RUNTIME_OF_ROOT, 0757), 0);
	assert_user_path("/tmp/gbpf-65533/x.sock");
	assert_int_equal(chmod(RUNTIME_OF_ROOT, 0755), 0);
	assert_int_equal(chown(RUNTIME_OF_ROOT, USER_B, 0), 0);
	assert_user_path("/tmp/gbpf-65533/x.sock");
	while (n > 0) {
		close(queued[--n]);
	}
	close(sock);
}

/* A process that is called as the daemon is, of this user. */
static pid_t named(const char *name, uid_t uid)
{
	int p[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe(p), 0);
	pid = fork();
	if (pid == 0) {
		(void)!setresuid(uid, uid, uid);
		prctl(PR_SET_DUMPABLE, 1); /* /proc shows its user again */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, name);
		(void)!write(p[1], "", 1);
		for (;;) {
			pause();
		}
	}
	assert_int_equal(read(p[0], &c, 1), 1);
	close(p[0]);
	close(p[1]);
	return pid;
}

static void end(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void write_state(pid_t pid, const char *phase)
{
	FILE *f = fopen(STATE, "w");

	assert_non_null(f);
	fprintf(f, "%d %s\n", (int)pid, phase);
	fclose(f);
}

/* Without a listener, what root's file says of a gbpfd of root's decides, while that one runs. */
static void one_of_root_that_starts_or_stops_is_awaited(void **state)
{
	pid_t pid;

	NEED_RUN();
	pid = named("gbpfd", 0);
	assert_int_equal(mkdir(RUNTIME_OF_ROOT, 0755), 0);
	write_state(pid, "starts");
	assert_user_path(RUNTIME_OF_ROOT "/x.sock");
	write_state(pid, "stops");
	assert_user_path(RUNTIME_OF_ROOT "/x.sock");
	write_state(pid, "serves"); /* its socket was removed */
	assert_user_path("/tmp/gbpf-65533/x.sock");
	write_state(pid, "starts");
	assert_int_equal(chmod(RUNTIME_OF_ROOT, 0757), 0);
	assert_user_path("/tmp/gbpf-65533/x.sock");
	assert_int_equal(chmod(RUNTIME_OF_ROOT, 0755), 0);
	assert_int_equal(chown(STATE, USER_B, 0), 0);
	assert_user_path("/tmp/gbpf-65533/x.sock");
	assert_int_equal(chown(STATE, 0, 0), 0);
	assert_user_path(RUNTIME_OF_ROOT "/x.sock");
	end(pid);
	assert_user_path("/tmp/gbpf-65533/x.sock");
	pid = named("other", 0);
	write_state(pid, "starts");
	assert_user_path("/tmp/gbpf-65533/x.sock");
	end(pid);
	pid = named("gbpfd", USER_B);
	write_state(pid, "starts");
	assert_user_path("/tmp/gbpf-65533/x.sock");
	end(pid);
}

#define TEST(name) cmocka_unit_test_teardown(name, empty_run)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(without_a_listener_users_have_their_own),
		TEST(roots_gbpfd_serves_users_that_name_no_directory),
		TEST(a_listener_of_another_user_is_not_used),
		TEST(a_full_queue_counts_where_only_root_writes),
		TEST(one_of_root_that_starts_or_stops_is_awaited),
	};

	return cmocka_run_group_tests(tests, make_run, NULL);
}
