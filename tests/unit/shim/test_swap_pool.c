/* Host memory that is made ahead for chunks: shim/mem/swap_pool.c over an account, a driver, a
 * clock and a machine of the test. Most tests take the steps of its thread themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/thread.h"
#include "mem/host_room.h"
#include "proto/vgpu_view.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_chunk.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_pool.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/shim.h"
#include "../eventually.h"

#define MIB ((uint64_t)1 << 20)
#define CHUNK (16 * MIB)
#define SECOND UINT64_C(1000000000)
#define LINE 2u
#define MS UINT64_C(1000000)
#define OTHER 1u /* line of another process */
#define DEVICE (4000 * MIB)

extern proto_vgpu_view_fn gbpf_shim_vgpu_view;
uint64_t __wrap_mem_host_room(const char *root);
int __wrap_thread_start_detached(void *(*run)(void *), void *arg, size_t stack_bytes);
int __real_thread_start_detached(void *(*run)(void *), void *arg, size_t stack_bytes);

static struct proto_account page;
static uint8_t uuid[2][16] = { { 0xa5 }, { 0xa6 } };
static uint64_t now;   /* [atomic] ns */
static uint64_t room;  /* [atomic] of the host */
static uint64_t lives; /* [atomic] bytes of memory that was made */
static uint64_t next = UINT64_C(1) << 40;
static CUresult create_result;
static void (*meanwhile)(void); /* another thread, during a call of the driver */
static bool threads;		/* are started */
static unsigned starts;

/* In the driver an assertion that fails would leave the mutex held, or end another thread: what is
 * wrong is noted, and asserted by pool_has(). */
static const char *wrong; /* NULL: nothing */

#define EXPECT(right)                                                                              \
	do {                                                                                       \
		wrong = wrong || (right) ? wrong : #right;                                         \
	} while (0)

uint64_t __wrap_mem_host_room(const char *root)
{
	EXPECT(strcmp(root, MEM_HOST_SYSTEM) == 0);
	return load_acquire(&room);
}

int __wrap_thread_start_detached(void *(*run)(void *), void *arg, size_t stack_bytes)
{
	starts++;
	return threads ? __real_thread_start_detached(run, arg, stack_bytes) : -1;
}

static uint64_t clock_of_test(void)
{
	return load_acquire(&now);
}

/* ---- the driver ---- */

static void run_meanwhile(void)
{
	void (*run)(void) = meanwhile;

	meanwhile = NULL;
	if (run) {
		run();
	}
}

static CUresult create(CUmemGenericAllocationHandle *ret, size_t bytes,
		       const CUmemAllocationProp *prop, unsigned long long flags)
{
	EXPECT(prop->location.type == CU_MEM_LOCATION_TYPE_HOST);
	EXPECT(bytes % MIB == 0 && flags == 0);
	run_meanwhile();
	if (create_result == CUDA_SUCCESS) {
		(void)add_acqrel(&lives, bytes);
		*ret = next++ << 16 | bytes / MIB;
	}
	return create_result;
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
	run_meanwhile();
	(void)sub_acqrel(&lives, (handle & 0xffff) * MIB);
	return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *ret, size_t bytes, size_t align, CUdeviceptr wish,
			unsigned long long flags)
{
	(void)align;
	(void)wish;
	(void)flags;
	*ret = next;
	next += bytes;
	return CUDA_SUCCESS;
}

static CUresult free_address(CUdeviceptr at, size_t bytes)
{
	(void)at;
	(void)bytes;
	return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr at, size_t bytes, size_t offset,
		    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	(void)at;
	(void)bytes;
	(void)offset;
	(void)handle;
	(void)flags;
	return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr at, size_t bytes)
{
	(void)at;
	(void)bytes;
	return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t n)
{
	(void)at;
	(void)bytes;
	EXPECT(n == 1 && access->location.type == CU_MEM_LOCATION_TYPE_DEVICE);
	return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *ret)
{
	*ret = 0;
	return CUDA_SUCCESS;
}

