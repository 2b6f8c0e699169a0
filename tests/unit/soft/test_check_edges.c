/* Records and requests of clients whose values are exactly at a limit, and one beyond it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "soft/server/request/record_check.h"

static union softd_record r;

static int check(void)
{
	return softd_record_check(&r);
}

static void launch(void)
{
	memset(&r, 0, sizeof(r));
	r.launch = (struct soft_record_launch){ .r = { sizeof(r.launch) + 16, SOFT_OP_LAUNCH, 0, 0,
						       0 },
						.grid = { 1, 1, 1 },
						.block = { 1, 1, 1 },
						.param_bytes = 16 };
}

static void headers_have_their_sizes(void **state)
{
	static const uint32_t sizes[][2] = {
		{ SOFT_OP_PAD, 16 },
		{ SOFT_OP_LAUNCH, 64 },
		{ SOFT_OP_COPY, 80 },
		{ SOFT_OP_SET, 64 },
		{ SOFT_OP_RECORD, 32 },
		{ SOFT_OP_WAIT, 32 },
		{ SOFT_OP_HOST, 32 },
		{ SOFT_OP_FREE, 32 },
		{ SOFT_OP_VALUE, 48 },
		{ SOFT_OP_SHARED_RECORD, 32 },
		{ SOFT_OP_SHARED_WAIT, 32 },
		{ SOFT_OP_STREAM_CREATE, 32 },
		{ SOFT_OP_STREAM_DESTROY, 32 },
	};

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct soft_record h = { sizes[i][1], (uint16_t)sizes[i][0], 0, 0, 0 };
		uint32_t most = h.op == SOFT_OP_PAD ? 1u << 20 : 36864;

		assert_int_equal(softd_record_header_check(&h, h.bytes, h.bytes), 0);
		assert_int_equal(softd_record_header_check(&h, h.bytes - 1, h.bytes), -EPROTO);
		assert_int_equal(softd_record_header_check(&h, h.bytes, h.bytes - 1), -EPROTO);
		h.bytes -= 16;
		assert_int_equal(softd_record_header_check(&h, 1 << 20, 1 << 20), -EPROTO);
		h.bytes += 24;
		assert_int_equal(softd_record_header_check(&h, 1 << 20, 1 << 20), -EPROTO);
		h.bytes = most;
		assert_int_equal(softd_record_header_check(&h, 1 << 20, 1 << 20), 0);
		h.bytes = most + 16;
		assert_int_equal(softd_record_header_check(&h, 2 << 20, 2 << 20), -EPROTO);
	}
}

static void streams_and_contexts_are_numbers_of_slots(void **state)
{
	launch();
	r.r.stream = 1023;
	r.r.context = 15;
	assert_int_equal(check(), 0);
	r.r.stream = 1024;
	assert_int_equal(check(), -EPROTO);
	r.r.stream = 0;
	r.r.context = 16;
	assert_int_equal(check(), -EPROTO);
	r.r.op = SOFT_OP_PAD; /* has none */
	assert_int_equal(check(), 0);
}

static void launches_are_bounded(void **state)
{
	launch();
	assert_int_equal(check(), 0);
	r.launch.param_bytes = 17;
	assert_int_equal(check(), -EPROTO);
	r.launch.r.bytes = 64 + 32768;
	r.launch.param_bytes = 32764;
	assert_int_equal(check(), 0);
	r.launch.param_bytes = 32765;
	assert_int_equal(check(), -EPROTO);
	for (unsigned i = 0; i < 3; i++) {
		launch();
		r.launch.grid[i] = 0;
		assert_int_equal(check(), -EPROTO);
		launch();
		r.launch.block[i] = 0;
		assert_int_equal(check(), -EPROTO);
		launch();
		r.launch.block[i] = i == 2 ? 64 : 1024;
		assert_int_equal(check(), 0);
		r.launch.block[i]++;
		assert_int_equal(check(), -EPROTO);
	}
	launch();
	r.launch.block[0] = r.launch.block[1] = 32;
	assert_int_equal(check(), 0);
	r.launch.block[2] = 2; /* 2048 threads */
	assert_int_equal(check(), -EPROTO);
	launch();
	r.launch.block[0] = 5; /* 1025 threads */
	r.launch.block[1] = 205;
	assert_int_equal(check(), -EPROTO);
	launch();
	r.launch.grid[0] = r.launch.grid[1] = UINT32_MAX;
	assert_int_equal(check(), 0);
	r.launch.grid[2] = 2; /* does not fit 64 bits */
	assert_int_equal(check(), -EPROTO);
	launch();
	r.launch.flags = 3;
	assert_int_equal(check(), 0);
	r.launch.flags = 4;
	assert_int_equal(check(), -EPROTO);
}

