/* The dynamic linker's cache: libraries by soname and order, and caches whose numbers are wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "base/ldcache.h"

#define MAGIC "glibc-ld.so.cache1.1"
#define X86_64 0x0303u
#define I386 0x0003u
#define HEAD 48u
#define ENTRY 24u

static const struct {
	uint32_t flags;
	const char *soname, *path;
} libraries[] = {
	{ X86_64, "liba.so.1", "/one/liba.so.1" },
	{ I386, "liba.so.1", "/32/liba.so.1" },
	{ X86_64, "libb.so.1", "/one/libb.so.1" },
	{ X86_64, "liba.so.1", "/two/liba.so.1" },
};
#define LIBRARIES (sizeof(libraries) / sizeof(libraries[0]))

static void put(struct buf *b, size_t at, uint32_t value)
{
	memcpy(b->data + at, &value, sizeof(value));
}

/* Makes a cache as ldconfig does: head, entries, texts. */
static void make(struct buf *b)
{
	static const char zeros[HEAD + LIBRARIES * ENTRY];

	buf_init(b);
	assert_int_equal(buf_add(b, zeros, sizeof(zeros)), 0);
	memcpy(b->data, MAGIC, strlen(MAGIC));
	put(b, 20, LIBRARIES);
	for (size_t i = 0; i < LIBRARIES; i++) {
		put(b, HEAD + i * ENTRY, libraries[i].flags);
		put(b, HEAD + i * ENTRY + 4, (uint32_t)b->len);
		assert_int_equal(buf_add(b, libraries[i].soname, strlen(libraries[i].soname) + 1),
				 0);
		put(b, HEAD + i * ENTRY + 8, (uint32_t)b->len);
		assert_int_equal(buf_add(b, libraries[i].path, strlen(libraries[i].path) + 1), 0);
	}
}

static void finds(const struct buf *b, const char *soname, unsigned nth, const char *path)
{
	char found[64];

	assert_true(ldcache_scan(b, soname, nth, found, sizeof(found)));
	assert_string_equal(found, path);
}

static void lacks(const struct buf *b, const char *soname, unsigned nth)
{
	char found[64];

	assert_false(ldcache_scan(b, soname, nth, found, sizeof(found)));
}

static void test_order(void **state)
{
	struct buf b;

	make(&b);
	finds(&b, "liba.so.1", 0, "/one/liba.so.1");
	finds(&b, "liba.so.1", 1, "/two/liba.so.1");
	lacks(&b, "liba.so.1", 2);
	finds(&b, "libb.so.1", 0, "/one/libb.so.1");
	lacks(&b, "libb.so", 0);
	lacks(&b, "libc.so.1", 0);
	lacks(&b, "", 0);
	buf_finish(&b);
}

static void test_room(void **state)
{
	char found[15];
	struct buf b;

	make(&b);
	assert_true(ldcache_scan(&b, "liba.so.1", 0, found, sizeof(found)));
	assert_string_equal(found, "/one/liba.so.1");
	assert_false(ldcache_scan(&b, "liba.so.1", 0, found, sizeof(found) - 1));
	buf_finish(&b);
}

static void test_wrong_numbers(void **state)
{
	struct buf b;

	make(&b);
	put(&b, 20, LIBRARIES - 1);
	lacks(&b, "liba.so.1", 1);
	/* As many as fit: the texts are taken for entries. */
	put(&b, 20, (uint32_t)((b.len - HEAD) / ENTRY));
	finds(&b, "liba.so.1", 1, "/two/liba.so.1");
	put(&b, 20, (uint32_t)((b.len - HEAD) / ENTRY) + 1);
	lacks(&b, "liba.so.1", 0);
	put(&b, 20, UINT32_MAX);
	lacks(&b, "liba.so.1", 0);
	put(&b, 20, LIBRARIES);
	put(&b, HEAD + 4, (uint32_t)b.len); /* the soname of the first entry */
	finds(&b, "liba.so.1", 0, "/two/liba.so.1");
	put(&b, HEAD + 4, UINT32_MAX);
	finds(&b, "liba.so.1", 0, "/two/liba.so.1");
	put(&b, HEAD + 2 * ENTRY + 8, UINT32_MAX); /* the path of libb.so.1 */
	lacks(&b, "libb.so.1", 0);
	put(&b, HEAD + 2 * ENTRY + 8, (uint32_t)b.len);
	lacks(&b, "libb.so.1", 0);
	b.data[0] = 'G';
	lacks(&b, "liba.so.1", 0);
	buf_finish(&b);
}

static void test_short(void **state)
{
	struct buf b, part;

	make(&b);
	for (size_t n = 0; n < b.len; n++) {
		buf_init(&part);
		assert_int_equal(buf_add(&part, b.data, n), 0);
		if (n < HEAD + LIBRARIES * ENTRY) {
			lacks(&part, "liba.so.1", 0);
		}
		lacks(&part, "libc.so.1", 0);
		buf_finish(&part);
	}
	buf_finish(&b);
}

static void test_this_machine(void **state)
{
	char path[4096];

	assert_true(ldcache_find("libc.so.6", 0, path, sizeof(path)));
	assert_int_equal(access(path, R_OK), 0);
	assert_string_equal(strrchr(path, '/'), "/libc.so.6");
	assert_false(ldcache_find("libc.so.6", 1000, path, sizeof(path)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),	      cmocka_unit_test(test_room),
		cmocka_unit_test(test_wrong_numbers), cmocka_unit_test(test_short),
		cmocka_unit_test(test_this_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