static CUresult get_info(size_t *ret_free, size_t *ret_total)
{
	*ret_free = *ret_total = DEVICE;
	return CUDA_SUCCESS;
}

static void note(const char *text)
{
	(void)text;
}

static uint64_t grantable; /* by gbpfd, bytes; 0: there is none */
static unsigned asks;

static int ask(const struct proto_mem_ask *m)
{
	struct proto_account_line *line = &page.line[m->row][LINE];
	uint64_t all = mem_line_used(line) + m->bytes;

	asks++;
	if (!grantable) {
		return -1;
	}
	EXPECT(m->row == PROTO_ACCOUNT_HOST);
	EXPECT(lock_try(&shim_swap_mutex));
	lock_release(&shim_swap_mutex);
	if (all <= grantable) {
		page.allowed[m->row] = all;
	}
	store_relaxed(&line->answer,
		      all <= grantable ? PROTO_ACCOUNT_RETRY : PROTO_ACCOUNT_REFUSED);
	store_release(&line->answer_seq, m->seq);
	return 0;
}

static bool is_agent(void)
{
	return false;
}

static int join(void **state)
{
	static const struct shim_mem_session session = { note, ask, is_agent };

	(void)state;
	page.magic = PROTO_ACCOUNT_MAGIC;
	page.abi = PROTO_ABI;
	page.lines = LINE + 1;
	page.owner[LINE].pid = 7;
	page.owner[OTHER].pid = 8;
	for (unsigned i = 0; i < 2; i++) {
		memcpy(page.uuid[i], uuid[i], sizeof(uuid[i]));
	}
	shim_driver.cuCtxGetDevice = get_device;
	shim_driver.cuMemGetInfo_v2 = get_info;
	shim_work_driver.cuMemCreate = create;
	shim_work_driver.cuMemRelease = release;
	shim_work_driver.cuMemAddressReserve = reserve;
	shim_work_driver.cuMemAddressFree = free_address;
	shim_work_driver.cuMemMap = map;
	shim_work_driver.cuMemUnmap = unmap;
	shim_work_driver.cuMemSetAccess = set_access;
	return shim_mem_join(&page, LINE, uuid, 2, &session);
}

/* ---- the testbed ---- */

static void use(uint32_t row, uint32_t line, uint64_t bytes)
{
	page.line[row][line].charged = page.line[row][line].released + bytes;
}

/* Adds memory that can leave, or lies on the host, in chunks of at most that size. */
static struct mem_swap_region *add_chunks(uint64_t bytes, uint64_t most, enum mem_swap_place place)
{
	struct mem_swap_region *r = mem_swap_region_create(bytes, most, most, 0);
	int err;

	assert_non_null(r);
	lock_take(&shim_swap_mutex);
	err = mem_swap_add(&shim_swap_map, r, next);
	next += bytes;
	for (uint32_t i = 0; i < r->n && !err; i++) {
		mem_swap_place(&shim_swap_map, &r->chunk[i], place);
	}
	lock_release(&shim_swap_mutex);
	assert_int_equal(err, 0);
	return r;
}

static struct mem_swap_region *add_region(uint64_t bytes, enum mem_swap_place place)
{
	return add_chunks(bytes, CHUNK, place);
}

static void want(void)
{
	lock_take(&shim_swap_mutex);
	shim_swap_pool_want(0);
	lock_release(&shim_swap_mutex);
}

static unsigned steps(void)
{
	unsigned n = 0;

	while (shim_swap_pool_step(load_acquire(&now))) {
		assert_true(++n < 1000);
	}
	return n;
}

