/* Preparing, finding and dropping the versions of a policy. */
#include "image.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"

static unsigned mapped(const struct process *t)
{
	unsigned n = 0;

	for (unsigned i = 0; i < POLICY_MAX_PREPARED; i++) {
		n += t->p.prepared[i].policy.image != NULL;
	}
	return n;
}

static void every_gpu_begins_without_a_version(void **state)
{
	struct process t;

	process_init(&t);
	for (uint32_t g = 0; g < PROTO_MAX_GPUS; g++) {
		assert_int_equal(t.p.gpu[g].index, g);
		assert_int_equal(t.p.gpu[g].hint, POLICY_NONE);
		assert_null(in_force(&t, g));
	}
	assert_false(policy_any_prepared(&t.p));
	assert_false(policy_is_prepared(&t.p, 0, UINT32_MAX));
	policy_finish(&t.p);
}

static void images_are_checked_before_they_count(void **state)
{
	struct process t;

	process_init(&t);
	assert_int_equal(prepare(&t.p, 0, image_answering(0, 0)), -EINVAL);
	assert_int_equal(prepare(&t.p, 7, image_answering(8, 0)), -EINVAL);
	assert_true(prepare(&t.p, 7, -1) < 0);
	assert_false(policy_any_prepared(&t.p));
	assert_int_equal(mapped(&t), 0);
	assert_int_equal(prepare(&t.p, 7, image_answering(7, 0)), 0);
	assert_true(policy_any_prepared(&t.p));
	assert_true(policy_is_prepared(&t.p, 7, UINT32_MAX));
	assert_false(policy_is_prepared(&t.p, 8, UINT32_MAX));
	assert_int_equal(mapped(&t), 1);
	policy_finish(&t.p);
}

static void the_number_of_versions_is_limited(void **state)
{
	const uint64_t last = POLICY_MAX_PREPARED;
	struct process t;

	process_init(&t);
	for (uint64_t v = 1; v <= last; v++) {
		assert_int_equal(prepare(&t.p, v, image_answering(v, 0)), 0);
	}
	assert_int_equal(prepare(&t.p, last + 1, image_answering(last + 1, 0)), -ENOSPC);
	for (uint64_t v = 1; v <= last; v++) {
		t.dir.version[0] = v;
		assert_int_equal(version_in_force(&t, 0), v);
	}
	policy_drop(&t.p, 0, UINT32_MAX);
	policy_drop(&t.p, 77, UINT32_MAX);
	assert_int_equal(mapped(&t), last);
	policy_drop(&t.p, last, UINT32_MAX);
	assert_int_equal(mapped(&t), last - 1);
	assert_false(policy_is_prepared(&t.p, last, UINT32_MAX));
	assert_true(policy_is_prepared(&t.p, 1, UINT32_MAX));
	assert_int_equal(prepare(&t.p, last + 1, image_answering(last + 1, 0)), 0);
	t.dir.version[0] = last + 1;
	assert_int_equal(version_in_force(&t, 0), last + 1);
	for (uint64_t v = 1; v <= last + 1; v++) {
		policy_drop(&t.p, v, UINT32_MAX);
	}
	assert_false(policy_any_prepared(&t.p));
	assert_int_equal(mapped(&t), 0);
	policy_finish(&t.p);
}

/* An instance whose submit answers `verdict`. */
static int prepare_for(struct process *t, uint64_t version, uint32_t gpus, int verdict)
{
	int fd = image_answering(version, verdict);
	int err = policy_prepare(&t->p, version, gpus, fd, no_regions);

	close(fd);
	return err;
}

static uint64_t verdict_on(struct process *t, uint32_t gpu)
{
	struct policy_result r = { .verdict = UINT64_MAX };
	struct gbpf_submit_ctx c = { 0 };

	(void)policy_hook_call(&t->p, gpu, POLICY_HOOK_submit, &c, &r);
	return r.verdict;
}

