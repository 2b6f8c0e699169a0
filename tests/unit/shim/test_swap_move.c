/* Movements of memory between the device and the host: shim/mem/swap_move.c, swap_pause.c and
 * swap_chunk.c over an account and a driver of the test. */
#include "swap_rig.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "policy/read.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_pool.h"
#include "shim/mem/swap_region.h"
#include "shim/shim.h"

/* Moves all chunks of an allocation that are on the host back, and others out for them. */
static bool bring_back(CUdeviceptr at, uint64_t since)
{
	struct mem_swap_chunk *list[SHIM_SWAP_BATCH];
	const struct mem_swap_region *r;
	unsigned n = 0;
	bool moved;

	shim_mem_move_begin();
	lock_take(&shim_swap_mutex);
	r = mem_swap_find(&shim_swap_map, at);
	for (uint32_t i = 0; i < r->n && n < SHIM_SWAP_BATCH; i++) {
		if (rig_chunk(at, i)->place == MEM_SWAP_HOST) {
			list[n++] = rig_chunk(at, i);
		}
	}
	moved = shim_swap_exchange(0, list, n, since, UINT64_MAX);
	lock_release(&shim_swap_mutex);
	shim_mem_move_end();
	rig_end_if_left();
	return moved;
}

/* Returns whether all chunks of an allocation are on the device. */
static bool is_back(CUdeviceptr at)
{
	const struct mem_swap_region *r = mem_swap_find(&shim_swap_map, at);
	bool all = true;

	for (uint32_t i = 0; i < r->n; i++) {
		all &= r->chunk[i].place == MEM_SWAP_DEVICE;
	}
	return all;
}

static bool is_away(CUdeviceptr at)
{
	const struct mem_swap_region *r = mem_swap_find(&shim_swap_map, at);
	bool all = true;

	for (uint32_t i = 0; i < r->n; i++) {
		all &= r->chunk[i].place == MEM_SWAP_HOST;
	}
	return all;
}

/* Allocates memory that lies on the host afterwards, with nothing else allocated. */
static CUdeviceptr alloc_away(uint64_t bytes)
{
	CUdeviceptr a = rig_alloc(bytes);

	rig_limit(shim_mem_used(0));
	rig_out(bytes);
	assert_true(is_away(a));
	rig_limit(2000 * MIB);
	return a;
}

/* Nothing is left for others than what is used. */
static void fill_limit(void)
{
	rig_limit(shim_mem_used(0));
}

/* ---- out ---- */

/* All copies begin before the first one is waited for; each chunk is remapped behind its own. */
static void what_was_used_first_leaves(void **state)
{
	CUdeviceptr a = rig_alloc(2 * CHUNK), b = rig_alloc(CHUNK);

	fill_limit();
	rig_arm(0, 0);
	rig_out(CHUNK + 1);
	assert_string_equal(rig.trace, "oa ob ha hb w w");
	assert_true(is_away(a) && is_back(b));
	assert_int_equal(shim_mem_used(0), CHUNK);
	assert_int_equal(rig.moved[true], 2 * CHUNK);
	assert_int_equal(rig.moved[false], 0);
	rig_check();
}

static void the_last_chunk_of_an_allocation_may_be_smaller(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK + 4 * MIB);

	fill_limit();
	rig_out(CHUNK + 1);
	assert_true(is_away(a));
	assert_int_equal(shim_mem_used(PROTO_ACCOUNT_SWAP), CHUNK + 4 * MIB);
	rig_check();
}

static void nothing_leaves_that_the_limit_has_room_for(void **state)
{
	CUdeviceptr a = rig_alloc(2 * CHUNK);

	rig_limit(3 * CHUNK);
	rig_arm(0, 0);
	rig_out(CHUNK);
	assert_true(is_back(a));
	assert_int_equal(rig.calls, 0);
	rig_out(CHUNK + 1);
	assert_true(!rig_on_device(a, 0) && rig_on_device(a, 1));
	rig_check();
}

