/* Calls helpers as a program does: tests results, which errors are counted, and that no data of the
 * host reaches memory that the program can read. */
#include "map_env.h"

#include <errno.h>

#include "base/compiler.h"
#include "bpf/run/env.h"

static struct ebpf_env env;
static struct one_map map;

static void begin(struct ebpf_map_def d)
{
	ebpf_env_init(&env);
	map_make(&map, d);
	env.maps[0] = map.m;
	env.n_maps = 1;
}

static uint64_t at(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

static int64_t call(int slot, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4)
{
	return (int64_t)env.helpers[slot](a1, a2, a3, a4, 0xdeadbeef, &env);
}

#define M at(&env.maps[0])

static void failures_and_answers_are_told_apart(void **state)
{
	uint64_t key = 1, value = 2;

	begin(map_def(GBPF_MAP_HASH, 8, 8, 1, 0));
	assert_int_equal(call(EBPF_SLOT_bpf_map_delete_elem, M, at(&key), 0, 0), -ENOENT);
	assert_int_equal(call(EBPF_SLOT_bpf_map_update_elem, M, at(&key), at(&value), 2), -ENOENT);
	assert_int_equal(call(EBPF_SLOT_bpf_map_update_elem, M, at(&key), at(&value), 1), 0);
	assert_int_equal(call(EBPF_SLOT_bpf_map_update_elem, M, at(&key), at(&value), 1), -EEXIST);
	key = 2;
	assert_int_equal(call(EBPF_SLOT_bpf_map_update_elem, M, at(&key), at(&value), 0), -E2BIG);
	assert_int_equal(env.helper_errors, 0); /* a program can run into all of these */
	assert_int_equal(call(EBPF_SLOT_bpf_map_update_elem, M, at(&key), at(&value), 3), -EINVAL);
	assert_int_equal(call(EBPF_SLOT_bpf_for_each_map_elem, M, 0, 0, 1), -EINVAL);
	env.maps[0].flags |= GBPF_F_RDONLY;
	assert_int_equal(call(EBPF_SLOT_bpf_map_delete_elem, M, at(&key), 0, 0), -EPERM);
	assert_int_equal(env.helper_errors, 3);
	map_drop(&map);
	begin(map_def(GBPF_MAP_HISTOGRAM, 4, 512, 2, 0));
	assert_int_equal(call(EBPF_SLOT_gbpf_hist_add, M, 1, 5, 0), 0);
	assert_int_equal(call(EBPF_SLOT_gbpf_hist_add, M, 2, 5, 0), -ENOENT);
	assert_int_equal(env.helper_errors, 1);
	map_drop(&map);
}

static int ask(void *ctx, uint32_t tenant, uint32_t value)
{
	return tenant > 1 ? -ENOENT : value > 5 ? -EINVAL : value > 2 ? -ENOTSUP : 0;
}

static void invalid_requests_to_gbpfd_are_counted(void **state)
{
	struct ebpf_tenant_ops ops = { .slice_set = ask, .preempt_now = ask };
	const int slots[] = { EBPF_SLOT_gbpf_slice_set, EBPF_SLOT_gbpf_preempt_now };

	for (size_t i = 0; i < ARRAY_SIZE(slots); i++) {
		ebpf_env_init(&env);
		assert_int_equal(call(slots[i], 1, 9, 0, 0), -ENOENT); /* not in gbpfd */
		env.tenants = &ops;
		assert_int_equal(call(slots[i], 1, 2, 0, 0), 0);
		assert_int_equal(call(slots[i], 1, 3, 0, 0), -ENOTSUP);
		assert_int_equal(call(slots[i], 2, 9, 0, 0), -ENOENT);
		assert_int_equal(call(slots[i], UINT64_MAX, 2, 0, 0), -ENOENT);
		assert_int_equal(env.helper_errors, 0);
		assert_int_equal(call(slots[i], 1, 6, 0, 0), -EINVAL);
		assert_int_equal(call(slots[i], 1, UINT64_MAX, 0, 0), -EINVAL);
		assert_int_equal(env.helper_errors, 2);
	}
}

static void what_was_not_popped_is_zero(void **state)
{
	uint64_t value[3] = { 1, 2, 3 };

	for (int stack = 0; stack < 2; stack++) {
		begin(map_def(stack ? GBPF_MAP_STACK : GBPF_MAP_QUEUE, 0, 16, 1, 0));
		value[0] = value[1] = 7;
		assert_int_equal(call(EBPF_SLOT_bpf_map_pop_elem, M, at(value), 0, 0), -ENOENT);
		assert_int_equal(value[0] | value[1], 0);
		value[0] = value[1] = 7;
		assert_int_equal(call(EBPF_SLOT_bpf_map_peek_elem, M, at(value), 0, 0), -ENOENT);
		assert_int_equal(value[0] | value[1], 0);
		assert_int_equal(value[2], 3);
		assert_int_equal(env.helper_errors, 0);
		map_drop(&map);
	}
}

static void *region_of(void *ctx, uint32_t tenant)
{
	return tenant == 5 ? ctx : NULL;
}

/* gbpfd pops what a tenant has pushed, or has written into the queue's memory. */
static void a_tenants_queue_is_emptied_by_number(void **state)
{
	uint64_t value = 42;

	for (int stack = 0; stack < 2; stack++) {
		struct ebpf_tenant_ops ops = { .region = region_of };
		uint8_t *base;

		begin(map_def(stack ? GBPF_MAP_STACK : GBPF_MAP_QUEUE, 0, 8, 4, TENANT));
		base = map.base;
		ops.ctx = base;
		value = 42;
		assert_int_equal(call(EBPF_SLOT_bpf_map_push_elem, M, at(&value), 0, 0), 0);
		env.maps[0].data = NULL; /* as in gbpfd's instance */
		value = 1;
		assert_int_equal(call(EBPF_SLOT_gbpf_tenant_pop, M, 5, at(&value), 0), -ENOENT);
		assert_int_equal(value, 0); /* outside gbpfd */
		env.tenants = &ops;
		value = 1;
		assert_int_equal(call(EBPF_SLOT_gbpf_tenant_pop, M, 4, at(&value), 0), -ENOENT);
		assert_int_equal(call(EBPF_SLOT_gbpf_tenant_pop, M, UINT64_MAX, at(&value), 0),
				 -ENOENT);
		assert_int_equal(value, 0);
		assert_int_equal(call(EBPF_SLOT_gbpf_tenant_pop, M, 5, at(&value), 0), 0);
		assert_int_equal(value, 42);
		assert_int_equal(call(EBPF_SLOT_gbpf_tenant_pop, M, 5, at(&value), 0), -ENOENT);
		for (uint64_t round = 0, random = 1; round < 2000; round++) {
			for (size_t i = 0; i < map.bytes / 8; i++) {
				((uint64_t *)(void *)base)[i] = test_random(&random);
			}
			for (int i = 0; i < 8; i++) {
				int64_t r = call(EBPF_SLOT_gbpf_tenant_pop, M, 5, at(&value), 0);

				assert_true(r == 0 || r == -ENOENT || r == -EBUSY);
			}
		}
		assert_int_equal(env.helper_errors, 0); /* a tenant cannot cause any */
		map_drop(&map);
	}
}

static void absent_memory_is_no_memory(void **state)
{
	const struct ebpf_map_def defs[] = {
		map_def(GBPF_MAP_ARRAY, 4, 8, 4, TENANT),
		map_def(GBPF_MAP_HASH, 4, 8, 4, TENANT),
		map_def(GBPF_MAP_LRU_HASH, 16, 8, 4, TENANT),
		map_def(GBPF_MAP_LPM_TRIE, 8, 8, 4, TENANT),
		map_def(GBPF_MAP_QUEUE, 0, 8, 4, TENANT),
		map_def(GBPF_MAP_STACK, 0, 8, 4, TENANT),
		map_def(GBPF_MAP_RINGBUF, 0, 0, 4096, TENANT),
		map_def(GBPF_MAP_HISTOGRAM, 4, 512, 4, TENANT),
		map_def(GBPF_MAP_THREAD_ARRAY, 4, 8, 4, TENANT),
		map_def(GBPF_MAP_ARRAY, 4, 8, 4, EPOCH),
		map_def(GBPF_MAP_PROG_ARRAY, 4, 4, 4, 0),
	};

	for (size_t i = 0; i < ARRAY_SIZE(defs); i++) {
		struct ebpf_map_def d = defs[i];
		uint64_t key[2] = { 0 }, value[64] = { 0 };
		size_t bytes[EBPF_REGIONS];

		ebpf_env_init(&env);
		assert_int_equal(ebpf_maps_layout(&d, 1, env.maps, bytes), 0);
		env.n_maps = 1;
		assert_int_equal(call(EBPF_SLOT_bpf_map_lookup_elem, M, at(key), 0, 0), 0);
		assert_true(call(EBPF_SLOT_bpf_map_update_elem, M, at(key), at(value), 0) < 0);
		assert_true(call(EBPF_SLOT_bpf_map_delete_elem, M, at(key), 0, 0) < 0);
		assert_true(call(EBPF_SLOT_bpf_map_push_elem, M, at(value), 0, 0) < 0);
		assert_true(call(EBPF_SLOT_bpf_map_pop_elem, M, at(value), 0, 0) < 0);
		assert_true(call(EBPF_SLOT_gbpf_hist_add, M, 0, 0, 0) < 0);
		assert_int_equal(call(EBPF_SLOT_bpf_ringbuf_reserve, M, 8, 0, 0), 0);
		assert_true(call(EBPF_SLOT_bpf_ringbuf_output, M, at(value), 8, 0) < 0);
		assert_int_equal(call(EBPF_SLOT_bpf_ringbuf_query, M, 0, 0, 0), 0);
		assert_int_equal(call(EBPF_SLOT_gbpf_tenant_lookup, M, 0, at(key), 0), 0);
		assert_int_equal(call(EBPF_SLOT_gbpf_thread_sum, M, 0, 0, 0), 0);
		assert_int_equal(ebpf_map_slot(&env.maps[0], 0, key, value), 0);
		assert_int_equal(ebpf_map_count(&env.maps[0]), 0);
		assert_true(ebpf_map_clear(&env.maps[0]) < 0);
	}
}

/* ---- callbacks: functions in C, as compiled ones are called, at even addresses ---- */

static ALIGNED(16) uint64_t count_to_five(uint64_t i, uint64_t ctx, uint64_t a3, uint64_t a4,
					  uint64_t a5, struct ebpf_env *e)
{
	assert_ptr_equal(e, &env);
	*(uint64_t *)(uintptr_t)ctx += i;
	return i == 4;
}

static void loops_end_as_they_are_told(void **state)
{
	uint64_t sum = 0, fn = at((void *)(uintptr_t)count_to_five);

	ebpf_env_init(&env);
	assert_int_equal(call(EBPF_SLOT_bpf_loop, 3, fn, at(&sum), 0), 3);
	assert_int_equal(sum, 3);
	assert_int_equal(call(EBPF_SLOT_bpf_loop, 100, fn, at(&sum), 0), 5);
	assert_int_equal(sum, 13);
	assert_int_equal(call(EBPF_SLOT_bpf_loop, 0, fn, at(&sum), 0), 0);
	assert_int_equal(call(EBPF_SLOT_bpf_loop, (1 << 23) + 1, fn, at(&sum), 0), -E2BIG);
	assert_int_equal(call(EBPF_SLOT_bpf_loop, 1, fn, at(&sum), 1), -EINVAL);
	assert_int_equal(sum, 13);
}

static ALIGNED(16) uint64_t take_out(uint64_t m, uint64_t key, uint64_t value, uint64_t ctx,
				     uint64_t a5, struct ebpf_env *e)
{
	uint64_t *sum = (void *)(uintptr_t)ctx;

	*sum += *(uint64_t *)(uintptr_t)value;
	(void)e->helpers[EBPF_SLOT_bpf_map_delete_elem](m, key, 0, 0, 0, e);
	return *sum >= 1000;
}

static void each_element_is_shown_once(void **state)
{
	uint64_t sum = 0, fn = at((void *)(uintptr_t)take_out), n;

	begin(map_def(GBPF_MAP_HASH, 8, 8, 50, 0));
	for (uint64_t k = 0; k < 50; k++) {
		assert_int_equal(call(EBPF_SLOT_bpf_map_update_elem, M, at(&k), at(&k), 0), 0);
	}
	n = (uint64_t)call(EBPF_SLOT_bpf_for_each_map_elem, M, fn, at(&sum), 0);
	assert_int_equal(n, 50 - ebpf_map_count(&env.maps[0]));
	assert_true(sum >= 1000 && sum < 1050);
	assert_true(ebpf_map_count(&env.maps[0]) > 0);
	map_drop(&map);
	begin(map_def(GBPF_MAP_ARRAY, 4, 8, 6, 0));
	sum = 0;
	((uint64_t *)(void *)map.m.data)[3] = 1000;
	assert_int_equal(call(EBPF_SLOT_bpf_for_each_map_elem, M, fn, at(&sum), 0), 4);
	map_drop(&map);
}

static int numbers(int32_t start, int32_t end, uint64_t *ret_sum)
{
	int32_t it[2] = { 77, 77 }, n = 0;
	int64_t err;

	*ret_sum = 0;
	err = call(EBPF_SLOT_bpf_iter_num_new, at(it), (uint32_t)start, (uint32_t)end, 0);
	for (;;) {
		int32_t *i = (void *)(uintptr_t)call(EBPF_SLOT_bpf_iter_num_next, at(it), 0, 0, 0);

		if (!i) {
			break;
		}
		assert_int_equal(*i, start + n);
		*ret_sum += (uint64_t)(int64_t)*i;
		n++;
	}
	assert_int_equal(it[0] | it[1], 0);
	(void)call(EBPF_SLOT_bpf_iter_num_destroy, at(it), 0, 0, 0);
	return err ? (int)err : n;
}

static void numbers_are_walked(void **state)
{
	uint64_t sum;

	ebpf_env_init(&env);
	assert_int_equal(numbers(0, 10, &sum), 10);
	assert_int_equal(sum, 45);
	assert_int_equal(numbers(-3, 4, &sum), 7);
	assert_int_equal(numbers(5, 5, &sum), 0);
	assert_int_equal(numbers(5, 4, &sum), -EINVAL);
	assert_int_equal(numbers(INT32_MIN, INT32_MIN + 3, &sum), 3);
	assert_int_equal(numbers(INT32_MAX - 3, INT32_MAX, &sum), 3);
	assert_int_equal(numbers(INT32_MIN, INT32_MAX, &sum), -E2BIG);
	assert_int_equal(numbers(0, 1 << 23, &sum), 1 << 23);
	assert_int_equal(numbers(0, (1 << 23) + 1, &sum), -E2BIG);
}

static void a_lock_that_is_held_is_taken_over(void **state)
{
	uint32_t lock = 0;

	ebpf_env_init(&env);
	call(EBPF_SLOT_bpf_spin_lock, at(&lock), 0, 0, 0);
	assert_int_equal(lock, 1);
	call(EBPF_SLOT_bpf_spin_lock, at(&lock), 0, 0, 0); /* comes back */
	call(EBPF_SLOT_bpf_spin_unlock, at(&lock), 0, 0, 0);
	assert_int_equal(lock, 0);
}

static void a_record_belongs_to_its_ring(void **state)
{
	uint64_t record, stranger[4];

	begin(map_def(GBPF_MAP_RINGBUF, 0, 0, 4096, TENANT));
	record = (uint64_t)call(EBPF_SLOT_bpf_ringbuf_reserve, M, 100, 0, 0);
	assert_int_not_equal(record, 0);
	assert_int_equal(call(EBPF_SLOT_bpf_ringbuf_reserve, M, 100, 1, 0), 0);
	assert_int_equal(env.helper_errors, 1);
	call(EBPF_SLOT_bpf_ringbuf_submit, at(stranger), 0, 0, 0);
	assert_int_equal(env.helper_errors, 2);
	call(EBPF_SLOT_bpf_ringbuf_submit, record, 0, 0, 0);
	assert_int_equal(env.helper_errors, 2);
	assert_int_equal(call(EBPF_SLOT_bpf_ringbuf_query, M, 0, 0, 0), 128);
	map_drop(&map);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(failures_and_answers_are_told_apart),
		cmocka_unit_test(invalid_requests_to_gbpfd_are_counted),
		cmocka_unit_test(what_was_not_popped_is_zero),
		cmocka_unit_test(a_tenants_queue_is_emptied_by_number),
		cmocka_unit_test(absent_memory_is_no_memory),
		cmocka_unit_test(loops_end_as_they_are_told),
		cmocka_unit_test(each_element_is_shown_once),
		cmocka_unit_test(numbers_are_walked),
		cmocka_unit_test(a_lock_that_is_held_is_taken_over),
		cmocka_unit_test(a_record_belongs_to_its_ring),
	};

	return cmocka_run_group_tests_name("helpers", tests, NULL, NULL);
}
