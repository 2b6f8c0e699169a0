/* Leases on pages of other processes, without a GPU: the pages are memory of this process, and the
 * clock's offset is given. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/shm.h"
#include "gpu/flag.h"
#include "gpu/flag_lease.h"
#include "gpu/cuda/flag_lease_int.h"
#include "ptx/block.h"
#include "proto/pages.h"
#include "policy/read.h"

#define PAGES 6
#define OFFSET 1700000000000000000
#define SLOT 7u

struct target {
	int fd;
	uint32_t *word;
};

static struct cuabi_table real; /* no call is made */
static struct gpu_device *d;
static struct target page[PAGES];

static int set_up(void **state)
{
	policy_read_setup();
	assert_int_equal(gpu_device_create(&d, &real), 0);
	for (int i = 0; i < PAGES; i++) {
		page[i].fd = shm_create("page", GPU_FLAG_BYTES, SHM_NOEXEC);
		assert_true(page[i].fd >= 0);
		page[i].word = shm_map(page[i].fd, GPU_FLAG_BYTES, 1);
		assert_non_null(page[i].word);
	}
	return 0;
}

static int tear_down(void **state)
{
	for (int i = 0; i < PAGES; i++) {
		shm_unmap(page[i].word, GPU_FLAG_BYTES);
		close(page[i].fd);
	}
	gpu_device_destroy(d);
	return 0;
}

static uint32_t word(int i)
{
	return load_acquire(&page[i].word[SLOT]);
}

static void add(uint32_t number, int i, uint32_t gpu)
{
	assert_int_equal(gpu_lease_add(d, number, page[i].fd, gpu, SLOT), 0);
}

static void every_page_of_the_gpu_and_only_the_own_word(void **state)
{
	uint32_t up = gpu_lease_word(OFFSET, 5000000000);

	gpu_leases_set_offset(d, 0, OFFSET);
	gpu_leases_set_offset(d, 1, OFFSET);
	add(0, 0, 0);
	add(200, 1, 0);
	add(3, 2, 1);
	assert_int_equal(gpu_lease_count(d), 3);
	page[0].word[SLOT + 1] = 99;
	gpu_lease(d, 0, 5000000000);
	assert_int_equal(word(0), up);
	assert_int_equal(word(1), up);
	assert_int_equal(word(2), 0);
	assert_int_equal(page[0].word[SLOT + 1], 99);
	gpu_lease(d, 1, 5000000000);
	gpu_lease(d, 0, 0);
	assert_int_equal(word(0), 0);
	assert_int_equal(word(1), 0);
	assert_int_equal(word(2), up);
	gpu_lease(d, PROTO_MAX_GPUS, 1); /* no effect */
}

static void before_the_clock_is_known_nothing_is_raised(void **state)
{
	add(0, 0, 0);
	gpu_lease(d, 0, 5000000000);
	assert_int_equal(word(0), 0);
	gpu_leases_set_offset(d, 0, OFFSET); /* raised at once */
	assert_int_equal(word(0), gpu_lease_word(OFFSET, 5000000000));
	gpu_lease(d, 0, 0);
	assert_int_equal(word(0), 0);
	assert_true(gpu_lease_measure_clocks(d, 1) > 0); /* there is no context to measure in */
}

static void a_page_that_comes_gets_the_lease_at_once_and_one_that_goes_loses_it(void **state)
{
	uint32_t up = gpu_lease_word(OFFSET, 5000000000);

	gpu_leases_set_offset(d, 0, OFFSET);
	gpu_lease(d, 0, 5000000000);
	page[1].word[SLOT] = 1234; /* left by the previous owner of the slot */
	add(0, 0, 0);
	assert_int_equal(word(0), up);
	add(0, 1, 0); /* replaces the page of that number */
	assert_int_equal(word(0), 0);
	assert_int_equal(word(1), up);
	assert_int_equal(gpu_lease_count(d), 1);
	gpu_lease_remove(d, 0);
	gpu_lease_remove(d, 0);
	gpu_lease_remove(d, UINT32_MAX);
	assert_int_equal(word(1), 0);
	assert_int_equal(gpu_lease_count(d), 0);
	gpu_lease(d, 0, 6000000000);
	assert_int_equal(word(1), 0);
	page[1].word[SLOT] = 1234;
	gpu_lease(d, 0, 0);
	add(0, 1, 0); /* no lease is up: an old word is cleared */
	assert_int_equal(word(1), 0);
}