static void more_than_one_pause_moves_leaves_in_several(void **state)
{
	CUdeviceptr a = 0;

	for (unsigned i = 0; i < SHIM_SWAP_BATCH + 6; i++) {
		a = rig_alloc(4 * MIB);
	}
	rig_limit((SHIM_SWAP_BATCH + 6) * 4 * MIB);
	rig_out((SHIM_SWAP_BATCH + 5) * 4 * MIB);
	assert_true(is_back(a));
	assert_int_equal(shim_mem_used(0), 4 * MIB);
	rig_check();
}

static void large_allocations_move_in_large_chunks(void **state)
{
	CUdeviceptr a = rig_alloc(SHIM_SWAP_LARGE - MIB), b = rig_alloc(SHIM_SWAP_LARGE + 20 * MIB);
	const struct mem_swap_region *r = mem_swap_find(&shim_swap_map, b);

	assert_int_equal(mem_swap_find(&shim_swap_map, a)->n, 16);
	assert_int_equal(r->n, 6);
	assert_int_equal(r->chunk[3].bytes, SHIM_SWAP_CHUNK_MAX);
	assert_int_equal(r->chunk[4].bytes, CHUNK);
	fill_limit();
	rig_out(SHIM_SWAP_LARGE);
	assert_true(is_away(a) && is_back(b));
	rig_out(2 * SHIM_SWAP_LARGE + 20 * MIB);
	assert_true(is_away(b));
	rig_check();
}

/* One pause moves 1 GiB. */
static void a_pause_moves_no_more_than_a_gib(void **state)
{
	CUdeviceptr a = alloc_away(SHIM_SWAP_BATCH_BYTES + 64 * MIB);

	rig_arm(0, 0);
	assert_true(bring_back(a, UINT64_MAX));
	assert_int_equal(rig.moved[false], SHIM_SWAP_BATCH_BYTES);
	assert_int_equal(shim_mem_used(0), SHIM_SWAP_BATCH_BYTES);
	rig_check();
}

static void as_much_leaves_as_swap_has_room_for(void **state)
{
	CUdeviceptr a = rig_alloc(3 * CHUNK);

	fill_limit();
	rig.page.limit[PROTO_ACCOUNT_SWAP] = 2 * CHUNK + 15 * MIB;
	rig_out(3 * CHUNK);
	assert_true(!rig_on_device(a, 0) && !rig_on_device(a, 1) && rig_on_device(a, 2));
	rig_check();
	rig.page.limit[PROTO_ACCOUNT_SWAP] = 3 * CHUNK;
	rig.page.allowed[PROTO_ACCOUNT_HOST] = 3 * CHUNK - 1;
	rig_out(3 * CHUNK);
	assert_true(rig_on_device(a, 2));
	rig_check();
}

/* Other virtual GPUs have reserved the rest of the device. */
static void gbpfd_is_asked_for_what_the_host_has_no_room_for(void **state)
{
	CUdeviceptr a;

	rig.page.allowed[0] = 1;
	rig.grants = CHUNK + MIB;
	rig.page.limit[PROTO_ACCOUNT_SWAP] = 2 * CHUNK + 8 * MIB;
	a = rig_alloc(3 * CHUNK);
	assert_true(rig_on_device(a, 0) && !rig_on_device(a, 1) && !rig_on_device(a, 2));
	assert_false(rig_try_alloc(CHUNK));
	rig_check();
}

static void memory_of_the_host_is_used_again(void **state)
{
	CUdeviceptr a = alloc_away(2 * CHUNK + 4 * MIB);

	assert_true(bring_back(a, UINT64_MAX));
	assert_true(is_back(a));
	assert_int_equal(shim_swap_pool_bytes(), 2 * CHUNK + 4 * MIB);
	rig_check();
	fill_limit();
	rig_arm(0, 0);
	rig_out(2 * CHUNK + 4 * MIB);
	assert_true(is_away(a));
	assert_int_equal(rig.created[true], 0);
	assert_int_equal(shim_swap_pool_bytes(), 0);
	rig_check();
}

/* ---- back ---- */

