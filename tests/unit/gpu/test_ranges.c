/* Which addresses and objects are learned from the calls of a driver library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
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
#include "uvm_calls.h"

#define MIB ((uint64_t)1 << 20)
#define BASE ((uint64_t)0x7f0000000000)
#define REPORTS_MAX 64u
#define RM_FREE ((unsigned long)_IOC(_IOC_READ | _IOC_WRITE, 'F', GPU_RM_NR_FREE, 16))

static int control, uvm;
static uint32_t client, device;

/* ---- reports ---- */

static struct {
	struct {
		uint64_t base, bytes;
	} gone[REPORTS_MAX];
	uint32_t freed[REPORTS_MAX];
	uint32_t n_gone, n_freed;
	uint32_t calls; /* of the driver, at the latest report */
	bool was_found; /* freed addresses were, in a report */
} reports;

static void on_gone(uint64_t base, uint64_t bytes)
{
	struct gpu_range r;

	assert_true(reports.n_gone < REPORTS_MAX);
	reports.gone[reports.n_gone].base = base;
	reports.gone[reports.n_gone++].bytes = bytes;
	reports.was_found |= gpu_ranges_find(base, &r) && r.base == base && r.bytes == bytes;
	reports.calls = fake.calls;
	errno = EDOM; /* the program must not see it */
}

static void on_freed(uint32_t of_client, uint32_t object)
{
	assert_true(reports.n_freed < REPORTS_MAX);
	assert_int_equal(of_client, client);
	reports.freed[reports.n_freed++] = object;
	reports.calls = fake.calls;
	errno = EDOM;
}

static const struct gpu_ranges_watch watch = { on_gone, on_freed };

static void was_reported(uint64_t base, uint64_t bytes)
{
	for (uint32_t i = 0; i < reports.n_gone; i++) {
		if (reports.gone[i].base == base && reports.gone[i].bytes == bytes) {
			return;
		}
	}
	fail_msg("no report of %#lx", base);
}

/* ---- memory ---- */

static int begin(void **state)
{
	void *lib;

	(void)state;
	fake_reset();
	gpu_learn_forget_all();
	memset(&reports, 0, sizeof(reports));
	lib = fake_library("FAKE_LIBRARY");
	control = fake_control();
	uvm = fake_uvm();
	if (gpu_learn_install(lib)) {
		return -1;
	}
	gpu_ranges_begin(&watch);
	client = fake_context(control, 0, 1);
	device = fake_nth(GPU_RM_CLASS_DEVICE, 0)->object;
	return 0;
}

static int end(void **state)
{
	(void)state;
	gpu_ranges_begin(&watch);
	memset(&reports, 0, sizeof(reports));
	return uvm_unmap(uvm, 0, UINT64_MAX);
}

static uint32_t make(uint32_t class_id)
{
	return fake_make(control, client, device, class_id, 0);
}

static void map(uint64_t base, uint64_t bytes, uint32_t memory)
{
	assert_int_equal(uvm_map(uvm, base, bytes, control, client, memory), 0);
}

/* As cuMemAlloc makes memory. */
static uint32_t allocate(uint64_t base, uint64_t bytes)
{
	uint32_t memory = make(GPU_RM_CLASS_MEMORY);

	map(base, bytes, memory);
	return memory;
}

static bool is_found(uint64_t address)
{
	struct gpu_range r;

	return gpu_ranges_find(address, &r);
}

/* The addresses are known to be the GPU's, but not what lies there. */
static void only_touched(uint64_t base, uint64_t bytes)
{
	assert_true(gpu_ranges_touch(base, 1));
	assert_true(gpu_ranges_touch(base + bytes - 1, 1));
	assert_false(is_found(base));
	assert_false(is_found(base + bytes - 1));
}

static void unknown(uint64_t base, uint64_t bytes)
{
	assert_false(gpu_ranges_touch(base, bytes));
	assert_false(is_found(base));
	assert_false(is_found(base + bytes - 1));
}

/* ---- what is found ---- */

