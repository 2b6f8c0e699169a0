/* What gbpfd reports of itself, of processes, devices and events, member by member; and the limits
 * of `set`. */
#include "harness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../users.h"

/* Returns the member at a path like "devices.0.name" as compact JSON; caller frees. */
static char *member(const json_t *j, const char *where)
{
	char name[64];
	char *text;

	while (*where) {
		size_t n = strcspn(where, ".");

		snprintf(name, sizeof(name), "%.*s", (int)n, where);
		j = json_is_array(j) ? json_array_get(j, strtoul(name, NULL, 10))
				     : json_object_get(j, name);
		where += n + (where[n] == '.');
	}
	text = j ? json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY) : strdup("absent");
	assert_non_null(text);
	return text;
}

static void expect(const json_t *j, const char *where, const char *value)
{
	char *got = member(j, where);

	if (strcmp(got, value) != 0) {
		fail_msg("%s is %s, expected %s", where, got, value);
	}
	free(got);
}

static void expect_number(const json_t *j, const char *where, long long value)
{
	char text[32];

	snprintf(text, sizeof(text), "%lld", value);
	expect(j, where, text);
}

static long long number(const json_t *j, const char *where)
{
	char *got = member(j, where);
	long long n = strtoll(got, NULL, 10);

	free(got);
	return n;
}

static void status_describes_gbpfd(void **state)
{
	static const char *const zero[] = {
		"refused_sessions",
		"dropped_sessions",
		"deaths",
		"garbage",
		"idle_demotions",
		"refused",
		"rollbacks",
		"late",
		"failed_prepares",
		"verdict_errors",
		"tick_overruns",
		"stale_epochs",
		"events_left_out",
		"user_pauses",
		"history_write_errors",
	};
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);
	char text[200];
	struct fake f;
	json_t *j = gd_call(d, "status", NULL);

	expect_number(j, "pid", d->pid);
	expect(j, "device", "\"soft\"");
	expect_number(j, "sessions", 0);
	expect_number(j, "tenants", 0);
	expect_number(j, "boards", 0);
	expect_number(j, "ending", 0);
	expect_number(j, "connections", 2);
	expect_number(j, "leaked", 0);
	expect(j, "off", "false");
	expect_number(j, "policy.version", 0);
	assert_true(number(j, "generation") > 0);
	assert_true(number(j, "uptime_ns") > 0);
	assert_true(number(j, "memory_bytes") > 1000000);
	assert_true(number(j, "counters.events") > 0);
	snprintf(text, sizeof(text), "\"%s\"", d->runtime);
	expect(j, "runtime_dir", text);
	snprintf(text, sizeof(text), "\"%s\"", d->state);
	expect(j, "state_dir", text);
	for (size_t i = 0; i < sizeof(zero) / sizeof(zero[0]); i++) {
		snprintf(text, sizeof(text), "counters.%s", zero[i]);
		expect_number(j, text, 0);
	}
	json_decref(j);
	assert_int_equal(gbpf_policy_load(g, gd_object("plain"), NULL, GBPF_LOAD_SWAP, NULL), 0);
	gbpf_close(g);
	fake_enter(&f, d, 0, "f");
	fake_prepare(&f, 0);
	gd_await_event(d, 0, "start", "f");
	j = gd_call(d, "status", NULL);
	expect_number(j, "sessions", 1);
	expect_number(j, "tenants", 1);
	expect_number(j, "boards", 1);
	expect_number(j, "policy.version", 1);
	expect(j, "policy.name", "\"plain\"");
	expect_number(j, "counters.sessions", 1);
	expect_number(j, "counters.loads", 1);
	expect_number(j, "counters.swaps", 1);
	expect_number(j, "leaked", 0);
	json_decref(j);
	fake_leave(&f);
}

static void its_descriptors_are_counted(void **state)
{
	struct gd *d = *state;
	struct gbpf *more[3];
	json_t *j = gd_call(d, "status", NULL);
	long long before = number(j, "fds");

	json_decref(j);
	for (int i = 0; i < 3; i++) {
		more[i] = gd_open(d);
	}
	j = gd_call(d, "status", NULL);
	expect_number(j, "fds", before + 3);
	expect_number(j, "fds", (long long)count_fds(d->pid) - 2); /* without . and .. */
	json_decref(j);
	for (int i = 0; i < 3; i++) {
		gbpf_close(more[i]);
	}
}

