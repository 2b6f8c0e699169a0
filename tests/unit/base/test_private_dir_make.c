/* Making directories that only their owner and root can lead elsewhere: modes, parents, reasons of
 * failures, and what is removed again. */
#include "private_dir_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static void directories_are_made_with_their_mode(void **state)
{
	struct stat st;

	assert_int_equal(private_dir_make(in("a"), 0700, false, why), 0);
	assert_int_equal(stat(in("a"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_string_equal(why, "");
	assert_int_equal(private_dir_make(in("p/q/r"), 0700, true, why), 0);
	assert_int_equal(stat(in("p/q/r"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(stat(in("p/q"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(stat(in("p"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(private_dir_make(in("p/q/r"), 0755, true, why), 0); /* exists */
	assert_int_equal(stat(in("p/q/r"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
}

static void make_fails(const char *name, bool parents, int want, const char *reason)
{
	assert_int_equal(private_dir_make(in(name), 0700, parents, why), want);
	snprintf(text, sizeof(text), "%s/%s", root, reason);
	assert_string_equal(why, text);
}

static void what_cannot_be_made_is_explained(void **state)
{
	int fd = open(in("file"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	close(fd);
	make_fails("a/b/c", false, -ENOENT, "a does not exist");
	make("a", geteuid(), getegid(), 0700);
	make_fails("a/b/c", false, -ENOENT, "a/b does not exist");
	make_fails("file", false, -ENOTDIR, "file is not a directory");
	make_fails("file/sub", false, -ENOTDIR, "file/sub: Not a directory");
	make_fails("file/b/c", true, -ENOTDIR, "file/b: Not a directory");
	assert_int_equal(private_dir_make("relative", 0700, true, why), -EINVAL);
	assert_string_equal(why, "'relative' is not an absolute path");
	assert_int_equal(access("relative", F_OK), -1);
	assert_int_equal(private_dir_make(in("b/c"), 0700, false, NULL), -ENOENT);
}

/* What was made in vain is removed again; what was there stays. */
static void refused_directories_are_removed(void **state)
{
	make("open", geteuid(), getegid(), 0777);
	make_fails("open/sub", false, -EPERM, "open is writable by everybody");
	assert_int_equal(access(in("open/sub"), F_OK), -1);
	make("open/old", geteuid(), getegid(), 0700);
	make_fails("open/old", false, -EPERM, "open is writable by everybody");
	assert_int_equal(access(in("open/old"), F_OK), 0);
}

static void directories_of_any_length_are_made(void **state)
{
	char path[PATH_MAX + 2];
	size_t n = strlen(in("d"));

	for (size_t length = PATH_MAX - 1; length <= PATH_MAX; length++) {
		memset(path, '/', sizeof(path));
		memcpy(path + length - n, in("d"), n + 1);
		assert_int_equal(private_dir_make(path, 0700, length == PATH_MAX, why),
				 length < PATH_MAX ? 0 : -ENAMETOOLONG);
		assert_int_equal(rmdir(in("d")), length < PATH_MAX ? 0 : -1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(directories_are_made_with_their_mode),
		TEST(what_cannot_be_made_is_explained),
		TEST(refused_directories_are_removed),
		TEST(directories_of_any_length_are_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
