/* Without memory: each allocation fails in turn. The patcher, its checker and the stub's reader say
 * so, and never return less than they do with memory. The linker redirects the allocations. */
#include "cubin_files.h"

#include <errno.h>
#include <stdlib.h>

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);

static int left = -1; /* allocations that succeed; -1: all */
static bool failed;

static bool fails(void)
{
	bool now = left == 0;

	failed = failed || now;
	left -= left > 0;
	return now;
}

void *__wrap_malloc(size_t bytes)
{
	return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return fails() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *p, size_t bytes)
{
	return fails() ? NULL : __real_realloc(p, bytes);
}

/* All allocations from the nth on fail. Returns false if there are no more. */
static bool next(int *n)
{
	bool more = failed || *n == 0;

	failed = false;
	left = more ? (*n)++ : -1;
	return more;
}

static void patches_all_or_nothing(void **state)
{
	struct buf b = read_cubin("kernels.sm_90");
	struct cubin_stub *s = open_stub(90);
	struct cubin_patched *p, *whole;
	const void *expected, *image;
	size_t bytes, n_bytes;
	int n = 0, last = -ENOMEM;

	(void)state;
	assert_int_equal(patch(&whole, &b, s, NULL), 0);
	expected = cubin_patched_image(whole, &bytes);
	while (next(&n)) {
		struct report r;

		assert_int_equal(last, -ENOMEM);
		p = NULL;
		report_init(&r);
		last = cubin_patch(&p, b.data, b.len, s, &r);
		left = -1;
		report_finish(&r);
		if (last) {
			assert_null(p);
			continue;
		}
		image = cubin_patched_image(p, &n_bytes);
		assert_int_equal(n_bytes, bytes);
		assert_memory_equal(image, expected, bytes);
		assert_int_equal(cubin_patched_count(p), cubin_patched_count(whole));
		cubin_patched_close(p);
		last = failed ? -ENOMEM : 0; /* only a message's */
	}
	assert_int_equal(last, 0);
	print_message("%d allocations\n", n);
	cubin_patched_close(whole);
	cubin_stub_close(s);
	buf_finish(&b);
}

static void opens_a_stub_or_says_so(void **state)
{
	struct buf a = read_cubin("gate_64.sm_90"), b = read_cubin("gate_1024.sm_90");
	int n = 0, err = -ENOMEM;

	(void)state;
	while (next(&n)) {
		struct cubin_stub *s = NULL;
		struct report r;

		assert_int_equal(err, -ENOMEM);
		report_init(&r);
		err = cubin_stub_open(&s, a.data, a.len, 64, b.data, b.len, 1024, "gbpf_stub", 64,
				      &r);
		left = -1;
		report_finish(&r);
		assert_true(err ? !s : s != NULL);
		cubin_stub_close(s);
		err = !err && failed ? -ENOMEM : err;
	}
	assert_int_equal(err, 0);
	buf_finish(&a);
	buf_finish(&b);
}

static void checks_or_says_so(void **state)
{
	struct buf b = read_cubin("kernels.sm_90");
	struct cubin_stub *s = open_stub(90);
	struct cubin_patched *p;
	const void *image;
	size_t bytes;
	int n = 0, err = -ENOMEM;

	(void)state;
	assert_int_equal(patch(&p, &b, s, NULL), 0);
	image = cubin_patched_image(p, &bytes);
	while (next(&n)) {
		struct report r;

		assert_int_equal(err, -ENOMEM);
		report_init(&r);
		err = cubin_check(b.data, b.len, image, bytes, s, &r);
		left = -1;
		report_finish(&r);
	}
	assert_int_equal(err, 0);
	cubin_patched_close(p);
	cubin_stub_close(s);
	buf_finish(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(patches_all_or_nothing),
		cmocka_unit_test(opens_a_stub_or_says_so),
		cmocka_unit_test(checks_or_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
