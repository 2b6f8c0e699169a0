/* The share of GPU time that a vGPU really had, on a clock that the test moves: its window, pages
 * that hold any numbers, processes that have left. */
#include "parts.h"

#include "daemon/vgpu/vgpu_int.h"

#define SECOND (1000 * MS)

static struct parts *p;
static struct daemon_vgpu *v;

static int begin(void **state)
{
	struct proto_vgpu is = { .name = "train" };

	p = parts_new();
	memset(p->d->devices.d[0].uuid, 7, 16);
	memset(p->d->devices.d[1].uuid, 8, 16);
	v = daemon_vgpu_add(p->d, 1000, &is);
	assert_non_null(v);
	return 0;
}

static int finish(void **state)
{
	p->d->ending = true;
	daemon_vgpus_close(p->d);
	parts_free(p);
	return 0;
}

/* Adds a process with two GPUs to the vGPU. */
static struct part *join(bool reattached)
{
	struct part *a = parts_add(p, 1000, GBPF_CLASS_BATCH);

	a->s.gpus = 2;
	a->s.gpu_index[1] = 1;
	a->s.hello.has_devices = true;
	a->s.hello.reattached = reattached;
	a->s.vgpu.of = v;
	a->s.vgpu.line = v->n_lines++;
	daemon_vgpu_actual_begin(v);
	return a;
}

static void leave(struct part *a)
{
	daemon_vgpu_leave(&a->s);
	v->n_lines--;
}

/* Lets seconds pass, in each of which a has that much time on a GPU. */
static void pass(struct part *a, unsigned seconds, unsigned gpu, uint64_t ns)
{
	for (unsigned i = 0; i < seconds; i++) {
		a->stats.gpu[gpu].busy_ns += ns;
		parts_now += SECOND;
		(void)daemon_vgpu_actual_look(p->d, parts_now);
	}
}

static json_int_t number(const json_t *all, size_t i, const char *member)
{
	return json_integer_value(json_object_get(json_array_get(all, i), member));
}

/* Expects time on one GPU; window_ns 0: on none. */
static void expect(uint64_t gpu_ns, uint64_t window_ns)
{
	json_t *all = daemon_vgpu_actual_json(v);

	assert_int_equal(json_array_size(all), window_ns != 0);
	assert_int_equal(number(all, 0, "gpu_ns"), gpu_ns);
	assert_int_equal(number(all, 0, "window_ns"), window_ns);
	json_decref(all);
}

static void the_window_begins_with_the_first_process(void **state)
{
	struct part *a;

	expect(0, 0);
	a = join(false);
	expect(0, 0);
	a->stats.gpu[0].busy_ns = 300 * MS;
	parts_now += 400 * MS; /* before the first look */
	expect(300 * MS, 400 * MS);
	pass(a, 3, 0, 500 * MS);
	expect(1800 * MS, 3400 * MS);
}

static void the_window_is_that_of_the_last_seconds(void **state)
{
	struct part *a = join(false);

	pass(a, 10, 0, 900 * MS);
	pass(a, 10, 0, 300 * MS);
	expect(1500 * MS, 5 * SECOND);
	parts_now += 999 * MS;
	expect(1500 * MS, 5999 * MS);
	parts_now -= 999 * MS;
	pass(a, 4, 0, 0);
	expect(300 * MS, 5 * SECOND);
	pass(a, 1, 0, 0);
	expect(0, 0);
}

static void each_gpu_has_a_time_of_its_own(void **state)
{
	struct part *a = join(false), *b = join(false);
	json_t *all;

	pass(a, 1, 0, 200 * MS);
	pass(b, 1, 0, 400 * MS);
	pass(b, 1, 1, 700 * MS);
	all = daemon_vgpu_actual_json(v);
	assert_int_equal(json_array_size(all), 2);
	assert_int_equal(number(all, 0, "gpu_ns"), 600 * MS);
	assert_int_equal(number(all, 1, "gpu_ns"), 700 * MS);
	assert_string_equal(json_string_value(json_object_get(json_array_get(all, 1), "uuid")),
			    "GPU-08080808-0808-0808-0808-080808080808");
	json_decref(all);
}

static void time_of_processes_that_have_left_counts(void **state)
{
	struct part *a = join(false);

	pass(a, 2, 0, 500 * MS);
	a->stats.gpu[0].busy_ns += 100 * MS; /* since the last look */
	leave(a);
	expect(1100 * MS, 2 * SECOND);
	for (unsigned i = 0; i < 6; i++) {
		parts_now += SECOND;
		assert_true(daemon_vgpu_actual_look(p->d, parts_now));
	}
	expect(0, 0);
	for (unsigned i = 0; i < 3; i++) {
		parts_now += SECOND;
		(void)daemon_vgpu_actual_look(p->d, parts_now);
	}
	assert_false(daemon_vgpu_actual_look(p->d, parts_now)); /* the timer ends */
	parts_now += 100 * SECOND;
	a = join(false);
	pass(a, 1, 0, 250 * MS);
	expect(250 * MS, SECOND);
}

static void a_page_from_before_a_restart_counts_from_now_on(void **state)
{
	struct part *a = join(true);

	a->stats.gpu[0].busy_ns = 1000 * SECOND;
	expect(0, 0);
	pass(a, 1, 0, 250 * MS);
	expect(250 * MS, SECOND);
}

static void garbage_is_no_more_than_all_of_the_time(void **state)
{
	struct part *a = join(false), *b = join(false);

	a->stats.gpu[0].busy_ns = UINT64_MAX;
	b->stats.gpu[0].busy_ns = UINT64_MAX - 5;
	pass(b, 1, 0, 5);
	expect(SECOND, SECOND);
	a->stats.gpu[0].busy_ns = 0; /* backwards */
	pass(b, 7, 0, 0);
	expect(0, 0);
	pass(a, 1, 0, 100 * MS);
	expect(100 * MS, 5 * SECOND);
}

int main(void)
{
#define GIVEN(t) cmocka_unit_test_setup_teardown(t, begin, finish)
	const struct CMUnitTest tests[] = {
		GIVEN(the_window_begins_with_the_first_process),
		GIVEN(the_window_is_that_of_the_last_seconds),
		GIVEN(each_gpu_has_a_time_of_its_own),
		GIVEN(time_of_processes_that_have_left_counts),
		GIVEN(a_page_from_before_a_restart_counts_from_now_on),
		GIVEN(garbage_is_no_more_than_all_of_the_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