static bool take(uint64_t bytes, uint64_t *ret_handle, uint64_t *ret_address)
{
	struct mem_swap_region *r = mem_swap_region_create(bytes, bytes, bytes, 0);
	bool taken;

	assert_non_null(r);
	lock_take(&shim_swap_mutex);
	taken = shim_swap_pool_take(&r->chunk[0]);
	lock_release(&shim_swap_mutex);
	*ret_handle = r->chunk[0].host;
	*ret_address = r->chunk[0].host_address;
	free(r);
	return taken;
}

static void put(uint64_t handle, uint64_t at, uint64_t bytes)
{
	lock_take(&shim_swap_mutex);
	shim_swap_pool_put(handle, at, bytes, 0);
	lock_release(&shim_swap_mutex);
}

static void drop(uint64_t pause_ns)
{
	lock_take(&shim_swap_mutex);
	shim_swap_pool_drop(pause_ns);
	lock_release(&shim_swap_mutex);
}

/* The pool has that, all of it is charged, and nothing else has been made. */
static void pool_has(uint64_t bytes)
{
	if (wrong) {
		fail_msg("the driver expects %s", wrong);
	}
	assert_int_equal(shim_swap_pool_bytes(), bytes);
	assert_int_equal(load_acquire(&lives), bytes);
	assert_int_equal(mem_ledger_own(shim_mem_ledger(), PROTO_ACCOUNT_SWAP), bytes);
	assert_int_equal(mem_ledger_own(shim_mem_ledger(), PROTO_ACCOUNT_HOST), bytes);
}

/* A lock that a failed test has left is never released: no test can follow. */
static void end_if_held(void)
{
	if (!lock_try(&shim_swap_mutex)) {
		fprintf(stderr, "the mutex is held after a test\n");
		abort();
	}
	lock_release(&shim_swap_mutex);
}

/* A limit of 400 MiB, of which 320 are in use, by 20 chunks. */
static int set_up(void **state)
{
	(void)state;
	end_if_held();
	(void)alarm(EVENTUALLY_S);
	wrong = NULL;
	store_release(&lives, 0u);
	meanwhile = NULL;
	memset(page.line, 0, sizeof(page.line));
	page.limit[0] = 400 * MIB;
	page.limit[PROTO_ACCOUNT_SWAP] = page.limit[PROTO_ACCOUNT_HOST] = 8000 * MIB;
	page.allowed[PROTO_ACCOUNT_HOST] = 8000 * MIB;
	store_release(&now, clock_of_test() + 100 * SECOND);
	clock_set_source(clock_of_test);
	store_release(&room, UINT64_MAX);
	create_result = CUDA_SUCCESS;
	starts = asks = 0;
	grantable = 0;
	use(0, LINE, 320 * MIB);
	add_region(320 * MIB, MEM_SWAP_DEVICE);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	end_if_held();
	drop(0);
	while (shim_swap_map.n) {
		struct mem_swap_region *r = shim_swap_map.region[0];

		for (uint32_t i = 0; i < r->n; i++) {
			mem_swap_place(&shim_swap_map, &r->chunk[i], MEM_SWAP_NOWHERE);
		}
		mem_swap_remove(&shim_swap_map, r);
		free(r);
	}
	pool_has(0);
	(void)alarm(0);
	return 0;
}

/* ---- tests ---- */

static void memory_is_made_before_any_chunk_leaves(void **state)
{
	(void)state;
	want();
	assert_int_equal(starts, 1);
	pool_has(0); /* by the thread alone */
	assert_int_equal(steps(), 20);
	pool_has(320 * MIB);
}

static void none_is_made_while_the_limit_leaves_more_than_a_quarter(void **state)
{
	(void)state;
	use(0, LINE, 298 * MIB);
	want();
	assert_int_equal(starts, 0);
	assert_int_equal(steps(), 0);
	use(0, LINE, 300 * MIB);
	want();
	assert_int_equal(starts, 1);
	assert_int_equal(steps(), 20);
	use(0, LINE, 200 * MIB);
	drop(0);
	assert_int_equal(steps(), 0); /* there is room again */
}

