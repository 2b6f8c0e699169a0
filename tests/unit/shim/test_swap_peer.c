/* Memory in chunks in a process with two devices: access of one to the other's memory, and work of
 * one while memory of the other moves. shim/mem/swap_peer.c, over an account and a driver of the
 * test. */
#include "swap_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_pool.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/shim.h"

#define BOTH 3u /* devices */

/* Gives the second device access to memory of the first one. */
static CUresult enable(void)
{
	CUresult r;

	rig.device = 1;
	r = shim_real.cuCtxEnablePeerAccess(rig_context(0), 0);
	rig.device = 0;
	rig_end_if_left();
	return r;
}

static void disable(void)
{
	rig.device = 1;
	assert_int_equal(shim_real.cuCtxDisablePeerAccess(rig_context(0)), CUDA_SUCCESS);
	rig.device = 0;
	rig_end_if_left();
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

static bool has_access(CUdeviceptr at, uint32_t devices)
{
	const struct mem_swap_region *r = mem_swap_find(&shim_swap_map, at);
	bool all = true;

	for (uint32_t i = 0; i < r->n; i++) {
		all &= rig_access(r->chunk[i].address) == devices;
	}
	return all;
}

/* Moves all memory out, for which the limit has no room then. */
static void all_out(void)
{
	rig_limit(shim_mem_used(0));
	rig_out(shim_mem_used(0));
}

static uint64_t peer_bytes(void)
{
	return rig.page.kinds[0][2].bytes[PROTO_KIND_PEER];
}

/* ---- access ---- */

static void memory_is_mapped_for_its_device(void **state)
{
	CUdeviceptr a = rig_alloc(2 * CHUNK), b;

	rig.device = 1;
	b = rig_alloc(CHUNK);
	rig.device = 0;
	assert_true(has_access(a, 1) && has_access(b, 2));
	assert_int_equal(rig.page.kinds[1][2].bytes[PROTO_KIND_CHUNK], CHUNK);
	all_out();
	assert_true(is_at(a, MEM_SWAP_HOST) && has_access(a, 1));
	assert_true(is_at(b, MEM_SWAP_DEVICE));
	rig_check();
}

static void memory_with_peers_stays_on_the_device(void **state)
{
	CUdeviceptr a = rig_alloc(2 * CHUNK);

	assert_int_equal(enable(), CUDA_SUCCESS);
	assert_true(is_at(a, MEM_SWAP_PEER) && has_access(a, BOTH));
	assert_int_equal(peer_bytes(), 2 * CHUNK);
	all_out();
	assert_int_equal(shim_swap_release(0, 8 * CHUNK, UINT64_MAX, 0, 0), 0);
	assert_true(is_at(a, MEM_SWAP_PEER));
	assert_int_equal(rig.copies, 0);
	rig_check();
	disable();
	assert_int_equal(peer_bytes(), 0);
	all_out();
	assert_true(is_at(a, MEM_SWAP_HOST) && has_access(a, 1));
	rig_check();
}

static void memory_of_the_other_device_moves(void **state)
{
	CUdeviceptr b;

	assert_int_equal(enable(), CUDA_SUCCESS);
	rig.device = 1;
	b = rig_alloc(2 * CHUNK);
	rig_limit(2 * CHUNK);
	shim_mem_move_begin();
	shim_swap_out(1, CHUNK);
	shim_mem_move_end();
	rig.device = 0;
	assert_int_equal(rig_chunk(b, 0)->place, MEM_SWAP_HOST);
	assert_int_equal(rig_access(b), 2);
	rig_check();
	disable();
}

static void new_memory_is_mapped_for_peers(void **state)
{
	CUdeviceptr a, b;

	assert_int_equal(enable(), CUDA_SUCCESS);
	rig_limit(2 * CHUNK);
	a = rig_alloc(2 * CHUNK);
	b = rig_alloc(CHUNK); /* for which nothing can leave */
	assert_true(is_at(a, MEM_SWAP_PEER) && has_access(a, BOTH));
	assert_true(is_at(b, MEM_SWAP_HOST) && has_access(b, BOTH));
	rig_check();
	disable();
}

static void memory_on_the_host_is_used_there_and_returns(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);

	rig_limit(2 * CHUNK);
	rig_out(CHUNK);
	assert_true(is_at(a, MEM_SWAP_HOST));
	assert_int_equal(enable(), CUDA_SUCCESS);
	assert_true(is_at(a, MEM_SWAP_HOST) && has_access(a, BOTH));
	rig_free(b);
	assert_true(is_at(a, MEM_SWAP_PEER) && has_access(a, BOTH));
	rig_check();
	disable();
}

