/* A cache's folder: settings, which files are used, what writers that are killed leave, and which
 * files go when it is full. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/disk_cache.h"
#include "base/fd.h"

#include "../users.h"

static char folder[] = "/tmp/gbpf-cache-XXXXXX";
static struct disk_cache cache;

static const char *in_folder(const char *name)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", cache.dir, name);
	return path;
}

/* The number of files with this end of their names. */
static unsigned count_files(const char *end)
{
	DIR *d = opendir(cache.dir);
	const struct dirent *e;
	unsigned n = 0;

	assert_non_null(d);
	while ((e = readdir(d)) != NULL) {
		size_t len = strlen(e->d_name), m = strlen(end);

		n += len > m && strcmp(e->d_name + len - m, end) == 0;
	}
	closedir(d);
	return n;
}

static int before(void **state)
{
	char command[PATH_MAX + 16];

	snprintf(cache.dir, sizeof(cache.dir), "%s/images", folder);
	cache.max_bytes = 1u << 20;
	snprintf(command, sizeof(command), "rm -rf '%s'", cache.dir);
	assert_int_equal(system(command), 0);
	unsetenv("GBPF_CACHE");
	unsetenv("GBPF_CACHE_MB");
	unsetenv("XDG_CACHE_HOME");
	setenv("GBPF_CACHE_DIR", cache.dir, 1);
	return disk_cache_make(&cache, NULL);
}

/* ---- settings ---- */

static int settings_with(const char *name, const char *value)
{
	struct disk_cache c;
	int err;

	setenv(name, value, 1);
	err = disk_cache_settings(&c);
	unsetenv(name);
	return err;
}

static void settings_decide(void **state)
{
	struct disk_cache c;

	assert_int_equal(disk_cache_settings(&c), 0);
	assert_string_equal(c.dir, cache.dir);
	assert_int_equal(c.max_bytes, 1073741824);
	assert_int_equal(settings_with("GBPF_CACHE", "off"), -ENOTSUP);
	assert_int_equal(settings_with("GBPF_CACHE", "0"), -ENOTSUP);
	assert_int_equal(settings_with("GBPF_CACHE_MB", "0"), -ENOTSUP);
	assert_int_equal(settings_with("GBPF_CACHE_MB", "5x"), -EINVAL);
	assert_int_equal(settings_with("GBPF_CACHE_MB", "-5"), -EINVAL);
	assert_int_equal(settings_with("GBPF_CACHE_MB", "99999999999999999999"), -EINVAL);
	assert_int_equal(settings_with("GBPF_CACHE_MB", "17592186044416"), -EINVAL);
	setenv("GBPF_CACHE_MB", "3", 1);
	assert_int_equal(disk_cache_settings(&c), 0);
	assert_int_equal(c.max_bytes, 3145728);
}

static void the_first_variable_names_the_folder(void **state)
{
	struct disk_cache c;

	setenv("HOME", "/home/u", 1);
	setenv("XDG_CACHE_HOME", "/caches", 1);
	unsetenv("GBPF_CACHE_DIR");
	assert_int_equal(disk_cache_settings(&c), 0);
	assert_string_equal(c.dir, "/caches/gbpf");
	unsetenv("XDG_CACHE_HOME");
	assert_int_equal(disk_cache_settings(&c), 0);
	assert_string_equal(c.dir, "/home/u/.cache/gbpf");
	setenv("HOME", "relative", 1);
	assert_int_equal(disk_cache_settings(&c), -EINVAL);
	unsetenv("HOME");
	assert_int_equal(disk_cache_settings(&c), -ENOENT);
}