static void a_tenant_is_described(void **state)
{
	struct gd *d = *state;
	struct fake f, lc;
	char text[64];
	json_t *j;

	fake_enter(&f, d, 2, "f");
	fake_enter(&lc, d, 0, "lc");
	gd_await_event(d, 0, "start", "lc");
	store_relaxed(&lc.stats->request_ns, (uint64_t)900);
	store_relaxed(&lc.stats->busy_ns, (uint64_t)300);
	j = gd_call(d, "ps", NULL);
	assert_int_equal(json_array_size(json_object_get(j, "tenants")), 2);
	expect_number(j, "tenants.0.tenant", 0);
	expect_number(j, "tenants.0.pid", getpid());
	expect_number(j, "tenants.0.uid", getuid());
	expect(j, "tenants.0.name", "\"f\"");
	expect(j, "tenants.0.class", "\"batch\"");
	expect_number(j, "tenants.0.weight", 100);
	expect(j, "tenants.0.gpus", "[0]");
	expect(j, "tenants.0.state", "\"running\"");
	expect(j, "tenants.0.lane", "\"process\"");
	expect(j, "tenants.0.hurt", "\"\"");
	expect_number(j, "tenants.0.slice_us", 0);
	expect(j, "tenants.0.hidden", "absent");
	assert_true(number(j, "tenants.0.age_ns") > 0);
	expect_number(j, "tenants.1.stats.request_ns", 900);
	expect_number(j, "tenants.1.stats.busy_ns", 300);
	expect(j, "tenants.1.class", "\"latency\"");
	expect(j, "tenants.1.state", "\"running\"");
	snprintf(text, sizeof(text), "%d", (int)lc.tenant);
	expect(j, "tenants.1.tenant", text);
	json_decref(j);
	fake_leave(&f);
	fake_leave(&lc);
}

static void refuse_set(struct gd *d, const char *params, int exit, const char *why)
{
	struct gbpf *g = gd_open(d);

	assert_true(gbpf_call(g, "set", params, -1, NULL) < 0);
	assert_int_equal(gbpf_last_error(g)->exit, exit);
	if (!strstr(gbpf_last_error(g)->message, why)) {
		fail_msg("%s: %s", params, gbpf_last_error(g)->message);
	}
	gbpf_close(g);
}

static void set_changes_class_and_weight_within_limits(void **state)
{
	struct gd *d = *state;
	struct fake f;
	json_t *j;

	fake_enter(&f, d, 2, "f");
	refuse_set(d, "{\"tenant\":1,\"weight\":5}", 5, "no such tenant");
	refuse_set(d, "{\"tenant\":-1,\"weight\":5}", 5, "no such tenant");
	refuse_set(d, "{\"tenant\":1024,\"weight\":5}", 5, "no such tenant");
	refuse_set(d, "{\"tenant\":\"0\",\"weight\":5}", 5, "no such tenant");
	refuse_set(d, "{\"tenant\":0,\"class\":\"fast\"}", 2, "unknown class");
	refuse_set(d, "{\"tenant\":0,\"class\":5}", 2, "unknown class");
	refuse_set(d, "{\"tenant\":0,\"weight\":0}", 2, "from 1 to 10000");
	refuse_set(d, "{\"tenant\":0,\"weight\":10001}", 2, "from 1 to 10000");
	refuse_set(d, "{\"tenant\":0,\"weight\":\"7\"}", 2, "from 1 to 10000");
	j = gd_call(d, "set", "{\"tenant\":0,\"weight\":10000}");
	expect(j, "", "{\"tenant\":0,\"class\":\"batch\",\"weight\":10000}");
	json_decref(j);
	j = gd_call(d, "set", "{\"tenant\":0,\"weight\":1,\"class\":\"normal\"}");
	expect(j, "", "{\"tenant\":0,\"class\":\"normal\",\"weight\":1}");
	json_decref(j);
	gd_await_event(d, 0, "set", "f is now class batch, weight 10000");
	gd_await_event(d, 0, "set", "f is now class normal, weight 1");
	j = gd_call(d, "events", "{\"audit\":true}");
	expect(j, "events.1.kind", "\"set\""); /* after the start of gbpfd */
	expect(j, "events.2.kind", "\"set\"");
	assert_int_equal(json_array_size(json_object_get(j, "events")), 3);
	json_decref(j);
	fake_leave(&f);
}

static void of_another_user_nothing_can_be_set(void **state)
{
	struct gd *d = *state;
	struct fake f;

	NEED_TWO_USERS();
	assert_int_equal(chmod(d->dir, 0755), 0);
	AS_USER(USER_A, fake_connect(&f, d));
	fake_say_hello(&f, 2, 100, "alice");
	fake_welcomed(&f);
	AS_USER(USER_B, refuse_set(d, "{\"tenant\":0,\"weight\":5}", 6, "belongs to user 65533"));
	AS_USER(USER_A, json_decref(gd_call(d, "status", NULL)));
	json_decref(gd_call(d, "set", "{\"tenant\":0,\"weight\":5}")); /* root's gbpfd, root */
	fake_leave(&f);
}

