/* The cache of patched images: the driver gets a mapping of the same file in each start after the
 * first, and keeps no copy. A start is a process of its own, since settings are read once. */
#include "code_rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/disk_cache.h"
#include "base/strmap.h"
#include "cubin/cubin.h"

static char folder[] = "/tmp/gbpf-code-cache-XXXXXX";

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);  \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/* Runs a start of a program. */
static void start(void (*program)(void))
{
	pid_t child = fork();
	int status = -1;

	if (child == 0) {
		program();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static uint64_t *shared; /* hash of the image as it is without a cache */

/* ---- what the driver is given ---- */

static struct {
	const void *image;
	bool mapped;
	uint64_t hash;
	unsigned n, calls;
	bool refuses; /* to make no copy */
	CUlibraryOption options[4];
	void *values[4];
} given;

/* Returns whether an address is in a mapping of a file of the folder; NULL: any. */
static bool is_mapped(const void *at)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[1024];
	bool found = false;

	CHECK(f);
	while (fgets(line, sizeof(line), f)) {
		unsigned long from = 0, to = 0;

		if (strstr(line, folder) && sscanf(line, "%lx-%lx", &from, &to) == 2) {
			CHECK(strstr(line, "r--p"));
			found |= !at || ((uintptr_t)at >= from && (uintptr_t)at < to);
		}
	}
	fclose(f);
	return found;
}

static void note_image(const void *image)
{
	size_t bytes = 0;

	CHECK(cubin_bytes(image, (size_t)1 << 30, &bytes) == 0);
	given.image = image;
	given.mapped = is_mapped(image);
	given.hash = hash_bytes(image, bytes);
}

static CUresult library_load(CUlibrary *ret, const void *image, CUjit_option *jit,
			     void **jit_values, unsigned n_jit, CUlibraryOption *options,
			     void **values, unsigned n)
{
	note_image(image);
	given.n = n;
	given.calls++;
	for (unsigned i = 0; i < n && given.refuses; i++) {
		if (options[i] == CU_LIBRARY_BINARY_IS_PRESERVED) {
			return CUDA_ERROR_INVALID_VALUE;
		}
	}
	for (unsigned i = 0; i < n && i < 4; i++) {
		given.options[i] = options[i];
		given.values[i] = values ? values[i] : NULL;
	}
	*ret = RIG_LIBRARY;
	return CUDA_SUCCESS;
}

static CUresult module_load(CUmodule *ret, const void *image, unsigned n, CUjit_option *options,
			    void **values)
{
	note_image(image);
	*ret = RIG_MODULE;
	return CUDA_SUCCESS;
}

static CUlibrary load_library(void)
{
	CUlibrary l = NULL;

	CHECK(cuLibraryLoadData(&l, rig_image, NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS);
	CHECK(given.image != rig_image);
	return l;
}

static struct disk_cache_summary summary(void)
{
	struct disk_cache c = { .max_bytes = 0 };
	struct disk_cache_summary s;

	snprintf(c.dir, sizeof(c.dir), "%s", folder);
	assert_int_equal(disk_cache_summary(&c, &s), 0);
	return s;
}

/* Counts the files of images, or of compiled PTX, and stores the path of one. */
static unsigned count_files(bool ptx, char path[PATH_MAX])
{
	DIR *d = opendir(folder);
	const struct dirent *e;
	unsigned n = 0;

	assert_non_null(d);
	while ((e = readdir(d)) != NULL) {
		if (strstr(e->d_name, ".image") && (strncmp(e->d_name, "ptx-", 4) == 0) == ptx) {
			snprintf(path, PATH_MAX, "%s/%s", folder, e->d_name);
			n++;
		}
	}
	closedir(d);
	return n;
}

/* The only image's path and status. */
static struct stat only_file(char path[PATH_MAX])
{
	struct stat st;

	assert_int_equal(count_files(false, path), 1);
	assert_int_equal(stat(path, &st), 0);
	return st;
}

/* ---- libraries ---- */

static void library_is_mapped(void)
{
	CUlibrary l = load_library();

	CHECK(given.mapped);
	CHECK(given.n == 1 && given.options[0] == CU_LIBRARY_BINARY_IS_PRESERVED);
	CHECK(is_mapped(given.image)); /* the driver reads it until the library is unloaded */
	CHECK(cuLibraryUnload(l) == CUDA_SUCCESS);
	CHECK(!is_mapped(NULL));
	CHECK(given.hash == *shared);
}

static void patched_hash(void)
{
	setenv("GBPF_CACHE", "off", 1);
	(void)load_library();
	CHECK(!given.mapped);
	*shared = given.hash;
}

static void every_start_maps_one_file(void **state)
{
	char path[PATH_MAX];
	struct stat first, second;

	start(library_is_mapped);
	first = only_file(path);
	assert_int_equal(summary().misses, 1);
	start(library_is_mapped);
	second = only_file(path);
	assert_int_equal(first.st_ino, second.st_ino);
	assert_int_equal(summary().misses, 1);
	assert_int_equal(summary().hits, 1);
}

static void kernels_get_the_argument(void)
{
	uint64_t address = 0x1234;
	uint32_t number = 77;
	void *params[3] = { &address, &number };

	(void)load_library();
	CHECK(cuLaunchKernel((CUfunction)(void *)RIG_KERNEL, 1, 1, 1, 1, 1, 1, 0, NULL, params,
			     NULL) == CUDA_SUCCESS);
	CHECK(rig_seen.calls == 1 && rig_seen.zero && rig_seen.params[0] == &address);
}

static void launches_of_cached_code_pass_the_argument(void **state)
{
	start(kernels_get_the_argument);
	start(kernels_get_the_argument);
	assert_int_equal(summary().hits, 1);
}

static void options_are_kept(void)
{
	CUlibraryOption options[] = { CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE,
				      CU_LIBRARY_BINARY_IS_PRESERVED };
	int table;
	void *values[] = { &table, NULL };
	CUlibrary l = NULL;

	CHECK(cuLibraryLoadData(&l, rig_image, NULL, NULL, 0, options, values, 1) == CUDA_SUCCESS);
	CHECK(given.mapped && given.n == 2);
	CHECK(given.options[0] == options[0] && given.values[0] == &table);
	CHECK(given.options[1] == CU_LIBRARY_BINARY_IS_PRESERVED);
	CHECK(cuLibraryUnload(l) == CUDA_SUCCESS && !is_mapped(NULL));
	CHECK(cuLibraryLoadData(&l, rig_image, NULL, NULL, 0, options, values, 2) == CUDA_SUCCESS);
	CHECK(given.mapped && given.n == 2 && is_mapped(given.image));
	CHECK(cuLibraryUnload(l) == CUDA_SUCCESS && !is_mapped(NULL));
	/* What the driver must judge is not changed, and then it copies. */
	CHECK(cuLibraryLoadData(&l, rig_image, NULL, NULL, 0, options, NULL, 1) == CUDA_SUCCESS);
	CHECK(given.mapped && given.n == 1 && !is_mapped(NULL));
}

static void the_programs_options_are_kept(void **state)
{
	start(options_are_kept);
	start(options_are_kept);
}

static void library_is_copied(void)
{
	CUlibrary l;

	given.refuses = true;
	l = load_library();
	CHECK(given.calls == 2 && given.mapped && given.n == 0);
	CHECK(given.hash == *shared);
	CHECK(!is_mapped(NULL));
	CHECK(cuLibraryUnload(l) == CUDA_SUCCESS);
}

static void a_driver_that_insists_on_a_copy_makes_one(void **state)
{
	start(library_is_copied);
	start(library_is_copied);
	assert_int_equal(summary().hits, 1);
}

/* ---- modules ---- */

static void module_is_copied(void)
{
	CUmodule m = NULL;

	CHECK(cuModuleLoadData(&m, rig_image) == CUDA_SUCCESS);
	CHECK(given.mapped);
	CHECK(!is_mapped(NULL)); /* the driver has copied it */
	CHECK(cuModuleUnload(m) == CUDA_SUCCESS);
}

static void modules_are_loaded_from_the_mapping(void **state)
{
	start(module_is_copied);
	start(module_is_copied);
	assert_int_equal(summary().hits, 1);
}

/* ---- without it ---- */

static void is_anonymous(void)
{
	CUlibrary l = load_library();

	CHECK(!given.mapped && given.n == 0);
	CHECK(cuLibraryUnload(l) == CUDA_SUCCESS);
}

static void switched_off(void)
{
	setenv("GBPF_CACHE", "off", 1);
	is_anonymous();
}

static void small(void)
{
	setenv("GBPF_CACHE_MIN_KB", "10", 1); /* the image has 9 KB */
	is_anonymous();
}

static void without_folder(void)
{
	setenv("GBPF_CACHE_DIR", "/proc/none/cache", 1);
	is_anonymous();
}

static void without_a_cache_images_are_patched(void **state)
{
	char path[PATH_MAX];

	start(switched_off);
	start(without_folder);
	assert_int_equal(summary().files, 0);
	start(small);
	assert_int_equal(count_files(false, path), 0);
}

/* The kernel kills a process that writes a larger file. */
static void limited(void)
{
	const struct rlimit r[] = { { 4096, 4096 }, { 0, 0 } };

	CHECK(setrlimit(RLIMIT_FSIZE, &r[0]) == 0);
	is_anonymous();
	CHECK(setrlimit(RLIMIT_FSIZE, &r[1]) == 0);
	is_anonymous();
}

static void too_small_a_limit(void)
{
	setenv("GBPF_CACHE_MB", "0", 1);
	is_anonymous();
}

static void what_cannot_be_stored_is_loaded(void **state)
{
	start(limited);
	start(too_small_a_limit);
}

static void a_damaged_file_is_replaced(void **state)
{
	char path[PATH_MAX];
	struct stat st;
	int fd;

	start(library_is_mapped);
	st = only_file(path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "x", 1, 5000), 1);
	close(fd);
	start(library_is_mapped);
	assert_int_not_equal(only_file(path).st_ino, st.st_ino);
	assert_int_equal(truncate(path, 6000), 0);
	start(library_is_mapped);
	assert_int_equal(only_file(path).st_size, st.st_size);
	assert_int_equal(chmod(path, 0666), 0);
	start(library_is_mapped);
	assert_int_equal(only_file(path).st_mode & 0777, 0600);
	assert_int_equal(summary().misses, 4);
}

/* ---- compiled PTX ---- */

static CUresult no_linker(unsigned n, CUjit_option *options, void **values, CUlinkState *ret)
{
	return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
}

static void without_compiler(void)
{
	shim_driver.cuLinkCreate_v2 = no_linker;
	library_is_mapped();
}

static void without_compiler_and_stub(void)
{
	CUlibrary l = NULL;

	shim_driver.cuLinkCreate_v2 = no_linker;
	CHECK(cuLibraryLoadData(&l, rig_image, NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS);
	CHECK(given.image == rig_image);
}

static CUresult newer_driver(int *ret)
{
	*ret = 13050;
	return CUDA_SUCCESS;
}

static void with_another_driver(void)
{
	shim_driver.cuDriverGetVersion = newer_driver;
	without_compiler_and_stub();
}

/* The linker of the rig answers with one stub after the other, so both are made again. */
static void damage_compiled(void)
{
	char path[PATH_MAX];
	DIR *d = opendir(folder);
	const struct dirent *e;

	assert_non_null(d);
	while ((e = readdir(d)) != NULL) {
		int fd;

		if (strncmp(e->d_name, "ptx-", 4) != 0) {
			continue;
		}
		snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
		fd = open(path, O_RDWR | O_CLOEXEC);
		assert_int_equal(pwrite(fd, "x", 1, 4100), 1);
		close(fd);
	}
	closedir(d);
}

static void stubs_are_compiled_once(void **state)
{
	char path[PATH_MAX];

	start(without_compiler_and_stub);
	start(library_is_mapped);
	assert_int_equal(count_files(true, path), 2);
	start(without_compiler);
	start(with_another_driver);
	damage_compiled();
	start(without_compiler_and_stub);
	start(library_is_mapped);
	start(without_compiler);
	assert_int_equal(count_files(true, path), 2);
}

static int before(void **state)
{
	char command[PATH_MAX];

	snprintf(command, sizeof(command), "rm -rf %s/*", folder);
	setenv("GBPF_CACHE_DIR", folder, 1);
	setenv("GBPF_CACHE_MIN_KB", "0", 1);
	unsetenv("GBPF_CACHE");
	unsetenv("GBPF_CACHE_MB");
	memset(&given, 0, sizeof(given));
	if (system(command) || rig_before(state) < 0) {
		return -1;
	}
	start(patched_hash);
	return 0;
}

static int setup(void **state)
{
	int err = mkdtemp(folder) ? rig_setup(state) : -1;

	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	shim_real.cuLibraryLoadData = library_load;
	shim_real.cuModuleLoadDataEx = module_load;
	return shared == MAP_FAILED ? -1 : err;
}

static int teardown(void **state)
{
	char command[PATH_MAX];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

#define TEST(f) cmocka_unit_test_setup(f, before)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_start_maps_one_file),
		TEST(stubs_are_compiled_once),
		TEST(launches_of_cached_code_pass_the_argument),
		TEST(the_programs_options_are_kept),
		TEST(a_driver_that_insists_on_a_copy_makes_one),
		TEST(modules_are_loaded_from_the_mapping),
		TEST(without_a_cache_images_are_patched),
		TEST(what_cannot_be_stored_is_loaded),
		TEST(a_damaged_file_is_replaced),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
