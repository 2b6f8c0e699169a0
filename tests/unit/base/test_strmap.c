/* String maps: order, growth, deleted entries, keys with any bytes; the hash function by its
 * values.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/strmap.h"

static void hash_is_fnv_1a_with_a_final_mix(void **state)
{
	static const uint8_t bytes[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

	assert_true(hash_bytes("", 0) == 0x8570e250fe4c2473u);
	assert_true(hash_bytes("a", 1) == 0x82b19d9859a61322u);
	assert_true(hash_bytes("gbpf", 4) == 0xc4184878f6c266c5u);
	assert_true(hash_bytes(bytes, 16) == 0x3eff8ebda40cc097u);
}

/* A known pair of words with the same hash. */
static void words_of_one_hash_are_told_apart(void **state)
{
	static const char one[] = "8yn0iYCKYHlIj4-BwPqk", two[] = "GReLUrM4wMqfg9yzV3KQ";
	int a, b;
	struct strmap m;

	assert_true(hash_bytes(one, 20) == hash_bytes(two, 20));
	strmap_init(&m);
	assert_int_equal(strmap_add(&m, one, &a), 0);
	assert_null(strmap_get(&m, two));
	assert_int_equal(strmap_add(&m, two, &b), 0);
	assert_ptr_equal(strmap_get(&m, one), &a);
	assert_ptr_equal(strmap_get(&m, two), &b);
	assert_ptr_equal(strmap_del(&m, one), &a);
	assert_ptr_equal(strmap_get(&m, two), &b);
	assert_null(strmap_get(&m, one));
	strmap_finish(&m);
}

static void keys_are_bytes_of_any_value_and_length(void **state)
{
	static const char bytes[] = "ab\0cd";
	int v[6];
	struct strmap m;

	strmap_init(&m);
	for (size_t n = 0; n <= 5; n++) {
		assert_null(strmap_get_n(&m, bytes, n));
		assert_int_equal(strmap_add_n(&m, bytes, n, &v[n]), 0);
		assert_int_equal(strmap_add_n(&m, bytes, n, &v[0]), -EEXIST);
	}
	for (size_t n = 0; n <= 5; n++) {
		assert_ptr_equal(strmap_get_n(&m, bytes, n), &v[n]);
	}
	assert_ptr_equal(strmap_get(&m, "ab"), &v[2]);
	assert_int_equal(m.entries[5].key[5], 0); /* a terminated copy */
	assert_null(strmap_del(&m, "abc"));
	assert_int_equal(m.live, 6);
	strmap_finish(&m);
	assert_int_equal(m.n + m.cap + m.slots + m.live, 0);
	assert_true(!m.entries && !m.index);
}

/* Eight entries, then twice as many whenever three quarters of them are in use; otherwise deleted
 * entries make room. Twice as many slots. */
static void growth_counts_the_living(void **state)
{
	struct strmap m;
	char key[8];

	strmap_init(&m);
	for (intptr_t i = 0; i < 8; i++) {
		snprintf(key, sizeof(key), "k%d", (int)i);
		assert_int_equal(strmap_add(&m, key, (void *)(i + 1)), 0);
		assert_int_equal(m.cap, 8);
		assert_int_equal(m.slots, 16);
	}
	for (int i = 0; i < 3; i++) { /* five of eight live */
		snprintf(key, sizeof(key), "k%d", i);
		assert_non_null(strmap_del(&m, key));
	}
	assert_int_equal(m.live, 5);
	assert_int_equal(m.n, 8);
	assert_int_equal(strmap_add(&m, "k8", (void *)9), 0);
	assert_int_equal(m.cap, 8);
	assert_int_equal(m.n, 6);
	assert_int_equal(strmap_add(&m, "k9", (void *)10), 0);
	assert_int_equal(strmap_add(&m, "k10", (void *)11), 0);
	assert_int_equal(m.n, 8);
	assert_non_null(strmap_del(&m, "k3"));
	assert_non_null(strmap_del(&m, "k4")); /* six of eight live */
	assert_int_equal(strmap_add(&m, "k11", (void *)12), 0);
	assert_int_equal(m.cap, 16);
	assert_int_equal(m.slots, 32);
	assert_int_equal(m.n, 7);
	for (intptr_t i = 0; i < 12; i++) {
		snprintf(key, sizeof(key), "k%d", (int)i);
		assert_ptr_equal(strmap_get(&m, key), i < 5 ? NULL : (void *)(i + 1));
	}
	strmap_finish(&m);
}

static void entries_are_visited_in_the_order_of_insertion(void **state)
{
	struct strmap m;
	intptr_t want = 2;
	char key[8];
	unsigned n = 0;

	strmap_init(&m);
	strmap_each (&m, e) {
		fail_msg("an empty map has %s", e->key);
	}
	for (intptr_t i = 1; i <= 100; i++) {
		snprintf(key, sizeof(key), "%d", (int)(i * 7919 % 101));
		assert_int_equal(strmap_add(&m, key, (void *)i), 0);
		if (i % 2) {
			assert_ptr_equal(strmap_del(&m, key), (void *)i);
		}
	}
	strmap_each (&m, e) {
		assert_ptr_equal(e->value, (void *)want);
		want += 2;
		n++;
	}
	assert_int_equal(n, 50);
	assert_int_equal(m.live, 50);
	strmap_finish(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hash_is_fnv_1a_with_a_final_mix),
		cmocka_unit_test(words_of_one_hash_are_told_apart),
		cmocka_unit_test(keys_are_bytes_of_any_value_and_length),
		cmocka_unit_test(growth_counts_the_living),
		cmocka_unit_test(entries_are_visited_in_the_order_of_insertion),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
