/* probe.coverage: sessions are asked, and what they have written to their statistics is shown. */
#include "probe_rig.h"

#include "base/atomic.h"

static void write_kernel(struct fake *f, unsigned i, const char *name, uint64_t count,
			 enum proto_form form, const char *why)
{
	struct proto_stats *st = f->stats;

	st->kernel[i] =
		(struct proto_stats_kernel){ .hash = i + 1, .count = count, .est_ns = 1000 };
	snprintf(st->kernel[i].name, PROTO_KERNEL_NAME, "%s", name);
	st->kernel_cover[i].launches = count;
	st->kernel_cover[i].graph_launches = count / 2;
	st->kernel_cover[i].launches_ns = count * 1000;
	st->kernel_form[i] = (uint8_t)form;
	snprintf(st->kernel_form_why[i], PROTO_FORM_WHY, "%s", why);
	if (form < PROTO_FORMS) {
		st->form[form].kernels++;
		st->form[form].launches += count;
		st->form[form].launches_ns += count * 1000;
	}
}

static void ask(struct caller *c, struct gd *d, const char *params)
{
	c->method = "probe.coverage";
	c->params = params;
	caller_start(c, d);
}

static json_t *tenant(const json_t *r, size_t i)
{
	return json_array_get(json_object_get(r, "tenants"), i);
}

static void answer_shows_kernels_and_shares(void **state)
{
	struct gd *d = *state;
	struct caller c = { 0 };
	const json_t *k, *forms;
	struct fake f;
	json_t *r;

	fake_enter(&f, d, 2, "train");
	write_kernel(&f, 0, "few", 10, PROTO_FORM_NONE, "it was linked\033 by the driver");
	write_kernel(&f, 1, "many", 30, PROTO_FORM_PTX, "");
	ask(&c, d, "{\"to\":\"train\"}");
	send_order(&f, PROTO_COVERED, 0, expect_order(&f, PROTO_COVERAGE, 0));
	r = caller_result(&c);
	assert_true(json_is_true(json_object_get(tenant(r, 0), "answered")));
	k = json_array_get(json_object_get(tenant(r, 0), "kernels"), 0);
	assert_string_equal(text_of(k, "name"), "many");
	assert_string_equal(text_of(k, "form"), "ptx");
	assert_int_equal(number(k, "launches"), 30);
	assert_int_equal(number(k, "graph_launches"), 15);
	assert_int_equal(number(k, "launches_ns"), 30000);
	assert_true(json_real_value(json_object_get(k, "share")) == 0.75);
	k = json_array_get(json_object_get(tenant(r, 0), "kernels"), 1);
	assert_string_equal(text_of(k, "form"), "none");
	assert_string_equal(text_of(k, "why"), "it was linked? by the driver");
	forms = json_object_get(tenant(r, 0), "forms");
	assert_true(json_real_value(json_object_get(json_object_get(forms, "none"), "share_ns")) ==
		    0.25);
	assert_int_equal(number(json_object_get(forms, "stub"), "launches"), 0);
	caller_finish(&c);
	fake_leave(&f);
}

/* A process may write anything to its page. */
static void false_pages_are_shown_within_bounds(void **state)
{
	struct gd *d = *state;
	struct caller c = { 0 };
	struct fake f;
	const json_t *k;

	fake_enter(&f, d, 2, "false");
	memset(f.stats, 0xff, sizeof(*f.stats));
	ask(&c, d, NULL);
	send_order(&f, PROTO_COVERED, 0, expect_order(&f, PROTO_COVERAGE, 0));
	caller_result(&c);
	assert_int_equal(json_array_size(json_object_get(tenant(c.result, 0), "kernels")),
			 PROTO_KERNELS);
	k = json_array_get(json_object_get(tenant(c.result, 0), "kernels"), 0);
	assert_string_equal(text_of(k, "form"), "unknown");
	assert_true(json_real_value(json_object_get(k, "share")) <= 1);
	caller_finish(&c);
	fake_leave(&f);
}

static void late_session_is_not_waited_for(void **state)
{
	struct gd *d = *state;
	struct caller c = { 0 }, again = { 0 };
	uint64_t order;
	struct fake f;

	fake_enter(&f, d, 2, "train");
	ask(&c, d, NULL);
	order = expect_order(&f, PROTO_COVERAGE, 0);
	assert_true(json_is_false(json_object_get(tenant(caller_result(&c), 0), "answered")));
	caller_finish(&c);
	ask(&again, d, NULL);
	send_order(&f, PROTO_COVERED, 0, order); /* the next question follows */
	send_order(&f, PROTO_COVERED, 0, expect_order(&f, PROTO_COVERAGE, 0));
	assert_true(json_is_true(json_object_get(tenant(caller_result(&again), 0), "answered")));
	caller_finish(&again);
	fake_leave(&f);
}

static void ended_session_has_no_answer(void **state)
{
	struct gd *d = *state;
	struct caller c = { 0 };
	struct fake f;

	fake_enter(&f, d, 2, "train");
	ask(&c, d, NULL);
	expect_order(&f, PROTO_COVERAGE, 0);
	fake_leave(&f);
	assert_int_equal(json_array_size(json_object_get(caller_result(&c), "tenants")), 0);
	caller_finish(&c);
}

static void unknown_program_is_refused(void **state)
{
	struct gd *d = *state;
	struct caller c = { 0 };

	ask(&c, d, "{\"to\":\"none\"}");
	caller_fails(&c, GBPF_CODE_NOT_FOUND, "no program 'none' runs under gBPF");
	caller_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define WITH_GBPFD(t) cmocka_unit_test_setup_teardown(t, gd_setup, gd_teardown)
		WITH_GBPFD(answer_shows_kernels_and_shares),
		WITH_GBPFD(false_pages_are_shown_within_bounds),
		WITH_GBPFD(late_session_is_not_waited_for),
		WITH_GBPFD(ended_session_has_no_answer),
		WITH_GBPFD(unknown_program_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
