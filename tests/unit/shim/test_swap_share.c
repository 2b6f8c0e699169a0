/* Memory in chunks that is shared with other processes: the side that has it, and what the other
 * one opens in packs, shim/mem/swap_share.c, over an account and a driver of the test. */
#include "swap_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "mem/account_shares.h"
#include "mem/pack.h"
#include "shim/mem/charge.h"
#include "shim/mem/sharing.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/swap_share.h"
#include "shim/shim.h"
#include "../base/open_fds.h"

#define KEY 8u	   /* place of the key in a handle, */
#define OFFSET 44u /* and of the offset in a pack */
#define GRAIN MEM_PACK_GRAIN
#define PACK MEM_PACK_BYTES

static CUresult share(CUdeviceptr at, CUipcMemHandle *ret)
{
	CUipcMemHandle h = { { 0 } };
	struct shim_swap_view v;
	CUresult r;

	assert_true(shim_swap_look(at, &v));
	r = shim_swap_share(v.base, v.id, ret ? ret : &h);
	rig_end_if_left();
	return r;
}

/* Asks for chunks by a handle. Returns the error. Closes what is given, *ret_n descriptors. */
static int give(const CUipcMemHandle *h, uint32_t first, uint32_t *ret_n, uint64_t *ret_bytes)
{
	struct proto_ipc m = { .first = first, .n = 77, .error = 77 };
	int fds[PROTO_IPC_CHUNKS];

	memcpy(m.key, h->reserved + KEY, sizeof(m.key));
	rig.n_exported = 0;
	shim_swap_give(&m, fds);
	rig_end_if_left();
	*ret_n = m.n;
	*ret_bytes = m.bytes;
	for (uint32_t i = 0; i < m.n; i++) {
		assert_true(is_open(fds[i]));
		close(fds[i]);
	}
	return m.error;
}

static void expect_given(const CUipcMemHandle *h, uint32_t first, int error, uint32_t n)
{
	uint64_t bytes;
	uint32_t got;

	assert_int_equal(give(h, first, &got, &bytes), error);
	assert_int_equal(got, n);
}

static bool is_at(CUdeviceptr at, enum mem_swap_place place)
{
	const struct mem_swap_region *r = mem_swap_find(&shim_swap_map, at);
	bool all = true;

	for (uint32_t i = 0; i < r->n; i++) {
		all &= r->chunk[i].place == place;
	}
	return all;
}

/* Moves all memory out, for which the limit has no room then. */
static void all_out(void)
{
	rig_limit(shim_mem_used(0));
	rig_out(shim_mem_used(0));
}

static uint64_t shared_bytes(void)
{
	return rig.page.kinds[0][2].bytes[PROTO_KIND_SHARED];
}

static void what_is_shared_stays_on_the_device(void **state)
{
	CUdeviceptr a = rig_alloc(2 * CHUNK + 5), b = rig_alloc(CHUNK);

	assert_int_equal(share(a, NULL), CUDA_SUCCESS);
	assert_int_equal(shared_bytes(), 2 * CHUNK + 2 * MIB);
	assert_int_equal(rig.copies, 0);
	all_out();
	assert_true(is_at(a, MEM_SWAP_SHARED));
	assert_true(is_at(b, MEM_SWAP_HOST));
	assert_int_equal(shim_swap_release(0, 8 * CHUNK, UINT64_MAX, 0, 0), 0);
	assert_true(is_at(a, MEM_SWAP_SHARED));
	rig_check();
	rig_limit(2000 * MIB);
	rig_free(a);
	assert_int_equal(shared_bytes(), 0);
	rig_check();
}

/* Others would see what comes there. */
static void memory_that_was_shared_is_not_passed_on(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);
	uint64_t shared = rig_chunk(b, 0)->handle;

	assert_int_equal(share(b, NULL), CUDA_SUCCESS);
	all_out();
	assert_true(is_at(a, MEM_SWAP_HOST));
	rig_limit(2000 * MIB);
	rig_arm(0, 0);
	rig_free(b);
	assert_true(is_at(a, MEM_SWAP_DEVICE));
	assert_int_equal(rig.created[false], 1);
	assert_int_not_equal(rig_chunk(a, 0)->handle, shared);
	rig_check();
}

