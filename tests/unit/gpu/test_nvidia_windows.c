/* Windows of the direct plan on the memory of a driver library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "fake_rm.h"
#include "gpu/control_int.h"
#include "gpu/ranges.h"
#include "gpu/rm.h"
#include "gpu/window.h"
#include "uvm_calls.h"
#include "../eventually.h"

#define MIB ((uint64_t)1 << 20)
#define BASE ((uint64_t)0x7f0000000000)
#define ALLOC _IOC(_IOC_READ | _IOC_WRITE, 'F', GPU_RM_NR_ALLOC, sizeof(struct gpu_rm_alloc))
#define CARD_BYTES (UINT64_C(80) << 30)

static struct cuabi_table real;
static struct mem_direct direct;
static int control, uvm;
static uint32_t client, device;

/* ---- set-up ---- */

static CUresult total_memory(size_t *bytes, CUdevice d)
{
	*bytes = d == 1 ? CARD_BYTES : CARD_BYTES / 2;
	return CUDA_SUCCESS;
}

/* What the driver says of a pointer. */
static struct {
	CUresult result;
	unsigned type;
	CUdeviceptr host; /* of the address that is asked for */
	CUdeviceptr base, mapping;
	size_t bytes, mapping_bytes;
} known;

static CUresult pointer_attributes(unsigned n, CUpointer_attribute *what, void **to, CUdeviceptr p)
{
	(void)p;
	for (unsigned i = 0; i < n; i++) {
		if (what[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
			*(unsigned *)to[i] = known.type;
		} else if (what[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER) {
			*(CUdeviceptr *)to[i] = known.host;
		} else if (what[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) {
			*(CUdeviceptr *)to[i] = known.base;
		} else if (what[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
			*(size_t *)to[i] = known.bytes;
		} else if (what[i] == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR) {
			*(CUdeviceptr *)to[i] = known.mapping;
		} else {
			assert_int_equal(what[i], CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
			*(size_t *)to[i] = known.mapping_bytes;
		}
	}
	return known.result;
}

static int begin(void **state)
{
	void *lib;

	(void)state;
	fake_reset();
	gpu_learn_forget_all();
	lib = fake_library("FAKE_LIBRARY");
	control = fake_control();
	uvm = fake_uvm();
	fake.shown_bytes = CARD_BYTES;
	if (gpu_learn_install(lib)) {
		return -1;
	}
	client = fake_context(control, 0, 1);
	device = fake_nth(GPU_RM_CLASS_DEVICE, 0)->object;
	fake_table(&real, 1, control, client);
	real.cuDeviceTotalMem_v2 = total_memory;
	real.cuPointerGetAttributes = pointer_attributes;
	memset(&known, 0, sizeof(known));
	known.type = CU_MEMORYTYPE_DEVICE;
	mem_direct_init(&direct, &gpu_window_ops, NULL);
	return gpu_windows_begin(&real, &direct) ? 0 : -1;
}

static unsigned descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir)) {
		n++;
	}
	closedir(dir);
	return n;
}

/* Mappings of device memory. */
static unsigned mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		n += strstr(line, "memfd:memory") != NULL;
	}
	fclose(f);
	return n;
}

static int end(void **state)
{
	(void)state;
	assert_int_equal(uvm_unmap(uvm, 0, UINT64_MAX), 0);
	mem_direct_finish(&direct);
	assert_int_equal(fake.n_parts, 0);
	assert_int_equal(fake.freed_with_parts, 0);
	assert_int_equal(mappings(), 0);
	return 0;
}

static uint32_t allocate(uint64_t base, uint64_t bytes)
{
	uint32_t memory = fake_make(control, client, device, GPU_RM_CLASS_MEMORY, 0);

	assert_int_equal(uvm_map(uvm, base, bytes, control, client, memory), 0);
	return memory;
}

/* Makes copies until the address has a window; returns false if it gets none. */
static bool open_window(uint64_t address)
{
	for (unsigned i = 0; i < MEM_WINDOW_HITS; i++) {
		if (mem_direct_find(&direct, address, 1, false) == MEM_DIRECT_OPEN) {
			mem_direct_open(&direct, address, true);
		}
	}
	return mem_direct_find(&direct, address, 1, false) == MEM_DIRECT_YES;
}