static void allocations_are_found(void **state)
{
	struct gpu_range r;
	uint32_t first, second;

	(void)state;
	first = allocate(BASE, 4 * MIB);
	second = allocate(BASE + 4 * MIB, 2 * MIB);
	assert_true(gpu_ranges_find(BASE, &r));
	assert_true(r.base == BASE && r.bytes == 4 * MIB && r.fd == control);
	assert_true(r.client == client && r.device == device && r.memory == first);
	assert_true(gpu_ranges_find(BASE + 4 * MIB - 1, &r));
	assert_int_equal(r.memory, first);
	assert_true(gpu_ranges_find(BASE + 4 * MIB, &r));
	assert_true(r.base == BASE + 4 * MIB && r.memory == second);
	unknown(BASE - 1, 1);
	unknown(BASE + 6 * MIB, 1);
	assert_true(gpu_ranges_touch(BASE - 1, 2));
	assert_true(gpu_ranges_touch(BASE + 6 * MIB - 1, UINT64_MAX / 2));
	assert_true(gpu_ranges_touch(0, UINT64_MAX));
	assert_false(gpu_ranges_touch(0, BASE));
	assert_false(gpu_ranges_touch(BASE, 0));
	assert_int_equal(reports.n_gone, 0);
}

static void host_memory_is_not_the_devices(void **state)
{
	(void)state;
	map(BASE, MIB, make(GPU_RM_CLASS_HOST_MEMORY));
	map(BASE + MIB, MIB, make(GPU_RM_CLASS_HOST_PAGES));
	unknown(BASE, 2 * MIB);
	allocate(BASE, MIB);
	assert_true(is_found(BASE));
}

struct mapping {
	uint64_t base;
	uint32_t memory;
};

static void *map_elsewhere(void *arg)
{
	const struct mapping *m = arg;

	map(m->base, MIB, m->memory);
	return NULL;
}

static void objects_that_are_mapped_otherwise_are_addresses_only(void **state)
{
	struct mapping other = { BASE, make(GPU_RM_CLASS_MEMORY) };
	uint32_t before = make(GPU_RM_CLASS_MEMORY), last = make(GPU_RM_CLASS_MEMORY);
	struct uvm_map m = { .base = BASE + 2 * MIB, .bytes = MIB, .fd = control };
	pthread_t t;

	(void)state;
	assert_int_equal(pthread_create(&t, NULL, map_elsewhere, &other), 0);
	pthread_join(t, NULL);
	only_touched(BASE, MIB);
	map(BASE + MIB, MIB, before);
	only_touched(BASE + MIB, MIB);
	m.client = client;
	m.memory = last;
	for (unsigned i = 0; i < 5; i++) {
		struct uvm_map wrong = m;

		wrong.offset = i == 0 ? 4096 : 0;
		wrong.status = i == 1 ? 0x1f : 0;
		wrong.fd += i == 2;
		wrong.client += i == 3;
		wrong.memory += i == 4;
		assert_int_equal(fake_call(uvm, UVM_MAP, &wrong), 0);
		only_touched(m.base, MIB);
	}
	assert_int_equal(fake_call(uvm, UVM_MAP, &m), 0);
	assert_true(is_found(m.base));
}

/* Only the classes that cuMemAlloc and host memory have are looked at. */
static void other_objects_in_between_do_not_count(void **state)
{
	uint32_t memory = make(GPU_RM_CLASS_MEMORY), other = make(0x50a0);

	(void)state;
	map(BASE, MIB, memory);
	assert_true(is_found(BASE));
	map(BASE + MIB, MIB, other);
	only_touched(BASE + MIB, MIB);
	/* Host memory that was made before is not the object either. */
	(void)make(GPU_RM_CLASS_HOST_MEMORY);
	map(BASE + 2 * MIB, MIB, other);
	only_touched(BASE + 2 * MIB, MIB);
}

struct making {
	uint32_t handle, class_id;
};

static void *make_elsewhere(void *arg)
{
	const struct making *m = arg;
	struct gpu_rm_alloc a = {
		.root = client, .parent = device, .object = m->handle, .class_id = m->class_id
	};

	if (fake_call(
		    control,
		    _IOC(_IOC_READ | _IOC_WRITE, 'F', GPU_RM_NR_ALLOC, sizeof(struct gpu_rm_alloc)),
		    &a) ||
	    a.status) {
		abort();
	}
	return NULL;
}

static void a_handle_may_be_used_again_by_another_thread(void **state)
{
	struct making m = { make(GPU_RM_CLASS_HOST_MEMORY), GPU_RM_CLASS_MEMORY };
	pthread_t t;

	(void)state;
	rm_free(control, client, m.handle);
	assert_int_equal(pthread_create(&t, NULL, make_elsewhere, &m), 0);
	pthread_join(t, NULL);
	map(BASE, MIB, m.handle);
	only_touched(BASE, MIB);
}