static void what_has_left_returns_first(void **state)
{
	CUdeviceptr a = rig_alloc(2 * CHUNK), b;

	all_out();
	rig_limit(2 * CHUNK);
	b = rig_alloc(2 * CHUNK); /* leaves for it */
	assert_true(is_at(a, MEM_SWAP_HOST));
	assert_int_equal(share(a, NULL), CUDA_SUCCESS);
	assert_true(is_at(a, MEM_SWAP_SHARED));
	assert_true(is_at(b, MEM_SWAP_HOST));
	rig_check();
}

/* Orders of gbpfd wait for the mutex, which is free between two pauses. */
static void a_region_returns_in_one_pause_after_another(void **state)
{
	CUdeviceptr a = rig_alloc(1280 * MIB);
	const struct mem_swap_region *r = mem_swap_find(&shim_swap_map, a);
	uint64_t id = r->id, moved;

	for (unsigned i = 0; i < 2; i++) {
		all_out();
	}
	assert_true(is_at(a, MEM_SWAP_HOST));
	rig_limit(2000 * MIB);
	assert_true(shim_swap_fetch_region(a, id));
	rig_end_if_left();
	moved = shim_mem_used(0);
	assert_true(moved >= 512 * MIB && moved <= SHIM_SWAP_BATCH_BYTES);
	assert_true(shim_swap_fetch_region(a, id));
	rig_end_if_left();
	assert_true(is_at(a, MEM_SWAP_DEVICE));
	assert_false(shim_swap_fetch_region(a, id));
	rig_end_if_left();
	rig_check();
}

static void what_does_not_fit_is_not_shared(void **state)
{
	CUdeviceptr a = rig_alloc(2 * CHUNK), b;

	all_out();
	rig_limit(2 * CHUNK);
	b = rig_alloc(CHUNK);
	assert_int_equal(share(b, NULL), CUDA_SUCCESS);
	assert_int_equal(share(a, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(shared_bytes(), CHUNK);
	rig_check();
	rig_free(b);
	assert_int_equal(share(a, NULL), CUDA_SUCCESS);
	rig_check();
}

/* An exchange needs memory of the host for the first chunk. */
static void without_swap_nothing_can_be_exchanged_for_it(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b;

	all_out();
	rig_limit(CHUNK);
	b = rig_alloc(CHUNK);
	shim_swap_give_back();
	rig.page.limit[PROTO_ACCOUNT_SWAP] = CHUNK;
	assert_int_equal(share(a, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	assert_true(is_at(b, MEM_SWAP_DEVICE));
	rig_check();
}

static void work_keeps_on_the_host_what_is_there(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);
	CUresult r;

	all_out();
	rig_limit(2000 * MIB);
	rig.work = CUDA_ERROR_NOT_READY;
	r = share(a, NULL);
	rig.work = CUDA_SUCCESS;
	assert_int_equal(r, CUDA_ERROR_NOT_READY);
	assert_int_equal(shared_bytes(), 0);
	rig_check();
	assert_int_equal(share(a, NULL), CUDA_SUCCESS);
	rig_check();
}

static void what_is_on_the_device_is_shared_at_once(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);
	CUresult r;

	rig.work = CUDA_ERROR_NOT_READY;
	shim.captures = 1;
	r = share(a, NULL);
	shim.captures = 0;
	rig.work = CUDA_SUCCESS;
	assert_int_equal(r, CUDA_SUCCESS);
}

static void a_handle_is_the_allocation_s_alone(void **state)
{
	CUipcMemHandle first, again, other;
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);

	assert_int_equal(share(a, &first), CUDA_SUCCESS);
	assert_int_equal(share(a, &again), CUDA_SUCCESS);
	assert_int_equal(share(b, &other), CUDA_SUCCESS);
	assert_memory_equal(&first, &again, sizeof(first));
	assert_memory_not_equal(&first, &other, sizeof(first));
	assert_true(shim_swap_is_token(&first));
	first.reserved[0] ^= 1;
	assert_false(shim_swap_is_token(&first));
	again.reserved[sizeof(again) - 1] = 1;
	assert_false(shim_swap_is_token(&again));
	assert_int_equal(shared_bytes(), 2 * CHUNK);
}

static void its_chunks_are_given_a_few_at_a_time(void **state)
{
	CUdeviceptr a = rig_alloc(9 * CHUNK + 7);
	CUipcMemHandle h;
	uint64_t bytes;
	uint32_t n;

	assert_int_equal(share(a, &h), CUDA_SUCCESS);
	assert_int_equal(give(&h, 0, &n, &bytes), 0);
	assert_int_equal(n, PROTO_IPC_CHUNKS);
	assert_int_equal(bytes, 9 * CHUNK + 7);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(rig.exported[i], rig_chunk(a, i)->handle);
	}
	expect_given(&h, 8, 0, 2);
	assert_int_equal(rig.exported[0], rig_chunk(a, 8)->handle);
	expect_given(&h, 9, 0, 1);
	expect_given(&h, 10, ENOENT, 0);
	expect_given(&h, UINT32_MAX, ENOENT, 0);
}