static void what_left_last_comes_back_when_memory_is_freed(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK), c = rig_alloc(2 * CHUNK);
	uint64_t first = rig_chunk(c, 0)->handle, second = rig_chunk(c, 1)->handle;

	fill_limit();
	rig_out(2 * CHUNK);
	assert_true(is_away(a) && is_away(b));
	rig_limit(3 * CHUNK);
	rig_arm(0, 0);
	rig_free(c); /* the limit has room for both, and more */
	assert_string_equal(rig.trace, "db bb da ba w w");
	assert_true(is_back(a) && is_back(b));
	assert_int_equal(rig_chunk(b, 0)->handle, first);
	assert_int_equal(rig_chunk(a, 0)->handle, second);
	assert_int_equal(rig.created[false], 0);
	assert_int_equal(shim_mem_used(0), 2 * CHUNK);
	assert_int_equal(rig.moved[false], 2 * CHUNK);
	assert_int_equal(rig.moved[true], 0);
	rig_check();
}

/* What is freed has no chunk of the size of others that have left: it is freed first. */
static void chunks_of_other_sizes_come_back_in_a_second_pause(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(4 * MIB), c = rig_alloc(CHUNK + 6 * MIB);
	uint64_t first = rig_chunk(c, 0)->handle;

	fill_limit();
	rig_out(CHUNK + 4 * MIB);
	assert_true(is_away(a) && is_away(b));
	rig_limit(CHUNK + 6 * MIB);
	rig_arm(0, 0);
	rig_free(c);
	assert_true(is_back(a) && is_back(b));
	assert_int_equal(rig_chunk(a, 0)->handle, first);
	assert_int_equal(rig.created[false], 1);
	assert_int_equal(shim_mem_used(0), CHUNK + 4 * MIB);
	rig_check();
}

static void the_limit_bounds_what_comes_back(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK), c = rig_alloc(2 * CHUNK);

	fill_limit();
	rig_out(2 * CHUNK);
	rig_limit(2 * CHUNK - 1);
	rig_free(c);
	assert_true(is_away(a) && is_back(b));
	rig_check();
}

/* ---- exchange ---- */

/* Copies go on in both directions while chunks are remapped: the memory of one that has left is
 * that of one that comes at once. */
static void memory_is_passed_on_within_a_pause(void **state)
{
	CUdeviceptr a = alloc_away(2 * CHUNK), b = rig_alloc(2 * CHUNK);
	uint64_t first = rig_chunk(b, 0)->handle, second = rig_chunk(b, 1)->handle;

	fill_limit();
	rig_arm(0, 0);
	assert_true(bring_back(a, UINT64_MAX));
	assert_string_equal(rig.trace, "oc od hc da ba hd db bb w w");
	assert_true(is_back(a) && is_away(b));
	assert_int_equal(rig_chunk(a, 0)->handle, first);
	assert_int_equal(rig_chunk(a, 1)->handle, second);
	assert_int_equal(rig.created[false], 0);
	assert_int_equal(rig.moved[false], 2 * CHUNK);
	assert_int_equal(rig.moved[true], 2 * CHUNK);
	rig_check();
	assert_true(bring_back(b, UINT64_MAX));
	assert_true(is_back(b) && is_away(a));
	rig_check();
}

/* A chunk that the limit has room for comes at once; no more leaves than the others need. */
static void room_of_the_limit_is_used_first(void **state)
{
	CUdeviceptr a = alloc_away(2 * CHUNK), b = rig_alloc(2 * CHUNK);

	rig_limit(3 * CHUNK);
	rig_arm(0, 0);
	assert_true(bring_back(a, UINT64_MAX));
	assert_string_equal(rig.trace, "oc da ba hc db bb w w");
	assert_true(is_back(a));
	assert_true(!rig_on_device(b, 0) && rig_on_device(b, 1));
	assert_int_equal(rig.created[false], 1);
	rig_check();
}

/* The limit has room, but the driver has none. */
static void memory_is_passed_on_where_the_device_is_full(void **state)
{
	CUdeviceptr a = alloc_away(CHUNK), b = rig_alloc(CHUNK);

	rig_arm(2, 0); /* behind the question about primary contexts */
	assert_true(bring_back(a, UINT64_MAX));
	assert_string_equal(rig.trace, "ob hb da ba w w");
	assert_true(is_back(a) && is_away(b));
	assert_int_equal(rig.created[false], 0);
	rig_check();
}

