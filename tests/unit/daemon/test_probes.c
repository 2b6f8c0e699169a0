/* Tools: attach, list, drain and detach, and the messages of sessions about them. */
#include "bpf/run/map/map_sm_ring.h"
#include "bpf/run/printk.h"
#include "probe_rig.h"

#include "base/atomic.h"

static void attach_answers_when_sessions_have(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing", .probe = { .kernel = "gemm_?" } };
	json_t *r, *program;
	struct proto_probe m;
	struct fake f;

	fake_enter(&f, d, 2, "train");
	caller_start(&c, d);
	m = expect_probe(&f, NULL);
	assert_int_equal(m.version, FIRST_VERSION + 1);
	assert_int_equal(m.replaces, 0);
	assert_int_equal(m.held, 0);
	assert_string_equal(m.kernel, "gemm_?");
	send_state(&f, m.version, 0, 3, 2, "gemm_5: no PTX");
	r = caller_result(&c);
	assert_int_equal(number(r, "id"), 1);
	assert_int_equal(number(r, "version"), FIRST_VERSION + 1);
	assert_string_equal(text_of(r, "name"), "blocks");
	assert_int_equal(number(r, "sessions"), 1);
	assert_int_equal(number(r, "late"), 0);
	assert_int_equal(number(r, "kernels"), 3);
	assert_int_equal(number(r, "waiting"), 2);
	assert_int_equal(number(r, "refused"), 1);
	program = json_array_get(json_object_get(r, "programs"), 0);
	assert_string_equal(text_of(program, "program"), "count");
	assert_string_equal(text_of(program, "hook"), "gdev_block_enter");
	assert_string_equal(text_of(program, "kernel"), "gemm*");
	assert_true(number(program, "cost") > 0);
	gd_await_event(d, 0, "probe", "train does not run tool 1 in all kernels: gemm_5: no PTX");
	gd_await_event(d, 0, "probe", "attach of tool 1 'blocks': to all programs, kernels gemm_?");
	caller_finish(&c);
	fake_leave(&f);
}

static void attach_does_not_wait_for_late_sessions(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing" };
	json_t *list, *p;
	struct fake f;

	fake_enter(&f, d, 2, "train");
	caller_start(&c, d);
	assert_int_equal(number(caller_result(&c), "late"), 1);
	send_state(&f, expect_probe(&f, NULL).version, 0, 7, 0, NULL);
	handled(d, &f);
	p = listed(d, 1, &list);
	assert_int_equal(number(p, "kernels"), 7);
	json_decref(list);
	caller_finish(&c);
	fake_leave(&f);
}

static void list_shows_tools_and_their_sessions(void **state)
{
	struct gd *d = *state;
	json_t *list, *p, *t;
	struct fake f;
	uint64_t version;

	fake_enter(&f, d, 2, "train");
	version = attach(d, "probing", &f, NULL);
	send_state(&f, version, 0, 5, 1, "x: too many registers");
	handled(d, &f);
	p = listed(d, 1, &list);
	assert_string_equal(text_of(p, "name"), "blocks");
	assert_string_equal(text_of(p, "kernel"), "*");
	assert_string_equal(text_of(p, "to"), "");
	assert_string_equal(text_of(p, "state"), "attached");
	assert_true(json_is_false(json_object_get(p, "hold")));
	assert_int_equal(number(p, "kernels"), 5);
	assert_string_equal(text_of(p, "why"), "x: too many registers");
	t = json_array_get(json_object_get(p, "tenants"), 0);
	assert_int_equal(number(t, "tenant"), f.tenant);
	assert_int_equal(number(t, "pid"), getpid());
	assert_string_equal(text_of(t, "name"), "train");
	json_decref(list);
	fake_leave(&f);
}

static void detach_answers_when_sessions_have_ended_it(void **state)
{
	struct gd *d = *state;
	struct caller c = { .method = "probe.detach", .params = "{\"id\":1}" };
	uint64_t version, order;
	json_t *list, *p;
	struct fake f;

	fake_enter(&f, d, 2, "train");
	version = attach(d, "probing", &f, NULL);
	caller_start(&c, d);
	order = expect_order(&f, PROTO_PROBE_END, version);
	p = listed(d, 1, &list);
	assert_string_equal(text_of(p, "state"), "ending");
	json_decref(list);
	send_order(&f, PROTO_PROBE_ENDED, version, order);
	assert_int_equal(number(caller_result(&c), "late"), 0);
	assert_false(is_listed(d, 1));
	gd_await_event(d, 0, "probe", "detach of tool 1");
	caller_finish(&c);
	fake_leave(&f);
}

