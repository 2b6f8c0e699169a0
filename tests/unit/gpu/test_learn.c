/* The learner and NVIDIA's controls against a driver of the test's own. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_rm.h"
#include "gpu/control.h"
#include "gpu/flag.h"
#include "gpu/learn.h"
#include "gpu/rm.h"

#define REQUEST(nr, bytes) _IOC(_IOC_READ | _IOC_WRITE, 'F', nr, bytes)

static struct cuabi_table real;
static int control;

static int fresh(void **state)
{
	(void)state;
	fake_reset();
	gpu_learn_forget_all();
	fake_library("FAKE_LIBRARY");
	control = fake_control();
	return 0;
}

/* ---- the slot ---- */

/* Counts the occurrences of the word in the library's pages with those permissions ("r--p"). */
static unsigned words(const char *file, const char *permissions, uintptr_t word)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long from, to;
	char line[512], p[5];
	unsigned found = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (!strstr(line, file) || sscanf(line, "%lx-%lx %4s", &from, &to, p) != 3 ||
		    strcmp(p, permissions) != 0) {
			continue;
		}
		for (const uintptr_t *w = (const uintptr_t *)from; w < (const uintptr_t *)to; w++) {
			found += *w == word;
		}
	}
	fclose(f);
	return found;
}

static void library_calls_are_seen(const char *variable)
{
	void *lib = fake_library(variable);
	uint32_t before = gpu_learn_generation(), client;

	assert_int_equal(gpu_learn_install(lib), 0);
	assert_int_equal(gpu_learn_install(lib), 0); /* no change */
	client = fake_context(control, 0, 1);
	assert_int_equal(gpu_learn_find(GPU_RM_CLASS_GROUP, NULL, 0), 2);
	assert_int_equal(gpu_learn_find(GPU_LEARN_CHANNELS, NULL, 0), 4);
	assert_true(gpu_learn_generation() != before);
	assert_int_equal(client, fake_nth(GPU_RM_CLASS_GROUP, 0)->root);
}

static void the_slot_of_a_library_is_found(void **state)
{
	(void)state;
	library_calls_are_seen("FAKE_LIBRARY"); /* bound when it is loaded, then read-only */
}

static void a_slot_that_is_bound_late_is_found(void **state)
{
	(void)state;
	library_calls_are_seen("FAKE_LAZY");
}

static void pages_are_left_as_they_were(void **state)
{
	void *lib = fake_library("FAKE_LIBRARY");
	void *(*pointer)(void) = (void *(*)(void))(uintptr_t)dlsym(lib, "library_pointer");

	(void)state;
	assert_int_equal(gpu_learn_install(lib), 0);
	/* The library's ioctl pointer is now in pages that it cannot write. */
	assert_true((uintptr_t)pointer() != (uintptr_t)ioctl);
	assert_true(words("fake_library", "r--p", (uintptr_t)pointer()) > 0);
	assert_int_equal(words("fake_library", "rw-p", (uintptr_t)pointer()), 0);
	assert_int_equal(words("fake_library", "r--p", (uintptr_t)ioctl), 0);
}

static void a_library_without_the_import_is_reported(void **state)
{
	(void)state;
	assert_int_equal(gpu_learn_install(fake_library("FAKE_NONE")), -ENOENT);
}

static void errno_and_results_pass_through(void **state)
{
	struct gpu_rm_free f = { 1, 2, 3, 0 };

	(void)state;
	assert_int_equal(gpu_learn_install(fake_library("FAKE_LIBRARY")), 0);
	errno = 0;
	assert_int_equal(fake_call(control, REQUEST(0x77, 8), &f), -1);
	assert_int_equal(errno, ENOTTY);
	errno = 0;
	assert_int_equal(fake_call(-1, REQUEST(GPU_RM_NR_FREE, 16), &f), -1);
	assert_int_equal(errno, EBADF);
}

/* ---- what is learned ---- */

