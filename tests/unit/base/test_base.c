/* base/: buffers, reports, string maps, shared pages, descriptors over sockets. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/array_grow.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/private_dir.h"
#include "base/rate.h"
#include "base/report.h"
#include "base/shm.h"
#include "base/strmap.h"

#include "../eventually.h"

static void buffer_has_all_appended_bytes(void **state)
{
	struct buf b;

	(void)state;
	buf_init(&b);
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(buf_printf(&b, "%d,", i % 10), 0);
	}
	assert_int_equal(b.len, 2000);
	buf_drop(&b, 1998);
	assert_string_equal(buf_text(&b), "9,");
	buf_finish(&b);
	assert_string_equal(buf_text(&b), "");
}

static void buffer_refuses_a_file_over_the_limit(void **state)
{
	struct buf b;

	(void)state;
	buf_init(&b);
	assert_int_equal(buf_read_file(&b, "/proc/self/maps", 10), -EFBIG);
	buf_finish(&b);
	assert_int_equal(buf_read_file(&b, "/no/such/file", 10), -ENOENT);
}

static void an_array_doubles_up_to_its_limit(void **state)
{
	int *a = NULL, *grown;
	volatile size_t bytes = SIZE_MAX; /* or the compiler refuses it */
	size_t n = 0, room = 0;

	(void)state;
	while ((grown = array_grow(a, n, &room, sizeof(*a), 3, 25)) != NULL) {
		a = grown;
		assert_true(n < room);
		a[n] = (int)n;
		n++;
	}
	assert_int_equal(n, 24);
	assert_int_equal(room, 24);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(a[i], i);
	}
	free(a);
	room = 0;
	assert_null(array_grow(NULL, 0, &room, bytes, 2, SIZE_MAX)); /* bytes overflow */
	assert_int_equal(room, 0);
}

static void report_keeps_the_first_message(void **state)
{
	struct report r;
	struct buf text;

	(void)state;
	report_init(&r);
	buf_init(&text);
	assert_int_equal(report_set(&r, -EINVAL, "elf", "cause %d", 1), -EINVAL);
	report_set(&r, -EIO, "other", "consequence");
	report_place(&r, "x.o:%d", 7);
	report_hint(&r, "Do that");
	report_text(&r, &text);
	assert_string_equal(buf_text(&text), "x.o:7: cause 1. Do that");
	assert_string_equal(r.code, "elf");
	buf_finish(&text);
	report_finish(&r);
}

static void strmap_finds_exactly_its_entries(void **state)
{
	struct strmap m;
	char key[16];

	(void)state;
	strmap_init(&m);
	assert_null(strmap_get(&m, "nothing"));
	for (intptr_t i = 1; i <= 5000; i++) {
		snprintf(key, sizeof(key), "k%d", (int)i);
		assert_int_equal(strmap_add(&m, key, (void *)i), 0);
		assert_int_equal(strmap_add(&m, key, (void *)i), -EEXIST);
	}
	for (intptr_t i = 1; i <= 5000; i += 2) {
		snprintf(key, sizeof(key), "k%d", (int)i);
		assert_ptr_equal(strmap_del(&m, key), (void *)i);
	}
	for (intptr_t i = 1; i <= 5000; i++) {
		snprintf(key, sizeof(key), "k%d", (int)i);
		assert_ptr_equal(strmap_get(&m, key), i % 2 ? NULL : (void *)i);
	}
	assert_int_equal(m.live, 2500);
	/* adding and removing repeatedly must not grow the map without bound */
	for (int i = 0; i < 100000; i++) {
		assert_int_equal(strmap_add(&m, "again", &m), 0);
		assert_ptr_equal(strmap_del(&m, "again"), &m);
	}
	assert_true(m.cap <= 16384);
	strmap_finish(&m);
}

static void sealed_page_cannot_be_resized_or_mapped_writable(void **state)
{
	int fd = shm_create("test", 8192, SHM_NOEXEC);
	char *mine, *theirs;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(shm_check(fd, 8192), 0);
	assert_int_equal(shm_check(fd, 4096), -EFBIG);
	assert_int_equal(shm_check(fd, 16384), -EINVAL);
	assert_int_equal(ftruncate(fd, 4096), -1);
	mine = shm_map(fd, 8192, 1);
	assert_non_null(mine);
	assert_int_equal(shm_seal_future_write(fd), 0);
	assert_null(shm_map(fd, 8192, 1));
	assert_int_equal(write(fd, "x", 1), -1);
	theirs = shm_map(fd, 8192, 0);
	assert_non_null(theirs);
	mine[5000] = 'y';
	assert_int_equal(theirs[5000], 'y');
	shm_unmap(mine, 8192);
	shm_unmap(theirs, 8192);
	close(fd);
}