static void detach_does_not_wait_for_late_sessions(void **state)
{
	struct gd *d = *state;
	json_t *r;
	uint64_t version, order;
	struct fake f;

	fake_enter(&f, d, 2, "train");
	version = attach(d, "probing", &f, NULL);
	r = gd_call(d, "probe.detach", "{\"id\":1}");
	assert_int_equal(number(r, "late"), 1);
	json_decref(r);
	assert_false(is_listed(d, 1));
	order = expect_order(&f, PROTO_PROBE_END, version);
	send_order(&f, PROTO_PROBE_ENDED, version, order); /* no fault, although it is late */
	send_state(&f, version, 0, 0, 0, NULL);
	handled(d, &f);
	fake_leave(&f);
}

/* The session writes its copy of the map when it is asked to. */
static void drain_precedes_dump(void **state)
{
	struct gd *d = *state;
	struct caller c = { .method = "map.drain", .params = "{\"map\":\"counts\"}" };
	uint64_t version, order, *region;
	json_t *r, *e;
	struct fake f;

	fake_enter(&f, d, 2, "train");
	version = attach(d, "probing", &f, &region);
	caller_start(&c, d);
	order = expect_order(&f, PROTO_PROBE_DRAIN, version);
	region[0] = 4711; /* counts is the first map of the region */
	send_order(&f, PROTO_PROBE_DRAINED, version, order);
	r = caller_result(&c);
	assert_int_equal(number(r, "version"), version);
	assert_int_equal(number(r, "drained"), 1);
	assert_int_equal(number(r, "late"), 0);
	r = gd_call(d, "map.dump", "{\"map\":\"counts\",\"nonzero\":true}");
	assert_string_equal(text_of(r, "scope"), "device");
	assert_int_equal(number(r, "version"), version);
	e = json_array_get(json_object_get(r, "entries"), 0);
	assert_int_equal(number(e, "tenant"), f.tenant);
	assert_int_equal(number(e, "value"), 4711);
	json_decref(r);
	shm_unmap(region, 4096);
	caller_finish(&c);
	fake_leave(&f);
}

static void drain_does_not_wait_for_late_sessions(void **state)
{
	struct gd *d = *state;
	json_t *r;
	struct fake f;

	fake_enter(&f, d, 2, "train");
	attach(d, "probing", &f, NULL);
	r = gd_call(d, "map.drain", "{\"probe\":1}");
	assert_int_equal(number(r, "drained"), 0);
	assert_int_equal(number(r, "late"), 1);
	json_decref(r);
	fake_leave(&f);
}

/* Later callers' orders wait for the unanswered one, so that they cannot fill the socket. */
static void one_drain_at_a_time(void **state)
{
	struct gd *d = *state;
	union proto_message m;
	uint64_t version, order;
	struct fake f;

	fake_enter(&f, d, 2, "train");
	version = attach(d, "probing", &f, NULL);
	json_decref(gd_call(d, "map.drain", "{\"probe\":1}"));
	json_decref(gd_call(d, "map.drain", "{\"probe\":1}"));
	json_decref(gd_call(d, "map.drain", "{\"probe\":1}"));
	order = expect_order(&f, PROTO_PROBE_DRAIN, version);
	json_decref(gd_call(d, "set", "{\"tenant\":0,\"weight\":50}"));
	assert_int_equal(fake_expect(&f, &m, PROTO_SET), -1); /* and no second order before it */
	send_order(&f, PROTO_PROBE_DRAINED, version, order);
	assert_true(expect_order(&f, PROTO_PROBE_DRAIN, version) > order);
	fake_leave(&f);
}