static void free_object(uint32_t root, uint32_t object)
{
	struct gpu_rm_free f = { root, 0, object, 0 };

	assert_int_equal(fake_call(control, REQUEST(GPU_RM_NR_FREE, sizeof(f)), &f), 0);
	assert_int_equal(f.status, 0);
}

static int ready(void **state)
{
	int err = fresh(state);

	return err ? err : gpu_learn_install(fake_library("FAKE_LIBRARY"));
}

static void handles_of_the_right_gpu_are_given(void **state)
{
	struct gpu_handles h;
	uint32_t client;
	int fd;

	(void)state;
	fake_table(&real, 0, control, 0);
	assert_int_equal(gpu_learn(&real, 0, NULL, &h, &fd), -EAGAIN);
	client = fake_context(control, 0, 0);
	fake_context(control, client, 2);
	fake_find(client, fake_nth(GPU_RM_CLASS_GROUP, 2)->object)->slice_us = 1024;
	/* CUDA's ordinal 0 is the driver's device 2. */
	assert_int_equal(gpu_learn(&real, 0, NULL, &h, &fd), 0);
	assert_int_equal(fd, control);
	assert_int_equal(gpu_handles_check(&h), 0);
	assert_int_equal(h.client, client);
	assert_int_equal(h.n_groups, 2);
	assert_int_equal(h.n_channels, 4);
	assert_int_equal(h.subdevice, fake_nth(GPU_RM_CLASS_SUBDEVICE, 1)->object);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(fake_find(client, h.group[i])->gpu, 2);
		assert_int_equal(h.slice_us[i],
				 h.group[i] == fake_nth(GPU_RM_CLASS_GROUP, 2)->object ? 1024
										       : 2048);
	}
	assert_int_equal(gpu_learn(&real, 2, NULL, &h, &fd), 0);
	assert_int_equal(fake_find(client, h.group[0])->gpu, 0);
	assert_int_equal(gpu_learn(&real, 1, NULL, &h, &fd), -EAGAIN);
	assert_int_equal(gpu_learn(&real, 9, NULL, &h, &fd), -ENOTSUP);
	/* With several GPUs and a driver that does not identify them, the learner does not guess.
	 */
	fake.refuse_command = 0x20800142;
	fake.refuse_status = 0x1b;
	assert_int_equal(gpu_learn(&real, 0, NULL, &h, &fd), -ENOTSUP);
}

static void freed_objects_are_forgotten_with_their_children(void **state)
{
	uint32_t client, group, generation;
	struct gpu_handles h;
	int fd;

	(void)state;
	client = fake_context(control, 0, 2);
	fake_table(&real, 2, control, client);
	group = fake_nth(GPU_RM_CLASS_GROUP, 0)->object;
	generation = gpu_learn_generation();
	free_object(client, group);
	assert_true(gpu_learn_generation() != generation);
	assert_int_equal(gpu_learn(&real, 0, NULL, &h, &fd), 0);
	assert_int_equal(h.n_groups, 1);
	assert_int_equal(h.n_channels, 2);
	assert_true(h.group[0] != group);
	free_object(client, client);
	assert_int_equal(gpu_learn_find(GPU_RM_CLASS_DEVICE, NULL, 0), 0);
	assert_int_equal(gpu_learn_find(GPU_LEARN_CHANNELS, NULL, 0), 0);
	assert_int_equal(gpu_learn(&real, 0, NULL, &h, &fd), -EAGAIN);
}

static void refused_calls_teach_nothing(void **state)
{
	struct gpu_rm_alloc a = { .class_id = GPU_RM_CLASS_GROUP, .root = 5, .parent = 5 };
	uint32_t generation = gpu_learn_generation();

	(void)state;
	assert_int_equal(fake_call(control, REQUEST(GPU_RM_NR_ALLOC, sizeof(a)), &a), 0);
	assert_int_not_equal(a.status, 0);
	assert_int_equal(gpu_learn_find(GPU_RM_CLASS_GROUP, NULL, 0), 0);
	assert_int_equal(gpu_learn_generation(), generation);
}

