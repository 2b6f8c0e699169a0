/* Files of patched images: what is read equals what was written, its memory is the file's, and
 * every damage is refused. The images are ptxas's. */
#include "../cubin/cubin_files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "shim/code/cache_file.h"

static struct cubin_stub *stub;
static struct shim_cache_key key;
static const char name[] = "gbpf-cache-file"; /* on tmpfs, a local file system */
static int fd;

static bool remote; /* the file system is NFS */

int __real_fstatfs64(int file, struct statfs *ret);
int __wrap_fstatfs64(int file, struct statfs *ret);
int __wrap_fstatfs64(int file, struct statfs *ret)
{
	int err = __real_fstatfs64(file, ret);

	if (remote) {
		ret->f_type = NFS_SUPER_MAGIC;
	}
	return err;
}

static struct cubin_patched *patched(void)
{
	struct buf image = read_cubin("kernels.sm_90");
	struct cubin_patched *p;

	assert_int_equal(patch(&p, &image, stub, NULL), 0);
	buf_finish(&image);
	return p;
}

/* A new file with an image. */
static int before(void **state)
{
	struct cubin_patched *p = patched();
	struct buf table;
	size_t bytes;
	const void *image = cubin_patched_image(p, &bytes);

	key = shim_cache_key_of("the original", 12, 90, stub);
	fd = memfd_create(name, MFD_CLOEXEC);
	buf_init(&table);
	if (fd < 0 || cubin_table_write(p, &table) < 0 ||
	    shim_cache_file_write(fd, &key, image, bytes, &table) < 0) {
		return -1;
	}
	buf_finish(&table);
	cubin_patched_close(p);
	return 0;
}

static int after(void **state)
{
	return close(fd);
}

static int read_file(struct cubin_patched **ret)
{
	*ret = NULL;
	return shim_cache_file_read(fd, &key, ret);
}

static void refused(void)
{
	struct cubin_patched *p;

	assert_int_equal(read_file(&p), -EBADMSG);
	assert_null(p);
}

static struct shim_cache_head head(void)
{
	struct shim_cache_head h;

	assert_int_equal(pread(fd, &h, sizeof(h), 0), sizeof(h));
	return h;
}

/* Stores the head with a checksum that is right. */
static void sign(struct shim_cache_head *h)
{
	XXH128_hash_t sum = XXH3_128bits(h, offsetof(struct shim_cache_head, head_sum));

	h->head_sum[0] = sum.low64;
	h->head_sum[1] = sum.high64;
	assert_int_equal(pwrite(fd, h, sizeof(*h), 0), sizeof(*h));
}

/* The same after the content has changed. */
static void sign_content(void)
{
	struct shim_cache_head h = head();
	size_t bytes = h.image_bytes + h.table_bytes;
	char *content = malloc(bytes);
	XXH128_hash_t sum;

	assert_non_null(content);
	assert_int_equal(pread(fd, content, bytes, SHIM_CACHE_HEAD_BYTES), bytes);
	sum = XXH3_128bits(content, bytes);
	h.content_sum[0] = sum.low64;
	h.content_sum[1] = sum.high64;
	free(content);
	sign(&h);
}

static void an_image_survives(void **state)
{
	struct cubin_patched *p = patched(), *q;
	const void *a, *b;
	size_t a_bytes, b_bytes;

	assert_int_equal(read_file(&q), 0);
	a = cubin_patched_image(p, &a_bytes);
	b = cubin_patched_image(q, &b_bytes);
	assert_int_equal(a_bytes, b_bytes);
	assert_memory_equal(a, b, a_bytes);
	assert_true(cubin_patched_image_is_set(q));
	assert_int_equal(cubin_patched_kernels(p), cubin_patched_kernels(q));
	assert_int_equal(cubin_patched_count(p), cubin_patched_count(q));
	cubin_patched_close(p);
	cubin_patched_close(q);
}

/* Whether the file is mapped by this process. */
static bool is_mapped(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	bool found = false;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		found |= strstr(line, name) != NULL;
	}
	fclose(f);
	return found;
}