static void devices_are_described(void **state)
{
	struct gd *d = *state;
	struct fake f;
	json_t *j = gd_call(d, "device.list", NULL);

	assert_int_equal(json_array_size(json_object_get(j, "devices")), 1);
	expect(j, "devices.0",
	       "{\"gpu\":0,\"uuid\":null,\"name\":\"gBPF soft GPU\","
	       "\"kind\":\"soft\",\"tenants\":0,\"policy_version\":0,"
	       "\"policy\":\"\"}");
	expect(j, "lanes.0", "{\"lane\":\"process\",\"available\":true,\"why\":\"\"}");
	expect(j, "lanes.1.lane", "\"shared\"");
	json_decref(j);
	fake_enter(&f, d, 2, "f");
	gd_await_event(d, 0, "start", "f");
	j = gd_call(d, "device.list", NULL);
	assert_int_equal(json_array_size(json_object_get(j, "devices")), 1);
	expect_number(j, "devices.0.gpu", 0);
	expect_number(j, "devices.0.tenants", 1);
	expect(j, "devices.0.name", "\"gBPF soft GPU\"");
	expect(j, "devices.0.kind", "\"soft\"");
	assert_true(json_array_size(json_object_get(
			    json_array_get(json_object_get(j, "devices"), 0), "controls")) > 3);
	assert_true(strncmp(json_string_value(json_object_get(
				    json_array_get(json_object_get(j, "devices"), 0), "uuid")),
			    "GPU-", 4) == 0);
	json_decref(j);
	fake_leave(&f);
}

static void events_come_after_a_number(void **state)
{
	struct gd *d = *state;
	uint64_t last;
	char params[64];
	json_t *j;
	struct fake f;

	fake_enter(&f, d, 2, "f");
	gd_await_event(d, 0, "start", "f");
	last = gd_last_event(d);
	snprintf(params, sizeof(params), "{\"since\":%llu}", (unsigned long long)last);
	j = gd_call(d, "events", params);
	assert_int_equal(json_array_size(json_object_get(j, "events")), 0);
	json_decref(j);
	snprintf(params, sizeof(params), "{\"since\":%llu}", (unsigned long long)last - 1);
	j = gd_call(d, "events", params);
	assert_int_equal(json_array_size(json_object_get(j, "events")), 1);
	expect_number(j, "events.0.seq", (long long)last);
	json_decref(j);
	j = gd_call(d, "events", "{\"since\":-5}");
	expect_number(j, "events.0.seq", 1);
	assert_int_equal(json_array_size(json_object_get(j, "events")), last);
	json_decref(j);
	fake_leave(&f);
}

static int place_of(const json_t *events, const char *text)
{
	size_t i;
	json_t *e;

	json_array_foreach(events, i, e)
	{
		const char *t = json_string_value(json_object_get(e, "text"));

		if (t && strstr(t, text)) {
			return (int)i;
		}
	}
	return -1;
}

/* Lines that programs print come among the events, in the order of time, and not in the audit log.
 */
static void printed_lines_come_in_order(void **state)
{
	static const char *const sent[][2] = { { "one", "first" },
					       { "print", "second" },
					       { "three", "third" } };
	struct gd *d = *state;
	union proto_message m = { 0 };
	json_t *j, *events;
	struct fake f;

	fake_enter(&f, d, 2, "f");
	for (int i = 0; i < 3; i++) {
		snprintf(m.note.what, sizeof(m.note.what), "%s", sent[i][0]);
		snprintf(m.note.text, sizeof(m.note.text), "%s", sent[i][1]);
		fake_send(&f, &m, PROTO_NOTE);
	}
	gd_await_event(d, 0, "three", "third");
	j = gd_call(d, "events", NULL);
	events = json_object_get(j, "events");
	assert_true(place_of(events, "first") > 0);
	assert_int_equal(place_of(events, "second"), place_of(events, "first") + 1);
	assert_int_equal(place_of(events, "third"), place_of(events, "first") + 2);
	json_decref(j);
	j = gd_call(d, "events", "{\"audit\":true}");
	assert_int_equal(place_of(json_object_get(j, "events"), "second"), -1);
	json_decref(j);
	fake_leave(&f);
}

static void restart_answers_for_processes_that_are_over(void **state)
{
	struct gd *d = *state;
	char params[64];
	struct fake f;
	json_t *j;

	fake_enter(&f, d, 2, "f");
	snprintf(params, sizeof(params), "{\"pid\":%d}", (int)getpid());
	j = gd_call(d, "restart", params); /* it has a session */
	expect(j, "", "{\"known\":false,\"restarts\":0,\"why\":\"\"}");
	json_decref(j);
	fake_leave(&f);
	for (int i = 0; i < 3; i++) {
		j = gd_call(d, "restart",
			    i == 0   ? "{\"pid\":-1}"
			    : i == 1 ? "{\"pid\":0}"
				     : "{\"pid\":3000000000}");
		expect(j, "", "{\"known\":true,\"restarts\":0,\"why\":\"\"}");
		json_decref(j);
	}
}

int main(void)
{
#define WITH_GBPFD(t) cmocka_unit_test_setup_teardown(t, gd_setup, gd_teardown)
	const struct CMUnitTest tests[] = {
		WITH_GBPFD(status_describes_gbpfd),
		WITH_GBPFD(its_descriptors_are_counted),
		WITH_GBPFD(a_tenant_is_described),
		WITH_GBPFD(set_changes_class_and_weight_within_limits),
		WITH_GBPFD(of_another_user_nothing_can_be_set),
		WITH_GBPFD(devices_are_described),
		WITH_GBPFD(events_come_after_a_number),
		WITH_GBPFD(printed_lines_come_in_order),
		WITH_GBPFD(restart_answers_for_processes_that_are_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