static void slices_that_the_library_sets_are_noticed(void **state)
{
	uint32_t client = fake_context(control, 0, 0), generation = gpu_learn_generation();
	uint64_t us = 2048;
	struct gpu_rm_control c = { .client = client,
				    .object = fake_nth(GPU_RM_CLASS_GROUP, 0)->object,
				    .command = 0xa06c0104,
				    .params = (uintptr_t)&us,
				    .params_bytes = 8 };

	(void)state;
	assert_int_equal(fake_call(control, REQUEST(GPU_RM_NR_CONTROL, sizeof(c)), &c), 0);
	assert_int_equal(gpu_learn_generation(), generation);
	c.command = 0xa06c0103;
	assert_int_equal(fake_call(control, REQUEST(GPU_RM_NR_CONTROL, sizeof(c)), &c), 0);
	assert_int_not_equal(gpu_learn_generation(), generation);
}

static void more_than_there_is_room_for_is_said(void **state)
{
	struct gpu_handles h;
	uint32_t client = fake_context(control, 0, 2);
	int fd;

	(void)state;
	fake_table(&real, 2, control, client);
	for (int i = 0; i < 20; i++) {
		struct fake_object device = *fake_nth(GPU_RM_CLASS_DEVICE, 0);
		struct gpu_rm_alloc a = { .root = client,
					  .parent = device.object,
					  .class_id = GPU_RM_CLASS_GROUP };

		for (int k = 0; k < 2; k++) {
			a.object = 0;
			assert_int_equal(
				fake_call(control, REQUEST(GPU_RM_NR_ALLOC, sizeof(a)), &a), 0);
			assert_int_equal(a.status, 0);
		}
		a.parent = a.object;
		a.class_id = 0xc56f;
		for (int k = 0; k < 4; k++) {
			a.object = 0;
			assert_int_equal(
				fake_call(control, REQUEST(GPU_RM_NR_ALLOC, sizeof(a)), &a), 0);
		}
	}
	assert_int_equal(gpu_learn(&real, 0, NULL, &h, &fd), 0);
	assert_int_equal(h.n_groups, GPU_MAX_GROUPS);
	assert_int_equal(h.n_channels, GPU_MAX_CHANNELS);
	assert_int_equal(h.more, GPU_MORE_GROUPS | GPU_MORE_CHANNELS);
	/* Then whole groups are disabled. */
	assert_int_equal(gpu_control(&h, fd, GPU_CONTROL_SCHEDULE, 0, NULL), 0);
	assert_int_equal(fake.disabled_calls, 0);
	assert_int_equal(fake.group_schedules, GPU_MAX_GROUPS);
}

