/* The heap of kernels: size classes, pieces that are used again, sizes at their exact edges, and
 * that no call leaves it locked. */
#include "memory_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/atomic.h"

#include "../eventually.h"

/* Called by kernels, without the machine's lock. */
static uint64_t allocate(uint64_t bytes)
{
	uint64_t a;

	lock_release(&machine->lock);
	a = softd_heap_allocate(group, bytes);
	assert_false(rig_heap_is_locked());
	lock_take(&machine->lock);
	return a;
}

static int release(uint64_t address)
{
	int err;

	lock_release(&machine->lock);
	err = softd_heap_release(group, address);
	assert_false(rig_heap_is_locked());
	lock_take(&machine->lock);
	return err;
}

static int resize(uint64_t bytes)
{
	int err;

	lock_release(&machine->lock);
	err = softd_heap_resize(&group->heap, bytes);
	assert_false(rig_heap_is_locked());
	lock_take(&machine->lock);
	return err;
}

static void pieces_have_sizes_of_classes(void **state)
{
	static const uint16_t classes[] = { 1,	2,  3,	4,  5,	6,  7,	8,  10, 12,
					    14, 16, 20, 24, 28, 32, 40, 48, 56, 64 };
	uint64_t at = allocate(1), next;

	assert_true(at == address_of(1));
	assert_int_equal(gpu->memory_used, 8 * MIB);
	assert_int_equal(m->owned_bytes[0], 8 * MIB);
	at += 16;
	for (unsigned i = 0; i < 20; i++) { /* the smallest and the largest of each class */
		uint64_t least = i ? classes[i - 1] * 16u + 1 : 1, most = classes[i] * 16u;

		next = allocate(least);
		assert_true(next == at);
		at += most;
		next = allocate(most);
		assert_true(next == at);
		at += most;
	}
	assert_int_equal(gpu->memory_used, 8 * MIB);
}

static void pieces_are_used_again_by_their_class(void **state)
{
	uint64_t a = allocate(100), b = allocate(112), c = allocate(128), top;

	assert_true(b == a + 112 && c == b + 112);
	top = c + 128;
	assert_int_equal(release(a), 0);
	assert_int_equal(release(a), -ENOENT); /* not twice */
	assert_int_equal(release(b), 0);
	assert_true(allocate(128) == top); /* another class */
	assert_true(allocate(97) == b);	   /* the last one first */
	assert_true(allocate(112) == a);
	assert_true(allocate(112) == top + 128);
	assert_int_equal(release(a), 0);
	assert_true(allocate(112) == a);
}

static void addresses_that_are_no_pieces_are_refused(void **state)
{
	uint64_t a;

	assert_int_equal(release(0), -ENOENT); /* before the first use */
	a = allocate(64);
	assert_int_equal(release(a + 16), -ENOENT);
	assert_int_equal(release(a + 8), -ENOENT);
	assert_int_equal(release(a - 16), -ENOENT);
	assert_int_equal(release(a + 8 * MIB), -ENOENT);
	assert_int_equal(release(a + 8 * MIB - 16), -ENOENT);
	assert_int_equal(release(0), -ENOENT);
	assert_int_equal(release(a), 0);
}

static void the_heap_is_filled_to_its_end(void **state)
{
	uint64_t a;

	assert_int_equal(resize(1), 0);
	assert_int_equal(group->heap.bytes, 4096);
	assert_int_equal(resize(4097), 0);
	assert_int_equal(group->heap.bytes, 8192);
	assert_int_equal(resize(4096), 0);
	assert_int_equal(allocate(0), 0);
	assert_int_equal(allocate(4097), 0);
	assert_int_equal(allocate(UINT64_MAX), 0);
	assert_int_equal(gpu->memory_used, 0); /* not needed yet */
	a = allocate(4096);
	assert_true(a == address_of(1));
	assert_int_equal(allocate(1), 0);
	assert_int_equal(release(a), 0);
	assert_int_equal(allocate(1), 0); /* pieces are not divided */
	assert_true(allocate(4096) == a);
	assert_int_equal(resize(8192), -EBUSY);
	assert_int_equal(group->heap.bytes, 4096);
}

static void many_small_pieces_fill_it(void **state)
{
	assert_int_equal(resize(4096), 0);
	for (unsigned i = 0; i < 256; i++) {
		assert_true(allocate(16) == address_of(1) + 16 * i);
	}
	assert_int_equal(allocate(16), 0);
	assert_int_equal(release(address_of(2) - 16), 0); /* the last one */
	assert_true(allocate(16) == address_of(2) - 16);
}

/* Refused once, it is not tried for each call, but again with another size. */
static void memory_that_was_refused_is_asked_for_again_after_a_resize(void **state)
{
	machine->opt.memory_bytes = 8 * MIB - PAGE;
	assert_int_equal(allocate(1), 0);
	machine->opt.memory_bytes = GIB;
	assert_int_equal(allocate(1), 0);
	assert_int_equal(resize(4 * MIB), 0);
	assert_true(allocate(1) != 0);
	assert_int_equal(gpu->memory_used, 4 * MIB);
}

static void tables_that_cannot_be_made_are_no_heap(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		rig_fail("calloc", ENOMEM, i);
		assert_int_equal(allocate(1), 0);
		assert_int_equal(gpu->memory_used, 0);
		assert_true(!group->heap.class_at && !group->heap.next);
		assert_int_equal(resize(8 * MIB), 0);
	}
	assert_true(allocate(1) != 0);
}

static uint32_t caller, done;

static void *use_it(void *arg)
{
	const unsigned which = *(const unsigned *)arg;

	store_release(&caller, (uint32_t)gettid());
	if (which == 0) {
		(void)softd_heap_allocate(group, 16);
	} else if (which == 1) {
		(void)softd_heap_release(group, address_of(1));
	} else {
		(void)softd_heap_resize(&group->heap, 4096);
	}
	store_release(&done, 1u);
	return NULL;
}

/* Kernels of several workers use it at once. */
static void each_call_waits_for_the_lock(void **state)
{
	assert_true(allocate(16) != 0);
	for (unsigned which = 0; which < 3; which++) {
		bool waited;
		pthread_t t;

		caller = done = 0;
		lock_release(&machine->lock);
		lock_take(&group->heap.lock);
		assert_int_equal(pthread_create(&t, NULL, use_it, &which), 0);
		eventually(
			load_acquire(&done) ||
			(load_acquire(&caller) && thread_is_blocked((pid_t)load_acquire(&caller))));
		waited = !load_acquire(&done);
		lock_release(&group->heap.lock);
		pthread_join(t, NULL);
		lock_take(&machine->lock);
		assert_true(waited);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
		T(pieces_have_sizes_of_classes),
		T(pieces_are_used_again_by_their_class),
		T(addresses_that_are_no_pieces_are_refused),
		T(the_heap_is_filled_to_its_end),
		T(many_small_pieces_fill_it),
		T(memory_that_was_refused_is_asked_for_again_after_a_resize),
		T(each_call_waits_for_the_lock),
		T(tables_that_cannot_be_made_are_no_heap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
