/* Memory of resumable runs: how slabs are allocated and divided, refused allocations, devices that
 * do not set the memory in time, and contexts that end. */
#include "run_rig.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/own_memory.h"

static void a_slab_is_set_in_stream_order(void **state)
{
	const struct gpu_run_slab *s;
	const uint32_t *words;

	gpu_run_prepare(d, &q);
	SCRIPT_SAID(PREPARED);
	s = d->runs->contexts->slabs;
	words = (const uint32_t *)(uintptr_t)s->counters;
	assert_int_equal(words[0], FIRST);
	assert_int_equal(words[16383], FIRST);
	for (unsigned i = 0; i < 32768; i++) {
		assert_int_equal(s->host[i], 0);
	}
	assert_int_equal(words[16384], 1);
	assert_int_equal(words[24575], 1);
	/* The kernel that takes counters runs once, and changes nothing; nor does the one that
	 * closes gates. */
	assert_true(script_launches[0].param[0] == s->counters);
	assert_true(script_launches[0].param[1] == s->counters + 32);
	assert_true(script_launches[0].param[2] == s->done + 8);
	assert_int_equal(script_launches[0].param[3], FIRST);
	assert_true(last_launch()->param[0] == s->counters + 65536 + 48);
	assert_true(last_launch()->param[1] == s->done + 16);
	gpu_run_prepare(d, &q);
	SCRIPT_SAID("");
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	SCRIPT_SAID("launch 3001 10:20");
	assert_ptr_equal(d->runs->contexts->bypass.take, SCRIPT_TAKE);
	assert_true(q.run->line.counter == s->counters);
	assert_true(q.run->line.words_device == s->done);
	assert_ptr_equal((const void *)(uintptr_t)q.run->line.words, s->host);
}

static uint64_t counted; /* bytes, when the memory was asked for */

static void look_at_count(const char *call)
{
	if (strcmp(call, "memory") == 0) {
		counted = gpu_own_memory(0);
	}
}

/* A measurement at any moment must not take the slab for memory of the program. */
static void a_slab_is_counted_before_it_exists(void **state)
{
	static const char *const refused[] = { "memory", "set" };
	uint64_t before = gpu_own_memory(0);

	script_on_call = look_at_count;
	for (unsigned i = 0; i < 2; i++) {
		counted = 0;
		script_fail(refused[i], CUDA_ERROR_OUT_OF_MEMORY, 0);
		assert_int_equal(launch(10, 0), CUDA_ERROR_NOT_SUPPORTED);
		assert_int_equal(counted, before + 98304);
		assert_int_equal(gpu_own_memory(0), before);
	}
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	assert_int_equal(gpu_own_memory(0), before + 98304);
	script_on_call = NULL;
}

static void refused_allocations_leave_nothing(void **state)
{
	static const char *const calls[] = { "stream", "host", "map", "memory", "set" };

	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		script_fail(calls[i], CUDA_ERROR_OUT_OF_MEMORY, 0);
		assert_int_equal(launch(10, 0), CUDA_ERROR_NOT_SUPPORTED);
		assert_int_equal(script_n_allocations, 0);
		assert_null(q.run);
		assert_null(d->runs->contexts->unset);
		assert_false(d->runs->contexts->making);
	}
	SCRIPT_SAID("stream! stream 1 host! host 32768 map! free-host host 32768 memory! free-host"
		    " host 32768 memory 98304 set! free free-host");
	script_fail("push", CUDA_ERROR_INVALID_CONTEXT, 0);
	script_current = NULL;
	assert_int_equal(launch(10, 0), CUDA_ERROR_INVALID_CONTEXT);
	gpu_run_prepare(d, &q); /* in its context */
	script_current = SCRIPT_CONTEXT(1);
	assert_non_null(strstr(script_log, "push! push 1 host"));
	assert_non_null(strstr(script_log, "1:2 pop"));
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
}

/* Runs work without the kernel that takes counters; hangs are not found then. */
static void runs_work_without_the_bypass(void **state)
{
	static const struct {
		const char *call;
		unsigned after;
	} refused[] = { { "stream", 1 }, { "load", 0 }, { "function", 0 }, { "launch", 0 } };

	for (unsigned i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		rig_tear_down(state);
		rig_set_up(state);
		script_fail(refused[i].call, CUDA_ERROR_NOT_SUPPORTED, refused[i].after);
		assert_int_equal(launch(10, 0), CUDA_SUCCESS);
		assert_null(d->runs->contexts->bypass.take);
		assert_null(d->runs->contexts->bypass.take_pending);
	}
}