static void nothing_is_given_for_another_key(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);
	CUipcMemHandle h, none = { { 0 } };

	(void)rig_alloc(CHUNK);
	expect_given(&none, 0, ENOENT, 0); /* what is not shared has no key */
	assert_int_equal(share(a, &h), CUDA_SUCCESS);
	for (unsigned i = 0; i < PROTO_IPC_KEY; i++) {
		h.reserved[KEY + i] ^= 1;
		expect_given(&h, 0, ENOENT, 0);
		h.reserved[KEY + i] ^= 1;
	}
	expect_given(&h, 0, 0, 1);
	mem_swap_find(&shim_swap_map, a)->freed = true; /* work uses it still */
	expect_given(&h, 0, ENOENT, 0);
	mem_swap_find(&shim_swap_map, a)->freed = false;
	rig_free(a);
	expect_given(&h, 0, ENOENT, 0);
}

static void an_export_that_fails_gives_nothing(void **state)
{
	CUdeviceptr a = rig_alloc(3 * CHUNK);
	unsigned before = open_fds();
	CUipcMemHandle h;

	assert_int_equal(share(a, &h), CUDA_SUCCESS);
	for (unsigned i = 1; i <= 3; i++) {
		rig_arm(i, 0);
		expect_given(&h, 0, EIO, 0);
		assert_int_equal(open_fds(), before);
	}
	rig_arm(0, 0);
	expect_given(&h, 0, 0, 3);
}

static void its_own_process_cannot_open_it(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), at = 0;
	CUipcMemHandle h;

	assert_int_equal(share(a, &h), CUDA_SUCCESS);
	assert_int_equal(shim_swap_open(&at, &h, 1), CUDA_ERROR_INVALID_CONTEXT);
	rig_end_if_left();
	assert_int_equal(at, 0);
}

/* ---- the process that opens it ---- */

/* Returns a handle of memory of another process. */
static CUipcMemHandle foreign(uint32_t offset)
{
	CUdeviceptr own = rig_alloc(CHUNK);
	CUipcMemHandle h;

	assert_int_equal(share(own, &h), CUDA_SUCCESS);
	memset(h.reserved + KEY, 5, PROTO_IPC_KEY);
	memcpy(h.reserved + OFFSET, &offset, sizeof(offset));
	rig_free(own);
	return h;
}