static void each_gpu_has_its_instance(void **state)
{
	struct process t;

	process_init(&t);
	t.dir.version[0] = t.dir.version[1] = t.dir.version[2] = t.dir.version[3] = 5;
	assert_int_equal(prepare_for(&t, 5, 0, 9), -EINVAL);
	assert_int_equal(prepare_for(&t, 5, 1u << 1, 11), 0);
	assert_null(in_force(&t, 0));
	assert_int_equal(verdict_on(&t, 1), 11);
	assert_int_equal(prepare_for(&t, 5, 1u << 0, 10), 0);
	assert_int_equal(prepare_for(&t, 5, 1u << 2 | 1u << 3, 12), 0);
	assert_int_equal(verdict_on(&t, 0), 10);
	assert_int_equal(verdict_on(&t, 1), 11);
	assert_int_equal(verdict_on(&t, 2), 12);
	assert_int_equal(verdict_on(&t, 3), 12);
	assert_true(policy_is_prepared(&t.p, 5, 1u << 2));
	assert_false(policy_is_prepared(&t.p, 5, 1u << 4));

	/* One that is prepared again is replaced alone. */
	assert_int_equal(prepare_for(&t, 5, 1u << 1, 21), 0);
	assert_int_equal(mapped(&t), 3);
	assert_int_equal(verdict_on(&t, 0), 10);
	assert_int_equal(verdict_on(&t, 1), 21);

	policy_drop(&t.p, 5, 1u << 0);
	assert_null(in_force(&t, 0));
	assert_int_equal(verdict_on(&t, 1), 21);
	policy_drop(&t.p, 5, 1u << 3);
	assert_null(in_force(&t, 2));
	assert_int_equal(mapped(&t), 1);
	policy_finish(&t.p);
}

/* The entry that a GPU has found last becomes another GPU's. */
static void the_instance_of_another_gpu_is_not_used(void **state)
{
	struct process t;

	process_init(&t);
	t.dir.version[0] = t.dir.version[1] = 5;
	assert_int_equal(prepare_for(&t, 5, 1u << 1, 11), 0);
	assert_int_equal(verdict_on(&t, 1), 11);
	policy_drop(&t.p, 5, 1u << 1);
	assert_int_equal(prepare_for(&t, 5, 1u << 0, 10), 0);
	assert_int_equal(verdict_on(&t, 0), 10);
	/* As a thread does that found the entry just before it was dropped. */
	t.p.gpu[1].hint = t.p.gpu[0].hint;
	assert_null(in_force(&t, 1));
	t.dir.version[1] = 6; /* not prepared: the one in use stays, which is none */
	assert_null(in_force(&t, 1));
	policy_finish(&t.p);
}

static void notes_of_instances_are_summed(void **state)
{
	struct process t;

	process_init(&t);
	t.dir.version[0] = t.dir.version[1] = 5;
	assert_int_equal(prepare_for(&t, 5, 1u << 0, 0), 0);
	assert_int_equal(prepare_for(&t, 5, 1u << 1, 0), 0);
	(void)verdict_on(&t, 0);
	t.p.prepared[0].policy.env.notes[3] = 40;
	t.p.prepared[1].policy.env.notes[3] = 2;
	t.p.prepared[1].failures[POLICY_HOOK_submit][PROTO_FAILED_HELPER] = 7;
	policy_publish_notes(&t.p, &t.stats);
	assert_int_equal(t.stats.notes_version, 5);
	assert_int_equal(t.stats.notes[3], 42);
	assert_int_equal(t.stats.failures[POLICY_HOOK_submit][PROTO_FAILED_HELPER], 7);
	policy_finish(&t.p);
}

/* Does not sleep: a wait for a thread that stays ends at once. */
int clock_nanosleep(clockid_t id, int flags, const struct timespec *t, struct timespec *left)
{
	return 0;
}

static uint32_t in, out;