/* A kernel of the program occupies the device: the caller waits 20 ms, once. */
static void memory_that_is_not_set_is_used_later(void **state)
{
	uint64_t begin = now_ns;

	tick = 5 * MS;
	script_query[1] = CUDA_ERROR_NOT_READY;
	gpu_run_prepare(d, &q);
	SCRIPT_SAID(PREPARED);
	assert_int_equal(now_ns - begin, 25 * MS); /* begin, and until 20 ms are over */
	assert_null(d->runs->contexts->slabs);
	assert_non_null(d->runs->contexts->unset);
	begin = now_ns;
	assert_int_equal(launch(10, 0), CUDA_ERROR_NOT_SUPPORTED);
	SCRIPT_SAID("");
	assert_true(now_ns - begin <= 5 * MS);
	script_query[1] = CUDA_SUCCESS;
	script_query[2] = CUDA_ERROR_NOT_READY; /* the kernel, on the other stream */
	assert_int_equal(launch(10, 0), CUDA_ERROR_NOT_SUPPORTED);
	assert_null(d->runs->contexts->bypass.take);
	script_query[2] = CUDA_SUCCESS;
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	SCRIPT_SAID("launch 3001 10:20");
	assert_ptr_equal(d->runs->contexts->bypass.take, SCRIPT_TAKE);
	assert_null(d->runs->contexts->bypass.take_pending);
	assert_null(d->runs->contexts->unset);
}

static void a_take_kernel_that_failed_is_not_used(void **state)
{
	script_query[2] = CUDA_ERROR_LAUNCH_FAILED;
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	assert_null(d->runs->contexts->bypass.take);
	assert_null(d->runs->contexts->bypass.take_pending);
}

static void a_stream_that_failed_gives_no_memory(void **state)
{
	script_query[1] = CUDA_ERROR_ILLEGAL_ADDRESS;
	assert_int_equal(launch(10, 0), CUDA_ERROR_NOT_SUPPORTED);
	assert_null(d->runs->contexts->slabs);
}

static struct gpu_queue many[1024];

/* 512 runs share a slab. A returned line is used again, where its last run ended. */
static void lines_are_divided_and_used_again(void **state)
{
	struct gpu_block_launch l = rig_launch(10, 0);
	const struct gpu_run_slab *first, *second;

	for (unsigned i = 0; i < 513; i++) {
		many[i] = q;
		assert_int_equal(gpu_run_launch(d, &many[i], &l), CUDA_SUCCESS);
		assert_int_equal(many[i].run->line.index, i % 512);
		assert_true(many[i].run->line.counter ==
			    many[i].run->line.slab->counters + 64 * (i % 512));
		assert_true(many[i].run->line.words_device ==
			    many[i].run->line.slab->done + 64 * (i % 512));
	}
	first = many[0].run->line.slab;
	second = many[512].run->line.slab;
	assert_ptr_equal(many[511].run->line.slab, first);
	assert_ptr_not_equal(second, first);
	assert_int_equal(script_n_allocations, 4);
	for (unsigned i = 7; i <= 8; i++) {
		__atomic_store_n(many[i].run->line.words, 1, __ATOMIC_RELEASE);
		gpu_run_close(d, &many[i]);
		assert_null(many[i].run);
		assert_int_equal(gpu_run_launch(d, &many[i], &l), CUDA_SUCCESS); /* of the second */
		assert_ptr_equal(many[i].run->line.slab, second);
	}
	for (unsigned i = 513; i < 1024; i++) { /* the second is full, then the two lines */
		many[i] = q;
		assert_int_equal(gpu_run_launch(d, &many[i], &l), CUDA_SUCCESS);
	}
	assert_int_equal(script_n_allocations, 4);
	assert_ptr_equal(many[1022].run->line.slab, first);
	assert_int_equal(many[1022].run->line.index, 8);
	assert_int_equal(many[1023].run->line.index, 7);
	assert_int_equal(last_launch()->arg.first, FIRST + 10);
	assert_int_equal(last_launch()->arg.number, 2);
	assert_int_equal(gpu_run_busy(d, &many[1023]), 1);
	for (unsigned i = 0; i < 1024; i++) {
		gpu_run_close(d, &many[i]);
	}
}

/* The device may still write to the line of a run that did not finish. */
static void lines_of_unfinished_runs_are_not_used_again(void **state)
{
	struct gpu_queue other = q;
	struct gpu_block_launch l = rig_launch(10, 0);

	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	gpu_run_close(d, &q);
	assert_int_equal(gpu_run_launch(d, &other, &l), CUDA_SUCCESS);
	assert_int_equal(other.run->line.index, 1);
	__atomic_store_n(other.run->line.words, 1, __ATOMIC_RELEASE);
	gpu_run_close(d, &other);
	assert_int_equal(d->runs->contexts->out, 0);
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	assert_int_equal(q.run->line.index, 1);
}

