/* Directories that only their owner and root can lead elsewhere: each step of a path by its owner,
 * mode and kind, with two users; lengths at their exact edges. */
#include "private_dir_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>

#include "../users.h"

/* Asserts the result for a name, and that the reason is this one, behind the folder. */
static void check(const char *name, int want, const char *reason)
{
	int err = private_dir_check(in(name), why);

	snprintf(text, sizeof(text), "%s/%s", root, reason ? reason : "");
	if (err != want || (reason && strcmp(why, text) != 0)) {
		fail_msg("%s: %d (%s), expected %d (%s)", name, err, why, want, text);
	}
}

static void owners_are_this_user_and_root(void **state)
{
	NEED_TWO_USERS();
	make("mine", 0, 0, 0700);
	make("mine/sub", 0, 0, 0700);
	make("a", USER_A, USER_A, 0755);
	make("a/sub", 0, 0, 0700);
	make("b", USER_B, USER_B, 0755);
	make("b/a", USER_A, USER_A, 0700);
	check("mine/sub", 0, NULL);
	check("a", -EPERM, "a belongs to user 65533");
	check("a/sub", -EPERM, "a belongs to user 65533");
	check("b", -EPERM, "b belongs to user 65534");
	check("b/a", -EPERM, "b belongs to user 65534"); /* all owners are mapped here */
	assert_int_equal(seteuid(USER_A), 0);
	check("a", 0, NULL);
	check("a/sub", 0, NULL);
	check("mine", 0, NULL); /* root may do anything to this user, too */
	check("mine/sub", -EACCES, NULL);
	check("b/a", -EPERM, "b belongs to user 65534");
	assert_int_equal(seteuid(0), 0);
}

static void writers_are_this_user_and_root(void **state)
{
	NEED_TWO_USERS();
	make("open", 0, 0, 0777);
	make("open/sub", 0, 0, 0700);
	make("sticky", 0, 0, 01777);
	make("sticky/sub", 0, 0, 0700);
	make("group", 0, USER_B, 0775);
	make("group/sub", 0, 0, 0700);
	make("roots", 0, 0, 0775);
	make("roots/sub", 0, 0, 0700);
	make("own", 0, USER_A, 0775);
	make("own/sub", USER_A, USER_A, 0700);
	make("read", 0, USER_B, 0755);
	make("read/sub", 0, 0, 0700);
	check("open", -EPERM, "open is writable by everybody");
	check("open/sub", -EPERM, "open is writable by everybody");
	check("sticky", -EPERM, "sticky is writable by everybody");
	check("sticky/sub", 0, NULL);
	check("group", -EPERM, "group is writable by its group");
	check("group/sub", -EPERM, "group is writable by its group");
	check("roots", -EPERM, "roots is writable by its group");
	check("roots/sub", 0, NULL);
	check("own/sub", -EPERM, "own is writable by its group");
	check("read/sub", 0, NULL);
	check("read", 0, NULL);
	assert_int_equal(seteuid(USER_A), 0);
	check("own", -EPERM, "own is writable by its group");
	check("own/sub", 0, NULL); /* the group of the user's own number */
	assert_int_equal(seteuid(0), 0);
}