static void *stay_inside(void *arg)
{
	struct policy_reader *r = policy_read_enter();

	store_seqcst(&in, 1u);
	while (!load_seqcst(&out)) {
		sched_yield();
	}
	policy_read_leave(r);
	return NULL;
}

/* A thread that stays inside may read a dropped version: its entry is not used before that leaves.
 */
static void a_dropped_version_stays_mapped_for_those_inside(void **state)
{
	struct process t;
	pthread_t th;

	process_init(&t);
	assert_int_equal(prepare(&t.p, 5, image_answering(5, 0)), 0);
	assert_int_equal(pthread_create(&th, NULL, stay_inside, NULL), 0);
	while (!load_seqcst(&in)) {
		sched_yield();
	}
	policy_drop(&t.p, 5, UINT32_MAX);
	assert_int_equal(mapped(&t), 1);
	assert_false(policy_any_prepared(&t.p));
	assert_int_equal(prepare(&t.p, 6, image_answering(6, 0)), 0);
	assert_int_equal(mapped(&t), 2);
	assert_int_equal(t.p.prepared[1].version, 6);
	store_seqcst(&out, 1u);
	pthread_join(th, NULL);
	assert_int_equal(prepare(&t.p, 7, image_answering(7, 0)), 0);
	assert_int_equal(mapped(&t), 2);
	assert_int_equal(t.p.prepared[0].version, 7);
	policy_finish(&t.p);
}

static bool image_is_mapped(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	bool found = false;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		found |= strstr(line, "gbpf-image") != NULL;
	}
	fclose(f);
	return found;
}

static void the_end_unmaps_dropped_versions_too(void **state)
{
	struct process t;
	pthread_t th;

	process_init(&t);
	assert_false(image_is_mapped());
	assert_int_equal(prepare(&t.p, 5, image_answering(5, 0)), 0);
	assert_true(image_is_mapped());
	store_seqcst(&in, 0u);
	store_seqcst(&out, 0u);
	assert_int_equal(pthread_create(&th, NULL, stay_inside, NULL), 0);
	while (!load_seqcst(&in)) {
		sched_yield();
	}
	policy_drop(&t.p, 5, UINT32_MAX);
	assert_true(image_is_mapped());
	store_seqcst(&out, 1u);
	pthread_join(th, NULL);
	policy_finish(&t.p);
	assert_false(image_is_mapped());
}

static void a_version_that_comes_again_replaces_its_entry(void **state)
{
	struct policy_version *old, *v;
	struct process t;

	process_init(&t);
	assert_int_equal(prepare(&t.p, 5, image_answering(5, 0)), 0);
	t.dir.version[0] = 5;
	old = in_force(&t, 0);
	assert_int_equal(old->life, 0);
	old->failures[1][1] = 9;
	t.p.life = 3;
	assert_int_equal(prepare(&t.p, 5, image_answering(5, 1)), 0);
	assert_int_equal(mapped(&t), 1);
	v = in_force(&t, 0);
	assert_true(v != old && v->version == 5);
	assert_int_equal(v->life, 3);
	old->failures[1][1] = 9; /* of an entry that is free */
	assert_int_equal(prepare(&t.p, 6, image_answering(6, 1)), 0);
	assert_int_equal(old->version, 6);
	assert_int_equal(old->failures[1][1], 0);
	policy_finish(&t.p);
}

