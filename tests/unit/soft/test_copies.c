/* Copies and memsets in parts: which ranges are valid, whose contexts are held, and what each part
 * writes. */
#include "memory_rig.h"

#include <stdlib.h>
#include <string.h>

static struct softd_stream stream;
static struct softd_op op;
static uint8_t *host; /* of the window */

static int set_up(void **state)
{
	int err = rig_set_up(state);

	stream = (struct softd_stream){ .group = group };
	op = (struct softd_op){ .stream = &stream, .kind = SOFT_OP_COPY };
	softd_list_init(&op.in_copies);
	host = m->space.host;
	pthread_cond_init(&machine->quiescent, NULL);
	return err;
}

static void copy_op(uint64_t dst, uint64_t src, uint64_t width)
{
	op.kind = SOFT_OP_COPY;
	op.copy.dst = dst;
	op.copy.src = src;
	op.copy.width = op.copy.dst_pitch = op.copy.src_pitch = width;
	op.copy.height = 1;
	op.copy.row = op.copy.column = 0;
	op.copy.dst_memory = op.copy.src_memory = NULL;
	op.copy.dst_group = op.copy.src_group = NULL;
	op.copy.bulk = false;
}

static bool valid(uint64_t dst, uint64_t src, uint64_t width)
{
	copy_op(dst, src, width);
	return softd_copy_check(&op);
}

static void both_ranges_must_be_valid(void **state)
{
	assert_int_equal(rig_device(2 * PAGE), 1);
	assert_int_equal(rig_device(PAGE), 4);
	assert_true(valid(address_of(4), address_of(1), PAGE));
	assert_ptr_equal(op.copy.dst_memory, m);
	assert_ptr_equal(op.copy.src_memory, m);
	assert_ptr_equal(op.copy.dst_group, group);
	assert_ptr_equal(op.copy.src_group, group);
	assert_false(valid(address_of(4), address_of(1), PAGE + 1));
	assert_false(valid(address_of(1), address_of(4), PAGE + 1));
	assert_false(valid(address_of(1), address_of(3), 1));
	assert_false(valid(address_of(3), address_of(1), 1));
	assert_false(valid(BASE - 1, address_of(1), 1));
	assert_false(valid(address_of(1), BASE - 1, 1));
	assert_false(valid(address_of(1), BASE + (UINT64_C(1) << 40), 1)); /* another GPU's */
	assert_false(valid(address_of(1), BASE + (UINT64_C(8) << 40), 1)); /* beyond the last */
	assert_false(valid(address_of(1), BASE + (UINT64_C(1) << 63), 1));
	assert_int_equal(softd_memory_restrict(m, address_of(1), 1), 0);
	assert_true(valid(address_of(4), address_of(1), 8));
	assert_false(valid(address_of(1), address_of(4), 8));
	assert_int_equal(softd_memory_restrict(m, address_of(1), 2), 0);
	assert_false(valid(address_of(4), address_of(1), 8));
	assert_true(valid(address_of(1), address_of(4), 8));
	op.kind = SOFT_OP_SET; /* has no source */
	op.copy.src = 0;
	assert_true(softd_copy_check(&op));
}

static void rows_are_valid_up_to_the_last_one(void **state)
{
	assert_int_equal(rig_device(2 * PAGE), 1);
	assert_int_equal(rig_device(8 * PAGE), 4);
	copy_op(address_of(1), address_of(4), 100);
	op.copy.height = 64; /* 63 * 128 + 100 of 8192 */
	op.copy.dst_pitch = 128;
	op.copy.src_pitch = 512;
	assert_true(softd_copy_check(&op));
	op.copy.dst += 28;
	assert_true(softd_copy_check(&op));
	op.copy.dst++;
	assert_false(softd_copy_check(&op));
	op.copy.dst -= 29;
	op.copy.src += 412;
	assert_true(softd_copy_check(&op));
	op.copy.src++;
	assert_false(softd_copy_check(&op));
	op.copy.src -= 413;
	op.copy.height = UINT64_C(1) << 60; /* does not fit 64 bits */
	assert_false(softd_copy_check(&op));
	op.copy.height = 2;
	op.copy.dst_pitch = UINT64_MAX - 50;
	assert_false(softd_copy_check(&op));
}