static void access_of_a_context_ends_with_it(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		CUdeviceptr a = rig_alloc(CHUNK);

		assert_int_equal(enable(), CUDA_SUCCESS);
		shim_swap_context_ended(rig_context(1), 0); /* an earlier one */
		assert_true(is_at(a, MEM_SWAP_PEER));
		if (i) {
			shim_swap_context_ended(rig_context(1), shim_mem_epoch());
			shim_swap_context_seen(rig_context(1), 1);
			assert_true(is_at(a, MEM_SWAP_DEVICE));
		} else {
			disable();
		}
		rig_free(a);
	}
}

/* Counts the driver's calls, so that each of them fails once. */
static void an_access_that_cannot_be_given_is_refused(void **state)
{
	for (unsigned fail = 1;; fail++) {
		CUdeviceptr a = rig_alloc(2 * CHUNK);
		CUresult r;

		rig_arm(fail, 0);
		r = enable();
		if (r == CUDA_SUCCESS) {
			assert_true(fail > 3);
			assert_true(rig.calls < fail);
			rig_arm(0, 0);
			disable();
			rig_free(a);
			break;
		}
		rig_arm(0, 0);
		assert_int_equal(rig.peers, 0);
		assert_true(is_at(a, MEM_SWAP_DEVICE));
		rig_check();
		all_out();
		assert_true(is_at(a, MEM_SWAP_HOST) && has_access(a, 1));
		rig_limit(2000 * MIB);
		rig_free(a);
	}
}

static void the_driver_s_refusal_is_the_program_s(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	rig.device = 1;
	assert_int_equal(shim_real.cuCtxEnablePeerAccess(rig_context(0), 1),
			 CUDA_ERROR_INVALID_VALUE);
	rig.device = 0;
	assert_true(is_at(a, MEM_SWAP_DEVICE) && has_access(a, 1));
	rig.peers = 0;
}

/* ---- work ---- */

static void nothing_moves_while_another_device_works(void **state)
{
	CUdeviceptr a = rig_alloc(2 * CHUNK);

	rig.busy_ctxs = 2;
	all_out();
	assert_true(is_at(a, MEM_SWAP_DEVICE));
	rig.busy_ctxs = 0;
	all_out();
	assert_true(is_at(a, MEM_SWAP_HOST));
	rig_check();
}

static void memory_is_freed_when_no_device_uses_it(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b = rig_alloc(CHUNK);

	rig.busy_ctxs = 2;
	rig_free(a);
	assert_int_equal(shim_mem_used(0), 2 * CHUNK);
	assert_false(shim_swap_has(a));
	shim_swap_settle();
	assert_int_equal(shim_mem_used(0), 2 * CHUNK);
	rig.busy_ctxs = 0;
	shim_swap_settle();
	assert_int_equal(shim_mem_used(0), CHUNK);
	rig_free(b);
	assert_int_equal(shim_mem_used(0), 0);
	rig_check();
}

static void memory_is_freed_when_no_context_uses_it(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	shim_swap_context_seen(rig_context(2), 1);
	rig.busy_ctxs = 6;
	rig_free(a);
	for (unsigned ctx = 1; ctx <= 2; ctx++) {
		shim_swap_settle();
		assert_int_equal(shim_mem_used(0), CHUNK);
		rig.busy_ctxs &= ~(1u << ctx);
	}
	shim_swap_settle();
	assert_int_equal(shim_mem_used(0), 0);
	shim_swap_context_ended(rig_context(2), shim_mem_epoch());
	rig_check();
}

