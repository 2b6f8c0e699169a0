/* Ring buffers: records are read unchanged and in order, and a reader validates all that it reads.
 */
#include "map_env.h"

#include <errno.h>

#include "base/compiler.h"
#include "bpf/run/map/ring.h"

#define NOW 5000000000u

static uint8_t buf[EBPF_MAX_RECORD_BYTES];

static void make(struct one_map *o, struct ebpf_ring_reader *r, uint32_t bytes)
{
	map_make(o, map_def(GBPF_MAP_RINGBUF, 0, 0, bytes, TENANT));
	ebpf_ring_open(r, &o->m);
}

static void records_come_out_as_they_went_in(void **state)
{
	uint64_t seed = 77, in = 0, out = 0, lengths[4096];
	struct ebpf_ring_reader r;
	uint8_t data[600];
	struct one_map o;

	make(&o, &r, 4096);
	while (out < 20000) {
		uint32_t n = 1 + (uint32_t)test_random(&seed) % sizeof(data);

		memset(data, (int)(in & 0xff), n);
		if (test_random(&seed) % 2) {
			int err = ebpf_ring_output(&o.m, data, n);

			assert_true(err == 0 || err == -EAGAIN);
			assert_true(err == 0 || in > out);
			lengths[in % 4096] = n;
			in += err == 0;
		} else {
			int got = ebpf_ring_read(&o.m, &r, buf, sizeof(buf), NOW, 0);

			assert_int_equal(got, in > out ? (int)lengths[out % 4096] : 0);
			for (int i = 0; i < got; i++) {
				assert_int_equal(buf[i], out & 0xff);
			}
			out += got > 0;
		}
	}
	assert_int_equal(r.lost | r.broken, 0);
	map_drop(&o);
}

static void a_full_ring_drops_and_says_so(void **state)
{
	struct ebpf_ring_reader r;
	struct one_map o;
	int n = 0;

	make(&o, &r, 4096);
	while (ebpf_ring_output(&o.m, &n, sizeof(n)) == 0) {
		n++;
	}
	assert_int_equal(n, 4096 / EBPF_RING_BLOCK);
	assert_int_equal(ebpf_ring_query(&o.m, 0), 4096);
	assert_int_equal(ebpf_ring_query(&o.m, 1), 4096);
	assert_int_equal(ebpf_ring_query(&o.m, 2), 0);
	assert_int_equal(ebpf_ring_query(&o.m, 3), 4096);
	for (int i = 0; i < n; i++) {
		int got;

		assert_int_equal(ebpf_ring_read(&o.m, &r, &got, sizeof(got), NOW, 0), 4);
		assert_int_equal(got, i);
	}
	assert_int_equal(r.dropped, 1);
	assert_int_equal(ebpf_ring_read(&o.m, &r, buf, sizeof(buf), NOW, 0), 0);
	assert_int_equal(ebpf_ring_query(&o.m, 0), 0);
	map_drop(&o);
}

static void lengths_have_a_limit(void **state)
{
	struct ebpf_ring_reader r;
	struct one_map o;
	void *record;

	make(&o, &r, 8192);
	assert_null(ebpf_ring_reserve(&o.m, 0));
	assert_null(ebpf_ring_reserve(&o.m, 4097));
	assert_null(ebpf_ring_reserve(&o.m, UINT64_MAX));
	assert_int_equal(ebpf_ring_output(&o.m, buf, 4097), -EINVAL);
	record = ebpf_ring_reserve(&o.m, 4096);
	assert_non_null(record);
	assert_int_equal(ebpf_ring_finish(&o.m, record, 0), 0);
	assert_int_equal(ebpf_ring_finish(&o.m, record, 0), -ESTALE);
	assert_int_equal(ebpf_ring_finish(&o.m, (char *)record + 1, 0), -EINVAL);
	assert_int_equal(ebpf_ring_finish(&o.m, buf, 0), -EINVAL);
	assert_int_equal(ebpf_ring_read(&o.m, &r, buf, 100, NOW, 0), -EMSGSIZE);
	assert_int_equal(ebpf_ring_read(&o.m, &r, buf, 100, NOW, 0), 0);
	map_drop(&o);
}

static void a_discarded_record_is_not_seen(void **state)
{
	struct ebpf_ring_reader r;
	uint64_t *a, *b, *c, got;
	struct one_map o;

	make(&o, &r, 4096);
	a = ebpf_ring_reserve(&o.m, 8);
	b = ebpf_ring_reserve(&o.m, 8);
	c = ebpf_ring_reserve(&o.m, 8);
	*a = 1;
	*b = 2;
	*c = 3;
	assert_int_equal(ebpf_ring_finish(&o.m, c, 0), 0);
	assert_int_equal(ebpf_ring_read(&o.m, &r, &got, 8, NOW, 0), 0); /* a is unfinished */
	assert_int_equal(ebpf_ring_finish(&o.m, a, 0), 0);
	assert_int_equal(ebpf_ring_finish(&o.m, b, 1), 0);
	assert_int_equal(ebpf_ring_read(&o.m, &r, &got, 8, NOW, 0), 8);
	assert_int_equal(got, 1);
	assert_int_equal(ebpf_ring_read(&o.m, &r, &got, 8, NOW, 0), 8);
	assert_int_equal(got, 3);
	assert_int_equal(r.lost | r.broken, 0);
	map_drop(&o);
}