static void the_image_is_a_mapping_until_it_is_dropped(void **state)
{
	struct cubin_patched *p;
	size_t bytes;

	assert_false(is_mapped());
	assert_int_equal(read_file(&p), 0);
	assert_true(is_mapped());
	assert_int_equal((uintptr_t)cubin_patched_image(p, &bytes) % 4096, 0);
	cubin_patched_drop_image(p);
	assert_false(is_mapped());
	cubin_patched_close(p);
	assert_int_equal(read_file(&p), 0);
	cubin_patched_close(p);
	assert_false(is_mapped());
}

/* Pages that were not used are not in the process's memory: checking reads, it does not map. */
static void checking_touches_no_page(void **state)
{
	struct cubin_patched *p;
	uint64_t pages[64];
	size_t bytes, n;
	int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uintptr_t at;

	assert_true(map >= 0);
	assert_int_equal(read_file(&p), 0);
	at = (uintptr_t)cubin_patched_image(p, &bytes);
	n = (bytes + 4095) / 4096;
	assert_in_range(n, 1, ARRAY_SIZE(pages));
	assert_int_equal(pread(map, pages, n * 8, (off_t)(at / 4096 * 8)), n * 8);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(pages[i] >> 63, 0);
	}
	close(map);
	cubin_patched_close(p);
}

static void the_memory_becomes_the_files(void **state)
{
	struct cubin_patched *p = patched();
	struct shim_cache_head h = head();
	size_t bytes;
	void *copy;

	copy = malloc(h.image_bytes);
	assert_non_null(copy);
	memcpy(copy, cubin_patched_image(p, &bytes), h.image_bytes);
	assert_int_equal(shim_cache_file_place(fd, bytes, p), 0);
	assert_true(is_mapped());
	assert_memory_equal(cubin_patched_image(p, &bytes), copy, h.image_bytes);
	cubin_patched_close(p);
	assert_false(is_mapped());
	free(copy);
}

/* A file that another machine may remove is copied: a mapping of it could end the process. */
static void on_another_file_system_the_image_is_copied(void **state)
{
	struct cubin_patched *p = patched(), *q;
	size_t bytes, same;
	const void *image;

	remote = true;
	assert_int_equal(read_file(&q), 0);
	assert_int_equal(shim_cache_file_place(fd, 100, p), -EOPNOTSUPP);
	remote = false;
	assert_false(is_mapped());
	assert_true(cubin_patched_image_is_set(q));
	image = cubin_patched_image(p, &bytes);
	assert_memory_equal(cubin_patched_image(q, &same), image, bytes);
	assert_int_equal(same, bytes);
	assert_int_equal(cubin_patched_kernels(p), cubin_patched_kernels(q));
	cubin_patched_close(p);
	cubin_patched_close(q);
	assert_int_equal(pwrite(fd, "x", 1, SHIM_CACHE_HEAD_BYTES + 100), 1);
	remote = true;
	refused();
	remote = false;
}

/* A wrong checksum is found wherever the byte is, except in the unused rest of the head's page. */
static void every_changed_byte_is_refused(void **state)
{
	off_t end = lseek(fd, 0, SEEK_END);

	for (off_t at = 0; at < end; at++) {
		char c, changed;

		if (at == sizeof(struct shim_cache_head)) {
			at = SHIM_CACHE_HEAD_BYTES;
		}
		if (at > SHIM_CACHE_HEAD_BYTES && at % 31) {
			continue;
		}
		assert_int_equal(pread(fd, &c, 1, at), 1);
		changed = (char)(c ^ 0x10);
		assert_int_equal(pwrite(fd, &changed, 1, at), 1);
		refused();
		assert_int_equal(pwrite(fd, &c, 1, at), 1);
	}
}