static void refused_calls_teach_nothing(void **state)
{
	uint32_t memory;

	(void)state;
	fake.refuse_number = UVM_MAP;
	memory = make(GPU_RM_CLASS_MEMORY);
	assert_int_equal(uvm_map(uvm, BASE, MIB, control, client, memory), -1);
	unknown(BASE, MIB);
	fake.refuse_number = UINT32_MAX;
	map(BASE, 0, memory);
	map(UINT64_MAX - MIB, 2 * MIB, memory);
	map(2, UINT64_MAX, memory);
	assert_false(gpu_ranges_touch(0, UINT64_MAX));
}

static void nothing_is_recorded_without_a_watch(void **state)
{
	(void)state;
	gpu_ranges_begin(NULL);
	allocate(BASE, MIB);
	uvm_free(uvm, BASE + MIB);
	rm_free(control, client, client);
	unknown(BASE, MIB);
}

/* ---- arguments ---- */

/* Returns where that many bytes are readable, and those after them are not. */
static void *truncated(const void *argument, size_t bytes)
{
	static unsigned char *pages;

	if (!pages) {
		pages = mmap(NULL, 32768, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
		assert_ptr_not_equal(pages, MAP_FAILED);
		assert_int_equal(mprotect(pages + 16384, 16384, PROT_NONE), 0);
	}
	return memcpy(pages + 16384 - bytes, argument, bytes);
}

static void truncated_arguments_are_read_as_far_as_they_go(void **state)
{
	struct uvm_map m = { .base = BASE, .bytes = MIB, .fd = control, .client = client };

	(void)state;
	m.memory = make(GPU_RM_CLASS_MEMORY);
	for (size_t bytes = 0; bytes < 24; bytes++) {
		assert_int_equal(fake_call(uvm, UVM_MAP, truncated(&m, bytes)), 0);
		unknown(BASE, MIB);
	}
	for (size_t bytes = 24; bytes < sizeof(m); bytes += bytes == 24 ? 9215 : 1) {
		assert_int_equal(fake_call(uvm, UVM_MAP, truncated(&m, bytes)), 0);
		only_touched(BASE, MIB);
	}
	assert_int_equal(fake_call(uvm, UVM_MAP, truncated(&m, sizeof(m))), 0);
	assert_true(is_found(BASE));
	for (size_t bytes = 0; bytes < 16; bytes++) {
		assert_int_equal(fake_call(uvm, UVM_UNMAP, truncated(&m, bytes)), 0);
		assert_true(is_found(BASE));
	}
	for (size_t bytes = 0; bytes < 8; bytes++) {
		assert_int_equal(fake_call(uvm, UVM_FREE, truncated(&m, bytes)), 0);
		assert_true(is_found(BASE));
	}
	assert_int_equal(fake_call(uvm, UVM_FREE, truncated(&m, 8)), 0);
	unknown(BASE, MIB);
}

static void unreadable_arguments_are_ignored(void **state)
{
	const unsigned long requests[] = { UVM_MAP, UVM_FREE, UVM_UNMAP, RM_FREE };
	struct gpu_rm_free f = { 1, 2, 3, 0 };

	(void)state;
	allocate(BASE, MIB);
	reports.n_gone = 0;
	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		gpu_ranges_before(requests[i], NULL);
		gpu_ranges_before(requests[i], (void *)8);
		gpu_ranges_before(requests[i], truncated(&f, 7));
		gpu_ranges_after(requests[i], NULL, 0);
		gpu_ranges_after(requests[i], (void *)8, 0);
	}
	assert_int_equal(reports.n_gone + reports.n_freed, 0);
	assert_true(is_found(BASE));
}

static void errno_passes_through(void **state)
{
	(void)state;
	allocate(BASE, MIB);
	allocate(BASE + MIB, MIB);
	errno = 77;
	assert_int_equal(uvm_free(uvm, BASE), 0);
	assert_int_equal(reports.n_gone, 1);
	assert_int_equal(fake.errno_seen, 77);
	assert_int_equal(errno, 1234);
	errno = 78;
	rm_free(control, client, client);
	assert_int_equal(reports.n_freed, 1);
	assert_int_equal(fake.errno_seen, 78);
	errno = 79;
	assert_int_equal(fake_call(uvm, UVM_FREE, (void *)8), 0);
	assert_int_equal(fake.errno_seen, 79);
}