static void a_child_after_fork_knows_nothing(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	fake_context(control, 0, 0);
	pid = fork();
	if (pid == 0) {
		_exit(gpu_learn_find(GPU_RM_CLASS_GROUP, NULL, 0) == 0 ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(gpu_learn_find(GPU_RM_CLASS_GROUP, NULL, 0), 2);
}

/* ---- controls ---- */

static struct gpu_handles h;
static int fd;

static int learned(void **state)
{
	int err = ready(state);
	uint32_t client = err ? 0 : fake_context(control, 0, 2);

	fake_table(&real, 2, control, client);
	return err ? err : gpu_learn(&real, 0, NULL, &h, &fd);
}

static void each_control_reaches_every_group(void **state)
{
	struct gpu_switches s;
	uint64_t n;

	(void)state;
	assert_int_equal(gpu_control(&h, fd, GPU_CONTROL_SLICE_SET, 250, NULL), 0);
	assert_int_equal(fake_nth(GPU_RM_CLASS_GROUP, 0)->slice_us, 250);
	assert_int_equal(fake_nth(GPU_RM_CLASS_GROUP, 1)->slice_us, 250);
	assert_int_equal(gpu_control(&h, fd, GPU_CONTROL_SLICE_GET, 0, &n), 0);
	assert_int_equal(n, 250);
	assert_int_equal(gpu_control(&h, fd, GPU_CONTROL_SLICE_SET, 0, NULL), 0);
	assert_int_equal(fake_nth(GPU_RM_CLASS_GROUP, 1)->slice_us, 2048);
	assert_int_equal(gpu_control(&h, fd, GPU_CONTROL_PREEMPT, 0, NULL), 0);
	assert_int_equal(fake.preempts, 2);
	assert_int_equal(gpu_control(&h, fd, GPU_CONTROL_PREEMPT, 1, NULL), 0);
	assert_true(fake.preempt_wait_us > 0 && fake.preempt_wait_us <= 10001);
	assert_int_equal(gpu_control(&h, fd, GPU_CONTROL_SCHEDULE, 0, NULL), 0);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(fake_nth(0xc86f, i)->on, 0);
	}
	assert_int_equal(gpu_control(&h, fd, GPU_CONTROL_SCHEDULE, 1, NULL), 0);
	assert_int_equal(fake_nth(0xc86f, 3)->on, 1);
	assert_int_equal(fake.group_schedules, 0);
	assert_int_equal(gpu_control(&h, fd, GPU_CONTROL_INTERLEAVE, 2, NULL), 0);
	assert_int_equal(fake_nth(GPU_RM_CLASS_GROUP, 1)->level, 2);
	assert_int_equal(gpu_control(&h, fd, GPU_CONTROL_INTERLEAVE, 3, NULL), -EINVAL);
	assert_int_equal(gpu_control(&h, fd, GPU_CONTROL_PREEMPTION_MODE, 1, NULL), 0);
	assert_int_equal(gpu_control(&h, fd, GPU_CONTROL_PREEMPTION_MODE, 3, NULL), -EINVAL);
	assert_int_equal(gpu_control(&h, fd, GPU_CONTROL_COUNTERS, 0, &n), 0);
	assert_int_equal(n, 14);
	assert_int_equal(gpu_control_switches(&h, fd, &s), 0);
	assert_int_equal(s.saves, 14);
}

static void statuses_become_errors(void **state)
{
	static const struct {
		uint32_t status;
		int err;
	} rows[] = { { 0x1b, -EPERM },	   { 0x23, -ENODEV },  { 0x57, -ENODEV },
		     { 0x33, -ENODEV },	   { 0x56, -ENOTSUP }, { 0x24, -ENOTSUP },
		     { 0x65, -ETIMEDOUT }, { 0x1a, -ENOMEM },  { 0xffff, -EIO } };
	int other = fake_control();

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		fake.refuse_command = 0xa06c0103;
		fake.refuse_status = rows[i].status;
		assert_int_equal(gpu_control(&h, fd, GPU_CONTROL_SLICE_SET, 9, NULL), rows[i].err);
		assert_int_equal(gpu_rm_last_status(), rows[i].status);
	}
	fake.refuse_command = UINT32_MAX;
	/* Another descriptor, none, and one that is no control descriptor. */
	assert_int_equal(gpu_control(&h, other, GPU_CONTROL_SLICE_SET, 9, NULL), -ENODEV);
	assert_true(gpu_control(&h, -1, GPU_CONTROL_SLICE_SET, 9, NULL) < 0);
	assert_int_equal(gpu_control(&h, 0, GPU_CONTROL_SLICE_SET, 9, NULL), -EBADF);
	assert_int_equal(fake_nth(GPU_RM_CLASS_GROUP, 0)->slice_us, 2048);
}

static void groups_that_have_gone_do_not_keep_others_from_it(void **state)
{
	(void)state;
	free_object(h.client, h.group[0]);
	assert_int_equal(gpu_control(&h, fd, GPU_CONTROL_SLICE_SET, 77, NULL), 0);
	assert_int_equal(fake_nth(GPU_RM_CLASS_GROUP, 0)->slice_us, 77);
	/* One of its channels has ended: by groups then. */
	assert_int_equal(gpu_control(&h, fd, GPU_CONTROL_SCHEDULE, 0, NULL), 0);
	assert_int_equal(fake_nth(0xc86f, 0)->on, 0);
	assert_int_equal(fake.group_schedules, 1);
	free_object(h.client, h.client);
	assert_int_equal(gpu_control(&h, fd, GPU_CONTROL_SLICE_SET, 77, NULL), -ENODEV);
}