static void every_other_length_is_refused(void **state)
{
	off_t end = lseek(fd, 0, SEEK_END);

	assert_int_equal(ftruncate(fd, end + 1), 0);
	refused();
	for (off_t n = end - 1; n >= 0; n -= n > 200 ? 997 : 1) {
		assert_int_equal(ftruncate(fd, n), 0);
		refused();
	}
}

static void other_keys_are_refused(void **state)
{
	struct shim_cache_key right = key;
	struct cubin_patched *p;

	for (size_t i = 0; i < sizeof(key) / sizeof(uint64_t); i++) {
		uint64_t words[sizeof(key) / sizeof(uint64_t)];

		memcpy(words, &right, sizeof(words));
		words[i] ^= 1;
		memcpy(&key, words, sizeof(words));
		refused();
	}
	key = right;
	assert_int_equal(read_file(&p), 0);
	cubin_patched_close(p);
}

static void other_formats_are_refused(void **state)
{
	struct shim_cache_head right = head(), h = right;

	h.format++;
	sign(&h);
	refused();
	h = right;
	h.head_bytes++;
	sign(&h);
	refused();
	h = right;
	h.magic[0] = 'G';
	sign(&h);
	refused();
}

/* With right checksums. */
static void lengths_that_do_not_fit_are_refused(void **state)
{
	static const uint64_t wrong[][2] = { { 1, 0 },
					     { 0, 1 },
					     { (uint64_t)-1, 0 },
					     { 1u << 20, -(1u << 20) },
					     { -(uint64_t)(1u << 20), 1u << 20 } };
	struct shim_cache_head right = head(), h;

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		h = right;
		h.image_bytes += wrong[i][0];
		h.table_bytes += wrong[i][1];
		sign(&h);
		refused();
	}
	h = right;
	h.table_bytes += h.image_bytes;
	h.image_bytes = 0;
	sign(&h);
	refused();
}

static void a_wrong_table_is_refused(void **state)
{
	struct shim_cache_head h = head();
	off_t at = (off_t)(SHIM_CACHE_HEAD_BYTES + h.image_bytes);
	uint32_t many = 0xffffffff;

	assert_int_equal(pwrite(fd, &many, sizeof(many), at + 4), sizeof(many));
	sign_content();
	refused();
}

static void names_depend_on_the_key(void **state)
{
	struct shim_cache_key other = shim_cache_key_of("the originaL", 12, 90, stub);
	char a[SHIM_CACHE_NAME], b[SHIM_CACHE_NAME];

	shim_cache_name(&key, a);
	shim_cache_name(&other, b);
	assert_int_equal(strlen(a), 32);
	assert_string_not_equal(a, b);
	other = shim_cache_key_of("the original", 12, 90, stub);
	assert_memory_equal(&other, &key, sizeof(key));
	other = shim_cache_key_of("the original", 12, 80, stub);
	assert_memory_not_equal(&other, &key, sizeof(key));
}

static int setup(void **state)
{
	stub = open_stub(90);
	return 0;
}

static int teardown(void **state)
{
	cubin_stub_close(stub);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(an_image_survives, before, after),
		cmocka_unit_test_setup_teardown(the_image_is_a_mapping_until_it_is_dropped, before,
						after),
		cmocka_unit_test_setup_teardown(checking_touches_no_page, before, after),
		cmocka_unit_test_setup_teardown(the_memory_becomes_the_files, before, after),
		cmocka_unit_test_setup_teardown(on_another_file_system_the_image_is_copied, before,
						after),
		cmocka_unit_test_setup_teardown(every_changed_byte_is_refused, before, after),
		cmocka_unit_test_setup_teardown(every_other_length_is_refused, before, after),
		cmocka_unit_test_setup_teardown(other_keys_are_refused, before, after),
		cmocka_unit_test_setup_teardown(other_formats_are_refused, before, after),
		cmocka_unit_test_setup_teardown(lengths_that_do_not_fit_are_refused, before, after),
		cmocka_unit_test_setup_teardown(a_wrong_table_is_refused, before, after),
		cmocka_unit_test_setup_teardown(names_depend_on_the_key, before, after),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