static void memory_that_is_freed_in_a_capture_waits_for_all_contexts(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);

	shim_swap_context_seen(rig_context(2), 1);
	rig.busy_ctxs = 6;
	shim.captures = 1;
	rig_free(a);
	shim_swap_settle();
	shim.captures = 0;
	for (unsigned ctx = 1; ctx <= 2; ctx++) {
		shim_swap_settle();
		assert_int_equal(shim_mem_used(0), CHUNK);
		rig.busy_ctxs &= ~(1u << ctx);
	}
	shim_swap_settle();
	assert_int_equal(shim_mem_used(0), 0);
	shim_swap_context_ended(rig_context(2), shim_mem_epoch());
	rig_check();
}

/* ---- memory of the host ---- */

static void memory_of_the_host_serves_each_device(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b;
	uint64_t host;

	all_out();
	host = rig_chunk(a, 0)->host_address;
	assert_int_equal(rig_access(host), 1);
	rig_limit(2000 * MIB);
	rig_free(a);
	assert_int_equal(shim_swap_pool_bytes(), CHUNK);
	rig.device = 1;
	rig_limit(SHIM_MEM_UNIT);
	rig_arm(0, 0);
	b = rig_alloc(CHUNK);
	rig.device = 0;
	assert_true(is_at(b, MEM_SWAP_HOST) && has_access(b, 2));
	assert_int_equal(rig.created[true], 0);
	assert_int_equal(rig_chunk(b, 0)->host_address, host);
	assert_int_equal(rig_access(host), BOTH);
	rig_check();
}

/* ---- launches ---- */

static void a_launch_brings_memory_of_one_device_back(void **state)
{
	struct shim_swap_launch l = { .f = (CUfunction)(uintptr_t)64 };
	CUdeviceptr a = rig_alloc(CHUNK), b;

	all_out();
	rig.device = 1;
	rig_limit(SHIM_MEM_UNIT);
	b = rig_alloc(CHUNK);
	rig_limit(2000 * MIB);
	rig.device = 0;
	rig_limit(2000 * MIB);
	l.params = (void *[]){ &a, &b };
	rig.param_bytes[0] = rig.param_bytes[1] = sizeof(a);
	shim_swap_launch(&l);
	rig_end_if_left();
	assert_int_equal(rig.asked_gpu, 0);
	assert_true(is_at(a, MEM_SWAP_DEVICE) && is_at(b, MEM_SWAP_HOST));
	l.params = (void *[]){ &b, &b };
	shim_swap_launch(&l);
	rig_end_if_left();
	rig.param_bytes[0] = rig.param_bytes[1] = 0;
	assert_int_equal(rig.asked_gpu, 1);
	rig_check();
}

/* ---- copies ---- */

static struct {
	const char *name;
	CUcontext in, to, from;
	CUstream stream;
	size_t waits; /* for streams before it, since rig_arm() */
} last;		      /* copy that the driver was asked for */

static CUcontext current(void)
{
	CUcontext ctx = NULL;

	(void)shim_driver.cuCtxGetCurrent(&ctx);
	return ctx;
}

static CUresult copy_peer(CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from, CUcontext from_ctx,
			  size_t bytes)
{
	last.name = "peer";
	last.in = current();
	last.to = to_ctx;
	last.from = from_ctx;
	return CUDA_SUCCESS;
}

static CUresult copy_peer_async(CUdeviceptr to, CUcontext to_ctx, CUdeviceptr from,
				CUcontext from_ctx, size_t bytes, CUstream stream)
{
	(void)copy_peer(to, to_ctx, from, from_ctx, bytes);
	last.name = "peer async";
	return CUDA_SUCCESS;
}

/* A copy by the legacy stream. */
static CUresult copy(const char *name)
{
	last.name = name;
	last.in = current();
	return rig_use_legacy();
}

static CUresult copy_within(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	return copy("within");
}