static const struct fake_part *part_at(uint64_t offset)
{
	for (uint32_t i = 0; i < fake.n_parts; i++) {
		if (fake.part[i].offset == offset) {
			return &fake.part[i];
		}
	}
	fail_msg("no part at %#lx", offset);
	return NULL;
}

/* ---- windows ---- */

static void a_window_shows_the_part_of_its_unit(void **state)
{
	static const struct {
		uint64_t offset, bytes;
	} parts[] = { { 0, MIB }, { MIB, 2 * MIB }, { 3 * MIB, 2 * MIB }, { 5 * MIB, MIB / 4 } };
	uint64_t base = BASE + MIB;
	uint32_t memory = allocate(base, 5 * MIB + MIB / 4);

	(void)state;
	for (uint32_t i = 0; i < ARRAY_SIZE(parts); i++) {
		uint64_t last = base + parts[i].offset + parts[i].bytes - 1;
		const struct fake_part *p;
		unsigned char byte;

		assert_true(open_window(last));
		assert_int_equal(fake.n_parts, i + 1);
		p = part_at(parts[i].offset);
		assert_int_equal(p->bytes, parts[i].bytes);
		assert_true(p->client == client && p->device == device && p->memory == memory);
		byte = (unsigned char)(17 + i);
		assert_true(mem_direct_up(&direct, last - 5, &byte, 1));
		byte = 0;
		assert_int_equal(pread(p->contents, &byte, 1, (off_t)p->bytes - 6), 1);
		assert_int_equal(byte, 17 + i);
		byte = (unsigned char)(99 + i);
		assert_int_equal(pwrite(p->contents, &byte, 1, 7), 1);
		assert_true(mem_direct_down(&direct, &byte, base + parts[i].offset + 7, 1));
		assert_int_equal(byte, 99 + i);
	}
	assert_false(open_window(base - 1));
	assert_false(open_window(base + 5 * MIB + MIB / 4));
	assert_int_equal(fake.parts_made, 4);
}

static void windows_leave_nothing_behind(void **state)
{
	unsigned before;

	(void)state;
	allocate(BASE, 6 * MIB);
	before = descriptors();
	for (unsigned i = 0; i < 3; i++) {
		assert_true(open_window(BASE + 2 * MIB * i));
		/* One for the fake's record. */
		assert_int_equal(descriptors(), before + i + 1);
		assert_int_equal(mappings(), i + 1);
	}
	assert_int_equal(uvm_free(uvm, BASE), 0);
	assert_int_equal(fake.n_parts, 0);
	assert_int_equal(mappings(), 0);
	assert_int_equal(descriptors(), before);
}

/* Requires that a window is refused, and that nothing is left of the attempt. */
static void refused(int err)
{
	unsigned before = descriptors();
	struct mem_window w;

	assert_int_equal(gpu_window_ops.open(NULL, BASE, &w), err);
	assert_int_equal(descriptors(), before);
	assert_int_equal(mappings(), 0);
	assert_int_equal(fake.n_parts, 0);
}

static void unknown_memory_is_refused(void **state)
{
	(void)state;
	refused(-ENOENT);
	assert_int_equal(uvm_map(uvm, BASE, MIB, control, client,
				 fake_make(control, client, device, GPU_RM_CLASS_HOST_MEMORY, 0)),
			 0);
	refused(-ENOENT);
	allocate(BASE, MIB);
	fake_make(control, client, device, GPU_RM_CLASS_MEMORY, 0);
	assert_int_equal(
		uvm_map(uvm, BASE, MIB, control, client, fake_nth(GPU_RM_CLASS_MEMORY, 0)->object),
		0);
	refused(-ENOENT);
}

/* The largest of the fake's GPUs has CARD_BYTES. */
static void cards_that_show_a_part_of_their_memory_are_refused(void **state)
{
	(void)state;
	allocate(BASE, MIB);
	fake.shown_bytes = CARD_BYTES - 1;
	refused(-ENOTSUP);
	fake.shown_bytes = 256 * MIB;
	refused(-ENOTSUP);
	fake.shown_bytes = CARD_BYTES;
	assert_true(open_window(BASE));
}

static struct gpu_rm_os os;

static int open_nothing(const char *path)
{
	(void)path;
	return -EMFILE;
}