/* What leaves next may leave for others. */
static void memory_is_made_after_an_order_whatever_the_limit_leaves(void **state)
{
	(void)state;
	use(0, LINE, 100 * MIB);
	want();
	assert_int_equal(steps(), 0);
	lock_take(&shim_swap_mutex);
	shim_swap_pool_ordered(0);
	lock_release(&shim_swap_mutex);
	assert_int_equal(starts, 1);
	assert_int_equal(steps(), 20);
	drop(0);
	store_release(&now, now + 10 * SECOND);
	want();
	assert_int_equal(steps(), 0);
}

/* A movement for which the pool has nothing makes it; another one may follow at once. */
static void none_is_made_between_two_orders(void **state)
{
	uint64_t handle, address;

	(void)state;
	assert_false(take(CHUNK, &handle, &address));
	want();
	assert_int_equal(steps(), 0);
	store_release(&now, now + 20 * MS);
	assert_int_equal(steps(), 20);
}

/* Where there are several vGPUs each has the pinned memory that it has asked for. */
static void pinned_memory_is_asked_for(void **state)
{
	(void)state;
	page.allowed[PROTO_ACCOUNT_HOST] = 1; /* 0: all that the limit has */
	grantable = 8000 * MIB;
	want();
	assert_int_equal(steps(), 20);
	assert_int_equal(asks, 20);
	pool_has(320 * MIB);
}

/* What one has, others cannot be granted. */
static void half_of_what_gbpfd_can_grant_is_left_to_other_vgpus(void **state)
{
	(void)state;
	page.allowed[PROTO_ACCOUNT_HOST] = 1;
	grantable = 100 * MIB;
	want();
	assert_int_equal(steps(), 3);
	pool_has(48 * MIB);
	assert_int_equal(asks, 4);
	store_release(&now, now + 9 * SECOND);
	want();
	assert_int_equal(steps(), 0);
	assert_int_equal(asks, 4);
	grantable = 200 * MIB;
	store_release(&now, now + SECOND);
	want();
	assert_int_equal(steps(), 3);
	pool_has(96 * MIB);
}

static void no_pinned_memory_is_made_without_gbpfd_that_grants_it(void **state)
{
	(void)state;
	page.allowed[PROTO_ACCOUNT_HOST] = 1;
	want();
	assert_int_equal(steps(), 0);
	assert_int_equal(asks, 1);
	assert_int_equal(steps(), 0);
	assert_int_equal(asks, 1);
	pool_has(0);
}

static void the_pool_has_one_gib_at_most(void **state)
{
	(void)state;
	page.limit[0] = 40000 * MIB;
	add_region(3200 * MIB, MEM_SWAP_DEVICE);
	use(0, LINE, (40000 - 2050) * MIB);
	want();
	assert_int_equal(steps(), 0);
	use(0, LINE, (40000 - 2048) * MIB);
	want();
	(void)steps();
	pool_has(1024 * MIB);
}

static void half_of_what_swap_and_pinned_memory_leave_is_not_taken(void **state)
{
	(void)state;
	page.limit[PROTO_ACCOUNT_SWAP] = 80 * MIB;
	want();
	(void)steps();
	pool_has(32 * MIB);
	drop(0);
	use(PROTO_ACCOUNT_SWAP, OTHER, 48 * MIB);
	(void)steps();
	pool_has(16 * MIB);
	drop(0);
	page.limit[PROTO_ACCOUNT_HOST] = page.allowed[PROTO_ACCOUNT_HOST] = 31 * MIB;
	assert_int_equal(steps(), 0);
	page.limit[PROTO_ACCOUNT_SWAP] = 0; /* taken back */
	assert_int_equal(steps(), 0);
}

