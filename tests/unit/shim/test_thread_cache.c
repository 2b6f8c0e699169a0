/* What a thread has cached of kernels: found by handle, however many share their places, until a
 * handle's meaning may have changed. */
#include "fixture.h"

#include "shim/code/shim_code.h"
#include "shim/kernel/clone.h"
#include "shim/kernel/kernel_handle.h"

static struct shim_thread *t;
static struct shim_kernel kernels[SHIM_THREAD_WAYS + 1];

static int before(void **state)
{
	t = shim_thread_self();
	add_acqrel(&shim.kernel_generation, 1u);
	return t ? fixture_before(state) : -1;
}

static struct shim_thread_kernel *put(uintptr_t key, struct shim_kernel *kernel)
{
	struct shim_thread_kernel *e = shim_thread_fill(t, key, shim_thread_fill_begin(t));

	assert_non_null(e);
	assert_true(e->key == key);
	e->kernel = kernel;
	return e;
}

/* Returns the nth handle whose entry may be at the places of the first. */
static uintptr_t sharing(unsigned n)
{
	unsigned first = shim_thread_slot(0x10000, SHIM_THREAD_KERNELS) / SHIM_THREAD_WAYS;
	uintptr_t key = 0x10000;

	while (n) {
		key += 16;
		n -= shim_thread_slot(key, SHIM_THREAD_KERNELS) / SHIM_THREAD_WAYS == first;
	}
	return key;
}

static void test_as_many_as_ways_share(void **state)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < SHIM_THREAD_WAYS; i++) {
		put(sharing(i), &kernels[i]);
	}
	for (unsigned i = 0; i < SHIM_THREAD_WAYS; i++) {
		assert_non_null(shim_thread_find(t, sharing(i)));
		assert_ptr_equal(shim_thread_find(t, sharing(i))->kernel, &kernels[i]);
	}
	put(sharing(SHIM_THREAD_WAYS), &kernels[SHIM_THREAD_WAYS]); /* one more takes one's place */
	for (unsigned i = 0; i <= SHIM_THREAD_WAYS; i++) {
		const struct shim_thread_kernel *e = shim_thread_find(t, sharing(i));

		assert_true(!e || e->kernel == &kernels[i]);
		kept += e != NULL;
	}
	assert_int_equal(kept, SHIM_THREAD_WAYS);
	assert_non_null(shim_thread_find(t, sharing(SHIM_THREAD_WAYS)));
}

/* Another room's member of an entry stays, but not those of the key that had the place. */
static void test_members(void **state)
{
	for (unsigned i = 0; i < SHIM_THREAD_WAYS; i++) {
		struct shim_thread_kernel *e = put(sharing(i), &kernels[0]);

		e->code = &shim_code_own;
		assert_ptr_equal(put(sharing(i), &kernels[1]), e);
		assert_ptr_equal(e->code, &shim_code_own);
	}
	assert_null(put(sharing(SHIM_THREAD_WAYS), &kernels[1])->code);
}

/* A handle that was not launched gives up its place first. */
static void test_launched_stay(void **state)
{
	for (unsigned i = 0; i < SHIM_THREAD_WAYS; i++) {
		put(sharing(i), i == 1 ? NULL : &kernels[i]);
	}
	put(sharing(SHIM_THREAD_WAYS), &kernels[SHIM_THREAD_WAYS]);
	for (unsigned i = 0; i <= SHIM_THREAD_WAYS; i++) {
		assert_int_equal(shim_thread_find(t, sharing(i)) != NULL, i != 1);
	}
}

/* Two keys more than there is room for do not take the same place in turn. */
static void test_two_too_many(void **state)
{
	unsigned more[2] = { SHIM_THREAD_WAYS, SHIM_THREAD_WAYS + 1 };

	for (unsigned i = 0; i < SHIM_THREAD_WAYS; i++) {
		put(sharing(i), &kernels[i]);
	}
	while (shim_thread_slot(sharing(more[1]), SHIM_THREAD_KERNELS) !=
	       shim_thread_slot(sharing(more[0]), SHIM_THREAD_KERNELS)) {
		more[1]++;
	}
	put(sharing(more[0]), &kernels[0]);
	put(sharing(more[1]), &kernels[0]);
	assert_non_null(shim_thread_find(t, sharing(more[0])));
	assert_non_null(shim_thread_find(t, sharing(more[1])));
}

static void test_generation(void **state)
{
	uint32_t earlier = shim_thread_fill_begin(t);

	put(sharing(0), &kernels[0]);
	add_acqrel(&shim.kernel_generation, 1u);
	assert_null(shim_thread_find(t, sharing(0))); /* it may name another kernel */
	put(sharing(1), &kernels[1]);
	assert_null(shim_thread_find(t, sharing(0)));
	assert_ptr_equal(shim_thread_find(t, sharing(1))->kernel, &kernels[1]);
	/* Asked for by what was known before. */
	assert_null(shim_thread_fill(t, sharing(2), earlier));
}

/* A handle's change while it is looked up: the answer is cleared at the next look. */
static void test_changed_meanwhile(void **state)
{
	uint32_t generation = shim_thread_fill_begin(t);
	struct shim_thread_kernel *e;

	add_acqrel(&shim.kernel_generation, 1u);
	e = shim_thread_fill(t, sharing(0), generation);
	assert_non_null(e);
	e->kernel = &kernels[0];
	assert_null(shim_thread_find(t, sharing(0)));
}

/* A kernel and a graph at the same address, and what there is nothing of. */
static void test_answers(void **state)
{
	struct sched_kernel *k = (struct sched_kernel *)0x4b4b;
	struct shim_thread_kernel *e = put(0x7000, &kernels[0]);

	e->code = &shim_code_own;
	e = shim_thread_fill(t, 0x7000 | SHIM_THREAD_GRAPH, shim_thread_fill_begin(t));
	assert_non_null(e);
	e->graph = k;
	assert_ptr_equal(shim_kernel_of(t, (void *)0x7000), &kernels[0]);
	assert_ptr_equal(shim_kernel_of_graph(t, (void *)0x7000), k);
	assert_null(shim_code_kernel((void *)0x7000));
	assert_null(shim_kernel_of(t, NULL)->counted);
	assert_null(shim_kernel_of_graph(t, NULL));
	assert_null(shim_code_kernel(NULL));
	put(0x7000, &kernels[1]);
	assert_ptr_equal(shim_kernel_of(t, (void *)0x7000), &kernels[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_as_many_as_ways_share, before),
		cmocka_unit_test_setup(test_members, before),
		cmocka_unit_test_setup(test_launched_stay, before),
		cmocka_unit_test_setup(test_two_too_many, before),
		cmocka_unit_test_setup(test_generation, before),
		cmocka_unit_test_setup(test_changed_meanwhile, before),
		cmocka_unit_test_setup(test_answers, before),
	};

	return cmocka_run_group_tests(tests, fixture_setup, NULL);
}