static void memory_is_passed_on_to_a_chunk_of_its_size(void **state)
{
	CUdeviceptr a = alloc_away(CHUNK + 4 * MIB), b = rig_alloc(4 * MIB);
	CUdeviceptr c = rig_alloc(CHUNK);
	uint64_t small = rig_chunk(b, 0)->handle, large = rig_chunk(c, 0)->handle;

	fill_limit();
	assert_true(bring_back(a, UINT64_MAX));
	assert_true(is_back(a) && is_away(b) && is_away(c));
	assert_int_equal(rig_chunk(a, 0)->handle, large);
	assert_int_equal(rig_chunk(a, 1)->handle, small);
	rig_check();
}

/* The first pause makes room, the second one makes memory in it. */
static void chunks_of_other_sizes_leave_for_one(void **state)
{
	CUdeviceptr a = alloc_away(CHUNK), b = rig_alloc(12 * MIB), c = rig_alloc(4 * MIB);
	CUdeviceptr d = rig_alloc(4 * MIB);

	fill_limit();
	assert_true(bring_back(a, UINT64_MAX));
	assert_true(is_back(a) && is_away(b) && is_away(c) && is_back(d));
	rig_check();
}

static void memory_of_a_larger_chunk_is_freed(void **state)
{
	CUdeviceptr a = alloc_away(4 * MIB), b = rig_alloc(CHUNK);

	fill_limit();
	assert_true(bring_back(a, UINT64_MAX));
	assert_true(is_back(a) && is_away(b));
	assert_int_equal(shim_mem_used(0), 4 * MIB);
	rig_check();
}

static void what_the_use_has_named_does_not_leave_for_it(void **state)
{
	struct mem_swap_need need = { 0 };
	CUdeviceptr a = alloc_away(CHUNK), b = rig_alloc(CHUNK);

	fill_limit();
	mem_swap_begin_use(&shim_swap_map);
	mem_swap_use(&shim_swap_map, mem_swap_find(&shim_swap_map, b), b, CHUNK, 1, &need);
	assert_false(bring_back(a, shim_swap_map.uses));
	assert_true(is_away(a) && is_back(b));
	rig_check();
	assert_true(bring_back(a, shim_swap_map.uses + 1));
	assert_true(is_back(a) && is_away(b));
	rig_check();
}

/* The host has no room for what would leave. */
static void nothing_is_exchanged_without_swap(void **state)
{
	CUdeviceptr a = alloc_away(CHUNK), b = rig_alloc(CHUNK);

	fill_limit();
	rig.page.limit[PROTO_ACCOUNT_SWAP] = CHUNK;
	rig_arm(0, 0);
	assert_false(bring_back(a, UINT64_MAX));
	assert_true(is_away(a) && is_back(b));
	assert_string_equal(rig.trace, "");
	rig_check();
}

/* ---- release for other vGPUs ---- */

static void a_release_takes_whole_chunks_within_the_bytes(void **state)
{
	CUdeviceptr a = rig_alloc(3 * CHUNK);

	assert_int_equal(shim_swap_release(0, 2 * CHUNK - 1, 2 * CHUNK - 1, 0, 0), CHUNK);
	assert_true(!rig_on_device(a, 0) && rig_on_device(a, 1) && rig_on_device(a, 2));
	rig_check();
	assert_int_equal(shim_swap_release(0, CHUNK - 1, CHUNK - 1, 0, 0), 0);
	rig_check();
	assert_int_equal(shim_swap_release(0, 2 * CHUNK, 2 * CHUNK, 0, 0), 2 * CHUNK);
	assert_true(is_away(a));
	rig_check();
}