static void device_maps_cannot_be_set(void **state)
{
	static const char *const methods[] = { "map.set", "map.delete" };
	struct gd *d = *state;
	struct fake f;

	fake_enter(&f, d, 2, "train");
	attach(d, "probing", &f, NULL);
	for (unsigned i = 0; i < 2; i++) {
		struct gbpf *g = gd_open(d);

		assert_true(gbpf_call(g, methods[i],
				      "{\"map\":\"counts\",\"key\":\"0\",\"value\":\"1\","
				      "\"tenant\":0}",
				      -1, NULL) < 0);
		assert_string_equal(gbpf_last_error(g)->code, "not-possible");
		assert_non_null(strstr(gbpf_last_error(g)->message, "inside kernels only"));
		gbpf_close(g);
	}
	json_decref(gd_call(d, "map.set",
			    "{\"map\":\"notes\",\"key\":\"0\",\"value\":\"1\",\"tenant\":0}"));
	fake_leave(&f);
}

static void maps_are_found_by_tool_version_and_name(void **state)
{
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);
	char params[80];
	json_t *r;

	json_decref(gd_call(d, "probe.list", NULL));
	assert_true(gbpf_call(g, "map.dump", "{\"map\":\"counts\"}", -1, NULL) < 0);
	assert_string_equal(gbpf_last_error(g)->message, "no policy is active");
	attach(d, "probing", NULL, NULL);
	json_decref(gd_call(d, "map.dump", "{\"map\":\"counts\"}"));
	attach(d, "probing2", NULL, NULL);
	assert_true(gbpf_call(g, "map.dump", "{\"map\":\"counts\"}", -1, NULL) < 0);
	assert_string_equal(gbpf_last_error(g)->message, "tools 1, 2 have a map 'counts'");
	r = gd_call(d, "map.dump", "{\"map\":\"counts\",\"probe\":2}");
	assert_int_equal(number(r, "version"), FIRST_VERSION + 2);
	json_decref(r);
	snprintf(params, sizeof(params), "{\"version\":%llu}",
		 (unsigned long long)FIRST_VERSION + 1);
	r = gd_call(d, "map.list", params);
	assert_int_equal(json_array_size(json_object_get(r, "maps")), 2);
	json_decref(r);
	assert_true(gbpf_call(g, "map.dump", "{\"map\":\"counts\",\"probe\":9}", -1, NULL) < 0);
	assert_string_equal(gbpf_last_error(g)->message, "there is no tool 9");
	assert_true(gbpf_call(g, "map.dump", "{\"map\":\"x\",\"probe\":2}", -1, NULL) < 0);
	assert_string_equal(gbpf_last_error(g)->message, "tool 2 'blocks' has no map 'x'");
	gbpf_close(g);
}

static void objects_of_the_wrong_kind_are_refused(void **state)
{
	static const struct {
		const char *object, *hint;
	} cases[] = { { "plain", "no programs inside kernels" },
		      { "both_sides", "submit and retire only" } };
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);

	for (unsigned i = 0; i < 2; i++) {
		struct caller c = { .object = cases[i].object };

		caller_start(&c, d);
		caller_fails(&c, GBPF_CODE_REFUSED, cases[i].hint);
		caller_finish(&c);
	}
	assert_true(gbpf_policy_load(g, gd_object("probing"), NULL, 0, NULL) < 0);
	assert_int_equal(gbpf_last_error(g)->exit, GBPF_CODE_REFUSED);
	assert_non_null(strstr(gbpf_last_error(g)->hint, "gbpf probe attach"));
	assert_true(gbpf_policy_load(g, gd_object("both_sides"), NULL, 0, NULL) < 0);
	assert_int_equal(gd_number(d, "policy.list", "active"), 0);
	gbpf_close(g);
}

static void tool_that_no_session_can_have_is_refused(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing" };
	uint64_t version;
	struct fake f;

	fake_enter(&f, d, 2, "train");
	caller_start(&c, d);
	version = expect_probe(&f, NULL).version;
	send_state(&f, version, -95, 0, 0, "the device has no memory for its maps");
	caller_fails(&c, GBPF_CODE_REFUSED, "the device has no memory for its maps");
	assert_false(is_listed(d, 1));
	caller_finish(&c);
	fake_leave(&f);
}