static void copy(uint64_t width, uint64_t height, uint64_t dst_pitch, uint64_t src_pitch)
{
	memset(&r, 0, sizeof(r));
	r.copy = (struct soft_record_copy){ .r = { sizeof(r.copy), SOFT_OP_COPY, 0, 0, 0 },
					    .dst_pitch = dst_pitch,
					    .src_pitch = src_pitch,
					    .width = width,
					    .height = height };
}

static void rows_of_copies_do_not_overlap(void **state)
{
	static const struct {
		uint64_t width, height, dst, src;
		int want;
	} cases[] = {
		{ 1, 1, 0, 0, 0 },
		{ 0, 1, 8, 8, -EPROTO },
		{ 1, 0, 8, 8, -EPROTO },
		{ 8, 2, 8, 8, 0 },
		{ 8, 2, 7, 8, -EPROTO },
		{ 8, 2, 8, 7, -EPROTO },
		{ 8, 1, 7, 7, 0 }, /* one row has no pitch */
		{ 1, UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1, 1, 0 },
		{ 1, UINT64_C(1) << 32, UINT64_C(1) << 32, 1, -EPROTO },
		{ 1, UINT64_C(1) << 32, 1, UINT64_C(1) << 32, -EPROTO },
		{ UINT64_MAX, 1, 0, 0, 0 },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		copy(cases[i].width, cases[i].height, cases[i].dst, cases[i].src);
		assert_int_equal(check(), cases[i].want);
	}
}

static int set(uint32_t unit, uint64_t dst, uint64_t width, uint64_t height, uint64_t pitch)
{
	memset(&r, 0, sizeof(r));
	r.set = (struct soft_record_set){ .r = { sizeof(r.set), SOFT_OP_SET, 0, 0, 0 },
					  .dst = dst,
					  .pitch = pitch,
					  .width = width,
					  .height = height,
					  .unit = unit };
	return check();
}

static void memsets_have_whole_elements(void **state)
{
	for (uint32_t unit = 0; unit < 10; unit++) {
		bool known = unit == 1 || unit == 2 || unit == 4;

		assert_int_equal(set(unit, 4096, 4, 1, 0), known ? 0 : -EPROTO);
	}
	assert_int_equal(set(1, 4097, 4, 2, 5), 0);
	assert_int_equal(set(2, 4098, 4, 2, 10), 0);
	assert_int_equal(set(2, 4097, 4, 2, 10), -EPROTO);
	assert_int_equal(set(2, 4098, 4, 2, 9), -EPROTO);
	assert_int_equal(set(4, 4098, 4, 1, 0), -EPROTO);
	assert_int_equal(set(4, 4096, 4, 2, 18), -EPROTO);
	assert_int_equal(set(4, 4096, 4, 1, 18), 0); /* one row has no pitch */
	assert_int_equal(set(4, 4096, 4, 2, 16), 0);
	assert_int_equal(set(4, 4096, 4, 2, 12), -EPROTO); /* overlapping */
	assert_int_equal(set(4, 4096, UINT64_C(1) << 62, 1, 0), -EPROTO);
	assert_int_equal(set(4, 4096, (UINT64_C(1) << 62) - 1, 1, 0), 0);
	assert_int_equal(set(4, 4096, 0, 1, 0), -EPROTO);
	assert_int_equal(set(4, 4096, 1, 0, 0), -EPROTO);
}