static void the_program_sees_the_pool_as_free(void **state)
{
	struct proto_vgpu_view v;
	size_t is_free, total;

	(void)state;
	page.limit[PROTO_ACCOUNT_SWAP] = 100 * MIB;
	want();
	(void)steps();
	pool_has(48 * MIB);
	assert_int_equal(shim_real.cuMemGetInfo_v2(&is_free, &total), CUDA_SUCCESS);
	assert_int_equal(is_free, 180 * MIB);
	assert_int_equal(gbpf_shim_vgpu_view(uuid[0], 0, sizeof(v), &v), 0);
	assert_int_equal(v.swap_left, 100 * MIB);
	use(PROTO_ACCOUNT_SWAP, OTHER, 10 * MIB);
	assert_int_equal(shim_real.cuMemGetInfo_v2(&is_free, &total), CUDA_SUCCESS);
	assert_int_equal(is_free, 170 * MIB);
}

static void an_idle_pool_is_given_back(void **state)
{
	(void)state;
	want();
	(void)steps();
	store_release(&now, now + 10 * SECOND - 1);
	assert_int_equal(steps(), 0);
	pool_has(320 * MIB);
	want(); /* it is in use again */
	store_release(&now, now + 10 * SECOND - 1);
	assert_int_equal(steps(), 0);
	store_release(&now, now + 1);
	assert_int_equal(steps(), 20);
	pool_has(0);
	assert_int_equal(steps(), 0);
}

static void the_pool_stays_while_chunks_are_on_the_host(void **state)
{
	struct mem_swap_region *r = add_region(CHUNK, MEM_SWAP_HOST);

	(void)state;
	want();
	(void)steps();
	store_release(&now, now + 1000 * SECOND);
	assert_int_equal(steps(), 0);
	pool_has(320 * MIB);
	mem_swap_place(&shim_swap_map, &r->chunk[0], MEM_SWAP_DEVICE);
	assert_int_equal(steps(), 20);
}

static void none_is_made_under_pressure(void **state)
{
	(void)state;
	store_release(&room, 0);
	want();
	assert_int_equal(steps(), 0);
	store_release(&room, CHUNK);
	assert_int_equal(steps(), 0); /* it pauses */
	store_release(&now, now + 10 * SECOND);
	want();
	store_release(&room, CHUNK - 1);
	assert_int_equal(steps(), 0);
	store_release(&room, CHUNK);
	assert_true(shim_swap_pool_step(now));
	pool_has(CHUNK);
}

static void pressure_ends_the_pool(void **state)
{
	(void)state;
	add_region(CHUNK, MEM_SWAP_HOST);
	want();
	(void)steps();
	store_release(&room, 0);
	assert_int_equal(steps(), 20);
	pool_has(0);
	store_release(&room, UINT64_MAX);
	assert_int_equal(steps(), 0);
	store_release(&now, now + 10 * SECOND);
	want();
	assert_int_equal(steps(), 20);
}

static void memory_that_others_need_is_given_back(void **state)
{
	(void)state;
	page.limit[PROTO_ACCOUNT_SWAP] = 128 * MIB;
	want();
	(void)steps();
	pool_has(64 * MIB);
	use(PROTO_ACCOUNT_SWAP, OTHER, 32 * MIB);
	assert_int_equal(steps(), 0); /* not while a movement may be under way */
	store_release(&now, now + SECOND);
	(void)steps();
	pool_has(48 * MIB);
}

static void what_is_taken_is_made_again(void **state)
{
	uint64_t handle, address;

	(void)state;
	want();
	(void)steps();
	store_release(&now, now + 9 * SECOND);
	assert_true(take(CHUNK, &handle, &address));
	assert_int_equal(shim_swap_pool_bytes(), 304 * MIB);
	store_release(&now, now + 9 * SECOND); /* it was used meanwhile */
	assert_int_equal(steps(), 1);
	assert_int_equal(shim_swap_pool_bytes(), 320 * MIB);
	put(handle, address, CHUNK);
	pool_has(336 * MIB);
}

