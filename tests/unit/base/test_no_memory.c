/* Without memory: each allocation of an operation fails in turn; the operation says so and leaves
 * everything as it was. The linker redirects the allocations of the objects under test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/private_dir.h"
#include "base/strmap.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);

static int left = -1; /* allocations that succeed; -1: all */

static bool fails(void)
{
	return left >= 0 && !left--;
}

void *__wrap_malloc(size_t bytes)
{
	void *p = fails() ? NULL : __real_malloc(bytes);

	return p ? memset(p, '?', bytes) : NULL; /* nothing is zero by itself */
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return fails() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *p, size_t bytes)
{
	return fails() ? NULL : __real_realloc(p, bytes);
}

static void a_buffer_stays_as_it_was(void **state)
{
	char text[200];
	struct buf b;

	memset(text, 'x', sizeof(text));
	buf_init(&b);
	left = 0;
	assert_int_equal(buf_puts(&b, "x"), -ENOMEM);
	assert_string_equal(buf_text(&b), "");
	assert_int_equal(buf_puts(&b, "x"), -ENOMEM); /* although there is memory again */
	buf_clear(&b);
	assert_int_equal(buf_puts(&b, "before"), 0);
	left = 0;
	assert_int_equal(buf_add(&b, text, sizeof(text)), -ENOMEM);
	left = -1;
	assert_string_equal(buf_text(&b), "before");
	assert_int_equal(b.cap, 64);
	buf_finish(&b);
}

/* The key, the index and the entries. */
static void a_map_stays_as_it_was(void **state)
{
	struct strmap m;
	char key[2] = "a";

	strmap_init(&m);
	for (int n = 0; n < 3; n++) {
		left = n;
		assert_int_equal(strmap_add(&m, "key", &m), -ENOMEM);
		left = -1;
		assert_null(strmap_get(&m, "key"));
		assert_int_equal(m.live + m.n + m.cap + m.slots, 0);
	}
	for (; key[0] < 'a' + 8; key[0]++) {
		assert_int_equal(strmap_add(&m, key, &m), 0);
	}
	for (int n = 0; n < 3; n++) {
		left = n;
		assert_int_equal(strmap_add(&m, "key", &m), -ENOMEM);
		left = -1;
		assert_null(strmap_get(&m, "key"));
		assert_ptr_equal(strmap_get(&m, "c"), &m);
		assert_int_equal(m.live, 8);
		assert_int_equal(m.cap, 8);
	}
	assert_int_equal(strmap_add(&m, "key", &m), 0);
	assert_ptr_equal(strmap_get(&m, "key"), &m);
	assert_int_equal(m.live, 9);
	strmap_finish(&m);
}

/* Entries were deleted, which the next one would replace. */
static void a_map_with_gaps_stays_as_it_was(void **state)
{
	struct strmap m;
	char key[2] = "a", value[8];

	strmap_init(&m);
	for (; key[0] < 'a' + 8; key[0]++) {
		assert_int_equal(strmap_add(&m, key, &value[key[0] - 'a']), 0);
	}
	assert_non_null(strmap_del(&m, "a"));
	assert_non_null(strmap_del(&m, "c"));
	for (int n = 0; n < 3; n++) {
		left = n;
		assert_int_equal(strmap_add(&m, "key", &m), -ENOMEM);
		left = -1;
		assert_int_equal(m.live, 6);
		for (key[0] = 'a'; key[0] < 'a' + 8; key[0]++) {
			bool gone = key[0] == 'a' || key[0] == 'c';

			assert_ptr_equal(strmap_get(&m, key), gone ? NULL : &value[key[0] - 'a']);
		}
	}
	assert_int_equal(strmap_add(&m, "key", &m), 0);
	assert_ptr_equal(strmap_get(&m, "h"), &value[7]);
	assert_ptr_equal(strmap_get(&m, "key"), &m);
	strmap_finish(&m);
}

static void keys_are_terminated(void **state)
{
	struct strmap m;

	strmap_init(&m);
	assert_int_equal(strmap_add_n(&m, "keys", 3, &m), 0);
	assert_string_equal(m.entries[0].key, "key");
	strmap_finish(&m);
}

static void a_directory_is_not_trusted(void **state)
{
	char why[PRIVATE_DIR_WHY];

	left = 0;
	assert_int_equal(private_dir_check("/", why), -ENOMEM);
	left = -1;
	assert_string_equal(why, "out of memory");
	assert_int_equal(private_dir_check("/", why), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_buffer_stays_as_it_was),
		cmocka_unit_test(a_map_stays_as_it_was),
		cmocka_unit_test(a_map_with_gaps_stays_as_it_was),
		cmocka_unit_test(keys_are_terminated),
		cmocka_unit_test(a_directory_is_not_trusted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