/* Those that are larger than what may be taken are passed over, also if they are worth less. */
static void a_release_takes_more_than_is_needed_within_what_it_may(void **state)
{
	CUdeviceptr large = rig_alloc(SHIM_SWAP_LARGE), a = rig_alloc(2 * CHUNK);

	assert_int_equal(shim_swap_release(0, MIB, 64 * MIB - 1, 0, 0), CHUNK);
	assert_true(is_back(large) && !rig_on_device(a, 0) && rig_on_device(a, 1));
	rig_check();
	assert_int_equal(shim_swap_release(0, MIB, 64 * MIB, 0, 0), 64 * MIB);
	assert_true(!rig_on_device(large, 0) && rig_on_device(large, 1));
	rig_check();
	assert_int_equal(shim_swap_release(0, 80 * MIB, 100 * MIB, 0, 0), 64 * MIB);
	rig_check();
}

static void a_release_leaves_what_is_reserved(void **state)
{
	CUdeviceptr a = rig_alloc(3 * CHUNK);

	assert_int_equal(shim_swap_release(0, 3 * CHUNK, 3 * CHUNK, CHUNK + 1, 0), CHUNK);
	assert_int_equal(shim_swap_release(0, 3 * CHUNK, 3 * CHUNK, 2 * CHUNK, 0), 0);
	assert_true(!rig_on_device(a, 0) && rig_on_device(a, 1) && rig_on_device(a, 2));
	rig_check();
}

static void nothing_comes_back_while_a_release_is_held(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);

	assert_int_equal(shim_swap_release(0, CHUNK, CHUNK, 0, SECOND), CHUNK);
	assert_true(shim_swap_is_held(0));
	assert_false(bring_back(a, UINT64_MAX));
	assert_int_equal(shim_swap_release(0, 0, 0, 0, 0), 0); /* it may come: nothing changes */
	assert_true(shim_swap_is_held(0));
	rig_free(b);
	assert_true(is_away(a));
	rig_check();
	rig.now += SECOND;
	assert_false(shim_swap_is_held(0));
	assert_true(bring_back(a, UINT64_MAX));
	assert_true(is_back(a));
	rig_check();
}

static void an_order_that_may_come_has_memory_of_the_host_made(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	assert_int_equal(rig.threads, 0); /* the limit has room */
	assert_int_equal(shim_swap_release(0, 0, UINT64_MAX, 0, SECOND), 0);
	assert_int_equal(rig.threads, 1);
	assert_true(is_back(a));
	assert_false(shim_swap_is_held(0));
	rig_check();
}

/* ---- pauses ---- */

/* Tries all movements. Returns whether any took place. */
static bool anything_moves(CUdeviceptr away, CUdeviceptr there)
{
	bool moved = bring_back(away, UINT64_MAX);

	rig_out(CHUNK);
	moved |= shim_swap_release(0, CHUNK, CHUNK, 0, 0) != 0;
	return moved || !is_away(away) || !is_back(there);
}

static void nothing_moves_unless_all_work_is_done(void **state)
{
	CUdeviceptr a = alloc_away(CHUNK), b = rig_alloc(CHUNK);
	bool moves;

	fill_limit();
	rig.work = CUDA_ERROR_NOT_READY;
	moves = anything_moves(a, b);
	rig.work = CUDA_ERROR_UNKNOWN;
	moves |= anything_moves(a, b);
	rig.work = CUDA_SUCCESS;
	assert_false(moves);
	rig_check();
	assert_true(bring_back(a, UINT64_MAX));
	rig_check();
}

static void nothing_moves_while_a_stream_captures(void **state)
{
	CUdeviceptr a = alloc_away(CHUNK), b = rig_alloc(CHUNK);
	bool moves;

	fill_limit();
	shim.captures = 1;
	moves = anything_moves(a, b);
	shim.captures = 0;
	assert_false(moves);
	rig_check();
}

static void nothing_moves_within_a_call_that_submits_work(void **state)
{
	CUdeviceptr a = alloc_away(CHUNK), b = rig_alloc(CHUNK);
	struct policy_reader *section;
	bool moves;

	fill_limit();
	section = policy_work_enter();
	moves = anything_moves(a, b);
	policy_work_leave(section);
	assert_false(moves);
	rig_check();
}

/* A call of another thread that submits work, until that time. */
static struct {
	pthread_barrier_t entered;
	struct policy_reader *section;
	uint64_t until;
	bool returned;
} late;

static void *submit(void *arg)
{
	late.section = policy_work_enter();
	(void)pthread_barrier_wait(&late.entered);
	(void)pthread_barrier_wait(&late.entered); /* a section ends with its thread */
	return arg;
}