static void memory_is_made_for_chunks_of_each_size(void **state)
{
	uint64_t handle[3], at[3], more;

	(void)state;
	add_chunks(148 * MIB, 64 * MIB, MEM_SWAP_DEVICE);
	want();
	assert_int_equal(steps(), 23);
	pool_has(468 * MIB);
	for (unsigned i = 0; i < 3; i++) {
		assert_true(take((i ? 64 : 20) * MIB, &handle[i], &at[i]));
		assert_int_equal(handle[i] & 0xffff, i ? 64 : 20);
	}
	assert_false(take(64 * MIB, &more, &more));
	assert_false(take(20 * MIB, &more, &more));
	assert_int_equal(shim_swap_pool_bytes(), 320 * MIB);
	store_release(&now, now + 20 * MS - 1);
	assert_int_equal(steps(), 0); /* more may be taken */
	store_release(&now, now + 1);
	assert_int_equal(steps(), 3);
	for (unsigned i = 0; i < 3; i++) {
		put(handle[i], at[i], (i ? 64 : 20) * MIB);
	}
	pool_has((468 + 148) * MIB);
}

/* Chunks that were used last are not those that leave. */
static void the_first_gib_that_would_leave_has_memory(void **state)
{
	uint64_t handle[2], at[2], more;

	(void)state;
	page.limit[0] = 40000 * MIB;
	use(0, LINE, 40000 * MIB);
	add_chunks(640 * MIB, 64 * MIB, MEM_SWAP_DEVICE);
	add_chunks(640 * MIB, 32 * MIB, MEM_SWAP_DEVICE);
	want();
	assert_int_equal(steps(), 20 + 10 + 2);
	pool_has((320 + 640 + 64) * MIB);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(take(32 * MIB, &handle[i], &at[i]));
	}
	assert_false(take(32 * MIB, &more, &more));
	for (unsigned i = 0; i < 2; i++) {
		put(handle[i], at[i], 32 * MIB);
	}
}

static void an_empty_pool_gives_nothing(void **state)
{
	uint64_t handle, address;

	(void)state;
	assert_false(take(CHUNK, &handle, &address));
}

static void a_full_pool_frees_what_it_has_had_for_longest(void **state)
{
	uint64_t handle, address, at[4];

	(void)state;
	add_region(3200 * MIB, MEM_SWAP_DEVICE);
	want();
	(void)steps();
	pool_has(1024 * MIB);
	for (unsigned i = 0; i < 4; i++) {
		assert_true(take(CHUNK, &handle, &at[i]));
		put(handle, at[i], CHUNK);
	}
	put(handle = next++ << 16 | 60, 5, 60 * MIB); /* in the place of four chunks */
	(void)add_acqrel(&lives, 60 * MIB);
	assert_true(shim_mem_try_charge(PROTO_ACCOUNT_SWAP, 60 * MIB));
	assert_true(shim_mem_try_charge(PROTO_ACCOUNT_HOST, 60 * MIB));
	pool_has((1024 - 64 + 60) * MIB);
	assert_true(take(60 * MIB, &handle, &address));
	assert_int_equal(address, 5);
	put(handle, address, 60 * MIB);
}

/* A chunk of another size needs what the pool is charged for. */
static void the_pool_makes_room_for_a_chunk_of_another_size(void **state)
{
	struct mem_swap_region *r = add_region(2 * MIB, MEM_SWAP_NOWHERE);
	uint64_t left, used;
	bool backed;

	(void)state;
	page.limit[PROTO_ACCOUNT_SWAP] = 32 * MIB;
	want();
	(void)steps();
	pool_has(16 * MIB);
	page.limit[PROTO_ACCOUNT_SWAP] = 16 * MIB;
	lock_take(&shim_swap_mutex);
	backed = shim_swap_chunk_back(&r->chunk[0]);
	left = shim_swap_pool_bytes();
	used = shim_mem_used(PROTO_ACCOUNT_SWAP);
	shim_swap_chunk_unback(&r->chunk[0]);
	lock_release(&shim_swap_mutex);
	assert_true(backed);
	assert_int_equal(left, 0);
	assert_int_equal(used, 2 * MIB);
	pool_has(2 * MIB); /* for the next one */
}

