/* The server's checks of ring records and requests. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "soft/server/request/record_check.h"

static union softd_record good_launch(void)
{
	union softd_record r;

	memset(&r, 0, sizeof(r));
	r.launch = (struct soft_record_launch){ .r = { sizeof(r.launch) + 16, SOFT_OP_LAUNCH, 0, 3,
						       0 },
						.grid = { 4, 1, 1 },
						.block = { 32, 1, 1 },
						.param_bytes = 12 };
	return r;
}

static void a_good_launch_is_accepted(void **state)
{
	union softd_record r = good_launch();

	(void)state;
	assert_int_equal(softd_record_header_check(&r.r, 1000, 1000), 0);
	assert_int_equal(softd_record_check(&r), 0);
}

static void sizes_in_a_header_are_bounded(void **state)
{
	union softd_record r = good_launch();

	(void)state;
	assert_int_equal(softd_record_header_check(&r.r, r.r.bytes - 1, 1000), -EPROTO);
	assert_int_equal(softd_record_header_check(&r.r, 1000, r.r.bytes - 16), -EPROTO);
	r.r.bytes += 8;
	assert_int_equal(softd_record_header_check(&r.r, 1000, 1000), -EPROTO);
	r.r.bytes = 16;
	assert_int_equal(softd_record_header_check(&r.r, 1000, 1000), -EPROTO);
	r.r.bytes = SOFT_RECORD_MAX + 16;
	assert_int_equal(softd_record_header_check(&r.r, 1u << 20, 1u << 20), -EPROTO);
	r.r.bytes = 0;
	assert_int_equal(softd_record_header_check(&r.r, 1000, 1000), -EPROTO);
	r.r.op = SOFT_OP_COUNT;
	r.r.bytes = 64;
	assert_int_equal(softd_record_header_check(&r.r, 1000, 1000), -EPROTO);
}

static void a_launch_with_wrong_fields_is_refused(void **state)
{
	union softd_record r = good_launch();

	(void)state;
	r.launch.param_bytes = 17;
	assert_int_equal(softd_record_check(&r), -EPROTO);
	r = good_launch();
	r.launch.grid[1] = 0;
	assert_int_equal(softd_record_check(&r), -EPROTO);
	r = good_launch();
	r.launch.grid[0] = r.launch.grid[1] = r.launch.grid[2] = UINT32_MAX;
	assert_int_equal(softd_record_check(&r), -EPROTO);
	r = good_launch();
	r.launch.block[0] = 1025;
	assert_int_equal(softd_record_check(&r), -EPROTO);
	r = good_launch();
	r.launch.block[0] = r.launch.block[1] = 64;
	assert_int_equal(softd_record_check(&r), -EPROTO);
	r = good_launch();
	r.r.stream = SOFT_MAX_STREAMS;
	assert_int_equal(softd_record_check(&r), -EPROTO);
	r = good_launch();
	r.r.context = SOFT_MAX_CONTEXTS;
	assert_int_equal(softd_record_check(&r), -EPROTO);
}

static void a_copy_with_wrong_fields_is_refused(void **state)
{
	union softd_record r, good;

	(void)state;
	memset(&good, 0, sizeof(good));
	good.copy = (struct soft_record_copy){ .r = { sizeof(r.copy), SOFT_OP_COPY, 0, 0, 0 },
					       .dst_pitch = 64,
					       .src_pitch = 64,
					       .width = 64,
					       .height = 2 };
	assert_int_equal(softd_record_check(&good), 0);
	r = good;
	r.copy.src_pitch = 63;
	assert_int_equal(softd_record_check(&r), -EPROTO);
	r = good;
	r.copy.width = 0;
	assert_int_equal(softd_record_check(&r), -EPROTO);
	r = good;
	r.copy.height = UINT64_MAX;
	assert_int_equal(softd_record_check(&r), -EPROTO);
}

static void a_memset_with_wrong_fields_is_refused(void **state)
{
	union softd_record r, good;

	(void)state;
	memset(&good, 0, sizeof(good));
	good.set = (struct soft_record_set){ .r = { sizeof(r.set), SOFT_OP_SET, 0, 0, 0 },
					     .dst = 4096,
					     .width = 4,
					     .height = 1,
					     .unit = 4 };
	assert_int_equal(softd_record_check(&good), 0);
	r = good;
	r.set.unit = 3;
	assert_int_equal(softd_record_check(&r), -EPROTO);
	r = good;
	r.set.dst = 4098;
	assert_int_equal(softd_record_check(&r), -EPROTO);
	r = good;
	r.set.width = UINT64_MAX / 2;
	assert_int_equal(softd_record_check(&r), -EPROTO);
}

static void event_and_value_records_are_bounded(void **state)
{
	union softd_record r;

	(void)state;
	memset(&r, 0, sizeof(r));
	r.event = (struct soft_record_event){ .r = { sizeof(r.event), SOFT_OP_RECORD, 0, 0, 0 },
					      .event = SOFT_MAX_EVENTS };
	assert_int_equal(softd_record_check(&r), -EPROTO);
	memset(&r, 0, sizeof(r));
	r.wait = (struct soft_record_wait){ .r = { sizeof(r.wait), SOFT_OP_WAIT, 0, 0, 0 },
					    .stream = SOFT_MAX_STREAMS };
	assert_int_equal(softd_record_check(&r), -EPROTO);
	r.wait.stream--;
	assert_int_equal(softd_record_check(&r), 0);
	memset(&r, 0, sizeof(r));
	r.value = (struct soft_record_value){ .r = { sizeof(r.value), SOFT_OP_VALUE, 0, 0, 0 },
					      .address = 4,
					      .unit = 8 };
	assert_int_equal(softd_record_check(&r), -EPROTO);
	r.value.unit = 4;
	assert_int_equal(softd_record_check(&r), 0);
	r.value.mode = SOFT_VALUE_WRITE + 1;
	assert_int_equal(softd_record_check(&r), -EPROTO);
}

static void requests_need_a_known_verb_and_a_terminated_name(void **state)
{
	struct soft_request q = { .op = SOFT_REQ_FUNCTION, .name = "add" };

	(void)state;
	assert_int_equal(softd_request_check(&q, SOFT_REQUEST_MIN + 4), 0);
	assert_int_equal(softd_request_check(&q, SOFT_REQUEST_MIN + 3), -EPROTO);
	assert_int_equal(softd_request_check(&q, SOFT_REQUEST_MIN), -EPROTO);
	assert_int_equal(softd_request_check(&q, 3), -EPROTO);
	q.op = SOFT_REQ_COUNT;
	assert_int_equal(softd_request_check(&q, SOFT_REQUEST_MIN + 4), -EPROTO);
	q.op = 0;
	assert_int_equal(softd_request_check(&q, SOFT_REQUEST_MIN + 4), -EPROTO);
}

/* For random bytes the checks terminate, read nothing out of bounds, and accept only values in
 * range. */