static void budgets_and_figures_pass_through(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing", .probe = { .budget_ppm = 30000 } };
	struct caller swap = { .object = "probing2", .probe = { .replace = 1 } };
	union proto_message m = { 0 };
	struct proto_probe p;
	json_t *list, *t;
	struct fake f;

	fake_enter(&f, d, 2, "train");
	caller_start(&c, d);
	p = expect_probe(&f, NULL);
	assert_int_equal(p.budget_ppm, 30000);
	assert_int_equal(p.control.every, 0);
	m.probe_state = (struct proto_probe_state){ .version = p.version,
						    .kernels = 1,
						    .cost_ppm = 123456,
						    .launches = UINT64_MAX,
						    .probed = 7,
						    .resident_before = 8,
						    .resident_after = 6,
						    .unseen = UINT32_MAX };
	fake_send(&f, &m, PROTO_PROBE_STATE);
	caller_result(&c);
	t = listed(d, 1, &list);
	assert_int_equal(number(t, "budget_ppm"), 30000);
	assert_int_equal(number(t, "cost_ppm"), 123456);
	assert_int_equal(number(t, "launches"), INT64_C(1) << 53);
	assert_int_equal(number(t, "probed"), 7);
	assert_int_equal(number(t, "resident_before"), 8);
	assert_int_equal(number(t, "resident_after"), 6);
	assert_int_equal(number(t, "unseen"), UINT32_MAX);
	json_decref(list);
	caller_start(&swap, d);
	p = expect_probe(&f, NULL);
	assert_int_equal(p.budget_ppm, 30000); /* that of the replaced one */
	send_state(&f, p.version, 0, 1, 0, NULL);
	caller_result(&swap);
	caller_finish(&swap);
	caller_finish(&c);
	fake_leave(&f);
}

/* A session may name kernels and programs that do not exist. */
static void programs_without_a_site_are_named(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing" };
	union proto_message m = { 0 };
	json_t *siteless, *list, *t;
	struct fake f;

	fake_enter(&f, d, 2, "train");
	caller_start(&c, d);
	m.probe_state.version = expect_probe(&f, NULL).version;
	m.probe_state.kernels = 3;
	m.probe_state.siteless = 7;
	m.probe_state.placed = 2;
	m.probe_state.unplaced = UINT32_MAX;
	m.probe_state.gaps[0].programs = 2; /* the tool has one program */
	m.probe_state.gaps[1].programs = UINT32_MAX;
	m.probe_state.gaps[2].programs = 1;
	memset(m.probe_state.gaps[1].kernel, '\n', PROTO_KERNEL_NAME);
	snprintf(m.probe_state.gaps[2].kernel, PROTO_KERNEL_NAME, "gemm");
	m.probe_state.gaps[3] = m.probe_state.gaps[2];
	fake_send(&f, &m, PROTO_PROBE_STATE);
	siteless = json_object_get(caller_result(&c), "siteless");
	assert_int_equal(number(siteless, "kernels"), 3);
	assert_int_equal(json_array_size(json_object_get(siteless, "programs")), 1);
	assert_int_equal(json_array_size(json_object_get(siteless, "list")), 2);
	t = json_array_get(json_object_get(siteless, "list"), 1);
	assert_string_equal(text_of(t, "kernel"), "gemm");
	t = json_array_get(json_object_get(t, "programs"), 0);
	assert_string_equal(json_string_value(t), "count");
	t = listed(d, 1, &list);
	assert_true(json_equal(json_object_get(t, "siteless"), siteless));
	json_decref(list);
	gd_await_event(d, 0, "probe", "program count of tool 1 has no site in ???");
	caller_finish(&c);
	fake_leave(&f);
}