static bool taken; /* meanwhile */

static void takes_the_mutex(void)
{
	taken = lock_try(&shim_swap_mutex);
	if (taken) {
		lock_release(&shim_swap_mutex);
	}
}

static void drops_the_pool(void)
{
	drop(0);
}

static void memory_is_made_without_the_mutex(void **state)
{
	(void)state;
	want();
	taken = false;
	meanwhile = takes_the_mutex;
	assert_true(shim_swap_pool_step(now));
	assert_null(meanwhile);
	assert_true(taken);
	pool_has(CHUNK);
}

static void what_is_made_while_the_pool_is_dropped_is_freed(void **state)
{
	(void)state;
	want();
	assert_true(shim_swap_pool_step(now));
	meanwhile = drops_the_pool;
	assert_true(shim_swap_pool_step(now));
	pool_has(0);
	assert_true(shim_swap_pool_step(now));
	pool_has(CHUNK);
}

static void takes_from_the_pool(void)
{
	uint64_t handle, address;

	taken = take(CHUNK, &handle, &address);
}

static void memory_that_is_being_freed_is_not_taken(void **state)
{
	(void)state;
	want();
	assert_true(shim_swap_pool_step(now));
	store_release(&now, now + 10 * SECOND);
	taken = true;
	meanwhile = takes_from_the_pool;
	assert_true(shim_swap_pool_step(now));
	assert_null(meanwhile);
	assert_false(taken);
	pool_has(0);
}

static pthread_t mover;
static int mover_err;
static uint32_t settling, settled; /* [atomic] */
static bool settled_early;
static uint64_t seen; /* by the mover, when it has settled */

static void *settle(void *arg)
{
	lock_take(&shim_swap_mutex);
	store_release(&settling, 1u);
	shim_swap_pool_settle();
	seen = shim_swap_pool_bytes();
	store_release(&settled, 1u);
	lock_release(&shim_swap_mutex);
	return arg;
}

/* Returns when the mover has released the mutex: it waits, or has ended. */
static void begins_to_move(void)
{
	mover_err = pthread_create(&mover, NULL, settle, NULL);
	eventually(mover_err || load_acquire(&settling));
	lock_take(&shim_swap_mutex);
	lock_release(&shim_swap_mutex);
	settled_early = load_acquire(&settled);
}

/* Once it has settled, the pool has what was made, or has it no more. */
static void a_movement_waits_for_the_pool(void **state)
{
	(void)state;
	want();
	for (unsigned i = 0; i < 2; i++) {
		store_release(&settling, 0u);
		store_release(&settled, 0u);
		settled_early = true;
		meanwhile = begins_to_move;
		assert_true(shim_swap_pool_step(now));
		assert_int_equal(mover_err, 0);
		assert_int_equal(pthread_join(mover, NULL), 0);
		assert_false(settled_early);
		assert_int_equal(seen, i ? 0 : CHUNK);
		pool_has(seen);
		store_release(&now, now + 10 * SECOND); /* it is freed next */
	}
}

static void a_dropped_pool_pauses(void **state)
{
	(void)state;
	want();
	(void)steps();
	drop(5 * SECOND);
	pool_has(0);
	assert_int_equal(steps(), 0);
	store_release(&now, now + 5 * SECOND);
	assert_int_equal(steps(), 20);
}

static void a_driver_that_refuses_is_not_asked_again_at_once(void **state)
{
	(void)state;
	want();
	create_result = CUDA_ERROR_OUT_OF_MEMORY;
	assert_int_equal(steps(), 1);
	pool_has(0);
	create_result = CUDA_SUCCESS;
	assert_int_equal(steps(), 0);
}

/* ---- the thread; these two come last ---- */

static uint64_t ahead; /* [atomic] of the system's clock, ns */