static CUresult copy_within_async(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	last.name = "by stream";
	last.in = current();
	last.stream = stream;
	last.waits = (strlen(rig.trace) + 1) / 2;
	return CUDA_SUCCESS;
}

static CUresult copy_down(void *to, CUdeviceptr from, size_t bytes)
{
	return copy("down");
}

static CUresult copy_up(CUdeviceptr to, const void *from, size_t bytes)
{
	return copy("up");
}

/* Asserts that the last copy was made in the context of the first device. */
static void check_in_first(const char *name)
{
	assert_string_equal(last.name, name);
	assert_ptr_equal(last.in, rig_context(0));
	assert_ptr_equal(current(), rig_context(rig.device));
}

/* Asserts that the thread was exempt from captures once. */
static void check_exempt(void)
{
	assert_int_equal(rig.exchanges, 2);
	rig_arm(0, 0);
}

/* Asserts that it was made there by a stream of its own, between two waits. */
static void check_by_stream(unsigned streams)
{
	check_in_first("by stream");
	assert_true(last.stream > CU_STREAM_PER_THREAD);
	assert_int_equal(last.waits, 1);
	assert_string_equal(rig.trace, "w w");
	assert_int_equal(rig.streams, streams);
	check_exempt();
}

static void check_peer(const char *name, unsigned to, unsigned from)
{
	assert_string_equal(last.name, name);
	assert_ptr_equal(last.in, rig_context(rig.device));
	assert_ptr_equal(last.to, rig_context(to));
	assert_ptr_equal(last.from, rig_context(from));
}

static void copies_between_devices_state_their_contexts(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), b;

	rig.device = 1;
	b = rig_alloc(CHUNK);
	for (unsigned i = 0; i < 2; i++) { /* on the device, and on the host */
		assert_true(is_at(a, i ? MEM_SWAP_HOST : MEM_SWAP_DEVICE));
		for (rig.device = 0; rig.device < 2; rig.device++) {
			rig_arm(0, 0);
			assert_int_equal(shim_driver.cuMemcpy(b, a, 8), CUDA_SUCCESS);
			check_peer("peer", 1, 0);
			check_exempt();
			assert_int_equal(shim_driver.cuMemcpyDtoD_v2(a, b, 8), CUDA_SUCCESS);
			check_peer("peer", 0, 1);
			check_exempt();
			(void)shim_driver.cuMemcpyAsync(b, a, 8, rig_stream(0));
			check_peer("peer async", 1, 0);
		}
		rig.device = 0;
		all_out();
	}
}

static void copies_of_another_device_s_memory_state_its_context(void **state)
{
	CUdeviceptr a = rig_alloc(2 * CHUNK);

	assert_int_equal(shim_driver.cuMemcpyDtoD_v2(a, a + CHUNK, 8), CUDA_SUCCESS);
	check_in_first("within");
	rig.device = 1;
	assert_int_equal(shim_driver.cuMemcpyDtoD_v2(a, a + CHUNK, 8), CUDA_SUCCESS);
	check_peer("peer", 0, 0);
	rig.device = 0;
}

static void copies_from_and_to_the_host_are_made_on_the_memory_s_device(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK), at;
	unsigned streams = rig.streams;
	char host[8];

	at = (CUdeviceptr)(uintptr_t)host;
	assert_int_equal(shim_driver.cuMemcpyDtoH_v2(host, a, 8), CUDA_SUCCESS);
	check_in_first("down");
	assert_int_equal(shim_driver.cuMemcpyHtoD_v2(a, host, 8), CUDA_SUCCESS);
	check_in_first("up");
	assert_int_equal(shim_driver.cuMemcpy(at, a, 8), CUDA_SUCCESS);
	check_in_first("within");
	rig.device = 1;
	rig_arm(0, 0);
	assert_int_equal(shim_driver.cuMemcpyDtoH_v2(host, a, 8), CUDA_SUCCESS);
	check_by_stream(streams);
	assert_int_equal(shim_driver.cuMemcpyHtoD_v2(a, host, 8), CUDA_SUCCESS);
	check_by_stream(streams);
	assert_int_equal(shim_driver.cuMemcpy(at, a, 8), CUDA_SUCCESS);
	check_by_stream(streams);
	assert_int_equal(shim_driver.cuMemcpy(a, at, 8), CUDA_SUCCESS);
	check_by_stream(streams);
	rig.device = 0;
	assert_int_equal(enable(), CUDA_SUCCESS);
	rig.device = 1;
	assert_int_equal(shim_driver.cuMemcpyDtoH_v2(host, a, 8), CUDA_SUCCESS);
	assert_ptr_equal(last.in, rig_context(1));
	rig.device = 0;
	disable();
}

