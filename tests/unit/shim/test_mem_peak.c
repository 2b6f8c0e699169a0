/* The most that a process has held, while other threads ask a driver that is full:
 * shim/mem/charge.c and linear.c over a driver of the test, which calls back where another thread
 * would run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "base/compiler.h"
#include "mem/account_figures.h"
#include "shim/mem/charge.h"
#include "shim/shim.h"

#define MIB ((uint64_t)1 << 20)
#define LINE 2u

static struct proto_account page;
static uint8_t uuid[2][16] = { { 0xa5 }, { 0xa6 } };
static CUdeviceptr next = 0x700000000000u;
static void (*meanwhile)(void); /* another thread */

static CUresult get_device(CUdevice *ret)
{
	*ret = 0;
	return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *ret)
{
	*ret = (CUcontext)(void *)&page;
	return CUDA_SUCCESS;
}

/* Refuses 60 MiB, after another thread has run. */
static CUresult allocate(CUdeviceptr *ret, size_t bytes)
{
	if (bytes >= 60 * MIB) {
		if (meanwhile) {
			meanwhile();
		}
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret = next;
	next += bytes;
	return CUDA_SUCCESS;
}

static CUresult release(CUdeviceptr at)
{
	(void)at;
	return CUDA_SUCCESS;
}

static void note(const char *text)
{
	(void)text;
}

static int ask(const struct proto_mem_ask *m)
{
	(void)m;
	return -1; /* without gbpfd */
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
	for (unsigned i = 0; i < ARRAY_SIZE(uuid); i++) {
		page.limit[i] = page.allowed[i] = 200 * MIB;
		memcpy(page.uuid[i], uuid[i], sizeof(uuid[i]));
	}
	shim_driver.cuCtxGetDevice = get_device;
	shim_driver.cuCtxGetCurrent = get_current;
	shim_driver.cuMemAlloc_v2 = allocate;
	shim_driver.cuMemFree_v2 = release;
	return shim_mem_join(&page, LINE, uuid, ARRAY_SIZE(uuid), &session);
}

static uint64_t peak(void)
{
	return mem_account_peak(&page, 0, LINE);
}

static void *take_20_and_free(void *arg)
{
	CUdeviceptr at;

	(void)arg;
	assert_int_equal(shim_real.cuMemAlloc_v2(&at, 20 * MIB), CUDA_SUCCESS);
	assert_int_equal(shim_real.cuMemFree_v2(at), CUDA_SUCCESS);
	return NULL;
}

static void *find_overhead(void *arg)
{
	(void)arg;
	assert_true(shim_mem_set_overhead(0, 30 * MIB, true, ""));
	return NULL;
}

static void run(void *(*f)(void *))
{
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, f, NULL), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
}

static void allocates(void)
{
	run(take_20_and_free);
}

static void measures(void)
{
	run(find_overhead);
}

static void refuse_60(void (*f)(void))
{
	CUdeviceptr at;

	meanwhile = f;
	assert_int_equal(shim_real.cuMemAlloc_v2(&at, 60 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	meanwhile = NULL;
}

static void what_is_refused_does_not_count_in_the_notes_of_another_thread(void **state)
{
	(void)state;
	refuse_60(NULL);
	assert_int_equal(peak(), 0);
	refuse_60(allocates);
	assert_int_equal(peak(), 20 * MIB);
	refuse_60(measures);
	assert_int_equal(peak(), 30 * MIB);
	assert_int_equal(shim_mem_used(0), 30 * MIB);
}

/* Both are charged: 20 are given while 60 are asked for, which are refused at last. */
static void what_is_given_counts_beside_the_overhead(void **state)
{
	(void)state;
	refuse_60(allocates);
	assert_int_equal(peak(), 50 * MIB);
	assert_true(shim_mem_set_overhead(0, 0, true, ""));
	assert_int_equal(shim_mem_used(0), 0);
	assert_int_equal(peak(), 50 * MIB);
}

static void *ask_without_the_driver(void *arg)
{
	(void)arg;
	shim_mem_move_begin();
	assert_false(shim_mem_try_charge(0, 150 * MIB));
	assert_true(shim_mem_try_charge(0, 70 * MIB));
	shim_mem_release(0, 70 * MIB);
	assert_true(shim_mem_try_charge(0, 52 * MIB));
	shim_mem_move_end();
	shim_mem_release(0, 52 * MIB);
	return NULL;
}

static void asks(void)
{
	run(ask_without_the_driver);
}

/* What the limit refuses, or the thread itself releases, is not asked for any more. */
static void charges_that_end_without_the_driver_are_not_taken_off(void **state)
{
	(void)state;
	refuse_60(asks);
	assert_int_equal(peak(), 52 * MIB);
	assert_int_equal(shim_mem_used(0), 0);
}

static void *note_something(void *arg)
{
	(void)arg;
	shim_mem_move_begin();
	shim_mem_move_end();
	return NULL;
}

/* For a library in contexts on two GPUs both are charged before the driver is asked; a free that
 * takes effect meanwhile, and a wait, end no part of it. */
static void what_is_asked_on_two_gpus_does_not_count_until_the_end(void **state)
{
	uint64_t before = peak();

	(void)state;
	shim_mem_move_begin();
	assert_true(shim_mem_try_charge(0, 150 * MIB));
	assert_true(shim_mem_try_charge(1, 10 * MIB));
	shim_mem_move_begin();
	shim_mem_move_over();
	run(note_something);
	assert_int_equal(peak(), before < 150 * MIB ? 150 * MIB : before); /* it is charged now */
	assert_int_equal(page.orphans[0][LINE].peak, before);
	shim_mem_release(0, 150 * MIB);
	shim_mem_move_end();
	assert_int_equal(peak(), before);
	assert_int_equal(mem_account_peak(&page, 1, LINE), 10 * MIB);
	shim_mem_release(1, 10 * MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_refused_does_not_count_in_the_notes_of_another_thread),
		cmocka_unit_test(what_is_given_counts_beside_the_overhead),
		cmocka_unit_test(charges_that_end_without_the_driver_are_not_taken_off),
		cmocka_unit_test(what_is_asked_on_two_gpus_does_not_count_until_the_end),
	};

	return cmocka_run_group_tests_name("the most memory", tests, join, NULL);
}