static uint64_t clock_ahead(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec + load_acquire(&ahead);
}

static unsigned count_threads(void)
{
	DIR *d = opendir("/proc/self/task");
	const struct dirent *e;
	unsigned n = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		n += e->d_name[0] != '.';
	}
	closedir(d);
	return n;
}

static void a_thread_makes_the_pool_and_ends_after_it(void **state)
{
	uint64_t handle = next++ << 16 | CHUNK / MIB;
	unsigned before = count_threads();

	(void)state;
	clock_set_source(clock_ahead);
	/* A movement by this clock: the last one may be ahead of it. */
	(void)add_acqrel(&lives, CHUNK);
	assert_true(shim_mem_try_charge(PROTO_ACCOUNT_SWAP, CHUNK));
	assert_true(shim_mem_try_charge(PROTO_ACCOUNT_HOST, CHUNK));
	put(handle, next, CHUNK);
	drop(0);
	starts = 0; /* of a thread, for it */
	threads = true;
	for (unsigned i = 1; i <= 2; i++) {
		want();
		assert_int_equal(starts, i);
		eventually(shim_swap_pool_bytes() == 320 * MIB);
		want();
		assert_int_equal(starts, i);
		(void)add_acqrel(&ahead, 20 * SECOND);
		eventually(count_threads() == before);
		pool_has(0);
		drop(0);
	}
	threads = false;
}

static void nothing_is_made_after_the_end(void **state)
{
	(void)state;
	store_release(&now, clock_ahead());
	want();
	assert_true(shim_swap_pool_step(now));
	meanwhile = shim_swap_pool_stop;
	(void)shim_swap_pool_step(now);			   /* the end does not wait for ever */
	assert_int_equal(load_acquire(&lives), 2 * CHUNK); /* the driver is not called any more */
	assert_int_equal(shim_swap_pool_bytes(), CHUNK);
	assert_int_equal(steps(), 0);
	starts = 0;
	want();
	assert_int_equal(starts, 0);
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(memory_is_made_before_any_chunk_leaves),
		TEST(none_is_made_while_the_limit_leaves_more_than_a_quarter),
		TEST(memory_is_made_after_an_order_whatever_the_limit_leaves),
		TEST(none_is_made_between_two_orders),
		TEST(pinned_memory_is_asked_for),
		TEST(half_of_what_gbpfd_can_grant_is_left_to_other_vgpus),
		TEST(no_pinned_memory_is_made_without_gbpfd_that_grants_it),
		TEST(the_pool_has_one_gib_at_most),
		TEST(half_of_what_swap_and_pinned_memory_leave_is_not_taken),
		TEST(the_program_sees_the_pool_as_free),
		TEST(an_idle_pool_is_given_back),
		TEST(the_pool_stays_while_chunks_are_on_the_host),
		TEST(none_is_made_under_pressure),
		TEST(pressure_ends_the_pool),
		TEST(memory_that_others_need_is_given_back),
		TEST(what_is_taken_is_made_again),
		TEST(memory_is_made_for_chunks_of_each_size),
		TEST(the_first_gib_that_would_leave_has_memory),
		TEST(an_empty_pool_gives_nothing),
		TEST(a_full_pool_frees_what_it_has_had_for_longest),
		TEST(the_pool_makes_room_for_a_chunk_of_another_size),
		TEST(memory_is_made_without_the_mutex),
		TEST(what_is_made_while_the_pool_is_dropped_is_freed),
		TEST(memory_that_is_being_freed_is_not_taken),
		TEST(a_movement_waits_for_the_pool),
		TEST(a_dropped_pool_pauses),
		TEST(a_driver_that_refuses_is_not_asked_again_at_once),
		TEST(a_thread_makes_the_pool_and_ends_after_it),
		cmocka_unit_test_setup(nothing_is_made_after_the_end, set_up),
	};

	return cmocka_run_group_tests_name("swap pool", tests, join, NULL);
}