static void the_directory_decides_what_is_in_force(void **state)
{
	struct process t;

	process_init(&t);
	assert_int_equal(prepare(&t.p, 5, image_answering(5, 0)), 0);
	assert_int_equal(prepare(&t.p, 6, image_answering(6, 0)), 0);
	assert_null(in_force(&t, 0)); /* prepared is not in force */
	t.dir.version[0] = 4;
	assert_null(in_force(&t, 0)); /* nor is one that is unknown here */
	assert_int_equal(t.stats.version_in_use, 0);
	t.dir.version[0] = 5;
	t.dir.version[1] = 6;
	assert_int_equal(version_in_force(&t, 0), 5);
	assert_int_equal(t.stats.version_in_use, 5);
	assert_int_equal(version_in_force(&t, 1), 6);
	assert_int_equal(t.stats.version_in_use, 6);
	assert_int_equal(t.p.gpu[0].hint, 0);
	assert_int_equal(t.p.gpu[1].hint, 1);
	t.dir.version[0] = 4; /* not prepared yet: the one in use stays */
	assert_int_equal(version_in_force(&t, 0), 5);
	t.p.gpu[1].index = 0; /* gbpfd's number of that GPU is another */
	t.dir.version[0] = 5;
	assert_int_equal(version_in_force(&t, 1), 5);
	t.p.gpu[1].index = PROTO_MAX_GPUS;
	assert_null(in_force(&t, 1));
	t.dir.version[0] = 0;
	assert_null(in_force(&t, 0));
	assert_int_equal(t.p.gpu[0].hint, POLICY_NONE);
	t.dir.version[0] = 4;
	assert_null(in_force(&t, 0)); /* none was in use any more */
	policy_finish(&t.p);
}

static void a_dropped_version_is_in_force_nowhere(void **state)
{
	struct process t;

	process_init(&t);
	assert_int_equal(prepare(&t.p, 6, image_answering(6, 0)), 0);
	assert_int_equal(prepare(&t.p, 5, image_answering(5, 0)), 0);
	for (uint32_t g = 0; g < PROTO_MAX_GPUS; g++) {
		t.dir.version[g] = g % 2 ? 6 : 5;
		assert_int_equal(version_in_force(&t, g), g % 2 ? 6 : 5);
	}
	policy_drop(&t.p, 5, UINT32_MAX);
	for (uint32_t g = 0; g < PROTO_MAX_GPUS; g++) {
		assert_int_equal(t.p.gpu[g].hint, g % 2 ? 0 : POLICY_NONE);
		assert_int_equal(version_in_force(&t, g), g % 2 ? 6 : 0);
	}
	policy_finish(&t.p);
}

/* gbpfd goes on after 50 ms, whether a process has prepared a version or not. In an idle one no
 * thread has asked for the versions between. */
static void an_idle_process_goes_on_with_the_last_version_that_it_has(void **state)
{
	struct process t;

	process_init(&t);
	t.dir.version[0] = 5;
	assert_int_equal(prepare(&t.p, 5, image_answering(5, 0)), 0);
	t.dir.version[0] = 6;
	assert_int_equal(version_in_force(&t, 0), 5);
	assert_int_equal(prepare(&t.p, 6, image_answering(6, 0)), 0);
	policy_drop(&t.p, 5, UINT32_MAX);
	t.dir.version[0] = 7;
	assert_int_equal(t.stats.version_in_use, 5);
	assert_int_equal(version_in_force(&t, 0), 6);
	assert_int_equal(t.stats.version_in_use, 6);
	assert_int_equal(prepare(&t.p, 7, image_answering(7, 0)), 0);
	policy_drop(&t.p, 6, UINT32_MAX);
	t.dir.version[0] = 6; /* a rollback */
	assert_int_equal(version_in_force(&t, 0), 7);
	policy_drop(&t.p, 7, UINT32_MAX);
	assert_null(in_force(&t, 0));
	policy_finish(&t.p);
}

static void a_process_that_was_idle_from_the_start_does_so_too(void **state)
{
	struct process t;

	process_init(&t);
	for (uint64_t v = 5; v <= 6; v++) {
		assert_int_equal(prepare(&t.p, v, image_answering(v, 0)), 0);
		t.dir.version[0] = v;
	}
	t.dir.version[0] = 7;
	policy_drop(&t.p, 5, UINT32_MAX);
	assert_int_equal(version_in_force(&t, 0), 6);
	policy_finish(&t.p);
}