/* Other processes with the pages may have written anything. */
static void overwritten_words_are_restored(void **state)
{
	uint32_t up = gpu_lease_word(OFFSET, 5000000000);

	gpu_leases_set_offset(d, 0, OFFSET);
	add(0, 0, 0);
	add(1, 1, 1);
	gpu_lease(d, 0, 5000000000);
	page[0].word[SLOT] = 0;
	page[1].word[SLOT] = 0x7fffffff;
	page[0].word[SLOT + 1] = 99; /* belongs to another tenant */
	gpu_leases_rewrite(d);
	assert_int_equal(word(0), up);
	assert_int_equal(word(1), 0);
	assert_int_equal(page[0].word[SLOT + 1], 99);
	gpu_lease(d, 0, 0);
	assert_int_equal(word(0), 0);
}

static void descriptors_of_other_objects_are_refused(void **state)
{
	int open_ended = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int small = shm_create("s", 1024, SHM_NOEXEC), file = open("/dev/zero", O_RDWR);

	assert_int_equal(ftruncate(open_ended, GPU_FLAG_BYTES), 0);
	assert_int_equal(gpu_lease_add(d, GPU_LEASE_PAGES, page[0].fd, 0, 0), -EINVAL);
	assert_int_equal(gpu_lease_add(d, 0, page[0].fd, PROTO_MAX_GPUS, 0), -EINVAL);
	assert_int_equal(gpu_lease_add(d, 0, page[0].fd, 0, GPU_FLAG_SLOTS), -EINVAL);
	assert_true(gpu_lease_add(d, 0, open_ended, 0, 0) < 0); /* can be truncated while mapped */
	assert_true(gpu_lease_add(d, 0, small, 0, 0) < 0);
	assert_true(gpu_lease_add(d, 0, file, 0, 0) < 0);
	assert_true(gpu_lease_add(d, 0, -1, 0, 0) < 0);
	assert_int_equal(gpu_lease_count(d), 0);
	close(open_ended);
	close(small);
	close(file);
}

/* Several threads raise and clear leases while pages are added and removed: no store reaches an
 * unmapped page, and each page ends up with the last value. */
static uint32_t stop;

static void *raise_and_lower(void *arg)
{
	uint64_t n = (uintptr_t)arg;

	while (!load_relaxed(&stop)) {
		struct policy_reader *pin = policy_read_enter();

		n = n * 6364136223846793005u + 1442695040888963407u;
		gpu_lease(d, 0, n >> 63 ? 5000000000 + (n >> 32) : 0);
		policy_read_leave(pin);
	}
	return NULL;
}

static void pages_come_and_go_while_others_raise(void **state)
{
	pthread_t th[3];
	uint64_t n = 1;

	gpu_leases_set_offset(d, 0, OFFSET);
	for (int round = 0; round < 10; round++) {
		store_relaxed(&stop, 0u);
		for (uintptr_t i = 0; i < 3; i++) {
			pthread_create(&th[i], NULL, raise_and_lower,
				       (void *)(i + 10 * (uintptr_t)round));
		}
		for (int i = 0; i < 300; i++) {
			n = n * 6364136223846793005u + 1442695040888963407u;
			if (n >> 63) {
				add((n >> 40) % 4, (int)((n >> 40) % 4), 0);
			} else {
				gpu_lease_remove(d, (n >> 40) % 4);
			}
		}
		for (uint32_t i = 0; i < 4; i++) {
			add(i, (int)i, 0);
		}
		store_relaxed(&stop, 1u);
		for (int i = 0; i < 3; i++) {
			pthread_join(th[i], NULL);
		}
		for (int i = 1; i < 4; i++) {
			assert_int_equal(word(i), word(0));
		}
		gpu_lease(d, 0, 0);
		for (int i = 0; i < 4; i++) {
			assert_int_equal(word(i), 0);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(every_page_of_the_gpu_and_only_the_own_word),
		T(before_the_clock_is_known_nothing_is_raised),
		T(a_page_that_comes_gets_the_lease_at_once_and_one_that_goes_loses_it),
		T(overwritten_words_are_restored),
		T(descriptors_of_other_objects_are_refused),
		T(pages_come_and_go_while_others_raise),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