static void the_self_test_changes_nothing(void **state)
{
	/* The last two are set by their owner. */
	const uint32_t all = (1u << GPU_CONTROL_FLAG) - 1;

	(void)state;
	fake_nth(GPU_RM_CLASS_GROUP, 0)->slice_us = 1024;
	fake_nth(GPU_RM_CLASS_GROUP, 1)->level = 1;
	gpu_self_test(&h, fd);
	assert_int_equal(h.capable, all);
	assert_int_equal(fake_nth(GPU_RM_CLASS_GROUP, 0)->slice_us, 1024);
	assert_int_equal(fake_nth(GPU_RM_CLASS_GROUP, 1)->slice_us, 2048);
	assert_int_equal(fake_nth(GPU_RM_CLASS_GROUP, 1)->level, 1);
	assert_int_equal(fake_nth(0xc86f, 0)->on, 1);
	fake.refuse_command = 0xa06c0107;
	fake.refuse_status = 0x1b;
	h.capable = 1u << GPU_CONTROL_FLAG;
	gpu_self_test(&h, fd);
	assert_int_equal(h.capable,
			 (all | 1u << GPU_CONTROL_FLAG) & ~(1u << GPU_CONTROL_INTERLEAVE));
}

/* ---- flag pages ---- */

static struct gpu_device *device;

static struct gpu_flag *flag(void)
{
	struct gpu_flag *f = NULL;

	assert_int_equal(gpu_device_create(&device, &real), 0);
	assert_int_equal(gpu_flag_create(device, (CUcontext)(uintptr_t)0x1000, &f), 0);
	assert_int_equal(gpu_flag_address(f), 0x10000000);
	return f;
}

static void flag_end(struct gpu_flag *f)
{
	gpu_flag_destroy(f);
	gpu_device_destroy(device);
}

static uint32_t device_reads(uint32_t slot)
{
	uint32_t word = 0;

	assert_int_equal(real.cuMemcpyDtoHAsync_v2(&word, 0x10000000 + 4 * slot, 4, NULL), 0);
	return word;
}

static void a_page_has_a_client_of_its_own(void **state)
{
	struct gpu_flag *f = flag();
	struct gpu_lease_page p;
	struct fake_object *own = fake_nth(GPU_RM_CLASS_MEMORY, 1);

	(void)state;
	assert_string_equal(gpu_flag_why(device), "");
	assert_non_null(own);
	assert_true(own->root != h.client);
	assert_int_equal(own->gpu, 2);
	assert_int_equal(gpu_lease_map(&p, gpu_flag_fd(f)), 0);
	gpu_lease_store(&p, 5, 99);
	gpu_lease_fence();
	assert_int_equal(device_reads(5), 99);
	assert_int_equal(device_reads(63), 0);
	/* Objects of the page's client are not taken for the program's. */
	assert_int_equal(gpu_learn_find(GPU_RM_CLASS_DEVICE, NULL, 0), 1);
	gpu_lease_unmap(&p);
	flag_end(f);
}

static void without_one_the_programs_client_serves(void **state)
{
	struct gpu_flag *f;

	(void)state;
	fake.refuse_number = GPU_RM_NR_DUP;
	f = flag();
	assert_non_null(strstr(gpu_flag_why(device), "client of its own"));
	assert_true(gpu_flag_fd(f) >= 0);
	assert_int_equal(gpu_flag_write(f, 1, 8), 0);
	assert_int_equal(device_reads(1), 8);
	flag_end(f);
}