static void memory_of_a_context_that_ends_is_not_copied(void **state)
{
	struct softd_group *second = calloc(1, sizeof(*second));
	uint64_t theirs;

	assert_non_null(second);
	assert_int_equal(rig_device(PAGE), 1);
	theirs = softd_memory_alloc(m, machine, 3, PAGE, SOFT_MEMORY_DEVICE, -1);
	assert_false(valid(address_of(1), theirs, 8)); /* no such context */
	client->groups[3] = second;
	assert_true(valid(address_of(1), theirs, 8));
	assert_ptr_equal(op.copy.src_group, second);
	assert_ptr_equal(op.copy.dst_group, group);
	assert_true(valid(theirs, address_of(1), 8));
	assert_ptr_equal(op.copy.dst_group, second);
	second->dead = true;
	assert_false(valid(address_of(1), theirs, 8));
	assert_false(valid(theirs, address_of(1), 8));
	client->groups[3] = NULL;
	free(second);
}

static void mapped_ranges_belong_to_no_context(void **state)
{
	struct softd_extent *x = softd_extent_create(gpu, 2 * MIB, false);
	uint64_t a = softd_memory_reserve(m, 2 * MIB, 0, 0);

	assert_int_equal(softd_memory_map(m, machine, a, 2 * MIB, x, 0), 0);
	assert_int_equal(softd_memory_set_access(m, a, 2 * MIB, 3), 0);
	assert_int_equal(rig_device(PAGE), 1);
	assert_true(valid(a, address_of(1), 8));
	assert_null(op.copy.dst_group);
	assert_ptr_equal(op.copy.src_group, group);
	softd_copy_submit(&op);
	op.started = true;
	assert_int_equal(group->running, 2);
	softd_copy_release(&op);
	assert_int_equal(group->running, 0);
	softd_list_remove(&op.in_copies);
	softd_extent_unref(x);
}

/* The stream's context, and those of both ranges. */
static void contexts_are_held_while_a_copy_is_queued(void **state)
{
	struct softd_group *second = calloc(1, sizeof(*second));
	struct softd_op another = { .stream = &stream };

	assert_non_null(second);
	second->client = client;
	softd_list_init(&another.in_copies);
	op.copy.dst_group = second;
	op.copy.src_group = NULL;
	another.copy.src_group = second;
	another.copy.dst_group = group;
	softd_copy_submit(&op);
	assert_ptr_equal(gpu->copiers.next, &group->in_copying);
	assert_ptr_equal(group->copies.next, &op.in_copies);
	softd_copy_submit(&another);
	assert_ptr_equal(gpu->copiers.prev, &group->in_copying); /* listed once */
	assert_ptr_equal(gpu->copiers.next, &group->in_copying);
	assert_ptr_equal(group->copies.prev, &another.in_copies); /* in order */
	assert_int_equal(group->running, 3);
	assert_int_equal(second->running, 2);
	softd_copy_release(&op); /* was not started */
	assert_int_equal(group->running, 3);
	op.started = another.started = true;
	softd_copy_release(&op);
	assert_int_equal(group->running, 2);
	assert_int_equal(second->running, 1);
	assert_false(op.started);
	softd_copy_release(&op); /* once */
	assert_int_equal(group->running, 2);
	softd_copy_release(&another);
	assert_int_equal(group->running + second->running, 0);
	free(second);
}

/* Only the last one that holds a context which ends says so. */
static void the_last_copy_of_a_context_that_ends_is_reported(void **state)
{
	group->running = 3;
	for (unsigned i = 0; i < 3; i++) {
		group->dead = true;
		op.started = true;
		softd_copy_release(&op); /* has no other contexts */
		assert_int_equal(calls.broadcasts, i == 2);
	}
	group->running = 1;
	group->dead = false;
	op.started = true;
	softd_copy_release(&op);
	assert_int_equal(calls.broadcasts, 1);
}

static uint32_t waiting, woken;