/* ---- memory that goes ---- */

static void a_new_mapping_replaces_what_it_overlaps(void **state)
{
	struct gpu_range r;
	uint32_t memory;

	(void)state;
	allocate(BASE, 2 * MIB);
	allocate(BASE + 2 * MIB, 2 * MIB);
	allocate(BASE + 4 * MIB, 2 * MIB);
	memory = allocate(BASE + MIB, 2 * MIB);
	assert_int_equal(reports.n_gone, 2);
	was_reported(BASE, 2 * MIB);
	was_reported(BASE + 2 * MIB, 2 * MIB);
	assert_false(reports.was_found);
	assert_true(gpu_ranges_find(BASE + MIB, &r));
	assert_true(r.base == BASE + MIB && r.memory == memory);
	unknown(BASE, MIB);
	unknown(BASE + 3 * MIB, MIB);
	assert_true(is_found(BASE + 4 * MIB));
	/* The same again, for another GPU, say: by now the object is not the last one. */
	(void)make(GPU_RM_CLASS_MEMORY);
	map(BASE + MIB, 2 * MIB, memory);
	assert_int_equal(reports.n_gone, 3);
	only_touched(BASE + MIB, 2 * MIB);
}

static uint64_t address_of_the_call;
static uint32_t reports_at_the_call;
static bool found_at_the_call;

static void look(int fd, unsigned long request, const void *argument)
{
	(void)fd, (void)request, (void)argument;
	reports_at_the_call = reports.n_gone + reports.n_freed;
	found_at_the_call = is_found(address_of_the_call);
}

static void addresses_are_reported_before_the_driver_frees_them(void **state)
{
	(void)state;
	allocate(BASE, 2 * MIB);
	allocate(BASE + 2 * MIB, 2 * MIB);
	allocate(BASE + 4 * MIB, 2 * MIB);
	fake.before = look;
	for (uint32_t i = 0; i < 3; i++) {
		address_of_the_call = BASE + 2 * MIB * i;
		assert_true(is_found(address_of_the_call));
		if (i < 2) {
			assert_int_equal(uvm_free(uvm, address_of_the_call), 0);
		} else {
			assert_int_equal(uvm_unmap(uvm, address_of_the_call, 2 * MIB), 0);
		}
		assert_int_equal(reports_at_the_call, i + 1);
		assert_false(found_at_the_call || reports.was_found);
		was_reported(address_of_the_call, 2 * MIB);
		unknown(address_of_the_call, 2 * MIB);
	}
	assert_int_equal(uvm_free(uvm, BASE), 0); /* again */
	assert_int_equal(reports.n_gone, 3);
	assert_int_equal(reports.n_freed, 0);
}

static void a_call_that_fails_frees_the_addresses_too(void **state)
{
	(void)state;
	allocate(BASE, 2 * MIB);
	fake.refuse_number = UVM_FREE;
	assert_int_equal(uvm_free(uvm, BASE), -1);
	unknown(BASE, 2 * MIB);
}

static void unmapping_frees_what_it_overlaps(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		allocate(BASE + 2 * MIB * i, 2 * MIB);
	}
	assert_int_equal(uvm_unmap(uvm, BASE + MIB, 0), 0);
	assert_int_equal(reports.n_gone, 0);
	assert_int_equal(uvm_unmap(uvm, BASE + 4 * MIB - 1, 2), 0);
	assert_int_equal(reports.n_gone, 2);
	was_reported(BASE + 2 * MIB, 2 * MIB);
	was_reported(BASE + 4 * MIB, 2 * MIB);
	assert_true(is_found(BASE + 2 * MIB - 1));
	assert_true(is_found(BASE + 6 * MIB));
	unknown(BASE + 2 * MIB, 4 * MIB);
	assert_int_equal(uvm_unmap(uvm, 0, UINT64_MAX), 0);
	assert_int_equal(reports.n_gone, 4);
	assert_false(gpu_ranges_touch(0, UINT64_MAX));
}

