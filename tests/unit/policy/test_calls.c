/* Calling the hooks of a policy's version, and what the statistics page shows of it. */
#include "image.h"

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

/* Each notes what the context says of the duration, then changes it. */
static void tools_have_a_copy_of_the_context_each(void **state)
{
	enum { AT = offsetof(struct gbpf_retire_ctx, duration_ns) };
	static const struct ebpf_insn code[] = {
		LOAD(2, 1, AT), MOV(3, 7), STORE(1, AT, 3), MOV(1, 0), CALL(HELPER_NOTE),
		MOV(0, 0),	EXIT,
	};
	const struct gbpf_retire_ctx was = { .duration_ns = 1234, .count = 3 };
	struct gbpf_retire_ctx c = was;
	struct policy_reader *reader;
	struct process t;

	process_init(&t);
	for (uint64_t v = 5; v <= 6; v++) {
		assert_int_equal(prepare(&t.p, v, image_of(v, POLICY_HOOK_retire, code, 7)), 0);
		policy_observer_add(&t.p.prepared[v - 5].policy);
	}
	assert_int_equal(policy_n_observers, 2);
	reader = policy_read_enter();
	policy_observe_all(POLICY_HOOK_retire, &c, sizeof(c));
	policy_observe_all(POLICY_HOOK_submit, &c, sizeof(c)); /* which they do not have */
	policy_read_leave(reader);
	assert_memory_equal(&c, &was, sizeof(c));
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(t.p.prepared[i].policy.env.notes[0], 1234);
		assert_true(policy_observer_remove(&t.p.prepared[i].policy));
	}
	assert_int_equal(policy_n_observers, 0);
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
	policy_drop(&t.p, 6, UINT32_MAX);
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
	policy_drop(&t.p, 3, UINT32_MAX);
	assert_false(policy_take_print(&t.p, 1, text, &version, &dropped, &waits));
	assert_false(waits);
	policy_finish(&t.p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_call_runs_the_hook_of_the_version_in_force),
		cmocka_unit_test(a_map_without_memory_is_not_touched),
		cmocka_unit_test(failures_are_counted_by_hook_and_kind),
		cmocka_unit_test(tools_have_a_copy_of_the_context_each),
		cmocka_unit_test(notes_and_failures_are_those_of_the_version_in_use),
		cmocka_unit_test(printed_lines_are_taken_from_all_versions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
