/* Advice about parts of an allocation, against a model that has an entry for each byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "mem/advice.h"

#define BYTES 200u
#define ROUNDS 20000

static unsigned fail_in; /* calls of calloc and realloc; 0: none fails */

void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);

void *__wrap_calloc(size_t n, size_t bytes)
{
	return fail_in && --fail_in == 0 ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *p, size_t bytes)
{
	return fail_in && --fail_in == 0 ? NULL : __real_realloc(p, bytes);
}

static uint64_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return *seed >> 33;
}

static struct mem_advice_change some_change(uint64_t *seed)
{
	return (struct mem_advice_change){ .kind = (enum mem_advice_kind)(next_random(seed) % 4),
					   .set = next_random(seed) % 2,
					   .by = 1u << next_random(seed) % 3,
					   .location = { (int)(next_random(seed) % 3),
							 (int)(next_random(seed) % 2) } };
}

static void change_model(struct mem_advice *a, const struct mem_advice_change *c)
{
	switch (c->kind) {
	case MEM_ADVICE_READ_MOSTLY:
		a->read_mostly = c->set;
		break;
	case MEM_ADVICE_PREFERRED:
		a->preferred = c->location;
		break;
	case MEM_ADVICE_ACCESSED_BY:
		a->accessed_by = c->set ? a->accessed_by | c->by : a->accessed_by & ~c->by;
		break;
	default:
		a->prefetched = c->location;
	}
}

static bool is_location(struct mem_location a, struct mem_location b)
{
	return a.type == b.type && a.id == b.id;
}

static void assert_same(const struct mem_advice *a, const struct mem_advice *b)
{
	assert_int_equal(a->read_mostly, b->read_mostly);
	assert_int_equal(a->accessed_by, b->accessed_by);
	assert_true(is_location(a->preferred, b->preferred));
	assert_true(is_location(a->prefetched, b->prefetched));
}

/* What holds in all of a part. */
static struct mem_advice of_model(const struct mem_advice *model, uint64_t begin, uint64_t end)
{
	const struct mem_location none = { 0 };
	struct mem_advice all = model[begin];
	bool preferred = true, prefetched = true;

	for (uint64_t i = begin; i < end; i++) {
		all.read_mostly &= model[i].read_mostly;
		all.accessed_by &= model[i].accessed_by;
		preferred &= is_location(model[i].preferred, model[begin].preferred);
		prefetched &= is_location(model[i].prefetched, model[begin].prefetched);
	}
	all.preferred = preferred ? all.preferred : none;
	all.prefetched = prefetched ? all.prefetched : none;
	return all;
}

static void compare(const struct mem_advice_map *m, const struct mem_advice *model, uint64_t begin,
		    uint64_t end)
{
	struct mem_advice is = mem_advice_of(m, begin, end), want = of_model(model, begin, end);
	uint64_t next;

	assert_same(&is, &want);
	for (uint64_t i = 0; i < BYTES; i = next) {
		is = mem_advice_at(m, i, &next);
		assert_true(next > i && next <= BYTES);
		for (uint64_t k = i; k < next; k++) {
			assert_same(&is, &model[k]);
		}
	}
}

static void parts_are_those_of_the_model(void **state)
{
	struct mem_advice model[BYTES] = { 0 };
	struct mem_advice_map *m = mem_advice_create(BYTES);
	uint64_t seed = 42;

	(void)state;
	assert_non_null(m);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t begin = next_random(&seed) % BYTES;
		uint64_t end = begin + 1 + next_random(&seed) % (BYTES - begin);
		struct mem_advice_change c = some_change(&seed);
		bool fails = i % 7 == 0;

		fail_in = fails ? 1 : 0;
		if (mem_advice_change(m, begin, end, &c) == 0) {
			for (uint64_t k = begin; k < end; k++) {
				change_model(&model[k], &c);
			}
		} else {
			assert_true(fails);
		}
		fail_in = 0;
		begin = next_random(&seed) % BYTES;
		compare(m, model, begin, begin + 1 + next_random(&seed) % (BYTES - begin));
	}
	mem_advice_destroy(m);
}

/* A program that changes every second page of much memory. */
static void the_number_of_parts_has_a_limit(void **state)
{
	const struct mem_advice_change c = { .kind = MEM_ADVICE_READ_MOSTLY, .set = true };
	struct mem_advice_map *m = mem_advice_create(UINT64_C(1) << 40);
	struct mem_advice a;
	uint64_t n = 0, end;

	(void)state;
	assert_non_null(m);
	while (n < MEM_ADVICE_PARTS_MAX && mem_advice_change(m, 2 * n, 2 * n + 1, &c) == 0) {
		n++;
	}
	assert_true(n > MEM_ADVICE_PARTS_MAX / 4 && n < MEM_ADVICE_PARTS_MAX);
	a = mem_advice_at(m, 2 * n, &end);
	assert_false(a.read_mostly);
	assert_int_equal(end, UINT64_C(1) << 40);
	mem_advice_destroy(m);
	mem_advice_destroy(NULL);
}

static void without_memory_there_is_no_map(void **state)
{
	(void)state;
	for (unsigned i = 1; i <= 2; i++) {
		fail_in = i;
		assert_null(mem_advice_create(BYTES));
		assert_int_equal(fail_in, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parts_are_those_of_the_model),
		cmocka_unit_test(the_number_of_parts_has_a_limit),
		cmocka_unit_test(without_memory_there_is_no_map),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