/* An object, its device or its client: without a call that frees the addresses first. */
static void objects_are_reported_before_the_driver_frees_them(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		uint32_t memory = allocate(BASE, 2 * MIB);
		uint32_t object = i == 0 ? memory : i == 1 ? device : client;

		(void)allocate(BASE + 4 * MIB, MIB); /* of the same device */
		address_of_the_call = BASE;
		fake.before = look;
		reports.n_gone = 0;
		reports.n_freed = 0;
		rm_free(control, client, object);
		fake.before = NULL;
		assert_int_equal(reports_at_the_call, 1);
		assert_int_equal(reports.n_freed, 1);
		assert_int_equal(reports.freed[0], object);
		assert_false(found_at_the_call);
		only_touched(BASE, 2 * MIB);
		assert_int_equal(is_found(BASE + 4 * MIB), i == 0);
		assert_int_equal(uvm_free(uvm, BASE), 0);
		assert_int_equal(uvm_free(uvm, BASE + 4 * MIB), 0);
		if (i == 1) {
			device = fake_make(control, client, client, GPU_RM_CLASS_DEVICE, 1);
		}
	}
}

/* Another client's objects may have the same handles. */
static void objects_of_other_clients_stay(void **state)
{
	uint32_t memory = allocate(BASE, 2 * MIB), mine = client;
	struct gpu_rm_free f = { 5, 0, memory, 0 };
	struct gpu_rm_free own = { 0, 0, memory + 1000, 0 };

	(void)state;
	own.root = mine;
	client = 5;
	gpu_ranges_before(RM_FREE, &f);
	f.object = device;
	gpu_ranges_before(RM_FREE, &f);
	client = mine;
	assert_true(is_found(BASE));
	gpu_ranges_before(RM_FREE, &own);
	assert_true(is_found(BASE));
	own.object = memory; /* an argument of another size is another call's */
	gpu_ranges_before(_IOC(_IOC_READ | _IOC_WRITE, 'F', GPU_RM_NR_FREE, 20), &own);
	gpu_ranges_before(_IOC(_IOC_READ | _IOC_WRITE, 'G', GPU_RM_NR_FREE, 16), &own);
	gpu_ranges_before(_IOC(_IOC_READ | _IOC_WRITE, 'F', GPU_RM_NR_DUP, 16), &own);
	assert_true(is_found(BASE));
	assert_int_equal(reports.n_freed, 3);
}

static void a_child_knows_nothing(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	allocate(BASE, 2 * MIB);
	pid = fork();
	if (pid == 0) {
		bool known = is_found(BASE) || gpu_ranges_touch(0, UINT64_MAX);

		uvm_free(uvm, BASE);
		uvm_map(uvm, BASE, MIB, control, client, make(GPU_RM_CLASS_MEMORY));
		_exit(known || gpu_ranges_touch(0, UINT64_MAX) || reports.n_gone);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(is_found(BASE));
}

/* ---- random traffic ---- */

static uint64_t seed = 0x9e3779b97f4a7c15;

static uint32_t random32(uint32_t below)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % below;
}

static void any_gone(uint64_t base, uint64_t bytes)
{
	if (!bytes || base > UINT64_MAX - bytes) {
		abort(); /* in any thread */
	}
}

static void any_freed(uint32_t of_client, uint32_t object)
{
	(void)of_client, (void)object;
}

static uint64_t some_address(void)
{
	return random32(8) ? (uint64_t)random32(64) * MIB
			   : (uint64_t)random32(UINT32_MAX) << random32(33);
}

/* Calls as some driver library makes them: any address, any handle, any size. */
static void random_call(void)
{
	static const unsigned long requests[] = { UVM_MAP, UVM_MAP, UVM_MAP, UVM_FREE, UVM_UNMAP };
	static const uint32_t classes[] = { 0x40, 0x40, 0x40, 0x3e, 0x71, 0x80 };
	unsigned long request = random32(8) ? requests[random32(ARRAY_SIZE(requests))] : RM_FREE;
	struct gpu_learn_object o = { .root = 1 + random32(3), .parent = 5 + random32(2) };
	struct uvm_map m = { .base = some_address(), .bytes = some_address() };
	size_t bytes = random32(16) ? sizeof(m) : random32(sizeof(m));
	void *argument;

	if (request == RM_FREE) {
		m.base = random32(4) | (uint64_t)random32(8) << 32;
		m.bytes = random32(20);
	}
	o.object = 7 + random32(20);
	o.class_id = classes[random32(ARRAY_SIZE(classes))];
	o.fd = (int)random32(3);
	gpu_ranges_made(&o);
	m.offset = random32(8) ? 0 : some_address();
	m.client = o.root;
	m.memory = random32(4) ? o.object : random32(30);
	m.fd = random32(8) ? o.fd : -1;
	argument = random32(50) ? truncated(&m, bytes) : NULL;
	gpu_ranges_before(request, argument);
	gpu_ranges_after(request, argument, random32(20) ? 0 : -1);
}

