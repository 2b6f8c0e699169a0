/* Buffers and reports: sizes at their exact edges, the first failure that stays, who owns what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <wchar.h>

#include "base/atomic.h"
#include "base/buf.h"
#include "base/report.h"

#include "../eventually.h"

EXPORT const char *__asan_default_options(void);
EXPORT const char *__tsan_default_options(void);

/* Sizes that no machine has are refused by malloc() with AddressSanitizer, too. */
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void)
{
	return "allocator_may_return_null=1";
}

static void capacity_doubles_from_64(void **state)
{
	char text[200];
	struct buf b;

	memset(text, 'x', sizeof(text));
	buf_init(&b);
	assert_int_equal(buf_add(&b, text, 63), 0); /* and the zero byte */
	assert_int_equal(b.cap, 64);
	assert_int_equal(buf_add(&b, text, 1), 0);
	assert_int_equal(b.cap, 128);
	assert_int_equal(buf_add(&b, text, 63), 0);
	assert_int_equal(b.cap, 128);
	assert_int_equal(b.len, 127);
	assert_int_equal(b.data[127], 0);
	assert_int_equal(buf_add(&b, NULL, 0), 0);
	assert_int_equal(b.len, 127);
	buf_finish(&b);
	assert_null(b.data);
	assert_int_equal(b.cap, 0);
}

/* Sums that do not fit are found before memory is touched. */
static void sums_that_overflow_are_out_of_memory(void **state)
{
	const size_t more[] = { SIZE_MAX, SIZE_MAX - 9, SIZE_MAX - 10, SIZE_MAX / 2 + 1 };
	struct buf b;

	for (unsigned i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
		buf_init(&b);
		assert_int_equal(buf_puts(&b, "0123456789"), 0);
		assert_int_equal(buf_add(&b, "", more[i]), -ENOMEM);
		assert_int_equal(b.failed, -ENOMEM);
		assert_int_equal(b.len, 10);
		/* what comes later is refused, too, so that one check at the end is enough */
		assert_int_equal(buf_puts(&b, "x"), -ENOMEM);
		assert_int_equal(buf_printf(&b, "%d", 1), -ENOMEM);
		assert_string_equal(buf_text(&b), "0123456789");
		buf_clear(&b);
		assert_string_equal(buf_text(&b), "");
		assert_int_equal(buf_puts(&b, "y"), 0);
		assert_string_equal(buf_text(&b), "y");
		buf_finish(&b);
	}
}

static void text_that_cannot_be_formatted_is_not_added(void **state)
{
	const wchar_t wrong[] = { 0x100, 0 }; /* the C locale has no such letter */
	struct buf b;

	buf_init(&b);
	assert_int_equal(buf_puts(&b, "before"), 0);
	assert_int_equal(buf_printf(&b, "%ls", wrong), -EINVAL);
	assert_string_equal(buf_text(&b), "before");
	buf_finish(&b);
}

static void dropping_keeps_the_rest(void **state)
{
	struct buf b;

	buf_init(&b);
	buf_drop(&b, 0);
	assert_null(b.data);
	buf_puts(&b, "abcdef");
	buf_drop(&b, 0);
	assert_string_equal(buf_text(&b), "abcdef");
	buf_drop(&b, 2);
	assert_string_equal(buf_text(&b), "cdef");
	assert_int_equal(b.len, 4);
	buf_drop(&b, 4);
	assert_string_equal(buf_text(&b), "");
	buf_puts(&b, "g");
	assert_string_equal(buf_text(&b), "g");
	buf_finish(&b);
}

static void stolen_bytes_belong_to_the_caller(void **state)
{
	struct buf b;
	char *text;

	buf_init(&b);
	assert_null(buf_steal(&b));
	buf_puts(&b, "mine");
	text = buf_steal(&b);
	assert_string_equal(text, "mine");
	assert_null(b.data);
	assert_int_equal(b.len, 0);
	assert_int_equal(b.cap, 0);
	free(text);
	buf_puts(&b, "partial");
	assert_int_equal(buf_add(&b, "", SIZE_MAX), -ENOMEM);
	assert_null(buf_steal(&b)); /* and the partial text is freed */
	assert_int_equal(b.failed, 0);
	assert_int_equal(b.len, 0);
}