/* Also by sessions that come later, and by a tool that replaces it. */
static void set_reaches_all_sessions(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing", .probe = { .every = 8 } };
	struct caller swap = { .object = "probing2", .probe = { .replace = 1 } };
	union proto_message m;
	struct fake f, later;
	struct proto_probe p;
	json_t *r;

	fake_enter(&f, d, 2, "train");
	caller_start(&c, d);
	p = expect_probe(&f, NULL);
	assert_int_equal(p.control.every, 8);
	send_state(&f, p.version, 0, 1, 0, NULL);
	caller_result(&c);
	r = gd_call(d, "probe.set", "{\"id\":1,\"off\":true}");
	assert_true(json_is_true(json_object_get(r, "off")));
	json_decref(r);
	assert_int_equal(fake_expect(&f, &m, PROTO_PROBE_SET), -1);
	assert_int_equal(m.probe_set.version, p.version);
	assert_int_equal(m.probe_set.control.off, 1);
	json_decref(gd_call(d, "probe.set", "{\"id\":1,\"every\":4}"));
	assert_int_equal(fake_expect(&f, &m, PROTO_PROBE_SET), -1);
	assert_int_equal(m.probe_set.control.every, 4);
	assert_int_equal(m.probe_set.control.off, 1); /* it stays off */
	fake_enter(&later, d, 2, "later");
	assert_int_equal(expect_probe(&later, NULL).control.off, 1);
	json_decref(gd_call(d, "probe.set", "{\"id\":1,\"off\":false}"));
	assert_int_equal(fake_expect(&f, &m, PROTO_PROBE_SET), -1);
	assert_int_equal(m.probe_set.control.every, 4);
	assert_int_equal(fake_expect(&later, &m, PROTO_PROBE_SET), -1);
	assert_int_equal(m.probe_set.control.every, 4);
	json_decref(gd_call(d, "probe.set", "{\"id\":1,\"budget_ppm\":20000}"));
	for (struct fake *each = &f; each; each = each == &f ? &later : NULL) {
		assert_int_equal(fake_expect(each, &m, PROTO_PROBE_SET), -1);
		assert_int_equal(m.probe_set.control.every, 4);
		assert_int_equal(m.probe_set.budget_ppm, 20000);
	}
	caller_start(&swap, d);
	p = expect_probe(&f, NULL);
	assert_int_equal(p.control.every, 4);
	assert_int_equal(p.budget_ppm, 20000);
	caller_result(&swap);
	caller_finish(&swap);
	caller_finish(&c);
	fake_leave(&later);
	fake_leave(&f);
}

/* As "PATTERN every off" for each; 0 and -: not set. */
static void expect_scopes(const struct proto_probe_control *c, const char *text)
{
	static const char *const names[] = { "-", "on", "off" };
	char all[PROTO_PROBE_SCOPES * 64] = "";
	size_t len = 0;

	for (uint32_t i = 0; i < c->n; i++) {
		const struct proto_probe_scope *s = &c->scopes[i];

		len += (size_t)snprintf(all + len, sizeof(all) - len, "%s%.32s %u %s",
					i ? "; " : "", s->kernel, s->every, names[s->on_off]);
	}
	assert_string_equal(all, text);
}

static void set(struct gd *d, struct fake *f, const char *params, const char *scopes)
{
	union proto_message m;

	json_decref(gd_call(d, "probe.set", params));
	assert_int_equal(fake_expect(f, &m, PROTO_PROBE_SET), -1);
	expect_scopes(&m.probe_set.control, scopes);
}

/* For each kernel the last set counts that names it. Later sessions, and a tool that replaces it,
 * have them, too. */
static void set_for_some_kernels(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing", .probe = { .every = 8 } };
	struct caller swap = { .object = "probing2", .probe = { .replace = 1 } };
	struct fake f, later;
	struct proto_probe p;
	json_t *list, *scopes;

	fake_enter(&f, d, 2, "train");
	caller_start(&c, d);
	p = expect_probe(&f, NULL);
	expect_scopes(&p.control, "");
	send_state(&f, p.version, 0, 1, 0, NULL);
	caller_result(&c);
	set(d, &f, "{\"id\":1,\"kernel\":\"a*\",\"every\":64}", "a* 64 -");
	set(d, &f, "{\"id\":1,\"kernel\":\"a*\",\"off\":true}", "a* 64 off");
	set(d, &f, "{\"id\":1,\"kernel\":\"ab\",\"every\":2,\"off\":false}", "a* 64 off; ab 2 on");
	set(d, &f, "{\"id\":1,\"kernel\":\"a*\",\"off\":false}", "a* 64 -; ab 2 on; a* 0 on");
	set(d, &f, "{\"id\":1,\"kernel\":\"a*\",\"every\":4}", "ab 2 on; a* 4 on");
	fake_enter(&later, d, 2, "later");
	p = expect_probe(&later, NULL);
	expect_scopes(&p.control, "ab 2 on; a* 4 on");
	fake_leave(&later);
	scopes = json_object_get(listed(d, 1, &list), "scopes");
	assert_int_equal(json_array_size(scopes), 2);
	assert_string_equal(text_of(json_array_get(scopes, 0), "kernel"), "ab");
	assert_int_equal(number(json_array_get(scopes, 1), "every"), 4);
	assert_true(json_is_false(json_object_get(json_array_get(scopes, 1), "off")));
	json_decref(list);
	set(d, &f, "{\"id\":1,\"off\":true}", "ab 2 -; a* 4 -");
	set(d, &f, "{\"id\":1,\"kernel\":\"ab\",\"off\":false}", "ab 2 -; a* 4 -; ab 0 on");
	set(d, &f, "{\"id\":1,\"every\":3}", "ab 0 on");
	caller_start(&swap, d);
	p = expect_probe(&f, NULL);
	expect_scopes(&p.control, "ab 0 on");
	assert_int_equal(p.control.every, 3);
	assert_int_equal(p.control.off, 1);
	send_state(&f, p.version, 0, 1, 0, NULL);
	caller_result(&swap);
	caller_finish(&swap);
	caller_finish(&c);
	fake_leave(&f);
}