static void return_late(void)
{
	if (!late.returned && rig.now >= late.until) {
		policy_work_leave(late.section);
		late.returned = true;
	}
}

/* Returns what leaves for an order within a call that returns after so many milliseconds. */
static uint64_t release_within(uint64_t ms)
{
	pthread_t thread;
	uint64_t freed;

	late.until = rig.now + clock_patience(ms * 1000000);
	late.returned = false;
	assert_int_equal(pthread_barrier_init(&late.entered, NULL, 2), 0);
	assert_int_equal(pthread_create(&thread, NULL, submit, NULL), 0);
	(void)pthread_barrier_wait(&late.entered);
	rig.on_look = return_late;
	freed = shim_swap_release(0, CHUNK, CHUNK, 0, 0);
	rig.on_look = NULL;
	(void)pthread_barrier_wait(&late.entered);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(pthread_barrier_destroy(&late.entered), 0);
	return freed;
}

/* An allocation would fail otherwise. It waits three times, for 5, 20 and 80 ms. */
static void an_order_waits_for_a_call_that_returns_late(void **state)
{
	CUdeviceptr a = rig_alloc(3 * CHUNK);
	uint64_t stops = shim_swap_stops;

	assert_int_equal(release_within(4), CHUNK);
	assert_int_equal(shim_swap_stops, stops + 1);
	assert_int_equal(release_within(24), CHUNK);
	assert_int_equal(shim_swap_stops, stops + 3);
	assert_int_equal(release_within(100), CHUNK);
	assert_int_equal(shim_swap_stops, stops + 6);
	assert_true(is_away(a));
	rig_check();
}

static void an_order_does_not_wait_for_ever(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	assert_int_equal(release_within(110), 0);
	assert_true(is_back(a));
	rig_check();
}

/* Returns what leaves for an order while work goes on for so many milliseconds. */
static uint64_t release_behind(uint64_t ms)
{
	uint64_t freed;

	rig.work_until = rig.now + clock_patience(ms * 1000000);
	freed = shim_swap_release(0, CHUNK, CHUNK, 0, 0);
	rig.work_until = 0;
	return freed;
}

static void an_order_waits_for_work_as_for_calls(void **state)
{
	CUdeviceptr a = rig_alloc(2 * CHUNK);
	uint64_t stops = shim_swap_stops;

	assert_int_equal(release_behind(4), CHUNK);
	assert_int_equal(shim_swap_stops, stops + 1);
	assert_int_equal(release_behind(100), CHUNK);
	assert_int_equal(shim_swap_stops, stops + 4);
	assert_true(is_away(a));
	a = rig_alloc(CHUNK);
	assert_int_equal(release_behind(110), 0);
	assert_true(is_back(a));
	rig_check();
}

/* It can lie on the host. */
static void an_allocation_waits_for_work_only_once(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);
	uint64_t stops = shim_swap_stops;

	fill_limit();
	rig.work_until = rig.now + clock_patience(20000000);
	shim_swap_out(0, CHUNK);
	rig.work_until = 0;
	assert_int_equal(shim_swap_stops, stops + 1);
	assert_true(is_back(a));
	rig_check();
}

static void nothing_moves_while_a_context_ends(void **state)
{
	CUdeviceptr a = alloc_away(CHUNK), b = rig_alloc(CHUNK);
	CUcontext ctx = (CUcontext)(uintptr_t)mem_swap_find(&shim_swap_map, a)->owner;
	bool moves;

	fill_limit();
	shim_swap_context_ending(ctx, true);
	moves = anything_moves(a, b);
	shim_swap_context_ending(ctx, false);
	assert_false(moves);
	rig_check();
	assert_true(bring_back(a, UINT64_MAX));
	rig_check();
}

/* ---- calls of the driver that fail ---- */

/* Two allocations of chunks of two sizes, the first one on the host. */
static CUdeviceptr here, away;

static void prepare(void)
{
	away = alloc_away(CHUNK + 4 * MIB);
	here = rig_alloc(CHUNK + 4 * MIB);
	fill_limit();
}