static void failures_leave_nothing_behind(void **state)
{
	static const uint32_t numbers[] = { GPU_RM_NR_CARD_INFO, GPU_RM_NR_REGISTER_FD,
					    GPU_RM_NR_MAP_MEMORY };

	(void)state;
	allocate(BASE, MIB);
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		fake.refuse_number = numbers[i];
		refused(-EIO);
	}
	fake.refuse_number = UINT32_MAX;
	fake.refuse_command = 0x20800142;
	fake.refuse_status = 0x57;
	refused(-ENODEV);
	fake.refuse_command = UINT32_MAX;
	fake.mmap_fails = true;
	refused(-EIO);
	assert_int_equal(fake.parts_made, 1);
	fake.mmap_fails = false;
	os = gpu_rm_os;
	gpu_rm_os.open = open_nothing;
	refused(-EIO);
	gpu_rm_os = os;
	assert_true(open_window(BASE));
}

/* A unit is not asked for again after a failure until its memory is freed. */
static void failures_last_as_long_as_the_memory(void **state)
{
	(void)state;
	allocate(BASE, MIB);
	fake.refuse_number = GPU_RM_NR_MAP_MEMORY;
	assert_false(open_window(BASE));
	fake.refuse_number = UINT32_MAX;
	assert_false(open_window(BASE));
	assert_int_equal(uvm_free(uvm, BASE), 0);
	allocate(BASE, MIB);
	assert_true(open_window(BASE));
}

/* ---- memory that goes ---- */

static unsigned parts_at_the_call, mappings_at_the_call;
static int opened_at_the_call;

static void look(int fd, unsigned long request, const void *argument)
{
	struct mem_window w;

	(void)argument;
	if (fd == uvm || _IOC_NR(request) == GPU_RM_NR_FREE) {
		fake.before = NULL;
		parts_at_the_call = fake.n_parts;
		mappings_at_the_call = mappings();
		opened_at_the_call = gpu_window_ops.open(NULL, BASE, &w);
		if (!opened_at_the_call) {
			gpu_window_ops.close(NULL, &w);
		}
	}
}

static void windows_are_closed_before_the_driver_frees_addresses(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		uint32_t memory = allocate(BASE, 2 * MIB);

		assert_true(open_window(BASE));
		fake.before = look;
		assert_int_equal(i == 0	  ? uvm_free(uvm, BASE)
				 : i == 1 ? uvm_unmap(uvm, BASE, 2 * MIB)
					  : uvm_map(uvm, BASE + MIB, MIB, control, client, memory),
				 0);
		assert_null(fake.before);
		if (i < 2) {
			assert_int_equal(parts_at_the_call, 0);
			assert_int_equal(mappings_at_the_call, 0);
			assert_int_equal(opened_at_the_call, -ENOENT);
		}
		assert_int_equal(fake.n_parts, 0);
		rm_free(control, client, memory);
	}
}

static void other_windows_stay_open(void **state)
{
	struct gpu_rm_alloc a = { .class_id = GPU_RM_CLASS_SUBDEVICE };
	uint32_t others, memory;

	(void)state;
	allocate(BASE + 4 * MIB, 2 * MIB);
	memory = allocate(BASE, 2 * MIB);
	assert_true(open_window(BASE) && open_window(BASE + 4 * MIB));
	others =
		fake_context(control, 0, 1); /* another client, with an object of the same handle */
	a.root = a.parent = others;
	a.object = memory;
	assert_int_equal(fake_call(control, ALLOC, &a), 0);
	assert_int_equal(a.status, 0);
	rm_free(control, others, memory);
	assert_int_equal(fake.n_parts, 2);
	rm_free(control, others, others);
	assert_int_equal(fake.n_parts, 2);
	rm_free(control, client, fake_nth(GPU_RM_CLASS_GROUP, 0)->object);
	assert_int_equal(fake.n_parts, 2);
	assert_int_equal(uvm_free(uvm, BASE), 0);
	rm_free(control, client, memory);
	assert_int_equal(fake.n_parts, 1);
	assert_true(open_window(BASE + 4 * MIB));
}