/* A version that could not be prepared has replaced the one before all the same. */
static void no_version_runs_that_was_not_in_force(void **state)
{
	struct process t;

	process_init(&t);
	assert_int_equal(prepare(&t.p, 6, image_answering(6, 0)), 0);
	t.dir.version[0] = 6;
	assert_int_equal(version_in_force(&t, 0), 6);
	assert_true(prepare(&t.p, 7, -1) < 0);
	t.dir.version[0] = 7;
	assert_int_equal(version_in_force(&t, 0), 6);
	policy_drop(&t.p, 6, UINT32_MAX);
	assert_null(in_force(&t, 0));
	for (uint64_t v = 6; v <= 8; v += 2) { /* a rollback, or the next swap, before the flip */
		assert_int_equal(prepare(&t.p, v, image_answering(v, 0)), 0);
		assert_null(in_force(&t, 0));
		policy_drop(&t.p, v, UINT32_MAX);
		assert_null(in_force(&t, 0));
	}
	policy_finish(&t.p);
}

/* It joins during a swap from 6 to 7: the PREPARE of the active version comes last. */
static void a_process_that_joins_during_a_swap_has_both_versions(void **state)
{
	struct process t;

	process_init(&t);
	t.dir.version[0] = 6;
	assert_int_equal(prepare(&t.p, 7, image_answering(7, 0)), 0);
	assert_int_equal(prepare(&t.p, 6, image_answering(6, 0)), 0);
	t.dir.version[0] = 7;
	policy_drop(&t.p, 6, UINT32_MAX);
	t.dir.version[0] = 8;
	assert_int_equal(version_in_force(&t, 0), 7);
	policy_finish(&t.p);
}

static void what_a_lost_gbpfd_had_prepared_last_does_not_count(void **state)
{
	struct process t;

	process_init(&t);
	assert_int_equal(prepare(&t.p, 6, image_answering(6, 0)), 0);
	t.dir.version[0] = 6;
	assert_int_equal(version_in_force(&t, 0), 6);
	assert_int_equal(prepare(&t.p, 7, image_answering(7, 0)), 0);
	policy_gbpfd_lost(&t.p);
	t.dir.version[0] = 8; /* of the next one */
	assert_int_equal(version_in_force(&t, 0), 6);
	policy_drop(&t.p, 6, UINT32_MAX);
	assert_null(in_force(&t, 0));
	policy_finish(&t.p);
}

static void an_unloaded_version_does_not_come_back(void **state)
{
	struct process t;

	process_init(&t);
	t.dir.version[0] = 5;
	assert_int_equal(prepare(&t.p, 5, image_answering(5, 0)), 0);
	assert_int_equal(version_in_force(&t, 0), 5);
	t.dir.version[0] = 0;
	assert_null(in_force(&t, 0));
	t.dir.version[0] = 6;
	assert_null(in_force(&t, 0));
	policy_drop(&t.p, 5, UINT32_MAX);
	assert_null(in_force(&t, 0));

	t.dir.version[0] = 7;
	assert_int_equal(prepare(&t.p, 7, image_answering(7, 0)), 0);
	t.dir.version[0] = 0; /* without a call */
	policy_drop(&t.p, 7, UINT32_MAX);
	t.dir.version[0] = 8;
	assert_int_equal(prepare(&t.p, 7, image_answering(7, 0)),
			 0); /* a rollback, not in force yet */
	assert_null(in_force(&t, 0));
	policy_finish(&t.p);
}

/* The word may change between its load and the search. */
static void a_search_reads_the_word_again(void **state)
{
	struct process t;

	process_init(&t);
	assert_int_equal(prepare(&t.p, 5, image_answering(5, 0)), 0);
	t.dir.version[2] = 5;
	assert_int_equal(policy_find(&t.p, 1, 2, 4)->version, 5);
	assert_int_equal(t.p.gpu[1].hint, 0);
	t.dir.version[2] = 0;
	assert_null(policy_find(&t.p, 1, 2, 4));
	assert_int_equal(t.p.gpu[1].hint, POLICY_NONE);
	t.dir.version[2] = 5;
	assert_int_equal(policy_find(&t.p, 1, 2, 0)->version, 5);
	policy_finish(&t.p);
}