static void only_directories_and_links_are_steps(void **state)
{
	int fd = open(in("file"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	close(fd);
	check("file", -ENOTDIR, "file is not a directory");
	check("file/sub", -ENOTDIR, "file is not a directory");
	check("none", -ENOENT, "none: No such file or directory");
	check("none/sub", -ENOENT, "none: No such file or directory");
	assert_int_equal(private_dir_check("relative/dir", why), -EINVAL);
	assert_string_equal(why, "'relative/dir' is not an absolute path");
	assert_int_equal(private_dir_check("", why), -EINVAL);
	assert_int_equal(private_dir_check("/", why), 0);
	assert_int_equal(private_dir_check("/..", why), 0);
	assert_int_equal(private_dir_check("/tmp", why), -EPERM);
	assert_string_equal(why, "/tmp is writable by everybody");
}

static void dots_and_slashes_are_followed(void **state)
{
	make("d", geteuid(), getegid(), 0700);
	make("d/e", geteuid(), getegid(), 0700);
	make("open", geteuid(), getegid(), 0777);
	check("d/./e//../../d/e/", 0, NULL);
	check("d/../open/../d", -EPERM, "open is writable by everybody");
	check("./d/../..", -EPERM, NULL); /* /tmp is open to everybody ... */
	check("./d/../../..", 0, NULL);	  /* ... and / is not */
}

static void links_are_followed_step_by_step(void **state)
{
	make("d", geteuid(), getegid(), 0700);
	make("d/e", geteuid(), getegid(), 0700);
	make("open", geteuid(), getegid(), 0777);
	make("open/sub", geteuid(), getegid(), 0700);
	assert_int_equal(symlink("d", in("relative")), 0);
	assert_int_equal(symlink(in("d"), in("absolute")), 0);
	assert_int_equal(symlink("../d", in("d/up")), 0);
	assert_int_equal(symlink(in("open/sub"), in("d/bad")), 0);
	assert_int_equal(symlink("none", in("dangling")), 0);
	assert_int_equal(symlink("loop", in("loop")), 0);
	check("relative/e", 0, NULL);
	check("absolute/e", 0, NULL);
	check("relative", 0, NULL); /* the directory that it names */
	check("d/up/e", 0, NULL);
	check("d/up/up/up/e", 0, NULL);
	check("d/bad", -EPERM, "open is writable by everybody");
	check("dangling", -ENOENT, "none: No such file or directory");
	check("loop", -ELOOP, "loop: Too many levels of symbolic links");
}

static void links_of_other_users_are_refused(void **state)
{
	NEED_TWO_USERS();
	make("d", 0, 0, 0700);
	assert_int_equal(symlink("d", in("link")), 0);
	assert_int_equal(lchown(in("link"), USER_A, USER_A), 0);
	check("link", -EPERM, "link belongs to user 65533");
}

/* As in the kernel: 40 links at most. */
static void forty_links_are_followed(void **state)
{
	char link[16], target[16] = "d";

	make("d", geteuid(), getegid(), 0700);
	for (int i = 1; i <= 41; i++) {
		snprintf(link, sizeof(link), "l%d", i);
		assert_int_equal(symlink(target, in(link)), 0);
		memcpy(target, link, sizeof(link));
	}
	check("l40", 0, NULL);
	check("l41", -ELOOP, NULL);
}

static void names_and_paths_have_the_lengths_of_the_kernel(void **state)
{
	char name[300], path[PATH_MAX + 2];
	size_t n = strlen(root);

	memset(name, 'n', sizeof(name));
	name[255] = 0;
	make(name, geteuid(), getegid(), 0700);
	check(name, 0, NULL);
	name[255] = 'n';
	name[256] = 0;
	check(name, -ENAMETOOLONG, NULL);
	assert_non_null(strstr(why, ": a name is too long"));
	for (size_t length = PATH_MAX - 1; length <= PATH_MAX; length++) {
		memset(path, '/', sizeof(path));
		memcpy(path + length - n, root, n + 1);
		assert_int_equal(private_dir_check(path, why),
				 length < PATH_MAX ? 0 : -ENAMETOOLONG);
	}
	assert_non_null(strstr(why, ": the path is too long"));
}

/* The target of a link and what follows it have the same limit together. */
static void long_targets_are_refused(void **state)
{
	char target[PATH_MAX];
	size_t n = strlen(root);

	make("d", geteuid(), getegid(), 0700);
	for (size_t rest = 2; rest <= 4; rest++) { /* "/d", "//d", "///d" behind the link */
		size_t length =
			PATH_MAX - 4; /* with a slash and two more letters: exactly the limit */

		memset(target, '/', sizeof(target));
		memcpy(target + length - n, root, n);
		target[length] = 0;
		unlink(in("long"));
		assert_int_equal(symlink(target, in("long")), 0);
		check(rest == 2	  ? "long/d"
		      : rest == 3 ? "long//d"
				  : "long///d",
		      rest == 2 ? 0 : -ENAMETOOLONG,
		      rest == 2 ? NULL : "long: the path is too long");
	}
}

/* In the child: becomes root of a user namespace with this map, checks the two paths. */
static int check_in_namespace(const int go[2], const int made[2], const char *way, const char *last)
{
	char reason[PRIVATE_DIR_WHY];
	int result;

	if (unshare(CLONE_NEWUSER) < 0 || write(made[1], "x", 1) != 1 ||
	    read(go[0], reason, 1) != 1) {
		return 99;
	}
	result = private_dir_check(way, reason) == 0;
	return result | (private_dir_check(last, reason) == 0) << 1;
}

/* Returns bit 0: the directory on the way was accepted, bit 1: the last one was. */
static int in_namespace(const char *map, const char *way, const char *last)
{
	int go[2], made[2], status, fd;
	char path[64], byte;
	pid_t pid;

	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	assert_int_equal(pipe2(made, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		close(go[1]);
		_exit(check_in_namespace(go, made, way, last));
	}
	close(made[1]);
	if (read(made[0], &byte, 1) == 1) {
		snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		assert_int_equal(write(fd, map, strlen(map)), (ssize_t)strlen(map));
		close(fd);
		assert_int_equal(write(go[1], "x", 1), 1);
	}
	close(go[0]);
	close(go[1]);
	close(made[0]);
	waitpid(pid, &status, 0);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* Owners that a user namespace does not map appear as user 65534. They count as root on the way,
 * unless the namespace has a user of that number. */
static void owners_outside_of_the_namespace_count_as_root(void **state)
{
	static const struct {
		const char *map;
		int accepted;
	} cases[] = {
		{ "0 0 1", 1 },
		{ "0 0 65534", 1 }, /* the numbers below */
		{ "0 0 65535", 0 }, /* and that number */
		{ "0 0 65000\n65534 70000 1", 0 },
		{ "0 0 65000\n65535 70000 1", 1 },
		{ "0 0 65000\n65533 70000 1", 1 },
		{ "65534 70000 1\n0 0 65000", 0 },
	};

	NEED_TWO_USERS();
	make("outside", 80000, 80000, 0755);
	make("outside/sub", 0, 0, 0700);
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int got = in_namespace(cases[i].map, in("outside/sub"), in("outside"));

		if (got == 99) {
			assert_null(getenv("CI"));
			fprintf(stderr, "skipped: no user namespaces here\n");
			skip();
		}
		if (got != cases[i].accepted) {
			fail_msg("%s: %d", cases[i].map, got);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(owners_are_this_user_and_root),
		TEST(writers_are_this_user_and_root),
		TEST(only_directories_and_links_are_steps),
		TEST(dots_and_slashes_are_followed),
		TEST(links_are_followed_step_by_step),
		TEST(links_of_other_users_are_refused),
		TEST(forty_links_are_followed),
		TEST(names_and_paths_have_the_lengths_of_the_kernel),
		TEST(long_targets_are_refused),
		TEST(owners_outside_of_the_namespace_count_as_root),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