/* Without a call that frees the addresses. */
static void windows_are_closed_before_the_driver_frees_objects(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		uint32_t memory = allocate(BASE, 2 * MIB);

		assert_true(open_window(BASE));
		fake.before = look;
		rm_free(control, client, i == 0 ? memory : i == 1 ? device : client);
		assert_null(fake.before);
		assert_int_equal(parts_at_the_call, 0);
		assert_int_equal(mappings_at_the_call, 0);
		assert_int_equal(opened_at_the_call, -ENOENT);
		assert_int_equal(uvm_free(uvm, BASE), 0);
		if (i == 1) {
			fake_context(control, client, 1);
			device = fake_nth(GPU_RM_CLASS_DEVICE, 0)->object;
		}
	}
	assert_int_equal(fake.freed_with_parts, 0);
}

static struct {
	pid_t tid;	   /* [atomic] of the thread that frees */
	uint32_t memory;   /* the object */
	bool mapped, done; /* [atomic] */
} race;

/* Between the driver's mapping of a part and the window that is made of it. */
static void wait_for_the_other(int fd, unsigned long request, const void *argument)
{
	(void)fd, (void)argument;
	if (_IOC_NR(request) == GPU_RM_NR_MAP_MEMORY) {
		store_release(&race.mapped, true);
		eventually(load_acquire(&race.done) ||
			   (load_acquire(&race.tid) && thread_is_blocked(race.tid)));
	}
}

static void *free_it(void *arg)
{
	(void)arg;
	eventually(load_acquire(&race.mapped));
	store_release(&race.tid, gettid());
	rm_free(control, client, race.memory);
	store_release(&race.done, true);
	return NULL;
}

static void an_object_is_not_freed_while_its_window_opens(void **state)
{
	pthread_t t;

	(void)state;
	memset(&race, 0, sizeof(race));
	race.memory = allocate(BASE, 2 * MIB);
	fake.after = wait_for_the_other;
	assert_int_equal(pthread_create(&t, NULL, free_it, NULL), 0);
	(void)open_window(BASE);
	pthread_join(t, NULL);
	fake.after = NULL;
	assert_int_equal(fake.parts_made, 1);
	assert_int_equal(fake.freed_with_parts, 0);
	assert_int_equal(fake.n_parts, 0);
}

/* ---- other processes and memory ---- */