static void ranges_are_sound_under_any_traffic(void **state)
{
	static const struct gpu_ranges_watch any = { any_gone, any_freed };
	struct gpu_range r;
	unsigned found = 0;

	(void)state;
	gpu_learn_forget_all();
	gpu_ranges_begin(&any);
	for (int i = 0; i < 30000; i++) {
		uint64_t address = some_address();

		random_call();
		if (gpu_ranges_find(address, &r)) {
			assert_true(address >= r.base && address - r.base < r.bytes);
			assert_true(r.memory && r.client && gpu_ranges_touch(address, 1));
			found++;
		}
	}
	assert_true(found > 100);
	gpu_ranges_before(UVM_UNMAP, &(struct uvm_unmap){ .base = 0, .bytes = UINT64_MAX });
	assert_false(gpu_ranges_touch(0, UINT64_MAX));
}

/* ---- threads ---- */

static void *traffic(void *arg)
{
	uint64_t own = BASE + ((uint64_t)(uintptr_t)arg << 32);
	uintptr_t wrong = 0;

	for (uint32_t i = 0; i < 3000; i++) {
		uint64_t base = own + (i % 16) * 2 * MIB;
		struct gpu_learn_object o = { .root = 1,
					      .parent = 2,
					      .object = 10 + i,
					      .class_id = GPU_RM_CLASS_MEMORY,
					      .fd = 3 };
		struct uvm_map m = { .base = base, .bytes = 2 * MIB, .fd = 3, .client = 1 };
		struct gpu_range r;

		m.memory = o.object;
		gpu_ranges_made(&o);
		gpu_ranges_after(UVM_MAP, &m, 0);
		wrong += !gpu_ranges_find(base + MIB, &r) || r.base != base || r.memory != 10 + i;
		if (i % 3) {
			gpu_ranges_before(UVM_FREE, &base);
			wrong += gpu_ranges_touch(base, 2 * MIB);
		}
	}
	gpu_ranges_before(UVM_UNMAP, &(struct uvm_unmap){ .base = own, .bytes = 32 * MIB });
	return (void *)wrong; /* NOLINT(performance-no-int-to-ptr) */
}

static void threads_may_call_at_once(void **state)
{
	static const struct gpu_ranges_watch any = { any_gone, any_freed };
	pthread_t t[3];
	void *wrong;

	(void)state;
	gpu_ranges_begin(&any);
	for (uintptr_t i = 0; i < ARRAY_SIZE(t); i++) {
		assert_int_equal(pthread_create(&t[i], NULL, traffic, (void *)i), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		pthread_join(t[i], &wrong);
		assert_null(wrong);
	}
	assert_false(gpu_ranges_touch(0, UINT64_MAX));
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(allocations_are_found),
		TEST(host_memory_is_not_the_devices),
		TEST(objects_that_are_mapped_otherwise_are_addresses_only),
		TEST(other_objects_in_between_do_not_count),
		TEST(a_handle_may_be_used_again_by_another_thread),
		TEST(refused_calls_teach_nothing),
		TEST(nothing_is_recorded_without_a_watch),
		TEST(truncated_arguments_are_read_as_far_as_they_go),
		TEST(unreadable_arguments_are_ignored),
		TEST(errno_passes_through),
		TEST(a_new_mapping_replaces_what_it_overlaps),
		TEST(addresses_are_reported_before_the_driver_frees_them),
		TEST(a_call_that_fails_frees_the_addresses_too),
		TEST(unmapping_frees_what_it_overlaps),
		TEST(objects_are_reported_before_the_driver_frees_them),
		TEST(objects_of_other_clients_stay),
		TEST(a_child_knows_nothing),
		TEST(ranges_are_sound_under_any_traffic),
		TEST(threads_may_call_at_once),
	};

	alarm(200);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
