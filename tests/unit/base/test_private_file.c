/* Files and locks of one user: kinds, owners and modes that are refused or reduced, and which lock
 * is replaced by a new one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/private_file.h"

#include "../users.h"

static char root[64], path[80];
static unsigned asked;

static int set_up(void **state)
{
	umask(0);
	asked = 0;
	snprintf(root, sizeof(root), "/tmp/gbpf-private-XXXXXX");
	if (!mkdtemp(root)) {
		return -1;
	}
	snprintf(path, sizeof(path), "%s/file", root);
	return 0;
}

static int tear_down(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

static mode_t mode_of(const char *file)
{
	struct stat st;

	assert_int_equal(lstat(file, &st), 0);
	return st.st_mode & 07777;
}

static ino_t inode_of(const char *file)
{
	struct stat st;

	assert_int_equal(stat(file, &st), 0);
	return st.st_ino;
}

/* Makes a file of this mode with a text, and returns it open with its lock held. */
static int held(const char *text, mode_t mode)
{
	int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, mode), 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	return fd;
}

static void files_are_the_owners_only(void **state)
{
	int fd = private_file_open(path, O_RDWR);

	assert_int_equal(fd, -ENOENT);
	fd = private_file_open(path, O_RDWR | O_CREAT);
	assert_true(fd >= 0);
	assert_int_equal(mode_of(path), 0600);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
	chmod(path, 0400);
	fd = private_file_open(path, O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(mode_of(path), 0400); /* not wider than it was */
	close(fd);
	for (mode_t bit = 01; bit <= 040; bit <<= 1) {
		chmod(path, 0600 | bit);
		fd = private_file_open(path, O_RDONLY);
		assert_true(fd >= 0);
		assert_int_equal(mode_of(path), 0600);
		close(fd);
	}
}

static void other_kinds_of_files_are_refused(void **state)
{
	char other[90];

	snprintf(other, sizeof(other), "%s2", path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(private_file_open(path, O_RDWR), -EPERM);
	unlink(path);
	assert_int_equal(symlink(other, path), 0);
	assert_int_equal(private_file_open(path, O_RDWR | O_CREAT), -ELOOP);
	assert_int_equal(access(other, F_OK), -1);
	unlink(path);
	close(open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600));
	assert_int_equal(link(path, other), 0);
	assert_int_equal(private_file_open(path, O_RDWR), -EPERM);
	unlink(other);
	close(private_file_open(path, O_RDWR));
	assert_int_equal(mode_of(path), 0600);
}

static void files_of_other_users_are_refused(void **state)
{
	NEED_TWO_USERS();
	close(open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0666));
	chmod(path, 0666);
	assert_int_equal(chown(path, USER_A, USER_A), 0);
	chmod(path, 0666);
	assert_int_equal(private_file_open(path, O_RDWR), -EPERM);
	assert_int_equal(mode_of(path), 0666);
}

static void a_refused_file_is_closed(void **state)
{
	int next = dup(0);

	close(next);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(private_file_open(path, O_RDWR), -EPERM);
	assert_int_equal(fcntl(next, F_GETFD), -1);
}

/* A program that was started without standard input gets its number. */
static void descriptor_zero_is_as_good_as_any(void **state)
{
	int saved = dup(0);
	char text[32];

	close(0);
	assert_int_equal(private_file_open(path, O_RDWR | O_CREAT), 0);
	chmod(path, 0640);
	close(0);
	assert_int_equal(private_file_open(path, O_RDWR), 0);
	assert_int_equal(mode_of(path), 0600);
	close(0);
	assert_int_equal(private_file_lock(path, NULL, NULL, text), 0);
	assert_int_equal(dup2(saved, 0), 0);
	close(saved);
}

static bool yes(void *arg)
{
	assert_ptr_equal(arg, &asked);
	asked++;
	return true;
}

static bool no(void *arg)
{
	assert_ptr_equal(arg, &asked);
	asked++;
	return false;
}