static uint64_t now, tick;

static uint64_t ticking(void)
{
	return now += tick;
}

static void the_longest_search_is_shown(void **state)
{
	struct process t;

	process_init(&t);
	assert_int_equal(prepare(&t.p, 5, image_answering(5, 0)), 0);
	t.dir.version[0] = 5;
	now = 1000;
	clock_set_source(ticking);
	tick = 70;
	(void)policy_find(&t.p, 0, 0, 5);
	assert_int_equal(t.stats.swap_stall_ns, 70);
	tick = 30;
	(void)policy_find(&t.p, 0, 0, 5);
	assert_int_equal(t.stats.swap_stall_ns, 70);
	tick = 71;
	(void)policy_find(&t.p, 0, 0, 5);
	assert_int_equal(t.stats.swap_stall_ns, 71);
	clock_set_source(NULL);
	policy_finish(&t.p);
}

static void versions_of_a_lost_gbpfd_go_when_the_new_one_has_prepared_its_own(void **state)
{
	struct process t;

	process_init(&t);
	assert_int_equal(prepare(&t.p, 5, image_answering(5, 0)), 0);
	assert_int_equal(prepare(&t.p, 6, image_answering(6, 0)), 0);
	assert_true(policy_sweep(&t.p)); /* nothing is in force, and nothing was lost */
	assert_true(policy_is_prepared(&t.p, 5, UINT32_MAX) &&
		    policy_is_prepared(&t.p, 6, UINT32_MAX));
	t.p.life = 1;
	t.dir.version[15] = 5;
	assert_false(policy_sweep(&t.p));
	t.p.gpu[15].index = PROTO_MAX_GPUS; /* unknown to this gbpfd: does not count */
	assert_int_equal(prepare(&t.p, 7, image_answering(7, 0)), 0);
	assert_true(policy_sweep(&t.p));
	assert_false(policy_is_prepared(&t.p, 5, UINT32_MAX) ||
		     policy_is_prepared(&t.p, 6, UINT32_MAX));
	assert_true(policy_is_prepared(&t.p, 7, UINT32_MAX));
	t.p.gpu[15].index = 15;
	t.dir.version[15] = 8; /* in force, but not prepared at all */
	assert_false(policy_sweep(&t.p));
	t.dir.version[15] = 7;
	assert_true(policy_sweep(&t.p));
	policy_finish(&t.p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_gpu_begins_without_a_version),
		cmocka_unit_test(images_are_checked_before_they_count),
		cmocka_unit_test(the_number_of_versions_is_limited),
		cmocka_unit_test(each_gpu_has_its_instance),
		cmocka_unit_test(the_instance_of_another_gpu_is_not_used),
		cmocka_unit_test(notes_of_instances_are_summed),
		cmocka_unit_test(a_dropped_version_stays_mapped_for_those_inside),
		cmocka_unit_test(the_end_unmaps_dropped_versions_too),
		cmocka_unit_test(a_version_that_comes_again_replaces_its_entry),
		cmocka_unit_test(the_directory_decides_what_is_in_force),
		cmocka_unit_test(a_dropped_version_is_in_force_nowhere),
		cmocka_unit_test(an_idle_process_goes_on_with_the_last_version_that_it_has),
		cmocka_unit_test(a_process_that_was_idle_from_the_start_does_so_too),
		cmocka_unit_test(no_version_runs_that_was_not_in_force),
		cmocka_unit_test(an_unloaded_version_does_not_come_back),
		cmocka_unit_test(a_process_that_joins_during_a_swap_has_both_versions),
		cmocka_unit_test(what_a_lost_gbpfd_had_prepared_last_does_not_count),
		cmocka_unit_test(a_search_reads_the_word_again),
		cmocka_unit_test(the_longest_search_is_shown),
		cmocka_unit_test(versions_of_a_lost_gbpfd_go_when_the_new_one_has_prepared_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