static void captures_on_the_memory_s_device_outlive_copies(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);
	char host[8];

	rig.device = 1;
	rig.captured = 1;
	assert_int_equal(shim_driver.cuMemcpyDtoH_v2(host, a, 8), CUDA_SUCCESS);
	assert_int_equal(shim_driver.cuMemcpyHtoD_v2(a, host, 8), CUDA_SUCCESS);
	assert_int_equal(rig.invalidated, 0);
	rig.captured = 2; /* in the current context, as without gBPF */
	last.name = "none";
	assert_int_equal(shim_driver.cuMemcpyDtoH_v2(host, a, 8),
			 CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	assert_string_equal(last.name, "none");
	rig.device = rig.captured = rig.invalidated = 0;
}

/* Counts the driver's calls, so that each of them fails once. */
static void a_copy_whose_stream_fails_fails(void **state)
{
	CUdeviceptr a = rig_alloc(CHUNK);
	unsigned streams = rig.streams, fail = 0;
	CUresult r;
	char host[8];

	rig.device = 1;
	do {
		rig_arm(++fail, 0);
		r = shim_driver.cuMemcpyDtoH_v2(host, a, 8);
		assert_true((r == CUDA_SUCCESS) == (rig.calls < fail));
		assert_int_equal(rig.streams, streams);
		assert_int_equal(rig.exchanges, 2);
		assert_ptr_equal(current(), rig_context(1));
	} while (r != CUDA_SUCCESS);
	assert_int_equal(fail, 4); /* two waits and a stream */
	rig_arm(0, 0);
	rig.device = 0;
}

static int join(void **state)
{
	shim_driver.cuMemcpy = copy_within;
	shim_driver.cuMemcpyAsync = copy_within_async;
	shim_driver.cuMemcpyDtoD_v2 = copy_within;
	shim_driver.cuMemcpyDtoH_v2 = copy_down;
	shim_driver.cuMemcpyHtoD_v2 = copy_up;
	shim_driver.cuMemcpyPeer = copy_peer;
	shim_driver.cuMemcpyPeerAsync = copy_peer_async;
	return rig_join_two(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, rig_set_up, rig_tear_down)
		TEST(memory_is_mapped_for_its_device),
		TEST(memory_with_peers_stays_on_the_device),
		TEST(memory_of_the_other_device_moves),
		TEST(new_memory_is_mapped_for_peers),
		TEST(memory_on_the_host_is_used_there_and_returns),
		TEST(access_of_a_context_ends_with_it),
		TEST(an_access_that_cannot_be_given_is_refused),
		TEST(the_driver_s_refusal_is_the_program_s),
		TEST(nothing_moves_while_another_device_works),
		TEST(memory_is_freed_when_no_device_uses_it),
		TEST(memory_is_freed_when_no_context_uses_it),
		TEST(memory_that_is_freed_in_a_capture_waits_for_all_contexts),
		TEST(memory_of_the_host_serves_each_device),
		TEST(a_launch_brings_memory_of_one_device_back),
		TEST(copies_between_devices_state_their_contexts),
		TEST(copies_of_another_device_s_memory_state_its_context),
		TEST(copies_from_and_to_the_host_are_made_on_the_memory_s_device),
		TEST(captures_on_the_memory_s_device_outlive_copies),
		TEST(a_copy_whose_stream_fails_fails),
	};

	return cmocka_run_group_tests_name("swap peer", tests, join, NULL);
}
