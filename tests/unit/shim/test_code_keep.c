/* Machine code that is kept for later copies: in the file that it was mapped from, or compressed.
 */
#include "code_rig.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "shim/code/shim_code_probe.h"
#include "shim/kernel/loaded_image.h"

#define ROOM ((size_t)1 << 20)

/* What is given back must be the image. */
static void gives_the_image(const struct shim_code_kept *k)
{
	struct report r;
	size_t bytes = 0;
	void *elf;

	report_init(&r);
	elf = shim_code_kept_elf(k, &bytes, &r);
	if (!elf) {
		fail_msg("%s", buf_text(&r.message));
	}
	assert_int_equal(bytes, rig_image_bytes);
	assert_memory_equal(elf, rig_image, bytes);
	free(elf);
	report_finish(&r);
}

static void gives_nothing(const struct shim_code_kept *k, const char *text)
{
	struct report r;
	size_t bytes;

	report_init(&r);
	assert_null(shim_code_kept_elf(k, &bytes, &r));
	if (!strstr(buf_text(&r.message), text)) {
		fail_msg("'%s' is not in '%s'", text, buf_text(&r.message));
	}
	report_finish(&r);
}

static void memory_is_copied_and_compressed(void **state)
{
	struct shim_code_kept *k = NULL;

	assert_int_equal(shim_code_keep(&k, rig_image, 0, 90, ROOM), 0);
	assert_in_range(shim_code_kept_bytes(k), 100, rig_image_bytes / 2);
	gives_the_image(k);
	assert_ptr_equal(shim_code_kept_ref(k), k);
	assert_false(shim_code_kept_unref(k));
	assert_true(shim_code_kept_unref(k));
	assert_int_equal(shim_code_keep(&k, rig_image, 0, 90, 100), -EFBIG);
	assert_int_equal(shim_code_keep(&k, rig_image, 16, 90, ROOM), -ENOENT);
	assert_int_equal(shim_code_keep(&k, ".version 8.0", 0, 90, ROOM), -ENOENT);
}

/* A library of its own, so that it can be changed. Returns its machine code; *ret is the handle. */
static const unsigned char *open_library(char *path, void **ret)
{
	const unsigned char *(*begin)(void);
	unsigned long (*length)(void);
	struct buf b = { 0 };
	int fd;

	strcpy(path, "/tmp/gbpf-mapped-XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(buf_read_file(&b, getenv("GBPF_TEST_MAPPED"), 1 << 22), 0);
	assert_int_equal(write(fd, b.data, b.len), b.len);
	close(fd);
	buf_finish(&b);
	*ret = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	assert_non_null(*ret);
	*(void **)&begin = dlsym(*ret, "mapped_code_begin");
	*(void **)&length = dlsym(*ret, "mapped_code_bytes");
	assert_non_null(begin);
	assert_int_equal(length(), rig_image_bytes);
	return begin();
}

static void mapped_files_are_only_noted(void **state)
{
	struct shim_code_kept *k = NULL;
	struct timespec times[2] = { { .tv_sec = 1000000 }, { .tv_sec = 1000000 } };
	char path[64];
	void *library;
	const unsigned char *code = open_library(path, &library);

	assert_int_equal(shim_code_keep(&k, code, 0, 90, 0), 0); /* without any room */
	assert_in_range(shim_code_kept_bytes(k), 1, 1024);
	gives_the_image(k);
	dlclose(library);
	gives_the_image(k); /* it is the file's, not the mapping's */
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	gives_nothing(k, "was changed");
	assert_int_equal(truncate(path, 4096), 0);
	gives_nothing(k, "cannot read");
	assert_int_equal(unlink(path), 0);
	gives_nothing(k, "cannot read");
	assert_true(shim_code_kept_unref(k));
}

/* What was mapped is not in the file of that name any more. */
static void replaced_files_are_not_noted(void **state)
{
	struct shim_code_kept *k = NULL;
	char path[64];
	void *library;
	const unsigned char *code = open_library(path, &library);
	struct buf b = { 0 };
	int fd;

	assert_int_equal(unlink(path), 0);
	assert_int_equal(shim_code_keep(&k, code, 0, 90, 0), -EFBIG);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	close(fd);
	assert_int_equal(shim_code_keep(&k, code, 0, 90, 0), -EFBIG);
	assert_int_equal(shim_code_keep(&k, code, 0, 90, ROOM), 0); /* a copy */
	gives_the_image(k);
	assert_true(shim_code_kept_unref(k));
	assert_int_equal(unlink(path), 0);
	dlclose(library);
	buf_finish(&b);
}

/* Through the shim: the owner's record keeps it until the module is unloaded. */
static void a_modules_code_is_kept_while_it_is_loaded(void **state)
{
	CUmodule m = RIG_MODULE;
	struct shim_code_kept *k;
	size_t room = shim_kept_room();

	assert_int_equal(cuModuleLoadData(&m, rig_image), CUDA_SUCCESS);
	k = shim_image_code(m);
	assert_non_null(k);
	gives_the_image(k);
	assert_int_equal(shim_kept_room(), room - shim_code_kept_bytes(k));
	assert_int_equal(cuModuleUnload(m), CUDA_SUCCESS);
	assert_null(shim_image_code(m));
	gives_the_image(k); /* ours */
	assert_true(shim_kept_room() < room);
	shim_image_code_unref(k);
	assert_int_equal(shim_kept_room(), room);
}

#define TEST(f) cmocka_unit_test_setup(f, rig_before)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(memory_is_copied_and_compressed),
		TEST(mapped_files_are_only_noted),
		TEST(replaced_files_are_not_noted),
		TEST(a_modules_code_is_kept_while_it_is_loaded),
	};

	return cmocka_run_group_tests(tests, rig_setup, NULL);
}
