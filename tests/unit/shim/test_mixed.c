/* A program with latency and batch streams under a policy that holds batch work. With the real
 * scheduler and agent, deferred work stays in order, and latency work overtakes it. */
#pragma GCC diagnostic ignored "-Wpedantic" /* functions as dlsym returns them */

#include "gbpfd.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/shm.h"

#include "../eventually.h"

#define THREADS 4
#define ROUNDS 8000u

static CUresult (*stream_create)(CUstream *, unsigned, int);
static CUresult (*event_create)(CUevent *, unsigned);
static CUresult (*event_record)(CUevent, CUstream);
static CUresult (*event_query)(CUevent);
static CUresult (*event_synchronize)(CUevent);
static CUresult (*stream_synchronize)(CUstream);
static CUresult (*stream_query)(CUstream);
static CUresult (*memset_async)(CUdeviceptr, unsigned char, size_t, CUstream);

static CUstream stream(int priority)
{
	CUstream s;

	CHECK(stream_create(&s, 1, priority) == CUDA_SUCCESS);
	return s;
}

static void attach(void)
{
	setenv("GBPF_CLASS", "normal", 1);
	attach_with_policy();
	stream_create = (CUresult(*)(CUstream *, unsigned, int))entry("cuStreamCreateWithPriority");
	event_create = (CUresult(*)(CUevent *, unsigned))entry("cuEventCreate");
	event_record = (CUresult(*)(CUevent, CUstream))entry("cuEventRecord");
	event_query = (CUresult(*)(CUevent))entry("cuEventQuery");
	event_synchronize = (CUresult(*)(CUevent))entry("cuEventSynchronize");
	stream_synchronize = (CUresult(*)(CUstream))entry("cuStreamSynchronize");
	stream_query = (CUresult(*)(CUstream))entry("cuStreamQuery");
	memset_async =
		(CUresult(*)(CUdeviceptr, unsigned char, size_t, CUstream))entry("cuMemsetD8Async");
}

static void await_count(uint32_t index, unsigned n)
{
	eventually(count_of(index) >= n);
}

/* Returns the index of the record of a launch with that parameter. */
static int place_of(uint64_t parameter)
{
	for (unsigned i = 0; i < fake->count(); i++) {
		struct fake_record r = fake->get(i);

		if (r.index == CUABI_IDX_cuLaunchKernel && r.data == parameter) {
			return (int)i;
		}
	}
	return -1;
}

static void latency_work_overtakes_deferred_work(void)
{
	CUstream latency, batch;
	CUevent event;
	unsigned records;

	attach();
	latency = stream(-5);
	batch = stream(0);
	event_create(&event, 0);
	store_seqcst(&d.other->gpu[0].open, 1u);
	CHECK(launch_on(batch, 1) == CUDA_SUCCESS); /* returns at once */
	CHECK(event_record(event, batch) == CUDA_SUCCESS);
	CHECK(memset_async(0xd0000000u, 1, 64, batch) == CUDA_SUCCESS);
	CHECK(launch_on(batch, 2) == CUDA_SUCCESS);
	CHECK(place_of(1) < 0);
	CHECK(event_query(event) == CUDA_ERROR_NOT_READY);
	CHECK(stream_query(batch) == CUDA_ERROR_NOT_READY);
	records = count_of(CUABI_IDX_cuMemsetD8Async);
	CHECK(records == 0);
	end_other_request();
	await_count(CUABI_IDX_cuMemsetD8Async, 1);
	await_count(CUABI_IDX_cuLaunchKernel, 2);
	CHECK(place_of(1) < place_of(2));
	CHECK(launch_on(latency, 3) == CUDA_SUCCESS && place_of(3) >= 0);
}

/* Threads with streams of their own that synchronize at intervals, while another tenant's requests
 * open and end: each stream runs all of its work, once and in order. */
static uint32_t running;

/* The first request stays open until a synchronization has waited for it, even on a slow machine.
 */
static void *toggle(void *arg)
{
	const struct proto_stats *stats = arg;

	while (load_acquire(&running)) {
		store_seqcst(&d.other->gpu[0].open, 1u);
		do { /* part of the load: a request as long as others */
			clock_sleep_ns(300000);
		} while (load_acquire(&running) && load_relaxed(&stats->deferred) == 0);
		end_other_request();
		clock_sleep_ns(100000); /* part of the load: the time between two requests */
	}
	return NULL;
}

static void *work(void *arg)
{
	uint64_t thread = (uintptr_t)arg, random = 88172645463325252u + thread;
	CUstream s = stream(thread ? 0 : -5);
	CUevent event;

	event_create(&event, 0);
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		CHECK(launch_on(s, thread << 32 | i) == CUDA_SUCCESS);
		if (random % 16 == 0) {
			CHECK(event_record(event, s) == CUDA_SUCCESS);
		} else if (random % 64 == 1) {
			CHECK(event_synchronize(event) == CUDA_SUCCESS);
		} else if (random % 128 == 2) {
			CHECK(stream_synchronize(s) == CUDA_SUCCESS);
		}
	}
	CHECK(stream_synchronize(s) == CUDA_SUCCESS);
	return NULL;
}

static void every_stream_keeps_its_order(void)
{
	uint64_t next[THREADS] = { 0 };
	pthread_t threads[THREADS], toggler;
	struct proto_stats *stats;

	attach();
	stats = shm_map(d.stats_fd, PROTO_STATS_BYTES, 0);
	CHECK(stats);
	store_release(&running, 1u);
	CHECK(pthread_create(&toggler, NULL, toggle, stats) == 0);
	for (uintptr_t i = 0; i < THREADS; i++) {
		CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
	}
	store_release(&running, 0u);
	pthread_join(toggler, NULL);
	for (unsigned i = 0; i < fake->count(); i++) {
		struct fake_record r = fake->get(i);

		if (r.index == CUABI_IDX_cuLaunchKernel) {
			CHECK((r.data & UINT32_MAX) == ++next[r.data >> 32]);
		}
	}
	for (int i = 0; i < THREADS; i++) {
		CHECK(next[i] == ROUNDS);
	}
	CHECK(load_relaxed(&stats->deferred) > 0); /* the scheduler was not idle throughout */
}

#define CASE(name)                                                                                 \
	static void test_##name(void **state)                                                      \
	{                                                                                          \
		in_a_process(name);                                                                \
	}
CASE(latency_work_overtakes_deferred_work)
CASE(every_stream_keeps_its_order)

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_latency_work_overtakes_deferred_work),
		cmocka_unit_test(test_every_stream_keeps_its_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return run_cases(run);
}