static void *wait_until_quiescent(void *arg)
{
	lock_take(&machine->lock);
	__atomic_store_n(&waiting, 1, __ATOMIC_RELEASE);
	while (group->running) {
		lock_wait(&machine->lock, &machine->quiescent);
	}
	woken = 1;
	lock_release(&machine->lock);
	return arg;
}

/* A context that ends waits for the last copy that holds it. */
static void the_end_of_the_last_copy_wakes_who_waits(void **state)
{
	pthread_t t;

	group->running = 2;
	group->dead = true;
	lock_release(&machine->lock);
	assert_int_equal(pthread_create(&t, NULL, wait_until_quiescent, NULL), 0);
	while (!__atomic_load_n(&waiting, __ATOMIC_ACQUIRE)) {
		sched_yield();
	}
	lock_take(&machine->lock); /* it is waiting now */
	op.started = true;
	op.copy.src_group = NULL;
	op.copy.dst_group = group;
	softd_copy_release(&op);
	lock_release(&machine->lock);
	pthread_join(t, NULL);
	lock_take(&machine->lock);
	assert_int_equal(woken, 1);
}

static uint64_t steps(uint64_t limit)
{
	uint64_t bytes, n = 0;
	bool last;

	do {
		last = softd_copy_step(&op, limit, &bytes);
		assert_true(bytes <= limit);
		n++;
		assert_true(n < 100000);
	} while (!last);
	return n;
}

static void a_copy_is_made_in_parts_of_16_bytes(void **state)
{
	uint64_t bytes;

	assert_int_equal(rig_device(PAGE), 1);
	assert_int_equal(rig_device(PAGE), 3);
	for (unsigned i = 0; i < PAGE; i++) {
		host[PAGE + i] = (uint8_t)(i * 7 + i / 256);
	}
	assert_true(valid(address_of(3) + 1, address_of(1) + 3, 1000));
	assert_false(softd_copy_step(&op, 15, &bytes)); /* less than one element of 16 */
	assert_int_equal(bytes, 0);
	assert_false(softd_copy_step(&op, 31, &bytes));
	assert_int_equal(bytes, 16);
	assert_int_equal(op.copy.column, 16);
	assert_int_equal(host[3 * PAGE + 17], 0);
	assert_int_equal(steps(100), 11); /* 96 each, and 24 */
	assert_memory_equal(host + 3 * PAGE + 1, host + PAGE + 3, 1000);
	assert_int_equal(host[3 * PAGE] + host[3 * PAGE + 1001], 0);
	assert_int_equal(op.copy.row, 1);
	assert_int_equal(op.copy.column, 0);
}

static void rows_are_copied_at_their_pitches(void **state)
{
	assert_int_equal(rig_device(PAGE), 1);
	assert_int_equal(rig_device(PAGE), 3);
	for (unsigned i = 0; i < PAGE; i++) {
		host[PAGE + i] = (uint8_t)(1 + i % 251);
	}
	for (uint64_t limit = 16; limit <= 4096; limit *= 4) {
		memset(host + 3 * PAGE, 0, PAGE);
		copy_op(address_of(3), address_of(1), 37);
		op.copy.dst_pitch = 40;
		op.copy.src_pitch = 50;
		op.copy.height = 9;
		assert_true(softd_copy_check(&op));
		(void)steps(limit);
		for (unsigned row = 0; row < 9; row++) {
			assert_memory_equal(host + 3 * PAGE + row * 40, host + PAGE + row * 50, 37);
			assert_int_equal(host[3 * PAGE + row * 40 + 37], 0);
		}
		assert_int_equal(host[3 * PAGE + 9 * 40], 0);
	}
}

