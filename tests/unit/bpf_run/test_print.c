/* bpf_printk: what a line looks like, and the ring between programs and the thread that shows it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "bpf/run/printk.h"

#define SECOND UINT64_C(1000000000)

static void expect(const char *fmt, const uint64_t *args, size_t n, const char *want)
{
	static struct ebpf_prints p;
	char got[EBPF_PRINT_TEXT];

	assert_int_equal(ebpf_print(&p, fmt, strlen(fmt) + 1, args, n * sizeof(*args)),
			 strlen(want));
	assert_true(ebpf_prints_take(&p, got));
	assert_string_equal(got, want);
	assert_false(ebpf_prints_any(&p));
}

static void numbers_are_as_in_c(void **state)
{
	static const char *const formats[] = { "%d",  "%5d", "%-5d|", "%05d",  "%u",
					       "%x",  "%X",  "%o",    "%hhd",  "%hhu",
					       "%hd", "%hu", "%lld",  "%llu",  "%llx",
					       "%ld", "%zu", "%08x",  "%-3d|", "%i" };
	static const uint64_t values[] = { 0,	     1,		 7,	     255,
					   256,	     65535,	 0x7fffffff, 0x80000000,
					   1u << 31, UINT32_MAX, UINT64_MAX, UINT64_C(1) << 63 };

	(void)state;
	for (size_t f = 0; f < ARRAY_SIZE(formats); f++) {
		for (size_t v = 0; v < ARRAY_SIZE(values); v++) {
			char want[64];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
			snprintf(want, sizeof(want), formats[f], values[v]);
#pragma GCC diagnostic pop
			expect(formats[f], &values[v], 1, want);
		}
	}
}

static void texts_and_characters(void **state)
{
	static const uint64_t args[] = { 'x', 0xabc, 3 };

	(void)state;
	expect("", NULL, 0, "");
	expect("plain\n\n", NULL, 0, "plain");
	expect("100%% %c %p", args, 2, "100% x 0xabc");
	expect("%c%c", (const uint64_t[]){ 7, 200 }, 2, "??");
	expect("a\tb\033[31m", NULL, 0, "a?b?[31m");
}

static void what_cannot_be_printed_is_marked(void **state)
{
	static const uint64_t args[] = { 1, 2 };

	(void)state;
	expect("%s %d", args, 2, "%? 1");
	expect("%d %d %d", args, 2, "1 2 %?");
	expect("%", args, 2, "%?");
	expect("%ll", args, 2, "%?");
	expect("%99999d", (const uint64_t[]){ 1 }, 1, "                               1");
}

static void formats_are_checked(void **state)
{
	static const struct {
		const char *fmt;
		char bad;
		unsigned args;
	} cases[] = { { "", 0, 0 },	    { "100 %%", 0, 0 },	 { "%d %5llu %-08lx %hhX", 0, 4 },
		      { "%p%c%%%i", 0, 3 }, { "%d %s", 's', 1 }, { "%n", 'n', 0 },
		      { "%", '%', 0 },	    { "%l", 'l', 0 },	 { "%9999d", 0, 1 },
		      { "%-*d", '*', 0 } };
	unsigned n;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *fmt = cases[i].fmt;

		assert_int_equal(ebpf_print_check(fmt, strlen(fmt) + 1, &n), cases[i].bad);
		assert_int_equal(n, cases[i].args);
	}
	assert_int_equal(ebpf_print_check("%d%d", 2, &n), 0); /* no terminator */
	assert_int_equal(n, 1);
}

static void a_long_line_is_cut(void **state)
{
	char fmt[300], want[EBPF_PRINT_TEXT];

	(void)state;
	memset(fmt, 'a', sizeof(fmt));
	fmt[sizeof(fmt) - 1] = 0;
	memset(want, 'a', sizeof(want));
	want[sizeof(want) - 1] = 0;
	expect(fmt, NULL, 0, want);
	memcpy(fmt + 100, "%llu%llu", 9);
	want[100] = 0;
	strcat(want, "1844674407370955161");
	expect(fmt, (const uint64_t[]){ UINT64_MAX, UINT64_MAX }, 2, want);
}

