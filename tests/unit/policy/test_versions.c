/* Preparing, finding and dropping the versions of a policy, and calling their hooks. */
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
	assert_false(policy_is_prepared(&t.p, 0));
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
	assert_true(policy_is_prepared(&t.p, 7));
	assert_false(policy_is_prepared(&t.p, 8));
	assert_int_equal(mapped(&t), 1);
	policy_finish(&t.p);
}

static void eight_versions_fit(void **state)
{
	struct process t;

	process_init(&t);
	for (uint64_t v = 1; v <= 8; v++) {
		assert_int_equal(prepare(&t.p, v, image_answering(v, 0)), 0);
	}
	assert_int_equal(prepare(&t.p, 9, image_answering(9, 0)), -ENOSPC);
	for (uint64_t v = 1; v <= 8; v++) {
		t.dir.version[0] = v;
		assert_int_equal(version_in_force(&t, 0), v);
	}
	policy_drop(&t.p, 0);
	policy_drop(&t.p, 77);
	assert_int_equal(mapped(&t), 8);
	policy_drop(&t.p, 8);
	assert_int_equal(mapped(&t), 7);
	assert_false(policy_is_prepared(&t.p, 8));
	assert_true(policy_is_prepared(&t.p, 1));
	assert_int_equal(prepare(&t.p, 9, image_answering(9, 0)), 0);
	t.dir.version[0] = 9;
	assert_int_equal(version_in_force(&t, 0), 9);
	for (uint64_t v = 1; v <= 9; v++) {
		policy_drop(&t.p, v);
	}
	assert_false(policy_any_prepared(&t.p));
	assert_int_equal(mapped(&t), 0);
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
	policy_drop(&t.p, 5);
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
	policy_drop(&t.p, 5);
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
	assert_int_equal(prepare(&t.p, 5, image_answering(5, 0)), 0);
	assert_int_equal(prepare(&t.p, 6, image_answering(6, 0)), 0);
	for (uint32_t g = 0; g < PROTO_MAX_GPUS; g++) {
		t.dir.version[g] = g % 2 ? 6 : 5;
		assert_int_equal(version_in_force(&t, g), g % 2 ? 6 : 5);
	}
	policy_drop(&t.p, 5);
	for (uint32_t g = 0; g < PROTO_MAX_GPUS; g++) {
		assert_int_equal(t.p.gpu[g].hint, g % 2 ? 1 : POLICY_NONE);
		assert_int_equal(version_in_force(&t, g), g % 2 ? 6 : 0);
	}
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

/* ---- a new gbpfd ---- */

static void versions_of_a_lost_gbpfd_go_when_the_new_one_has_prepared_its_own(void **state)
{
	struct process t;

	process_init(&t);
	assert_int_equal(prepare(&t.p, 5, image_answering(5, 0)), 0);
	assert_int_equal(prepare(&t.p, 6, image_answering(6, 0)), 0);
	assert_true(policy_sweep(&t.p)); /* nothing is in force, and nothing was lost */
	assert_true(policy_is_prepared(&t.p, 5) && policy_is_prepared(&t.p, 6));
	t.p.life = 1;
	t.dir.version[15] = 5;
	assert_false(policy_sweep(&t.p));
	t.p.gpu[15].index = PROTO_MAX_GPUS; /* unknown to this gbpfd: does not count */
	assert_int_equal(prepare(&t.p, 7, image_answering(7, 0)), 0);
	assert_true(policy_sweep(&t.p));
	assert_false(policy_is_prepared(&t.p, 5) || policy_is_prepared(&t.p, 6));
	assert_true(policy_is_prepared(&t.p, 7));
	t.p.gpu[15].index = 15;
	t.dir.version[15] = 8; /* in force, but not prepared at all */
	assert_false(policy_sweep(&t.p));
	t.dir.version[15] = 7;
	assert_true(policy_sweep(&t.p));
	policy_finish(&t.p);
}

/* ---- calls ---- */

/* Maps of gbpfd alone have no memory here. */
static void a_map_without_memory_is_not_touched(void **state)
{
	static const struct ebpf_map_def def = { .name = "m",
						 .type = 2,
						 .key_bytes = 4,
						 .value_bytes = 8,
						 .max_entries = 1,
						 .flags = GBPF_F_DAEMON };
	static const struct ebpf_insn code[] = { MOV(0, 1), EXIT };
	struct ebpf_image_header h = { .version = 5, .name = "test", .n_maps = 1, .n_insns = 2 };
	struct policy_result r = { 0 };
	struct gbpf_submit_ctx c = { 0 };
	struct process t;

	h.progs[POLICY_HOOK_submit] =
		(struct ebpf_image_prog){ .n_insns = 2, .code_offset = UINT32_MAX, .cost = 1 };
	process_init(&t);
	assert_int_equal(prepare(&t.p, 5, ebpf_image_build(&h, &def, code, NULL, 0)), 0);
	assert_null(t.p.prepared[0].policy.env.maps[0].data);
	t.dir.version[0] = 5;
	assert_int_equal(version_in_force(&t, 0), 5);
	assert_true(policy_hook_call(&t.p, 0, POLICY_HOOK_submit, &c, &r));
	assert_int_equal(r.verdict, 1);
	policy_finish(&t.p);
}

static void a_call_runs_the_hook_of_the_version_in_force(void **state)
{
	struct policy_result r = { .version = 99, .verdict = 98, .failed = POLICY_OUTLIVED };
	struct gbpf_submit_ctx c = { 0 };
	struct process t;

	process_init(&t);
	assert_int_equal(prepare(&t.p, 5, image_answering(5, 2)), 0);
	assert_false(policy_hook_call(&t.p, 0, POLICY_HOOK_submit, &c, &r));
	t.dir.version[0] = 5;
	t.p.off = 1;
	assert_false(policy_hook_call(&t.p, 0, POLICY_HOOK_submit, &c, &r));
	t.p.off = 0;
	t.dir.off = 1;
	assert_false(policy_hook_call(&t.p, 0, POLICY_HOOK_submit, &c, &r));
	t.dir.off = 0;
	assert_false(policy_hook_call(&t.p, 0, POLICY_HOOK_retire, &c, &r));
	assert_false(policy_hook_call(&t.p, 1, POLICY_HOOK_submit, &c, &r));
	assert_int_equal(r.version, 99);
	assert_int_equal(r.verdict, 98);
	assert_int_equal(r.failed, POLICY_OUTLIVED);
	assert_true(policy_hook_call(&t.p, 0, POLICY_HOOK_submit, &c, &r));
	assert_int_equal(r.version, 5);
	assert_int_equal(r.verdict, 2);
	assert_int_equal(r.failed, POLICY_FINE);
	assert_int_equal(policy_reader_self->seq & 1, 0);
	policy_finish(&t.p);
}

static void failures_are_counted_by_hook_and_kind(void **state)
{
	static const struct ebpf_insn fails[] = { MOV(1, EBPF_NOTES), MOV(2, 1), CALL(HELPER_NOTE),
						  MOV(0, 0), EXIT };
	struct policy_result r = { 0 };
	struct gbpf_submit_ctx c = { 0 };
	struct policy_version *five, *six;
	struct process t;

	process_init(&t);
	assert_int_equal(prepare(&t.p, 5, image_of(5, POLICY_HOOK_submit, fails, 5)), 0);
	assert_int_equal(prepare(&t.p, 6, image_answering(6, 0)), 0);
	five = &t.p.prepared[0];
	six = &t.p.prepared[1];
	t.dir.version[0] = 5;
	assert_true(policy_hook_call(&t.p, 0, POLICY_HOOK_submit, &c, &r));
	assert_int_equal(r.failed, POLICY_HELPER_FAILED);
	assert_int_equal(five->failures[POLICY_HOOK_submit][PROTO_FAILED_HELPER], 1);
	policy_count_verdict(&t.p, 6, POLICY_HOOK_dispatch);
	policy_count_verdict(&t.p, 6, POLICY_HOOK_dispatch);
	policy_count_verdict(&t.p, 5, POLICY_HOOK_submit);
	policy_count_verdict(&t.p, 7, POLICY_HOOK_submit);
	assert_int_equal(six->failures[POLICY_HOOK_dispatch][PROTO_FAILED_VERDICT], 2);
	assert_int_equal(five->failures[POLICY_HOOK_submit][PROTO_FAILED_VERDICT], 1);
	assert_int_equal(six->failures[POLICY_HOOK_submit][PROTO_FAILED_VERDICT], 0);
	assert_int_equal(policy_reader_self->seq & 1, 0);
	t.dir.version[0] = 6;
	assert_true(policy_hook_call(&t.p, 0, POLICY_HOOK_submit, &c, &r));
	assert_int_equal(r.failed, POLICY_FINE);
	/* data that was overwritten during the call */
	assert_int_equal(six->failures[POLICY_HOOK_submit][PROTO_FAILED_EPOCH], 0);
	policy_finish(&t.p);
}

/* ---- the statistics page ---- */

static void notes_and_failures_are_those_of_the_version_in_use(void **state)
{
	struct policy_version *v;
	struct process t;

	process_init(&t);
	t.stats.notes_version = 3;
	policy_publish_notes(&t.p, &t.stats);
	assert_int_equal(t.stats.notes_version, 0);
	assert_int_equal(prepare(&t.p, 5, image_answering(5, 0)), 0);
	assert_int_equal(prepare(&t.p, 6, image_answering(6, 0)), 0);
	v = &t.p.prepared[0];
	v->policy.env.notes[0] = 10;
	v->policy.env.notes[PROTO_NOTES - 1] = 25;
	v->failures[0][0] = 1;
	v->failures[PROTO_HOOKS - 1][PROTO_FAILURES - 1] = 64;
	t.dir.version[0] = 5;
	(void)in_force(&t, 0);
	t.stats.block_launches = 7; /* the member behind them */
	policy_publish_notes(&t.p, &t.stats);
	assert_int_equal(t.stats.block_launches, 7);
	assert_int_equal(t.stats.notes_version, 5);
	assert_int_equal(t.stats.notes[0], 10);
	assert_int_equal(t.stats.notes[PROTO_NOTES - 1], 25);
	assert_int_equal(t.stats.failures[0][0], 1);
	assert_int_equal(t.stats.failures[PROTO_HOOKS - 1][PROTO_FAILURES - 1], 64);
	t.dir.version[0] = 6;
	(void)in_force(&t, 0);
	policy_publish_notes(&t.p, &t.stats);
	assert_int_equal(t.stats.notes_version, 6);
	assert_int_equal(t.stats.notes[0], 0);
	assert_int_equal(t.stats.failures[0][0], 0);
	policy_drop(&t.p, 6);
	t.stats.notes[0] = 4;
	policy_publish_notes(&t.p, &t.stats);
	assert_int_equal(t.stats.notes_version, 0);
	assert_int_equal(t.stats.notes[0], 4); /* of no version: left alone */
	policy_finish(&t.p);
}

static void printed_lines_are_taken_from_all_versions(void **state)
{
	uint64_t version = 0, dropped = 9;
	char text[EBPF_PRINT_TEXT];
	bool waits = true;
	struct process t;

	process_init(&t);
	assert_false(policy_take_print(&t.p, 1, text, &version, &dropped, &waits));
	assert_false(waits);
	for (uint64_t v = 1; v <= 8; v++) {
		assert_int_equal(prepare(&t.p, v, image_answering(v, 0)), 0);
	}
	(void)ebpf_print(&t.p.prepared[7].policy.env.prints, "last", 5, NULL, 0);
	assert_true(policy_take_print(&t.p, 1, text, &version, &dropped, &waits));
	assert_int_equal(version, 8);
	assert_int_equal(dropped, 0);
	assert_string_equal(text, "last");
	for (unsigned i = 0; i < 2 * EBPF_PRINTS_PER_SECOND; i++) {
		(void)ebpf_print(&t.p.prepared[2].policy.env.prints, "third", 6, NULL, 0);
		if (i < EBPF_PRINTS_PER_SECOND) {
			assert_true(policy_take_print(&t.p, 1, text, &version, &dropped, &waits));
			assert_int_equal(version, 3);
		}
	}
	assert_false(policy_take_print(&t.p, 1, text, &version, &dropped, &waits));
	assert_true(waits); /* for the next second */
	policy_drop(&t.p, 3);
	assert_false(policy_take_print(&t.p, 1, text, &version, &dropped, &waits));
	assert_false(waits);
	policy_finish(&t.p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_gpu_begins_without_a_version),
		cmocka_unit_test(images_are_checked_before_they_count),
		cmocka_unit_test(eight_versions_fit),
		cmocka_unit_test(a_dropped_version_stays_mapped_for_those_inside),
		cmocka_unit_test(the_end_unmaps_dropped_versions_too),
		cmocka_unit_test(a_version_that_comes_again_replaces_its_entry),
		cmocka_unit_test(the_directory_decides_what_is_in_force),
		cmocka_unit_test(a_dropped_version_is_in_force_nowhere),
		cmocka_unit_test(a_search_reads_the_word_again),
		cmocka_unit_test(the_longest_search_is_shown),
		cmocka_unit_test(versions_of_a_lost_gbpfd_go_when_the_new_one_has_prepared_its_own),
		cmocka_unit_test(a_call_runs_the_hook_of_the_version_in_force),
		cmocka_unit_test(a_map_without_memory_is_not_touched),
		cmocka_unit_test(failures_are_counted_by_hook_and_kind),
		cmocka_unit_test(notes_and_failures_are_those_of_the_version_in_use),
		cmocka_unit_test(printed_lines_are_taken_from_all_versions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