static void where_mapping_is_refused_words_go_by_stream(void **state)
{
	struct gpu_flag *f;

	(void)state;
	fake.refuse_number = GPU_RM_NR_MAP_MEMORY;
	f = flag();
	assert_int_equal(gpu_flag_fd(f), -1);
	assert_non_null(strstr(gpu_flag_why(device), "cannot be mapped"));
	assert_int_equal(gpu_flag_write(f, 1, 8), 0);
	assert_int_equal(device_reads(1), 8);
	flag_end(f);
}

static void stores_that_the_device_does_not_see_are_noticed(void **state)
{
	struct gpu_flag *f;

	(void)state;
	fake.stores_are_lost = true;
	f = flag();
	assert_int_equal(gpu_flag_fd(f), -1);
	assert_non_null(strstr(gpu_flag_why(device), "does not see"));
	assert_int_equal(gpu_flag_write(f, 1, 8), 0);
	assert_int_equal(device_reads(1), 8);
	flag_end(f);
}

/* ---- random traffic ---- */

static uint64_t seed = 0x9e3779b97f4a7c15;

static uint32_t random32(uint32_t below)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % below;
}

static uint32_t some_class(void)
{
	static const uint32_t classes[] = { 0x41,   0x80,   0x80,   0x2080, 0xa06c,
					    0xa06c, 0xc86f, 0xc36f, 0x40,   0x3e };

	return classes[random32(sizeof(classes) / sizeof(*classes))];
}

/* Calls as they return from some driver: any handle, any status, any size. */
static void random_call(int number)
{
	static const uint8_t numbers[] = { GPU_RM_NR_ALLOC,    GPU_RM_NR_ALLOC,
					   GPU_RM_NR_ALLOC,    GPU_RM_NR_ALLOC,
					   GPU_RM_NR_FREE,     GPU_RM_NR_CONTROL,
					   GPU_RM_NR_TRANSFER, 0x4a };
	static const uint16_t sizes[] = { 16, 32, 48, 0, 8, 4096 };
	uint32_t words[1024], nr = numbers[random32(sizeof(numbers))];
	uint32_t bytes = nr == GPU_RM_NR_FREE	   ? 16
			 : nr == GPU_RM_NR_CONTROL ? 32
			 : random32(2)		   ? 32
						   : 48;

	for (size_t i = 0; i < 16; i++) {
		words[i] = random32(16) ? random32(40) : random32(UINT32_MAX);
	}
	if (nr == GPU_RM_NR_ALLOC) {
		words[3] = some_class();
		words[4] = words[5] = random32(3) ? 0 : random32(UINT32_MAX);
		words[bytes == 32 ? 7 : 10] = random32(8) ? 0 : 0x1f;
	} else if (nr == GPU_RM_NR_FREE) {
		words[3] = random32(8) ? 0 : 0x57;
	}
	if (number % 17 == 0) {
		bytes = sizes[random32(sizeof(sizes) / sizeof(*sizes))];
	}
	gpu_learn_call((int)random32(64), REQUEST(nr, bytes), random32(50) ? words : NULL,
		       random32(20) ? 0 : -1);
}