static void large_copies_pass_the_caches(void **state)
{
	assert_int_equal(rig_device(MIB), 1);
	assert_int_equal(rig_device(MIB), 512);
	for (unsigned i = 0; i < MIB; i++) {
		host[PAGE + i] = (uint8_t)(i * 13 + i / 4096);
	}
	assert_true(valid(address_of(512) + 5, address_of(1) + 9, MIB - 100));
	op.copy.bulk = true;
	(void)steps(100000);
	assert_memory_equal(host + 512 * PAGE + 5, host + PAGE + 9, MIB - 100);
	assert_int_equal(host[512 * PAGE + 4] + host[512 * PAGE + 5 + MIB - 100], 0);
	assert_true(valid(address_of(1) + 1000, address_of(1), 5000)); /* overlapping */
	op.copy.bulk = true;
	(void)steps(8192);
	assert_int_equal(host[PAGE + 1000 + 4095], (uint8_t)(4095 * 13));
}

static void elements_are_set_whole(void **state)
{
	static const uint32_t units[] = { 1, 2, 4 };

	assert_int_equal(rig_device(PAGE), 1);
	for (unsigned u = 0; u < 3; u++) {
		for (uint64_t limit = 16; limit < 200; limit += 40) {
			memset(host + PAGE, 0, PAGE);
			copy_op(address_of(1) + 4, 0, 52);
			op.kind = SOFT_OP_SET;
			op.copy.dst_pitch = 60;
			op.copy.height = 3;
			op.copy.value = 0xd4c3b2a1;
			op.copy.unit = units[u];
			assert_true(softd_copy_check(&op));
			(void)steps(limit);
			for (unsigned i = 0; i < 52; i++) {
				static const uint8_t value[] = { 0xa1, 0xb2, 0xc3, 0xd4 };

				for (unsigned row = 0; row < 3; row++) {
					assert_int_equal(host[PAGE + 4 + 60 * row + i],
							 value[i % units[u]]);
				}
			}
			assert_int_equal(host[PAGE + 3] + host[PAGE + 56] + host[PAGE + 176], 0);
		}
	}
}

/* What is copied is as initialized as its source; what is set is. */
static void states_are_copied_while_checking(void **state)
{
	uint8_t *shadow;

	softd_memory_finish(m, machine);
	checking = true;
	assert_int_equal(softd_memory_init(m, gpu), 0);
	host = m->space.host;
	shadow = m->space.shadow;
	assert_int_equal(rig_device(PAGE), 1);
	assert_int_equal(rig_device(PAGE), 3);
	softd_shadow_set_allocated(&m->space, PAGE, PAGE);
	softd_shadow_set_allocated(&m->space, 3 * PAGE, PAGE);
	assert_int_equal(host[PAGE] & host[2 * PAGE - 1], 0xff);
	assert_int_equal(host[2 * PAGE], 0);
	assert_int_equal(shadow[PAGE], 1);
	softd_shadow_set_initialized(&m->space, PAGE + 16, 16);
	assert_true(valid(address_of(3) + 100, address_of(1), 48));
	(void)steps(4096);
	assert_int_equal(shadow[3 * PAGE + 115], 1);
	assert_int_equal(shadow[3 * PAGE + 116], 3);
	assert_int_equal(shadow[3 * PAGE + 131], 3);
	assert_int_equal(shadow[3 * PAGE + 132], 1);
	copy_op(address_of(3) + 200, 0, 10);
	op.kind = SOFT_OP_SET;
	op.copy.unit = 1;
	assert_true(softd_copy_check(&op));
	(void)steps(4096);
	assert_int_equal(shadow[3 * PAGE + 199], 1);
	assert_int_equal(shadow[3 * PAGE + 200] & shadow[3 * PAGE + 209], 3);
	assert_int_equal(shadow[3 * PAGE + 210], 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, rig_tear_down)
		T(both_ranges_must_be_valid),
		T(rows_are_valid_up_to_the_last_one),
		T(memory_of_a_context_that_ends_is_not_copied),
		T(mapped_ranges_belong_to_no_context),
		T(contexts_are_held_while_a_copy_is_queued),
		T(the_last_copy_of_a_context_that_ends_is_reported),
		T(the_end_of_the_last_copy_wakes_who_waits),
		T(a_copy_is_made_in_parts_of_16_bytes),
		T(rows_are_copied_at_their_pitches),
		T(large_copies_pass_the_caches),
		T(elements_are_set_whole),
		T(states_are_copied_while_checking),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