static void an_unfinished_record_is_given_up(void **state)
{
	struct ebpf_ring_reader r;
	struct one_map o;
	uint64_t *a, got;

	make(&o, &r, 4096);
	a = ebpf_ring_reserve(&o.m, 8);
	*a = 1;
	assert_int_equal(ebpf_ring_output(&o.m, &(uint64_t){ 2 }, 8), 0);
	assert_int_equal(ebpf_ring_read(&o.m, &r, &got, 8, NOW, 0), 0);
	assert_int_equal(ebpf_ring_read(&o.m, &r, &got, 8, NOW + EBPF_RING_PATIENCE_NS - 2, 0), 0);
	assert_int_equal(ebpf_ring_read(&o.m, &r, &got, 8, NOW + EBPF_RING_PATIENCE_NS + 1, 0), 8);
	assert_int_equal(got, 2);
	assert_int_equal(r.lost, 1);
	assert_int_equal(ebpf_ring_finish(&o.m, a, 0), -ESTALE); /* late: not seen, no harm */
	assert_int_equal(ebpf_ring_read(&o.m, &r, &got, 8, NOW, 0), 0);
	a = ebpf_ring_reserve(&o.m, 8);
	assert_int_equal(ebpf_ring_read(&o.m, &r, &got, 8, NOW, 1), 0); /* its owner is dead */
	assert_int_equal(r.lost, 2);
	assert_int_equal(r.broken, 0);
	map_drop(&o);
}

static void another_reader_goes_on(void **state)
{
	struct ebpf_ring_reader r;
	struct one_map o;
	uint64_t got;

	make(&o, &r, 4096);
	for (uint64_t i = 0; i < 300; i++) {
		assert_int_equal(ebpf_ring_output(&o.m, &i, 8), 0);
		ebpf_ring_open(&r, &o.m);
		assert_int_equal(ebpf_ring_read(&o.m, &r, &got, 8, NOW, 0), 8);
		assert_int_equal(got, i);
	}
	map_drop(&o);
}

static void nonsense_is_skipped(void **state)
{
	uint64_t seed = 99;

	for (int round = 0; round < 2000; round++) {
		struct ebpf_ring_reader r;
		struct one_map o;

		make(&o, &r, 4096);
		r.pos = test_random(&seed) % 3 ? r.pos : test_random(&seed);
		for (size_t i = 0; i < 64; i++) { /* headers, positions */
			uint64_t at = test_random(&seed) % (o.m.elem_off / 8);

			((uint64_t *)(void *)o.m.data)[at] =
				test_random(&seed) >> (test_random(&seed) % 64);
		}
		for (int i = 0; i < 50; i++) {
			int got = ebpf_ring_read(&o.m, &r, buf, 100, NOW + (uint64_t)i, round % 2);

			assert_in_range((unsigned)(got + 100), 0, 200);
			(void)ebpf_ring_output(&o.m, buf, 1 + test_random(&seed) % 200);
		}
		map_drop(&o);
	}
}

/* After nonsense the ring works again once its writers do. */
static void a_ring_recovers_from_nonsense(void **state)
{
	struct ebpf_ring_reader r;
	struct one_map o;
	uint64_t seed = 5, got = 0;
	int n = 0;

	make(&o, &r, 4096);
	for (uint64_t i = 0; i < 100;
	     i++) { /* garbage from earlier rounds, then a fresh position */
		((uint64_t *)(void *)(o.m.data + 192))[i] = test_random(&seed) >> 24;
	}
	*(uint64_t *)(void *)o.m.data = UINT64_C(1) << 42;
	for (uint64_t i = 0; i < 400; i++) {
		(void)ebpf_ring_output(&o.m, &i, 8);
		n += ebpf_ring_read(&o.m, &r, &got, 8, NOW, 0) == 8 && got == i;
	}
	assert_true(r.broken > 0);
	assert_true(n >= 396);
	map_drop(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_come_out_as_they_went_in),
		cmocka_unit_test(a_full_ring_drops_and_says_so),
		cmocka_unit_test(lengths_have_a_limit),
		cmocka_unit_test(a_discarded_record_is_not_seen),
		cmocka_unit_test(an_unfinished_record_is_given_up),
		cmocka_unit_test(another_reader_goes_on),
		cmocka_unit_test(nonsense_is_skipped),
		cmocka_unit_test(a_ring_recovers_from_nonsense),
	};

	return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