static void large_files_are_read_whole_behind_what_is_there(void **state)
{
	enum { BYTES = 100000 };
	char *want = malloc(BYTES);
	int fd = memfd_create("buf", MFD_CLOEXEC);
	struct buf b;

	assert_non_null(want);
	assert_true(fd >= 0);
	for (int i = 0; i < BYTES; i++) {
		want[i] = (char)(i * 7 + i / 256);
	}
	assert_int_equal(write(fd, want, BYTES), BYTES);
	lseek(fd, 0, SEEK_SET);
	buf_init(&b);
	buf_puts(&b, "head");
	assert_int_equal(buf_read_fd(&b, fd, BYTES + 4), 0); /* the limit is the buffer's */
	assert_int_equal(b.len, BYTES + 4);
	assert_memory_equal(b.data, "head", 4);
	assert_memory_equal(b.data + 4, want, BYTES);
	buf_clear(&b);
	buf_puts(&b, "head");
	lseek(fd, 0, SEEK_SET);
	assert_int_equal(buf_read_fd(&b, fd, BYTES + 3), -EFBIG);
	buf_finish(&b);
	close(fd);
	free(want);
}

static void errors_of_reading_are_returned(void **state)
{
	int fd = open("/tmp", O_RDONLY | O_CLOEXEC | O_DIRECTORY);
	struct buf b;

	buf_init(&b);
	assert_int_equal(buf_read_fd(&b, fd, 10), -EISDIR);
	assert_int_equal(buf_read_fd(&b, -1, 10), -EBADF);
	assert_int_equal(buf_read_file(&b, "/tmp", 10), -EISDIR);
	assert_int_equal(buf_add(&b, "", SIZE_MAX), -ENOMEM);
	assert_int_equal(buf_read_file(&b, "/proc/self/status", 1 << 20), -ENOMEM);
	close(fd);
	buf_finish(&b);
}

static int reading[2], read_result = 1;
static pid_t reader_tid;
static uint32_t signals;

static void on_signal(int sig)
{
	(void)sig;
	add_relaxed(&signals, 1u);
}

static void *reader(void *arg)
{
	store_release(&reader_tid, gettid());
	store_release(&read_result, buf_read_fd(arg, reading[0], 10));
	return NULL;
}

/* A signal that interrupts a read does not end it. */
static void signals_do_not_end_a_read(void **state)
{
	struct sigaction a = { .sa_handler = on_signal }; /* without SA_RESTART */
	struct buf b;
	pthread_t t;

	buf_init(&b);
	assert_int_equal(pipe2(reading, O_CLOEXEC), 0);
	assert_int_equal(sigaction(SIGUSR1, &a, NULL), 0);
	assert_int_equal(pthread_create(&t, NULL, reader, &b), 0);
	eventually(load_acquire(&reader_tid) && thread_is_blocked(load_acquire(&reader_tid)));
	pthread_kill(t, SIGUSR1);
	eventually(load_acquire(&signals));
	assert_int_equal(write(reading[1], "late", 4), 4);
	close(reading[1]);
	pthread_join(t, NULL);
	assert_int_equal(read_result, 0);
	assert_string_equal(buf_text(&b), "late");
	close(reading[0]);
	buf_finish(&b);
}

static void assert_text(const struct report *r, const char *want)
{
	struct buf text;

	buf_init(&text);
	report_text(r, &text);
	assert_string_equal(buf_text(&text), want);
	buf_finish(&text);
}

static void each_part_of_a_report_is_set_once(void **state)
{
	struct report r;

	report_init(&r);
	assert_text(&r, "");
	assert_int_equal(report_set(&r, -EPERM, "this-code-is-longer-than-23", "cause"), -EPERM);
	assert_string_equal(r.code, "this-code-is-longer-tha");
	assert_text(&r, "cause");
	assert_int_equal(report_set(&r, -EIO, "later", "consequence"), -EIO);
	assert_string_equal(r.code, "this-code-is-longer-tha");
	report_hint(&r, "do %s", "this");
	report_hint(&r, "do that");
	assert_text(&r, "cause. do this");
	report_place(&r, "line %d", 3);
	report_place(&r, "line %d", 4);
	assert_text(&r, "line 3: cause. do this");
	buf_puts(&r.detail, "state");
	assert_text(&r, "line 3: cause. do this\nstate");
	report_finish(&r);
	assert_int_equal(r.place.len + r.message.len + r.hint.len + r.detail.len, 0);
	assert_true(!r.place.data && !r.message.data && !r.hint.data && !r.detail.data);
}

static void no_report_is_needed(void **state)
{
	assert_int_equal(report_set(NULL, -EIO, "code", "text"), -EIO);
	report_place(NULL, "place");
	report_hint(NULL, "hint");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(capacity_doubles_from_64),
		cmocka_unit_test(sums_that_overflow_are_out_of_memory),
		cmocka_unit_test(text_that_cannot_be_formatted_is_not_added),
		cmocka_unit_test(dropping_keeps_the_rest),
		cmocka_unit_test(stolen_bytes_belong_to_the_caller),
		cmocka_unit_test(large_files_are_read_whole_behind_what_is_there),
		cmocka_unit_test(errors_of_reading_are_returned),
		cmocka_unit_test(signals_do_not_end_a_read),
		cmocka_unit_test(each_part_of_a_report_is_set_once),
		cmocka_unit_test(no_report_is_needed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