static void a_lock_is_held_once_and_says_by_whom(void **state)
{
	char text[32];
	int fd = private_file_lock(path, no, &asked, text);

	assert_true(fd >= 0);
	assert_string_equal(text, "");
	assert_int_equal(mode_of(path), 0600);
	assert_int_equal(write(fd, "4711\n", 5), 5);
	assert_int_equal(private_file_lock(path, no, &asked, text), -EWOULDBLOCK);
	assert_string_equal(text, "4711\n");
	assert_int_equal(asked, 0); /* no other user could have opened it */
	close(fd);
	fd = private_file_lock(path, no, &asked, text);
	assert_true(fd >= 0);
	assert_string_equal(text, "");
	close(fd);
}

static void at_most_31_bytes_of_the_text_are_read(void **state)
{
	static const char long_text[] = "0123456789012345678901234567890123456789";
	char text[64];
	int fd = held(long_text, 0600);

	memset(text, '!', sizeof(text));
	assert_int_equal(private_file_lock(path, NULL, NULL, text), -EWOULDBLOCK);
	assert_memory_equal(text, long_text, 31);
	assert_int_equal(text[31], 0);
	assert_int_equal(text[32], '!');
	close(fd);
}

/* The flock of a file that others may open says nothing about the service. */
static void an_exposed_lock_is_replaced(void **state)
{
	char text[32];
	int fd = held("old", 0644), mine;
	ino_t old = inode_of(path);

	assert_int_equal(private_file_lock(path, yes, &asked, text), -EWOULDBLOCK);
	assert_string_equal(text, "old");
	assert_int_equal(asked, 1);
	assert_int_equal(private_file_lock(path, NULL, NULL, text), -EWOULDBLOCK);
	assert_int_equal(inode_of(path), old);
	mine = private_file_lock(path, no, &asked, text);
	assert_true(mine >= 0);
	assert_int_equal(asked, 2);
	assert_int_equal(mode_of(path), 0600);
	assert_int_not_equal(inode_of(path), old);
	assert_int_equal(private_file_lock(path, no, &asked, text), -EWOULDBLOCK);
	close(mine);
	close(fd);
}

static void an_exposed_lock_that_is_free_is_replaced(void **state)
{
	char text[32];
	int fd = held("old", 0640), mine;
	ino_t old = inode_of(path);

	flock(fd, LOCK_UN); /* still open, as another user may have it */
	mine = private_file_lock(path, yes, &asked, text);
	assert_true(mine >= 0);
	assert_int_equal(asked, 0);
	assert_int_not_equal(inode_of(path), old);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0); /* it is no lock any more */
	close(mine);
	close(fd);
}

/* Somebody replaces the exposed file each time. */
static bool replaced(void *arg)
{
	unlink(path);
	close(*(int *)arg);
	*(int *)arg = held("new", 0644);
	asked++;
	return false;
}

static void a_lock_that_is_replaced_for_ever_is_busy(void **state)
{
	char text[32];
	int fd = held("old", 0644);

	assert_int_equal(private_file_lock(path, replaced, &fd, text), -EBUSY);
	assert_int_equal(asked, 100);
	close(fd);
}

static void errors_are_returned(void **state)
{
	char text[32], none[100];

	snprintf(none, sizeof(none), "%s/none/file", root);
	assert_int_equal(private_file_lock(none, no, &asked, text), -ENOENT);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(private_file_lock(path, no, &asked, text), -EPERM);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(files_are_the_owners_only),
		TEST(other_kinds_of_files_are_refused),
		TEST(files_of_other_users_are_refused),
		TEST(a_refused_file_is_closed),
		TEST(descriptor_zero_is_as_good_as_any),
		TEST(a_lock_is_held_once_and_says_by_whom),
		TEST(at_most_31_bytes_of_the_text_are_read),
		TEST(an_exposed_lock_is_replaced),
		TEST(an_exposed_lock_that_is_free_is_replaced),
		TEST(a_lock_that_is_replaced_for_ever_is_busy),
		TEST(errors_are_returned),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