static void finish(void)
{
	rig_arm(0, 0);
	rig_limit(2000 * MIB);
	rig_free(here);
	rig_free(away);
}

static void exchange(void)
{
	(void)bring_back(away, UINT64_MAX);
}

static void back(void)
{
	rig_limit(2000 * MIB);
	(void)bring_back(away, UINT64_MAX);
}

/* The second chunk that comes back has room. */
static void exchange_in_part(void)
{
	rig_limit(CHUNK + 8 * MIB);
	(void)bring_back(away, UINT64_MAX);
}

static void out(void)
{
	rig_out(CHUNK + 4 * MIB);
}

static void (*const movements[])(void) = { exchange, back, exchange_in_part, out };

/* Whichever call fails, each chunk has its content, nothing is leaked, and all is charged; and the
 * same movement can be made later. */
static void any_call_of_a_movement_can_fail(void **state)
{
	for (unsigned i = 0; i < ARRAY_SIZE(movements); i++) {
		bool failed = true;

		for (unsigned n = 1; failed; n++) {
			prepare();
			rig_arm(n, 0);
			movements[i]();
			failed = rig.calls >= n;
			rig_check();
			rig_arm(0, 0);
			movements[i]();
			rig_check();
			assert_true(movements[i] == out ? is_away(here) : is_back(away));
			assert_true(movements[i] != exchange || is_away(here));
			assert_true(failed || n > 15); /* there are calls enough */
			finish();
		}
	}
}

/* Then a chunk may have no content, or no mapping, but nothing is leaked, and all is charged. */
static void any_two_calls_of_a_movement_can_fail(void **state)
{
	for (unsigned i = 0; i < ARRAY_SIZE(movements); i++) {
		bool failed = true;

		for (unsigned n = 1; failed; n++) {
			bool again = true;

			for (unsigned m = n + 1; again; m++) {
				prepare();
				rig.may_be_unmapped = true;
				rig_arm(n, m);
				movements[i]();
				failed = rig.calls >= n;
				again = rig.calls >= m;
				rig_check();
				finish();
				rig_check();
				rig.may_be_unmapped = false;
			}
		}
	}
}

/* The chunks whose copies were begun before leave. */
static void what_cannot_be_copied_out_stays(void **state)
{
	CUdeviceptr a = rig_alloc(3 * CHUNK);

	fill_limit();
	rig_arm(0, 0);
	rig.fail_copy = 2;
	rig_out(3 * CHUNK);
	assert_string_equal(rig.trace, "oa ha w w ob oc hb hc w w"); /* it is tried again */
	assert_true(is_away(a));
	rig_check();
}

static void what_cannot_be_copied_back_stays_on_the_host(void **state)
{
	CUdeviceptr a = alloc_away(2 * CHUNK);

	rig_arm(0, 0);
	rig.fail_copy = 2;
	assert_false(bring_back(a, UINT64_MAX));
	assert_string_equal(rig.trace, "da ba db w w ha hb");
	assert_true(is_away(a));
	assert_int_equal(shim_mem_used(0), 0);
	assert_int_equal(rig.moved[false], 0);
	rig_check();
	assert_true(bring_back(a, UINT64_MAX));
	assert_true(is_back(a));
	rig_check();
}

/* Both on the way out have left. The memory that the first one gave is freed with its charge, and
 * that of the second one is not passed on. A second pause brings back what was to come. */
static void an_exchange_can_fail_halfway(void **state)
{
	CUdeviceptr a = alloc_away(2 * CHUNK), b = rig_alloc(2 * CHUNK);

	fill_limit();
	rig_arm(0, 0);
	rig.fail_copy = 3; /* after both on the way out */
	(void)bring_back(a, UINT64_MAX);
	assert_string_equal(rig.trace, "oc od hc da hd w w ha da ba db bb w w");
	assert_true(is_back(a) && is_away(b));
	assert_int_equal(shim_mem_used(0), 2 * CHUNK);
	assert_int_equal(rig.moved[true], 2 * CHUNK);
	assert_int_equal(rig.moved[false], 2 * CHUNK);
	rig_check();
}