static void fails(struct gbpf *g, const char *params, const char *code, const char *what)
{
	assert_true(gbpf_call(g, "probe.set", params, -1, NULL) < 0);
	assert_string_equal(gbpf_last_error(g)->code, code);
	assert_non_null(strstr(gbpf_last_error(g)->message, what));
}

static void wrong_sets_for_some_kernels_change_nothing(void **state)
{
	struct gd *d = *state;
	struct caller c = { .object = "probing", .probe = { .every = 8 } };
	struct gbpf *g = gd_open(d);
	char params[400], name[300] = "";
	json_t *list, *t;

	caller_start(&c, d);
	caller_result(&c);
	caller_finish(&c);
	for (unsigned i = 0; i < PROTO_PROBE_SCOPES; i++) {
		snprintf(name, sizeof(name), "k%u", i);
		assert_int_equal(gbpf_probe_set_kernel(g, 1, name, 2, -1, NULL), 0);
	}
	fails(g, "{\"id\":1,\"kernel\":\"k16\",\"every\":2}", "limit",
	      "16 patterns of kernels already");
	fails(g, "{\"id\":1,\"kernel\":\"k1\",\"budget_ppm\":20000}", "usage", "of the whole tool");
	fails(g, "{\"id\":1,\"kernel\":\"k1\",\"every\":4,\"budget_ppm\":20000}", "usage",
	      "of the whole tool");
	fails(g, "{\"id\":1,\"kernel\":\"k1\"}", "usage", "needs every or off");
	fails(g, "{\"id\":1,\"kernel\":\"k1\",\"every\":0}", "usage", "interval");
	fails(g, "{\"id\":1,\"kernel\":\"\",\"off\":true}", "usage", "pattern");
	fails(g, "{\"id\":1,\"kernel\":7,\"off\":true}", "usage", "pattern");
	fails(g, "{\"id\":1,\"kernel\":\"a\\n\",\"off\":true}", "usage", "pattern");
	memset(name, 'k', PROTO_PATTERN);
	snprintf(params, sizeof(params), "{\"id\":1,\"kernel\":\"%s\",\"off\":true}", name);
	fails(g, params, "usage", "pattern");
	t = listed(d, 1, &list);
	assert_int_equal(number(t, "budget_ppm"), 0);
	assert_int_equal(json_array_size(json_object_get(t, "scopes")), 16);
	json_decref(list);
	assert_int_equal(gbpf_probe_set_kernel(g, 1, "k3", 5, -1, NULL), 0); /* a known pattern */
	assert_int_equal(gbpf_probe_set(g, 1, 4, 0, NULL), 0);
	assert_int_equal(gbpf_probe_set_kernel(g, 1, "k16", 2, -1, NULL), 0);
	attach(d, "probing2", NULL, NULL);
	fails(g, "{\"id\":2,\"kernel\":\"*\",\"off\":true}", "not-possible", "without --sample");
	gbpf_close(g);
}

/* Writes record n of ring 0. */
static void put_line(uint64_t *region, unsigned n, uint64_t fmt, uint64_t arg)
{
	uint64_t *slot = region + (128 + n * (8 + sizeof(struct ebpf_print_record))) / 8;
	struct ebpf_print_record r = { .fmt = fmt, .time = 5, .block = 3, .args = { arg } };

	memcpy(slot + 1, &r, sizeof(r));
	slot[0] = 1 + n;
	for (unsigned k = 0; k < sizeof(r) / 8; k++) {
		slot[0] += slot[1 + k] * EBPF_SM_RING_FACTOR(k);
	}
	region[0] = n + 1;
}