/* Opens an allocation in a pack of another process. Returns its address, or 0: it is refused. */
static CUdeviceptr open_at(uint32_t offset)
{
	CUipcMemHandle h = foreign(offset);
	CUdeviceptr at = 0;
	CUresult r = shim_swap_open(&at, &h, 1);

	rig_end_if_left();
	assert_int_equal(r, at ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
	return at;
}

static bool close_at(CUdeviceptr at)
{
	CUresult r = CUDA_SUCCESS;
	bool is = shim_swap_close(at, &r);

	assert_int_equal(r, CUDA_SUCCESS);
	rig_end_if_left();
	return is;
}

static void allocations_in_a_pack_are_open_in_one_region(void **state)
{
	CUdeviceptr at;

	rig.ipc_bytes = PACK;
	at = open_at(0);
	assert_true(at);
	assert_int_equal(open_at(3 * GRAIN), at + 3 * GRAIN);
	assert_int_equal(open_at(3 * GRAIN), at + 3 * GRAIN);
	assert_int_equal(open_at(PACK - GRAIN), at + PACK - GRAIN);
	assert_int_equal(shim_swap_map.n, 1);
	assert_false(close_at(at + GRAIN));
	assert_false(close_at(at + 3 * GRAIN + 1));
	assert_true(close_at(at));
	assert_false(close_at(at));
	assert_true(close_at(at + 3 * GRAIN));
	assert_true(close_at(at + PACK - GRAIN));
	assert_int_equal(shim_swap_map.n, 1);
	assert_true(close_at(at + 3 * GRAIN));
	assert_false(close_at(at + 3 * GRAIN));
	assert_int_equal(shim_swap_map.n, 0);
	rig_check();
}

/* Returns whether an import of memory is noted. */
static bool is_noted(struct shim_mem_identity id)
{
	bool is = false;

	for (uint32_t i = 0; i < PROTO_ACCOUNT_SHARES && !is; i++) {
		struct mem_share s = mem_share_at(&rig.page, i);

		is = s.kind == MEM_SHARE_IMPORT && s.id == id.id;
	}
	return is;
}

static void a_pack_is_one_import(void **state)
{
	CUipcMemHandle of_pack = foreign(0);
	struct shim_mem_identity id = shim_mem_identity_of_handle(&of_pack, sizeof(of_pack));
	CUdeviceptr first, second;

	rig.ipc_bytes = PACK;
	first = open_at(GRAIN);
	assert_true(is_noted(id));
	assert_int_equal(rig.page.line[0][2].shared, PACK);
	second = open_at(5 * GRAIN);
	assert_int_equal(rig.page.line[0][2].shared, PACK);
	assert_true(close_at(first));
	assert_int_equal(rig.page.line[0][2].shared, PACK);
	assert_true(close_at(second));
	assert_false(is_noted(id));
	assert_int_equal(rig.page.line[0][2].shared, 0);
}

static void what_is_outside_of_a_pack_is_not_opened(void **state)
{
	const uint32_t wrong[] = { 1, GRAIN - 1, PACK - 1, PACK, PACK + GRAIN, UINT32_MAX - 511 };
	CUdeviceptr at;

	rig.ipc_bytes = PACK;
	for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
		assert_int_equal(open_at(wrong[i]), 0);
		assert_int_equal(shim_swap_map.n, 0);
		rig_check();
	}
	at = open_at(GRAIN);
	for (unsigned i = 0; i < ARRAY_SIZE(wrong); i++) {
		assert_int_equal(open_at(wrong[i]), 0);
	}
	assert_true(close_at(at));
	assert_int_equal(shim_swap_map.n, 0);
}

static void other_memory_is_opened_at_its_base(void **state)
{
	CUdeviceptr at;

	rig.ipc_bytes = 2 * PACK;
	assert_int_equal(open_at(GRAIN), 0);
	rig_check();
	at = open_at(0);
	assert_true(at);
	assert_int_equal(open_at(GRAIN), 0);
	assert_false(close_at(at + GRAIN));
	assert_true(close_at(at));
	rig_check();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, rig_set_up, rig_tear_down)
		TEST(what_is_shared_stays_on_the_device),
		TEST(memory_that_was_shared_is_not_passed_on),
		TEST(what_has_left_returns_first),
		TEST(a_region_returns_in_one_pause_after_another),
		TEST(what_does_not_fit_is_not_shared),
		TEST(without_swap_nothing_can_be_exchanged_for_it),
		TEST(work_keeps_on_the_host_what_is_there),
		TEST(what_is_on_the_device_is_shared_at_once),
		TEST(a_handle_is_the_allocation_s_alone),
		TEST(its_chunks_are_given_a_few_at_a_time),
		TEST(nothing_is_given_for_another_key),
		TEST(an_export_that_fails_gives_nothing),
		TEST(its_own_process_cannot_open_it),
		TEST(allocations_in_a_pack_are_open_in_one_region),
		TEST(a_pack_is_one_import),
		TEST(what_is_outside_of_a_pack_is_not_opened),
		TEST(other_memory_is_opened_at_its_base),
	};

	return cmocka_run_group_tests_name("swap share", tests, rig_join, NULL);
}