static void the_table_is_bounded_and_sound_under_any_traffic(void **state)
{
	static struct gpu_learn_object all[GPU_LEARN_OBJECTS_MAX];
	struct gpu_learn_object up;
	uint32_t n;

	(void)state;
	gpu_learn_forget_all();
	for (int i = 0; i < 40000; i++) {
		random_call(i);
		if (i % 1000 == 0) {
			n = gpu_learn_find(GPU_RM_CLASS_GROUP, all, GPU_LEARN_OBJECTS_MAX);
			assert_true(n <= GPU_LEARN_OBJECTS_MAX);
			for (uint32_t k = 0; k < n; k++) {
				assert_int_equal(all[k].class_id, GPU_RM_CLASS_GROUP);
				if (gpu_learn_device_of(&all[k], &up)) {
					assert_int_equal(up.class_id, GPU_RM_CLASS_DEVICE);
				}
			}
		}
	}
	/* More than there is room for: the rest is ignored. */
	gpu_learn_forget_all();
	for (uint32_t i = 0; i < GPU_LEARN_OBJECTS_MAX + 500; i++) {
		struct gpu_rm_alloc a = {
			.root = 1, .parent = 2, .object = 10 + i, .class_id = 0xa06c
		};

		gpu_learn_call(3, REQUEST(GPU_RM_NR_ALLOC, sizeof(a)), &a, 0);
	}
	assert_int_equal(gpu_learn_find(GPU_RM_CLASS_GROUP, NULL, 0), GPU_LEARN_OBJECTS_MAX);
	for (uint32_t i = 0; i < 2; i++) {
		struct gpu_rm_free f = { 1, 0, i ? 1 : 10, 0 };

		gpu_learn_call(3, REQUEST(GPU_RM_NR_FREE, sizeof(f)), &f, 0);
		assert_int_equal(gpu_learn_find(GPU_RM_CLASS_GROUP, NULL, 0),
				 i ? 0 : GPU_LEARN_OBJECTS_MAX - 1);
	}
}

static void *traffic(void *arg)
{
	for (int i = 0; i < 3000; i++) {
		struct gpu_rm_alloc a = { .root = 1 + (uint32_t)(uintptr_t)arg,
					  .parent = 2,
					  .object = 10 + (uint32_t)i,
					  .class_id = 0xc86f };
		struct gpu_rm_free f = { a.root, 2, a.object, 0 };

		gpu_learn_call(3, REQUEST(GPU_RM_NR_ALLOC, sizeof(a)), &a, 0);
		if (i % 3) {
			gpu_learn_call(3, REQUEST(GPU_RM_NR_FREE, sizeof(f)), &f, 0);
		}
	}
	return NULL;
}

static void threads_may_call_at_once(void **state)
{
	pthread_t t[2];

	(void)state;
	gpu_learn_forget_all();
	for (uintptr_t i = 0; i < 2; i++) {
		assert_int_equal(pthread_create(&t[i], NULL, traffic, (void *)i), 0);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(t[i], NULL);
	}
	assert_int_equal(gpu_learn_find(GPU_LEARN_CHANNELS, NULL, 0), 2000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(the_slot_of_a_library_is_found, fresh),
		cmocka_unit_test_setup(a_slot_that_is_bound_late_is_found, fresh),
		cmocka_unit_test_setup(pages_are_left_as_they_were, fresh),
		cmocka_unit_test_setup(a_library_without_the_import_is_reported, fresh),
		cmocka_unit_test_setup(errno_and_results_pass_through, fresh),
		cmocka_unit_test_setup(handles_of_the_right_gpu_are_given, ready),
		cmocka_unit_test_setup(freed_objects_are_forgotten_with_their_children, ready),
		cmocka_unit_test_setup(refused_calls_teach_nothing, ready),
		cmocka_unit_test_setup(slices_that_the_library_sets_are_noticed, ready),
		cmocka_unit_test_setup(more_than_there_is_room_for_is_said, ready),
		cmocka_unit_test_setup(a_child_after_fork_knows_nothing, ready),
		cmocka_unit_test_setup(each_control_reaches_every_group, learned),
		cmocka_unit_test_setup(statuses_become_errors, learned),
		cmocka_unit_test_setup(groups_that_have_gone_do_not_keep_others_from_it, learned),
		cmocka_unit_test_setup(the_self_test_changes_nothing, learned),
		cmocka_unit_test_setup(a_page_has_a_client_of_its_own, learned),
		cmocka_unit_test_setup(without_one_the_programs_client_serves, learned),
		cmocka_unit_test_setup(where_mapping_is_refused_words_go_by_stream, learned),
		cmocka_unit_test_setup(stores_that_the_device_does_not_see_are_noticed, learned),
		cmocka_unit_test(the_table_is_bounded_and_sound_under_any_traffic),
		cmocka_unit_test(threads_may_call_at_once),
	};

	alarm(200);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