static void a_context_that_ends_takes_its_memory_along(void **state)
{
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	gpu_run_set_flag(d, q.ctx, (const struct gpu_flag *)(uintptr_t)1, 5);
	assert_int_equal(d->runs->contexts->groups, 2);
	assert_true(d->runs->contexts->leases == (uintptr_t)leases);
	gpu_run_close(d, &q);
	gpu_context_forget(d, SCRIPT_CONTEXT(3)); /* another one */
	assert_non_null(d->runs->contexts->slabs);
	gpu_context_forget(d, SCRIPT_CONTEXT(1));
	assert_null(d->runs->contexts->slabs);
	assert_null(d->runs->contexts->ctx);
	assert_null(d->runs->contexts->io);
	assert_null(d->runs->contexts->bypass.stream);
	assert_null(d->runs->contexts->bypass.take);
	assert_int_equal(d->runs->contexts->groups + d->runs->contexts->leases, 0);
	script_log[0] = 0;
	q.ctx = SCRIPT_CONTEXT(2); /* uses the entry again */
	script_current = q.ctx;
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	SCRIPT_SAID("stream 3 host 32768 memory 98304 set 16384:3 set 8192:3 stream 4 load "
		    "gbpf_take gbpf_close launch 4002 1:4 launch 4003 1:4 launch 3001 10:20");
	assert_null(d->runs->contexts->next);
	assert_int_equal(last_launch()->arg.groups, 0);
}

static void each_context_has_its_own(void **state)
{
	struct gpu_queue other = { .stream = SCRIPT_STREAM(21), .ctx = SCRIPT_CONTEXT(2) };
	struct gpu_block_launch l = rig_launch(10, 0);

	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	assert_int_equal(gpu_run_launch(d, &other, &l), CUDA_SUCCESS);
	assert_non_null(strstr(script_log, "push 2 stream 3"));
	assert_ptr_not_equal(other.run->home, q.run->home);
	assert_ptr_not_equal(other.run->line.slab, q.run->line.slab);
	gpu_run_close(d, &other);
}

static void end_the_context(const struct script_launch *l)
{
	if (l->f == SCRIPT_TAKE) {
		gpu_context_forget(d, SCRIPT_CONTEXT(1));
	}
}

/* Nothing is locked while memory is allocated, so the context may end meanwhile. */
static void a_context_may_end_during_the_allocation(void **state)
{
	script_on_launch = end_the_context;
	assert_int_equal(launch(10, 0), CUDA_ERROR_NOT_SUPPORTED);
	script_on_launch = NULL;
	assert_null(d->runs->contexts->slabs);
	assert_null(d->runs->contexts->unset);
	assert_false(d->runs->contexts->making);
	script_log[0] = 0;
	assert_int_equal(launch(10, 0), CUDA_SUCCESS); /* of a new context at that address */
	SCRIPT_SAID("stream 3 host 32768 memory 98304 set 16384:3 set 8192:3 stream 4 load "
		    "gbpf_take gbpf_close"
		    " launch 4002 1:4 launch 4003 1:4 launch 3001 10:20");
}

static void launch_meanwhile(const struct script_launch *l)
{
	struct gpu_queue other = q;
	struct gpu_block_launch b = rig_launch(10, 0);

	if (l->f == SCRIPT_TAKE) {
		script_on_launch = NULL;
		script_log[0] = 0;
		assert_int_equal(gpu_run_launch(d, &other, &b), CUDA_ERROR_NOT_SUPPORTED);
		SCRIPT_SAID("");
	}
}

static void one_thread_allocates(void **state)
{
	script_on_launch = launch_meanwhile;
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	assert_int_equal(script_n_allocations, 2);
}

/* Words are read in groups of four, 64 at most. */
static void flags_are_read_in_groups(void **state)
{
	static const uint32_t slots[][2] = { { 0, 0 },	 { 1, 1 },   { 4, 1 },	 { 5, 2 },
					     { 61, 16 }, { 64, 16 }, { 65, 16 }, { 1000, 16 } };
	const struct gpu_flag *f = (const struct gpu_flag *)(uintptr_t)1;

	for (unsigned i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
		gpu_run_set_flag(d, q.ctx, f, slots[i][0]);
		assert_int_equal(d->runs->contexts->groups, slots[i][1]);
	}
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	assert_int_equal(last_launch()->arg.groups, 16);
	assert_true(last_launch()->arg.leases == (uintptr_t)leases);
	gpu_run_set_flag(d, q.ctx, NULL, 4);
	assert_int_equal(launch(10, 0), CUDA_SUCCESS);
	assert_int_equal(last_launch()->arg.groups, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
		T(a_slab_is_set_in_stream_order),
		T(a_slab_is_counted_before_it_exists),
		T(refused_allocations_leave_nothing),
		T(runs_work_without_the_bypass),
		T(memory_that_is_not_set_is_used_later),
		T(a_take_kernel_that_failed_is_not_used),
		T(a_stream_that_failed_gives_no_memory),
		T(lines_are_divided_and_used_again),
		T(lines_of_unfinished_runs_are_not_used_again),
		T(a_context_that_ends_takes_its_memory_along),
		T(each_context_has_its_own),
		T(a_context_may_end_during_the_allocation),
		T(one_thread_allocates),
		T(flags_are_read_in_groups),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