static void events_and_waits_are_numbers_of_slots(void **state)
{
	memset(&r, 0, sizeof(r));
	r.event = (struct soft_record_event){ .r = { sizeof(r.event), SOFT_OP_RECORD, 0, 0, 0 },
					      .event = 16383 };
	assert_int_equal(check(), 0);
	r.event.event = 16384;
	assert_int_equal(check(), -EPROTO);
	memset(&r, 0, sizeof(r));
	r.wait = (struct soft_record_wait){ .r = { sizeof(r.wait), SOFT_OP_WAIT, 0, 0, 0 },
					    .stream = 1023 };
	assert_int_equal(check(), 0);
	r.wait.stream = 1024;
	assert_int_equal(check(), -EPROTO);
}

static void values_are_words_in_memory(void **state)
{
	for (uint32_t unit = 0; unit < 20; unit++) {
		memset(&r, 0, sizeof(r));
		r.value = (struct soft_record_value){ .r = { sizeof(r.value), SOFT_OP_VALUE, 0, 0,
							     0 },
						      .address = 8 * unit,
						      .unit = unit,
						      .mode = SOFT_VALUE_WRITE };
		assert_int_equal(check(), unit == 4 || unit == 8 ? 0 : -EPROTO);
		r.value.address++;
		assert_int_equal(check(), -EPROTO);
		r.value.address--;
		r.value.mode = SOFT_VALUE_WRITE + 1;
		assert_int_equal(check(), -EPROTO);
	}
}

static void other_records_have_no_limits(void **state)
{
	static const uint16_t ops[] = { SOFT_OP_STREAM_CREATE, SOFT_OP_STREAM_DESTROY,
					SOFT_OP_HOST,	       SOFT_OP_FREE,
					SOFT_OP_SHARED_RECORD, SOFT_OP_SHARED_WAIT };

	for (unsigned i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		memset(&r, 0xff, sizeof(r));
		r.r = (struct soft_record){ 32, ops[i], 0, 0, 0 };
		assert_int_equal(check(), 0);
	}
	r.r.op = SOFT_OP_COUNT;
	assert_int_equal(check(), -EPROTO);
}

static void requests_are_terminated(void **state)
{
	static struct soft_request q;

	memset(&q, 'x', sizeof(q));
	q.op = 1;
	assert_int_equal(softd_request_check(&q, sizeof(q)), -EPROTO);
	q.name[sizeof(q) - offsetof(struct soft_request, name) - 1] = 0;
	assert_int_equal(softd_request_check(&q, sizeof(q)), 0);
	assert_int_equal(softd_request_check(&q, sizeof(q) + 1), -EPROTO);
	q.name[0] = 0;
	assert_int_equal(softd_request_check(&q, SOFT_REQUEST_MIN + 1), 0);
	assert_int_equal(softd_request_check(&q, SOFT_REQUEST_MIN), -EPROTO);
	q.op = SOFT_REQ_COUNT - 1;
	assert_int_equal(softd_request_check(&q, SOFT_REQUEST_MIN + 1), 0);
	q.op = SOFT_REQ_COUNT;
	assert_int_equal(softd_request_check(&q, SOFT_REQUEST_MIN + 1), -EPROTO);
	q.op = 0;
	assert_int_equal(softd_request_check(&q, SOFT_REQUEST_MIN + 1), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(headers_have_their_sizes),
		cmocka_unit_test(streams_and_contexts_are_numbers_of_slots),
		cmocka_unit_test(launches_are_bounded),
		cmocka_unit_test(rows_of_copies_do_not_overlap),
		cmocka_unit_test(memsets_have_whole_elements),
		cmocka_unit_test(events_and_waits_are_numbers_of_slots),
		cmocka_unit_test(values_are_words_in_memory),
		cmocka_unit_test(other_records_have_no_limits),
		cmocka_unit_test(requests_are_terminated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