static void random_records_are_accepted_only_in_range(void **state)
{
	uint64_t x = 88172645463325252ull;
	static union softd_record r;

	(void)state;
	for (int i = 0; i < 200000; i++) {
		for (size_t k = 0; k < 160; k += 8) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			memcpy(r.bytes + k, &x, 8);
		}
		r.r.bytes = (uint32_t)(x >> 40) % 400 & ~(x >> 63 ? 15u : 0u);
		r.r.op = (uint16_t)((x >> 20) % (SOFT_OP_COUNT + 1));
		r.r.stream %= SOFT_MAX_STREAMS + 1;
		r.r.context %= SOFT_MAX_CONTEXTS + 1;
		if (softd_record_header_check(&r.r, 300, 350) == 0) {
			assert_true(r.r.bytes <= 300 && r.r.bytes >= 16 && r.r.bytes % 16 == 0);
			if (r.r.op != SOFT_OP_PAD && softd_record_check(&r) == 0) {
				assert_true(r.r.stream < SOFT_MAX_STREAMS &&
					    r.r.context < SOFT_MAX_CONTEXTS);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_good_launch_is_accepted),
		cmocka_unit_test(sizes_in_a_header_are_bounded),
		cmocka_unit_test(a_launch_with_wrong_fields_is_refused),
		cmocka_unit_test(a_copy_with_wrong_fields_is_refused),
		cmocka_unit_test(a_memset_with_wrong_fields_is_refused),
		cmocka_unit_test(event_and_value_records_are_bounded),
		cmocka_unit_test(requests_need_a_known_verb_and_a_terminated_name),
		cmocka_unit_test(random_records_are_accepted_only_in_range),
	};

	return cmocka_run_group_tests_name("soft check", tests, NULL, NULL);
}