/* No reader looks behind the end of a page, but the process that closes it last would have to free
 * that memory. */
static void page_with_memory_behind_its_end_is_refused(void **state)
{
	int fd = memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(fallocate(fd, FALLOC_FL_KEEP_SIZE, 4096, 8 << 20), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	assert_int_equal(shm_check(fd, 4096), -EINVAL);
	close(fd);
	fd = shm_create("test", 4096, SHM_NOEXEC);
	assert_int_equal(fallocate(fd, FALLOC_FL_KEEP_SIZE, 4096, 8 << 20), -1); /* the seals */
	assert_int_equal(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
	assert_int_equal(shm_check(fd, 4096), 0);
	close(fd);
}

/* A sealed page is closed at once; any other descriptor is closed eventually. */
static void foreign_descriptors_are_closed(void **state)
{
	int page = shm_create("page", 4096, SHM_NOEXEC);
	int open_ended = memfd_create("open", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	int large = shm_create("large", 64 << 20, SHM_NOEXEC), p[2];

	(void)state;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	errno = ERANGE;
	assert_int_equal(fd_close_foreign(page), -1);
	assert_int_equal(errno, ERANGE);
	assert_int_equal(fcntl(page, F_GETFD), -1);
	fd_close_foreign(open_ended);
	fd_close_foreign(large);
	fd_close_foreign(p[0]);
	fd_close_foreign(p[1]);
	eventually(fcntl(open_ended, F_GETFD) < 0 && fcntl(large, F_GETFD) < 0 &&
		   fcntl(p[0], F_GETFD) < 0 && fcntl(p[1], F_GETFD) < 0);
}

static void ordinary_file_is_no_page(void **state)
{
	int fd = open("/proc/self/exe", O_RDONLY);

	(void)state;
	assert_int_equal(shm_checked_size(fd, 1u << 30), -EBADF);
	close(fd);
}

static void message_carries_descriptors(void **state)
{
	int pair[2], fds[FD_PASS_MAX], pipes[2];
	unsigned n;
	char text[8];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(msg_recv(pair[1], text, sizeof(text), fds, &n), -EAGAIN);
	assert_int_equal(msg_send(pair[0], "hi", 2, &pipes[1], 1), 0);
	assert_int_equal(msg_recv(pair[1], text, sizeof(text), fds, &n), 2);
	assert_int_equal(n, 1);
	assert_int_equal(write(fds[0], "z", 1), 1);
	assert_int_equal(read(pipes[0], text, 1), 1);
	assert_int_equal(text[0], 'z');
	close(fds[0]);
	assert_int_equal(msg_send(pair[0], "much too long", 13, NULL, 0), 0);
	assert_int_equal(msg_recv(pair[1], text, sizeof(text), fds, &n), -EMSGSIZE);
	close(pair[0]);
	assert_int_equal(msg_recv(pair[1], text, sizeof(text), fds, &n), 0);
	assert_int_equal(msg_send(pair[1], "x", 1, NULL, 0), -EPIPE);
	close(pair[1]);
	close(pipes[0]);
	close(pipes[1]);
}

static void futex_wait_ends_by_change_and_by_time(void **state)
{
	uint32_t word = 5;

	(void)state;
	assert_int_equal(futex_wait_shared(&word, 4, 1000000000u), 0);
	assert_int_equal(futex_wait_shared(&word, 5, 1000000u), -ETIMEDOUT);
}

static void fast_clock_follows_the_clock(void **state)
{
	uint64_t last = 0, begin = clock_now_ns(), far = 0;

	(void)state;
	/* enough to learn the rate and to read the real clock again several times */
	while (clock_now_ns() - begin < 60000000u) {
		uint64_t before = clock_now_ns(), fast = clock_fast_ns(), after = clock_now_ns();

		assert_true(fast >= last);
		last = fast;
		/* the limit is a microsecond; being descheduled between the readings widens the
		 * interval itself */
		far += fast + 1000 < before || fast > after + 1000;
	}
	assert_int_equal(far, 0);
}

static void private_directory_writable_by_others_is_refused(void **state)
{
	char dir[] = "/tmp/gbpf-test-XXXXXX", sub[64];

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(sub, sizeof(sub), "%s/a/b", dir);
	assert_int_equal(private_dir_make(sub, 0700, false, NULL), -ENOENT);
	assert_int_equal(private_dir_make(sub, 0700, true, NULL), 0);
	assert_int_equal(private_dir_make(sub, 0700, false, NULL), 0);
	assert_int_equal(chmod(sub, 0777), 0);
	assert_int_equal(private_dir_make(sub, 0700, false, NULL), -EPERM);
	assert_int_equal(chmod(sub, 0770), 0);
	assert_int_equal(private_dir_make(sub, 0700, false, NULL), -EPERM);
	rmdir(sub);
	snprintf(sub, sizeof(sub), "%s/a", dir);
	rmdir(sub);
	rmdir(dir);
}

static void rate_limit_counts_each_second_separately(void **state)
{
	const uint64_t second = 1000000000u;
	struct rate_limit r = { 0 };

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		assert_true(rate_allow(&r, 3, 5 * second));
	}
	assert_false(rate_allow(&r, 3, 6 * second - 1));
	assert_true(rate_allow(&r, 3, 6 * second));
	assert_int_equal(r.n, 1);
	assert_true(rate_allow(&r, 2, 6 * second));
	assert_false(rate_allow(&r, 2,
				6 * second)); /* a lower limit applies to what has passed already */
	assert_true(rate_allow(&r, 2, 5 * second)); /* the clock was replaced by an earlier one */
	assert_false(rate_allow(&r, 0, 9 * second));
}

static void rate_limit_allows_the_first_event_at_time_zero(void **state)
{
	struct rate_limit r = { 0 };

	(void)state;
	assert_true(rate_allow(&r, 1, 0));
	assert_false(rate_allow(&r, 1, 0));
}

/* Returns what clock_patience() makes of a timeout in a process with that variable. */
static int patience_of(const char *text, uint64_t timeout, uint64_t expected)
{
	int status = -1;
	pid_t pid = fork(); /* the variable is read once */

	if (pid == 0) {
		if (text) {
			setenv("GBPF_PATIENCE", text, 1);
		} else {
			unsetenv("GBPF_PATIENCE");
		}
		_exit(clock_patience(timeout) != expected);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void timeouts_are_multiplied_by_the_patience(void **state)
{
	assert_int_equal(patience_of(NULL, 15000, 15000), 0);
	assert_int_equal(patience_of("20", 15000, 300000), 0);
	assert_int_equal(patience_of("1000", UINT64_MAX / 2, UINT64_MAX), 0);
	assert_int_equal(patience_of("0", 15000, 15000), 0);
	assert_int_equal(patience_of("1001", 15000, 15000), 0);
	assert_int_equal(patience_of("-3", 15000, 15000), 0);
	assert_int_equal(patience_of("much", 15000, 15000), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(timeouts_are_multiplied_by_the_patience),
		cmocka_unit_test(buffer_has_all_appended_bytes),
		cmocka_unit_test(buffer_refuses_a_file_over_the_limit),
		cmocka_unit_test(an_array_doubles_up_to_its_limit),
		cmocka_unit_test(report_keeps_the_first_message),
		cmocka_unit_test(strmap_finds_exactly_its_entries),
		cmocka_unit_test(sealed_page_cannot_be_resized_or_mapped_writable),
		cmocka_unit_test(page_with_memory_behind_its_end_is_refused),
		cmocka_unit_test(foreign_descriptors_are_closed),
		cmocka_unit_test(ordinary_file_is_no_page),
		cmocka_unit_test(message_carries_descriptors),
		cmocka_unit_test(futex_wait_ends_by_change_and_by_time),
		cmocka_unit_test(fast_clock_follows_the_clock),
		cmocka_unit_test(rate_limit_counts_each_second_separately),
		cmocka_unit_test(rate_limit_allows_the_first_event_at_time_zero),
		cmocka_unit_test(private_directory_writable_by_others_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