static void expect_lines(struct gd *d, const char *params, unsigned n, unsigned missed,
			 char ret_next[256])
{
	json_t *r = gd_call(d, "probe.log", params);
	char *next = json_dumps(json_object_get(r, "next"), JSON_COMPACT);

	assert_int_equal(json_array_size(json_object_get(r, "lines")), n);
	assert_int_equal(number(r, "missed"), missed);
	for (unsigned i = 0; i < n; i++) {
		const json_t *l = json_array_get(json_object_get(r, "lines"), i);

		assert_string_equal(text_of(l, "text"), "block 7");
		assert_string_equal(text_of(l, "program"), "train");
		assert_int_equal(number(l, "block"), 3);
	}
	snprintf(ret_next, 256, "{\"id\":1,\"next\":%s}", next);
	free(next);
	json_decref(r);
}

/* The memory is the tenant's, which may write anything there. */
static void only_lines_with_a_format_of_the_tool_are_shown(void **state)
{
	static const char *const wrong[] = { "{\"id\":1,\"next\":7}", "{\"id\":1,\"next\":[7]}",
					     "{\"id\":1,\"next\":[[2000,1]]}",
					     "{\"id\":1,\"next\":[[-1,1,5]]}" };
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);
	uint64_t *region;
	char next[256];
	struct fake f;

	fake_enter(&f, d, 2, "train");
	attach(d, "printing", &f, &region);
	put_line(region, 0, 0, 7);
	put_line(region, 1, UINT64_C(1) << 32, 7);	  /* the ring itself */
	put_line(region, 2, UINT64_C(0xffffff) << 32, 7); /* no map */
	put_line(region, 3, UINT32_MAX, 7);		  /* beyond .rodata */
	put_line(region, 4, 0, 7);
	put_line(region, 5, 0, 7);
	region[(128 + 5 * (8 + sizeof(struct ebpf_print_record))) / 8 + 3]++; /* not whole */
	expect_lines(d, "{\"id\":1}", 2, 3, next);
	expect_lines(d, next, 0, 0, next);
	put_line(region, 5, 0, 7);
	expect_lines(d, next, 1, 0, next);
	put_line(region, 6, (uint64_t)EBPF_PRINT_STACK << 32 | 3, 7); /* no format on the stack */
	put_line(region, 7, (uint64_t)EBPF_PRINT_STACK << 32 | 0xffff0000, 7); /* no program */
	expect_lines(d, next, 0, 2, next);
	region[0] = UINT64_MAX; /* ends all the same */
	json_decref(gd_call(d, "probe.log", "{\"id\":1}"));
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_true(gbpf_call(g, "probe.log", wrong[i], -1, NULL) < 0);
		assert_string_equal(gbpf_last_error(g)->code, "usage");
	}
	gbpf_close(g);
	shm_unmap(region, 4096);
	fake_leave(&f);
}

static void wrong_limits_are_refused(void **state)
{
	static const struct {
		uint32_t budget_ppm, every;
		const char *what;
	} cases[] = { { 1000001, 0, "invalid budget_ppm" },
		      { 0, 1000001, "invalid interval of blocks" } };
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct caller c = { .object = "probing",
				    .probe = { .budget_ppm = cases[i].budget_ppm,
					       .every = cases[i].every } };

		caller_start(&c, d);
		caller_fails(&c, GBPF_CODE_USAGE, cases[i].what);
		caller_finish(&c);
	}
	attach(d, "probing", NULL, NULL);
	assert_true(gbpf_call(g, "probe.set", "{\"id\":1,\"off\":true}", -1, NULL) < 0);
	assert_string_equal(gbpf_last_error(g)->code, "not-possible");
	assert_true(gbpf_call(g, "probe.set", "{\"id\":1,\"budget_ppm\":1000001}", -1, NULL) < 0);
	assert_string_equal(gbpf_last_error(g)->code, "usage");
	assert_int_equal(gbpf_probe_set_budget(g, 1, 30000, NULL), 0);
	gbpf_close(g);
}

