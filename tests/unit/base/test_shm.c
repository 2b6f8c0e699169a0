/* Shared pages: seals, permissions and sizes at their exact edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/shm.h"

static void pages_are_zero_and_sealed_in_size(void **state)
{
	int fd = shm_create("page", 10000, SHM_NOEXEC);
	struct stat st;
	char *p;

	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(fd, F_GET_SEALS) & 6, 6); /* SHRINK and GROW, and not SEAL */
	assert_false(fcntl(fd, F_GET_SEALS) & 1);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 10000);
	p = shm_map(fd, 10000, 1);
	assert_non_null(p);
	assert_int_equal(p[9999], 0);
	shm_unmap(p, 10000);
	assert_int_equal(msync((void *)((uintptr_t)p), 4096, MS_ASYNC), -1); /* is not mapped */
	shm_unmap(NULL, 10000);
	assert_null(shm_map(-1, 4096, 0));
	close(fd);
	assert_int_equal(shm_seal_future_write(fd), -EBADF);
}

/* Returns the error of msync for a page in a child of fork: 0 if the page is mapped there. */
static int error_in_child(void *page)
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (!child) {
		_exit(msync(page, 4096, MS_ASYNC) ? errno : 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void own_mappings_begin_at_their_offset_and_are_not_inherited(void **state)
{
	int fd = shm_create("page", 8192, SHM_NOEXEC), read_only = open("/proc/self/exe", O_RDONLY);
	char *all = shm_map(fd, 8192, 1), *own = shm_map_own(fd, 4096, 4096);

	assert_non_null(all);
	assert_non_null(own);
	own[1] = 'o';
	assert_int_equal(all[4097], 'o');
	assert_int_equal(error_in_child(all), 0);
	assert_int_equal(error_in_child(own), ENOMEM);
	shm_unmap(own, 4096);
	shm_unmap(all, 8192);
	assert_null(shm_map_own(fd, 4096, 1));
	assert_null(shm_map_own(read_only, 4096, 0));
	assert_null(shm_map_own(-1, 4096, 0));
	close(read_only);
	close(fd);
}

/* Kernels since 6.3 know memfds that cannot be executed. */
static void only_pages_for_code_can_be_executed(void **state)
{
	int data = shm_create("data", 4096, SHM_NOEXEC), code = shm_create("code", 4096, SHM_EXEC);
	int known = memfd_create("new", 0x0008u);
	struct stat st;
	void *p;

	assert_int_equal(fstat(code, &st), 0);
	assert_int_equal(st.st_mode & 0111, 0111);
	assert_int_equal(fstat(data, &st), 0);
	assert_int_equal(st.st_mode & 0111, known < 0 ? 0111 : 0);
	p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, code, 0);
	assert_true(p != MAP_FAILED);
	munmap(p, 4096);
	close(data);
	close(code);
	if (known >= 0) {
		close(known);
	}
}

static void pages_that_cannot_be_made_leak_nothing(void **state)
{
	int next = dup(0);
	char name[300];

	close(next);
	memset(name, 'n', sizeof(name));
	name[299] = 0;
	assert_int_equal(shm_create(name, 4096, SHM_NOEXEC), -EINVAL); /* the name is too long */
	assert_int_equal(shm_create("page", (size_t)1 << 63, SHM_NOEXEC), -EINVAL);
	assert_int_equal(fcntl(next, F_GETFD), -1);
}

static long size_of(int seals, off_t bytes, off_t memory)
{
	int fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	long n;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, bytes), 0);
	if (memory) {
		assert_int_equal(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, memory), 0);
	}
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	n = shm_checked_size(fd, 1 << 20);
	close(fd);
	return n;
}

static void pages_of_others_are_checked(void **state)
{
	enum { SHRINK = 2, GROW = 4, WRITE = 8 };

	assert_int_equal(size_of(SHRINK | GROW, 4096, 0), 4096);
	assert_int_equal(size_of(SHRINK | GROW | WRITE, 4097, 0), 4097);
	assert_int_equal(size_of(SHRINK, 4096, 0), -EBADF);
	assert_int_equal(size_of(GROW, 4096, 0), -EBADF);
	assert_int_equal(size_of(WRITE, 4096, 0), -EBADF);
	assert_int_equal(size_of(SHRINK | GROW, 0, 0), -EINVAL);
	assert_int_equal(size_of(SHRINK | GROW, 1, 0), 1);
	assert_int_equal(size_of(SHRINK | GROW, 1 << 20, 0), 1 << 20);
	assert_int_equal(size_of(SHRINK | GROW, (1 << 20) + 1, 0), -EFBIG);
	assert_int_equal(shm_checked_size(-1, 4096), -EBADF);
}

/* Memory up to a huge page may lie behind the end, because the kernel may have put one there. */
static void memory_is_bounded_by_huge_pages(void **state)
{
	enum { SEALS = 6, HUGE = 2 << 20 };

	assert_int_equal(size_of(SEALS, 4096, HUGE), 4096);
	assert_int_equal(size_of(SEALS, 4096, HUGE + 4096), -EINVAL);
}

/* Huge pages come from a pool, which another process can empty. */
static void pages_of_a_pool_are_refused(void **state)
{
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);

	if (fd < 0) {
		fprintf(stderr, "skipped: this kernel has no huge pages\n");
		skip();
	}
	assert_int_equal(ftruncate(fd, 2 << 20), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, 6), 0);
	assert_int_equal(shm_checked_size(fd, 4 << 20), -EINVAL);
	close(fd);
}

static void the_size_is_exact(void **state)
{
	int fd = shm_create("page", 4096, SHM_NOEXEC);

	assert_int_equal(shm_check(fd, 4096), 0);
	assert_int_equal(shm_check(fd, 4097), -EINVAL);
	assert_int_equal(shm_check(fd, 4095), -EFBIG);
	close(fd);
	assert_int_equal(shm_check(fd, 4096), -EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_are_zero_and_sealed_in_size),
		cmocka_unit_test(own_mappings_begin_at_their_offset_and_are_not_inherited),
		cmocka_unit_test(only_pages_for_code_can_be_executed),
		cmocka_unit_test(pages_that_cannot_be_made_leak_nothing),
		cmocka_unit_test(pages_of_others_are_checked),
		cmocka_unit_test(memory_is_bounded_by_huge_pages),
		cmocka_unit_test(pages_of_a_pool_are_refused),
		cmocka_unit_test(the_size_is_exact),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