static void a_child_does_not_inherit_windows(void **state)
{
	const struct mem_window *w;
	int status;
	pid_t pid;

	(void)state;
	allocate(BASE, 2 * MIB);
	assert_true(open_window(BASE));
	w = &direct.slot[0].w;
	assert_int_equal(w->bytes, 2 * MIB);
	pid = fork();
	if (pid == 0) {
		unsigned char there;
		bool inherited;

		mem_direct_forget(&direct);
		inherited = mappings() || mincore(w->at, 4096, &there) == 0;
		uvm_free(uvm, BASE); /* what the library may do at its end */
		rm_free(control, client, client);
		_exit(inherited || fake.n_parts != 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(open_window(BASE));
	assert_int_equal(mappings(), 1);
}

static void what_the_gpu_has_mapped_is_not_the_hosts(void **state)
{
	(void)state;
	allocate(BASE, 2 * MIB);
	assert_false(gpu_windows_is_host(&real, (void *)BASE, 1));
	assert_false(gpu_windows_is_host(&real, (void *)(BASE - 7), 8));
	assert_true(gpu_windows_is_host(&real, (void *)(BASE - 8), 8));
	assert_true(gpu_windows_is_host(&real, (void *)(BASE + 2 * MIB), 8));
	assert_true(gpu_windows_is_host(&real, &real, sizeof(real)));
}

/* Host memory that another thread has made, or that is mapped for another GPU, say. */
static void mapped_memory_that_the_driver_knows_is_the_hosts(void **state)
{
	(void)state;
	allocate(BASE, 2 * MIB);
	known.type = CU_MEMORYTYPE_HOST;
	known.base = BASE;
	known.bytes = MIB;
	known.mapping = BASE;
	known.mapping_bytes = 2 * MIB; /* as of small allocations */
	known.host = BASE + 16;
	assert_true(gpu_windows_is_host(&real, (void *)(BASE + 16), MIB - 16));
	assert_false(gpu_windows_is_host(&real, (void *)(BASE + 16), MIB - 15));
	known.base = BASE + 17; /* an answer that makes no sense */
	assert_false(gpu_windows_is_host(&real, (void *)(BASE + 16), 1));
	known.base = BASE;
	known.host += MIB; /* the CPU has it somewhere else */
	assert_false(gpu_windows_is_host(&real, (void *)(BASE + 16), 1));
	known.host -= MIB;
	known.type = CU_MEMORYTYPE_DEVICE;
	assert_false(gpu_windows_is_host(&real, (void *)(BASE + 16), 1));
	known.type = CU_MEMORYTYPE_HOST;
	known.result = CUDA_ERROR_INVALID_VALUE;
	assert_false(gpu_windows_is_host(&real, (void *)(BASE + 16), 1));
	known.result = CUDA_SUCCESS;
	assert_true(gpu_windows_is_host(&real, (void *)(BASE + 16), 1));
}

/* The range is all that was reserved for cuMemMap. */
static void memory_beyond_a_mapping_is_not_the_hosts(void **state)
{
	(void)state;
	allocate(BASE, 2 * MIB);
	known.type = CU_MEMORYTYPE_HOST;
	known.base = BASE - 2 * MIB;
	known.bytes = 8 * MIB;
	known.mapping = BASE;
	known.mapping_bytes = 2 * MIB;
	known.host = BASE + 16;
	assert_true(gpu_windows_is_host(&real, (void *)(BASE + 16), 2 * MIB - 16));
	assert_false(gpu_windows_is_host(&real, (void *)(BASE + 16), 2 * MIB - 15));
	known.mapping = BASE + 17;
	assert_false(gpu_windows_is_host(&real, (void *)(BASE + 16), 1));
}

/* ---- random operations ---- */

static uint64_t seed = 0x9e3779b97f4a7c15;

static uint32_t random32(uint32_t below)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % below;
}

/* One allocation, or none, in each of 8 places. */
static uint32_t placed[8];

static void random_operation(void)
{
	uint32_t i = random32(8), memory = placed[i];
	uint64_t base = BASE + i * 4 * MIB;

	switch (random32(6)) {
	case 0:
		if (!memory) {
			placed[i] = allocate(base, MIB * (1 + random32(4)));
		}
		break;
	case 1: /* as cuMemFree does, or the calls that it does not make */
		if (memory) {
			if (random32(3)) {
				uvm_free(uvm, base);
			}
			rm_free(control, client, memory);
			uvm_free(uvm, base);
			placed[i] = 0;
		}
		break;
	case 2:
		fake.refuse_number = random32(4) ? UINT32_MAX : GPU_RM_NR_MAP_MEMORY;
		break;
	default:
		if (open_window(base + random32(4) * MIB)) {
			assert_true(memory);
		}
	}
}

static void windows_are_sound_under_random_operations(void **state)
{
	unsigned before;

	(void)state;
	memset(placed, 0, sizeof(placed));
	before = descriptors();
	for (int i = 0; i < 20000; i++) {
		random_operation();
		assert_int_equal(fake.n_parts, load_relaxed(&direct.n_windows));
	}
	assert_true(fake.parts_made > 100);
	for (uint32_t i = 0; i < 8; i++) {
		if (placed[i]) {
			uvm_free(uvm, BASE + i * 4 * MIB);
			rm_free(control, client, placed[i]);
		}
	}
	assert_int_equal(fake.n_parts, 0);
	assert_int_equal(fake.freed_with_parts, 0);
	assert_int_equal(descriptors(), before);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_window_shows_the_part_of_its_unit),
		TEST(windows_leave_nothing_behind),
		TEST(unknown_memory_is_refused),
		TEST(cards_that_show_a_part_of_their_memory_are_refused),
		TEST(failures_leave_nothing_behind),
		TEST(failures_last_as_long_as_the_memory),
		TEST(windows_are_closed_before_the_driver_frees_addresses),
		TEST(other_windows_stay_open),
		TEST(windows_are_closed_before_the_driver_frees_objects),
		TEST(an_object_is_not_freed_while_its_window_opens),
		TEST(a_child_does_not_inherit_windows),
		TEST(what_the_gpu_has_mapped_is_not_the_hosts),
		TEST(mapped_memory_that_the_driver_knows_is_the_hosts),
		TEST(memory_beyond_a_mapping_is_not_the_hosts),
		TEST(windows_are_sound_under_random_operations),
	};

	if (!mem_direct_is_possible()) {
		puts("skipped: no copies through windows on this processor");
		return 77;
	}
	alarm(200);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