/* Each message is one that no session may send: it ends the session. */
static void false_messages_end_the_session(void **state)
{
	static const struct {
		enum proto_type type;
		uint64_t version, number; /* of the tool 1 that it has; of an order */
		int status;
	} cases[] = {
		{ PROTO_PROBE_STATE, 0, 0, 0 },
		{ PROTO_PROBE_STATE, FIRST_VERSION, 0, 0 },
		{ PROTO_PROBE_STATE, FIRST_VERSION + 2, 0, 0 }, /* another's */
		{ PROTO_PROBE_STATE, FIRST_VERSION + 3, 0, 0 },
		{ PROTO_PROBE_STATE, FIRST_VERSION + 1, 0, 1 },
		{ PROTO_PROBE_STATE, FIRST_VERSION + 1, 0, -5000 },
		{ PROTO_PROBE_STATE, UINT64_MAX, 0, 0 },
		{ PROTO_PROBE_ENDED, FIRST_VERSION + 1, 0, 0 },
		{ PROTO_PROBE_ENDED, FIRST_VERSION + 1, 1, 0 },
		{ PROTO_PROBE_ENDED, FIRST_VERSION + 2, 0, 0 },
		{ PROTO_PROBE_DRAINED, FIRST_VERSION + 1, 0, 0 },
		{ PROTO_PROBE_DRAINED, FIRST_VERSION + 1, 7, 0 },
		{ PROTO_PROBE_DRAINED, FIRST_VERSION + 3, 7, 0 },
		{ PROTO_PROBE_END, FIRST_VERSION + 1, 0, 0 },
		{ PROTO_PROBE_DRAIN, FIRST_VERSION + 1, 0, 0 },
		{ PROTO_COVERED, 0, 0, 0 },
		{ PROTO_COVERED, 0, 1, 0 },
		{ PROTO_COVERAGE, 0, 0, 0 },
		{ PROTO_PROBE_SET, FIRST_VERSION + 1, 0, 0 },
	};
	struct gd *d = *state;
	struct caller c = { .object = "probing2", .probe = { .to = "other" } };
	struct fake f, other;

	attach(d, "probing", NULL, NULL);
	fake_enter(&other, d, 2, "other");
	expect_probe(&other, NULL);
	caller_start(&c, d);
	send_state(&other, expect_probe(&other, NULL).version, 0, 1, 0, NULL);
	caller_result(&c);
	caller_finish(&c);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t since = gd_last_event(d);
		union proto_message m = { 0 };

		fake_enter(&f, d, 2, "false");
		expect_probe(&f, NULL);
		if (cases[i].type == PROTO_PROBE_STATE) {
			m.probe_state.version = cases[i].version;
			m.probe_state.status = cases[i].status;
		} else {
			m.probe_order.version = cases[i].version;
			m.probe_order.number = cases[i].number;
		}
		fake_send(&f, &m, cases[i].type);
		gd_await_event(d, since, "dropped", "unexpected message");
		fake_leave(&f);
	}
	handled(d, &other);
	fake_leave(&other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define WITH_GBPFD(t) cmocka_unit_test_setup_teardown(t, gd_setup, gd_teardown)
		WITH_GBPFD(attach_answers_when_sessions_have),
		WITH_GBPFD(attach_does_not_wait_for_late_sessions),
		WITH_GBPFD(list_shows_tools_and_their_sessions),
		WITH_GBPFD(detach_answers_when_sessions_have_ended_it),
		WITH_GBPFD(detach_does_not_wait_for_late_sessions),
		WITH_GBPFD(drain_precedes_dump),
		WITH_GBPFD(drain_does_not_wait_for_late_sessions),
		WITH_GBPFD(one_drain_at_a_time),
		WITH_GBPFD(device_maps_cannot_be_set),
		WITH_GBPFD(maps_are_found_by_tool_version_and_name),
		WITH_GBPFD(objects_of_the_wrong_kind_are_refused),
		WITH_GBPFD(tool_that_no_session_can_have_is_refused),
		WITH_GBPFD(budgets_and_figures_pass_through),
		WITH_GBPFD(programs_without_a_site_are_named),
		WITH_GBPFD(set_reaches_all_sessions),
		WITH_GBPFD(set_for_some_kernels),
		WITH_GBPFD(wrong_sets_for_some_kernels_change_nothing),
		WITH_GBPFD(only_lines_with_a_format_of_the_tool_are_shown),
		WITH_GBPFD(wrong_limits_are_refused),
		WITH_GBPFD(false_messages_end_the_session),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