static void without_a_terminator_the_size_counts(void **state)
{
	static struct ebpf_prints p;
	char got[EBPF_PRINT_TEXT];

	(void)state;
	assert_int_equal(ebpf_print(&p, "abcdef", 3, NULL, 0), 3);
	assert_true(ebpf_prints_take(&p, got));
	assert_string_equal(got, "abc");
}

static void a_full_ring_counts_and_keeps_the_oldest(void **state)
{
	static struct ebpf_prints p;
	char got[EBPF_PRINT_TEXT];
	uint64_t dropped;

	(void)state;
	for (uint64_t i = 0; i < 100; i++) {
		int r = ebpf_print(&p, "%llu", 5, &i, sizeof(i));

		assert_int_equal(r, i < EBPF_PRINT_LINES ? i < 10 ? 1 : 2 : -EAGAIN);
	}
	for (unsigned i = 0; i < EBPF_PRINT_LINES; i++) {
		assert_true(ebpf_prints_take_limited(&p, SECOND, got, &dropped));
		assert_int_equal(atoi(got), i);
		assert_int_equal(dropped, i ? 0 : 100 - EBPF_PRINT_LINES);
	}
	assert_false(ebpf_prints_take_limited(&p, SECOND, got, &dropped));
}

static void the_limit_holds_for_each_second(void **state)
{
	static struct ebpf_prints p;
	char got[EBPF_PRINT_TEXT];
	unsigned taken = 0;
	uint64_t dropped;

	(void)state;
	for (uint64_t ms = 0; ms < 3000; ms++) { /* a program that prints in each call */
		(void)ebpf_print(&p, "x", 2, NULL, 0);
		while (ebpf_prints_take_limited(&p, 5 * SECOND + ms * 1000000, got, &dropped)) {
			taken++;
		}
	}
	assert_int_equal(taken, 3 * EBPF_PRINTS_PER_SECOND);
	assert_true(ebpf_prints_any(&p));
	assert_true(ebpf_prints_take_limited(&p, 9 * SECOND, got, &dropped));
	assert_true(dropped > 900);
}

#define THREADS 4
#define EACH 50000

static struct ebpf_prints shared;
static uint64_t written[THREADS]; /* [atomic] */
static uint32_t running = THREADS;

static void *print_much(void *arg)
{
	uint64_t me = (uintptr_t)arg;

	for (uint64_t i = 0; i < EACH; i++) {
		uint64_t args[] = { me, i, me, i };

		if (ebpf_print(&shared, "%llu %llu %llu %llu", 20, args, sizeof(args)) >= 0) {
			(void)add_relaxed(&written[me], 1u);
		}
	}
	(void)sub_acqrel(&running, 1u);
	return NULL;
}

static void lines_of_several_threads_come_whole_and_in_order(void **state)
{
	uint64_t seen[THREADS] = { 0 }, next[THREADS] = { 0 }, all = 0;
	char got[EBPF_PRINT_TEXT];
	pthread_t t[THREADS];
	bool any, done;

	(void)state;
	for (uintptr_t i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_create(&t[i], NULL, print_much, (void *)i), 0);
	}
	do {
		done = !load_acquire(&running);
		any = ebpf_prints_take(&shared, got);
		if (any) {
			unsigned long long a, b, c, d;

			assert_int_equal(sscanf(got, "%llu %llu %llu %llu", &a, &b, &c, &d), 4);
			assert_true(a == c && b == d && a < THREADS);
			assert_true(b >= next[a]);
			next[a] = b + 1;
			seen[a]++;
			all++;
		}
	} while (any || !done);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(seen[i], written[i]);
	}
	assert_int_equal(all + shared.dropped, THREADS * EACH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_are_as_in_c),
		cmocka_unit_test(texts_and_characters),
		cmocka_unit_test(what_cannot_be_printed_is_marked),
		cmocka_unit_test(formats_are_checked),
		cmocka_unit_test(a_long_line_is_cut),
		cmocka_unit_test(without_a_terminator_the_size_counts),
		cmocka_unit_test(a_full_ring_counts_and_keeps_the_oldest),
		cmocka_unit_test(the_limit_holds_for_each_second),
		cmocka_unit_test(lines_of_several_threads_come_whole_and_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