static void a_home_gets_its_folders(void **state)
{
	char home[PATH_MAX];
	struct disk_cache c;
	struct stat st;

	unsetenv("GBPF_CACHE_DIR");
	snprintf(home, sizeof(home), "%s/images", folder);
	setenv("HOME", home, 1);
	assert_int_equal(disk_cache_settings(&c), 0);
	assert_int_equal(disk_cache_make(&c, NULL), 0);
	assert_int_equal(stat(in_folder(".cache"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(stat(in_folder(".cache/gbpf"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	snprintf(home, sizeof(home), "%s/images/missing", folder);
	setenv("HOME", home, 1);
	assert_int_equal(disk_cache_settings(&c), 0);
	assert_true(disk_cache_make(&c, NULL) < 0);
	assert_int_equal(stat(home, &st), -1); /* no home is made */
}

/* As `sudo` may leave it. */
static void another_users_home_stays_as_it_is(void **state)
{
	struct disk_cache c;
	struct stat st;

	NEED_TWO_USERS();
	unsetenv("GBPF_CACHE_DIR");
	setenv("HOME", cache.dir, 1);
	assert_int_equal(chown(cache.dir, USER_A, USER_A), 0);
	assert_int_equal(disk_cache_settings(&c), 0);
	assert_true(disk_cache_make(&c, NULL) < 0);
	assert_int_equal(stat(in_folder(".cache"), &st), -1);
}

static void folders_that_others_may_write_are_refused(void **state)
{
	char why[PRIVATE_DIR_WHY];

	assert_int_equal(chmod(cache.dir, 0770), 0);
	assert_int_equal(disk_cache_make(&cache, why), -EPERM);
	assert_int_equal(chmod(cache.dir, 0702), 0);
	assert_int_equal(disk_cache_make(&cache, why), -EPERM);
	assert_int_equal(chmod(cache.dir, 0755), 0);
	assert_int_equal(disk_cache_make(&cache, why), 0);
}

/* ---- files ---- */

struct content {
	size_t bytes;
	char fill;
	bool fails;
	int told, wait; /* pipes: written a half; may go on */
};

static int write_content(int fd, void *arg)
{
	const struct content *c = arg;
	char *data = malloc(c->bytes);
	char byte = 0;

	assert_non_null(data);
	memset(data, c->fill, c->bytes);
	assert_int_equal(write(fd, data, c->bytes / 2), c->bytes / 2);
	if (c->told > 0) {
		assert_int_equal(write(c->told, "", 1), 1);
		(void)!read(c->wait, &byte, 1);
	}
	assert_int_equal(write(fd, data, c->bytes - c->bytes / 2), c->bytes - c->bytes / 2);
	free(data);
	return c->fails ? -EIO : 0;
}

static void put(const char *name, size_t bytes, char fill)
{
	struct content c = { .bytes = bytes, .fill = fill };
	int fd = disk_cache_put(&cache, name, bytes, write_content, &c);

	assert_true(fd >= 0);
	fd_close(fd);
}

/* The first byte of a file; 0: there is none. */
static char first_of(const char *name)
{
	int fd = disk_cache_get(&cache, name);
	char c = 0;

	if (fd >= 0) {
		assert_int_equal(pread(fd, &c, 1, 0), 1);
		fd_close(fd);
	}
	return c;
}

static void files_are_found_and_replaced(void **state)
{
	struct stat st;

	assert_int_equal(disk_cache_get(&cache, "one"), -ENOENT);
	put("one", 100, 'a');
	assert_int_equal(first_of("one"), 'a');
	assert_int_equal(first_of("two"), 0);
	put("one", 50, 'b');
	assert_int_equal(first_of("one"), 'b');
	assert_int_equal(stat(in_folder("one.image"), &st), 0);
	assert_int_equal(st.st_size, 50);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(count_files(".tmp"), 0);
}

static void a_file_that_is_replaced_stays_readable(void **state)
{
	char c = 0;
	int fd;

	put("one", 100, 'a');
	fd = disk_cache_get(&cache, "one");
	put("one", 10, 'b');
	assert_int_equal(pread(fd, &c, 1, 99), 1);
	assert_int_equal(c, 'a');
	fd_close(fd);
}

static void a_failed_write_leaves_nothing(void **state)
{
	struct content c = { .bytes = 100, .fill = 'a', .fails = true };

	assert_int_equal(disk_cache_put(&cache, "one", 100, write_content, &c), -EIO);
	assert_int_equal(disk_cache_put(&cache, "one", (1u << 20) + 1, write_content, &c), -EFBIG);
	assert_int_equal(count_files(".tmp") + count_files(".image"), 0);
}

static void foreign_and_writable_files_are_refused(void **state)
{
	put("one", 100, 'a');
	assert_int_equal(chmod(in_folder("one.image"), 0620), 0);
	assert_int_equal(disk_cache_get(&cache, "one"), -EPERM);
	assert_int_equal(chmod(in_folder("one.image"), 0602), 0);
	assert_int_equal(disk_cache_get(&cache, "one"), -EPERM);
	put("one", 100, 'b');
	assert_int_equal(first_of("one"), 'b');
	assert_int_equal(rename(in_folder("one.image"), "/tmp/gbpf-cache-target"), 0);
	assert_int_equal(symlink("/tmp/gbpf-cache-target", in_folder("one.image")), 0);
	assert_int_equal(disk_cache_get(&cache, "one"), -EPERM);
	assert_int_equal(unlink("/tmp/gbpf-cache-target"), 0);
	assert_int_equal(mkfifo(in_folder("two.image"), 0600), 0);
	assert_int_equal(disk_cache_get(&cache, "two"), -EPERM);
}

static void another_users_files_are_refused(void **state)
{
	NEED_TWO_USERS();
	put("one", 100, 'a');
	assert_int_equal(chown(in_folder("one.image"), USER_A, USER_A), 0);
	assert_int_equal(disk_cache_get(&cache, "one"), -EPERM);
	put("one", 100, 'b');
	assert_int_equal(first_of("one"), 'b');
}

/* ---- several writers, and killed ones ---- */

static void concurrent_writers_leave_a_whole_file(void **state)
{
	pid_t child[6];
	int status;

	for (unsigned i = 0; i < ARRAY_SIZE(child); i++) {
		child[i] = fork();
		if (child[i] == 0) {
			for (unsigned n = 0; n < 20; n++) {
				put("one", 20000 + i, (char)('a' + i));
				if (first_of("one") == 0) {
					_exit(1);
				}
			}
			_exit(0);
		}
	}
	for (unsigned i = 0; i < ARRAY_SIZE(child); i++) {
		char data[32768], c = first_of("one");
		int fd = disk_cache_get(&cache, "one");
		ssize_t n = fd < 0 ? 0 : read(fd, data, sizeof(data));

		for (ssize_t at = 1; at < n; at++) {
			assert_int_equal(data[at], data[0]);
		}
		assert_true(!n || n == 20000 + data[0] - 'a');
		assert_true(!n || (c >= 'a' && c <= 'f') || !c);
		fd_close(fd);
		assert_int_equal(waitpid(child[i], &status, 0), child[i]);
		assert_int_equal(status, 0);
	}
	assert_int_equal(count_files(".image"), 1);
	assert_int_equal(count_files(".tmp"), 0);
}

/* Starts a process that is in the middle of writing; *ret_end ends its wait when it is closed. */
static pid_t start_writer(int *ret_end)
{
	int told[2], wait[2];
	char byte;
	pid_t child;

	assert_int_equal(pipe(told) | pipe(wait), 0);
	child = fork();
	if (child == 0) {
		struct content c = { .bytes = 1000, .fill = 'a', .told = told[1], .wait = wait[0] };

		close(wait[1]);
		_exit(disk_cache_put(&cache, "one", c.bytes, write_content, &c) < 0);
	}
	close(told[1]);
	close(wait[0]);
	assert_int_equal(read(told[0], &byte, 1), 1);
	close(told[0]);
	*ret_end = wait[1];
	return child;
}

/* Makes the temporary look as old as one whose writer has exited. */
static void age_temporaries(long seconds)
{
	struct timespec t[2] = { { .tv_sec = time(NULL) - seconds },
				 { .tv_sec = time(NULL) - seconds } };
	DIR *d = opendir(cache.dir);
	const struct dirent *e;

	while ((e = readdir(d)) != NULL) {
		if (strstr(e->d_name, ".tmp")) {
			assert_int_equal(utimensat(dirfd(d), e->d_name, t, 0), 0);
		}
	}
	closedir(d);
}

static void a_killed_writer_leaves_a_temporary_that_is_removed(void **state)
{
	int end, status;
	pid_t child = start_writer(&end);

	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	close(end);
	assert_int_equal(disk_cache_get(&cache, "one"), -ENOENT);
	assert_int_equal(count_files(".tmp"), 1);
	assert_int_equal(disk_cache_trim(&cache), 0); /* it is too new */
	assert_int_equal(count_files(".tmp"), 1);
	age_temporaries(3601);
	assert_int_equal(disk_cache_trim(&cache), 0);
	assert_int_equal(count_files(".tmp"), 0);
}

static void a_slow_writer_keeps_its_temporary(void **state)
{
	int end, status;
	pid_t child = start_writer(&end);

	age_temporaries(7200);
	assert_int_equal(disk_cache_trim(&cache), 0);
	assert_int_equal(count_files(".tmp"), 1);
	close(end);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(first_of("one"), 'a');
}

/* ---- size ---- */

static void set_age(const char *name, long seconds)
{
	struct timespec t[2] = { { .tv_sec = time(NULL) - seconds },
				 { .tv_sec = time(NULL) - seconds } };

	assert_int_equal(utimensat(AT_FDCWD, in_folder(name), t, 0), 0);
}

static void the_files_not_used_for_longest_go(void **state)
{
	cache.max_bytes = 64u << 20;
	put("a", 300000, 'a');
	put("b", 300000, 'b');
	put("c", 300000, 'c');
	set_age("a.image", 500);
	set_age("b.image", 400);
	set_age("c.image", 300);
	assert_int_equal(first_of("a"), 'a'); /* used now */
	cache.max_bytes = 800000;
	assert_int_equal(disk_cache_trim(&cache), 0);
	assert_int_equal(first_of("b"), 0);
	assert_int_equal(first_of("a"), 'a');
	assert_int_equal(first_of("c"), 'c');
}

static void the_limit_is_kept(void **state)
{
	struct disk_cache_summary s;
	char name[16];

	for (unsigned i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		put(name, 100000, 'a');
		assert_int_equal(first_of(name), 'a');
	}
	assert_int_equal(disk_cache_summary(&cache, &s), 0);
	assert_in_range(s.bytes, 700000, 1048576);
	assert_in_range(s.files, 7, 10);
}

static void other_files_stay(void **state)
{
	FILE *f = fopen(in_folder("notes.txt"), "w");

	assert_non_null(f);
	fclose(f);
	set_age("notes.txt", 100000);
	cache.max_bytes = 1;
	assert_int_equal(disk_cache_trim(&cache), 0);
	assert_int_equal(access(in_folder("notes.txt"), F_OK), 0);
}

static void one_process_removes_at_a_time(void **state)
{
	int fd;

	disk_cache_count(&cache, true);
	fd = open(in_folder("lock"), O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(disk_cache_trim(&cache), -EWOULDBLOCK);
	put("one", 100, 'a'); /* does not wait */
	assert_int_equal(first_of("one"), 'a');
	fd_close(fd);
	assert_int_equal(disk_cache_trim(&cache), 0);
}

static void hits_are_counted(void **state)
{
	struct disk_cache_summary s;
	int fd;

	assert_int_equal(disk_cache_summary(&cache, &s), 0);
	assert_int_equal(s.hits + s.misses + s.files + s.bytes, 0);
	disk_cache_count(&cache, true);
	disk_cache_count(&cache, false);
	fd = open(in_folder("lock"), O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	disk_cache_count(&cache, true); /* is added later */
	fd_close(fd);
	disk_cache_count(&cache, true);
	put("one", 100, 'a');
	assert_int_equal(disk_cache_summary(&cache, &s), 0);
	assert_int_equal(s.hits, 3);
	assert_int_equal(s.misses, 1);
	assert_int_equal(s.files, 1);
	assert_int_equal(s.bytes, 100);
}

static int setup(void **state)
{
	umask(022);
	return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
	char command[PATH_MAX + 16];

	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(settings_decide, before),
		cmocka_unit_test_setup(the_first_variable_names_the_folder, before),
		cmocka_unit_test_setup(a_home_gets_its_folders, before),
		cmocka_unit_test_setup(another_users_home_stays_as_it_is, before),
		cmocka_unit_test_setup(folders_that_others_may_write_are_refused, before),
		cmocka_unit_test_setup(files_are_found_and_replaced, before),
		cmocka_unit_test_setup(a_file_that_is_replaced_stays_readable, before),
		cmocka_unit_test_setup(a_failed_write_leaves_nothing, before),
		cmocka_unit_test_setup(foreign_and_writable_files_are_refused, before),
		cmocka_unit_test_setup(another_users_files_are_refused, before),
		cmocka_unit_test_setup(concurrent_writers_leave_a_whole_file, before),
		cmocka_unit_test_setup(a_killed_writer_leaves_a_temporary_that_is_removed, before),
		cmocka_unit_test_setup(a_slow_writer_keeps_its_temporary, before),
		cmocka_unit_test_setup(the_files_not_used_for_longest_go, before),
		cmocka_unit_test_setup(the_limit_is_kept, before),
		cmocka_unit_test_setup(other_files_stay, before),
		cmocka_unit_test_setup(one_process_removes_at_a_time, before),
		cmocka_unit_test_setup(hits_are_counted, before),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