/* Returns how many calls an allocation takes, of which it has tried each to fail: then it is made,
 * or nothing is left of it. */
static unsigned fail_allocation(uint64_t limit)
{
	bool failed = true;
	unsigned n = 0;

	rig_limit(limit);
	while (failed) {
		CUdeviceptr a;

		lock_take(&shim_swap_mutex);
		shim_swap_pool_drop(0);
		lock_release(&shim_swap_mutex);
		rig_arm(++n, 0);
		a = rig_try_alloc(3 * CHUNK + 4 * MIB);
		failed = rig.calls >= n;
		rig_arm(0, 0);
		rig_check();
		if (a) {
			rig_free(a);
		} else {
			assert_true(failed);
		}
		rig_check();
	}
	return n - 1;
}

/* A part of it lies on the host, or none. */
static void any_call_of_an_allocation_can_fail(void **state)
{
	assert_true(fail_allocation(2 * CHUNK) > 15);
	assert_true(fail_allocation(2000 * MIB) > 12);
}

/* Memory that was not freed belongs to the program as before. */
static void any_call_of_a_free_can_fail(void **state)
{
	bool failed = true;
	unsigned n = 0;

	while (failed) {
		bool freed;

		prepare();
		rig_arm(++n, 0);
		freed = rig_try_free(here);
		failed = rig.calls >= n;
		rig_check();
		rig_arm(0, 0);
		if (!freed) {
			assert_true(failed);
			rig_free(here);
		}
		rig_free(away);
		rig_check();
	}
	assert_true(n > 15);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, rig_set_up, rig_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_was_used_first_leaves),
		TEST(the_last_chunk_of_an_allocation_may_be_smaller),
		TEST(nothing_leaves_that_the_limit_has_room_for),
		TEST(more_than_one_pause_moves_leaves_in_several),
		TEST(large_allocations_move_in_large_chunks),
		TEST(a_pause_moves_no_more_than_a_gib),
		TEST(as_much_leaves_as_swap_has_room_for),
		TEST(gbpfd_is_asked_for_what_the_host_has_no_room_for),
		TEST(memory_of_the_host_is_used_again),
		TEST(what_left_last_comes_back_when_memory_is_freed),
		TEST(chunks_of_other_sizes_come_back_in_a_second_pause),
		TEST(the_limit_bounds_what_comes_back),
		TEST(memory_is_passed_on_within_a_pause),
		TEST(room_of_the_limit_is_used_first),
		TEST(memory_is_passed_on_where_the_device_is_full),
		TEST(memory_is_passed_on_to_a_chunk_of_its_size),
		TEST(chunks_of_other_sizes_leave_for_one),
		TEST(memory_of_a_larger_chunk_is_freed),
		TEST(what_the_use_has_named_does_not_leave_for_it),
		TEST(nothing_is_exchanged_without_swap),
		TEST(a_release_takes_whole_chunks_within_the_bytes),
		TEST(a_release_takes_more_than_is_needed_within_what_it_may),
		TEST(a_release_leaves_what_is_reserved),
		TEST(nothing_comes_back_while_a_release_is_held),
		TEST(an_order_that_may_come_has_memory_of_the_host_made),
		TEST(nothing_moves_unless_all_work_is_done),
		TEST(nothing_moves_while_a_stream_captures),
		TEST(nothing_moves_within_a_call_that_submits_work),
		TEST(an_order_waits_for_a_call_that_returns_late),
		TEST(an_order_does_not_wait_for_ever),
		TEST(an_order_waits_for_work_as_for_calls),
		TEST(an_allocation_waits_for_work_only_once),
		TEST(nothing_moves_while_a_context_ends),
		TEST(what_cannot_be_copied_out_stays),
		TEST(what_cannot_be_copied_back_stays_on_the_host),
		TEST(an_exchange_can_fail_halfway),
		TEST(any_call_of_a_movement_can_fail),
		TEST(any_two_calls_of_a_movement_can_fail),
		TEST(any_call_of_an_allocation_can_fail),
		TEST(any_call_of_a_free_can_fail),
	};

	return cmocka_run_group_tests_name("swap move", tests, rig_join, NULL);
}
