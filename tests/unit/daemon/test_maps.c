/* Maps of a running gbpfd: shown, changed and kept; init and exit of versions. */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/shm.h"
#include "daemon/maps/policy_maps.h"

enum { LATENCY, NORMAL, BATCH };

static json_t *load(struct gd *d, const char *policy, unsigned flags)
{
	struct gbpf *g = gd_open(d);
	char *text = NULL;
	json_t *j;

	if (gbpf_policy_load(g, gd_object(policy), NULL, flags | GBPF_LOAD_SWAP, &text) < 0) {
		fail_msg("%s", gbpf_last_error(g)->message);
	}
	j = json_loads(text, 0, NULL);
	free(text);
	gbpf_close(g);
	return j;
}

static void load_now(struct gd *d, const char *policy)
{
	json_decref(load(d, policy, 0));
}

static json_t *parsed(char *text)
{
	json_t *j = json_loads(text, 0, NULL);

	free(text);
	assert_non_null(j);
	return j;
}

static json_int_t number(const json_t *j, const char *name)
{
	return json_integer_value(json_object_get(j, name));
}

static const char *text(const json_t *j, const char *name)
{
	const char *s = json_string_value(json_object_get(j, name));

	return s ? s : "";
}

static struct gbpf_map map_of(const char *name)
{
	return (struct gbpf_map){ .size = sizeof(struct gbpf_map),
				  .name = name,
				  .tenant = GBPF_ALL_TENANTS };
}

/* Returns the only entry of a map.get. */
static json_t *get(struct gd *d, const char *map, const char *key)
{
	struct gbpf_map m = map_of(map);
	struct gbpf *g = gd_open(d);
	char *out = NULL;
	json_t *j, *entry;

	if (gbpf_map_get(g, &m, key, &out) < 0) {
		fail_msg("%s", gbpf_last_error(g)->message);
	}
	j = parsed(out);
	assert_int_equal(json_array_size(json_object_get(j, "entries")), 1);
	entry = json_incref(json_array_get(json_object_get(j, "entries"), 0));
	json_decref(j);
	gbpf_close(g);
	return entry;
}

static json_int_t value_of(struct gd *d, const char *map, const char *key)
{
	json_t *e = get(d, map, key);
	json_int_t v = number(e, "value");

	json_decref(e);
	return v;
}

static void set(struct gd *d, const char *map, const char *key, const char *value)
{
	struct gbpf_map m = map_of(map);
	struct gbpf *g = gd_open(d);

	if (gbpf_map_set(g, &m, key, value, NULL) < 0) {
		fail_msg("%s", gbpf_last_error(g)->message);
	}
	gbpf_close(g);
}

static json_int_t note_of(struct gd *d, int version, unsigned i)
{
	char params[64];
	json_t *show, *notes;
	json_int_t n;

	snprintf(params, sizeof(params), "{\"version\":%d}", version);
	show = gd_call(d, "policy.show", params);
	notes = json_object_get(json_object_get(show, "counters"), "notes");
	n = json_integer_value(json_array_get(notes, i));
	json_decref(show);
	return n;
}

/* ---- init and exit ---- */

static void init_runs_before_a_version_is_active_and_exit_after_it(void **state)
{
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);

	load_now(d, "keeping");
	assert_int_equal(note_of(d, 1, 3), 1);
	assert_int_equal(value_of(d, "own", "0"), 1);
	assert_int_equal(note_of(d, 1, 4), 0);
	load_now(d, "plain");
	assert_int_equal(note_of(d, 1, 4), 10 + 1); /* GBPF_EXIT_SWAP */
	assert_int_equal(gbpf_policy_rollback(g, 1, NULL), 0);
	assert_int_equal(gbpf_policy_unload(g, NULL), 0);
	assert_int_equal(note_of(d, 1, 4), 10 + 0); /* GBPF_EXIT_UNLOAD */
	load_now(d, "plain");
	assert_int_equal(gbpf_policy_rollback(g, 1, NULL), 0);
	assert_int_equal(gbpf_policy_rollback(g, 2, NULL), 0);
	assert_int_equal(note_of(d, 1, 4), 10 + 2); /* GBPF_EXIT_ROLLBACK */
	gbpf_close(g);
}

static void a_version_whose_init_refuses_leaves_the_old_one(void **state)
{
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);
	const struct gbpf_error *e = gbpf_last_error(g);
	json_t *list;

	load_now(d, "keeping");
	assert_int_equal(gbpf_policy_load(g, gd_object("refusing"), NULL, GBPF_LOAD_SWAP, NULL),
			 -EACCES);
	assert_int_equal(e->exit, 4);
	assert_string_equal(e->code, "init");
	assert_non_null(strstr(e->message, "ENOSPC"));
	assert_non_null(strstr(e->message, "'refusing'"));
	gd_await_event(d, 0, "policy", "swap of 'refusing' failed");
	list = gd_call(d, "policy.list", NULL);
	assert_int_equal(number(list, "active"), 1);
	assert_int_equal(json_array_size(json_object_get(list, "versions")), 1);
	json_decref(list);
	assert_int_equal(note_of(d, 1, 4), 0); /* it never became active */
	gbpf_close(g);
}

static void a_process_that_prepared_a_refused_version_drops_it(void **state)
{
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);
	union proto_message m;
	struct fake f;

	load_now(d, "plain");
	fake_enter(&f, d, BATCH, "f");
	assert_int_equal(fake_prepare(&f, 0), 1);
	assert_int_equal(gbpf_policy_load(g, gd_object("refusing"), NULL, GBPF_LOAD_SWAP, NULL),
			 -EACCES); /* 50 ms late */
	assert_int_equal(fake_prepare(&f, 0), 2);
	fake_expect(&f, &m, PROTO_DROP);
	assert_int_equal(m.version.version, 2);
	assert_int_equal(load_seqcst(&f.dir->version[0]), 1);
	load_now(d, "counting");
	assert_int_equal(fake_prepare(&f, 0), 3); /* the number is not reused */
	fake_leave(&f);
	gbpf_close(g);
}

static void the_list_has_the_end_of_versions(void **state)
{
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);
	json_t *list, *v;

	load_now(d, "keeping");
	load_now(d, "plain");
	assert_int_equal(gbpf_policy_rollback(g, 1, NULL), 0);
	list = gd_call(d, "policy.list", NULL);
	v = json_array_get(json_object_get(list, "versions"), 0);
	assert_string_equal(text(v, "ended"), ""); /* active again */
	assert_int_equal(json_array_size(json_object_get(v, "hooks")), 3);
	assert_true(json_array_size(json_object_get(v, "maps")) >= 5);
	assert_string_equal(text(json_array_get(json_object_get(list, "versions"), 1), "ended"),
			    "rollback");
	json_decref(list);
	gd_await_event(d, 0, "policy", "swap: 'plain'");
	gbpf_close(g);
}

/* ---- kept maps ---- */

static json_t *map_in(const json_t *answer, const char *map)
{
	json_t *m;
	size_t i;

	json_array_foreach(json_object_get(answer, "maps"), i, m)
	{
		if (strcmp(text(m, "map"), map) == 0) {
			return m;
		}
	}
	fail_msg("the answer does not speak of %s", map);
	return NULL;
}

static void kept_maps_have_the_old_values(void **state)
{
	struct gd *d = *state;
	json_t *r;

	load_now(d, "keeping");
	set(d, "flows", "3", "{bytes=77, name=\"third\"}");
	r = load(d, "keeping", GBPF_LOAD_KEEP_MAPS);
	assert_true(json_is_true(json_object_get(map_in(r, "flows"), "kept")));
	assert_true(json_is_true(json_object_get(map_in(r, "own"), "kept")));
	assert_true(json_is_false(json_object_get(map_in(r, ".rodata"), "kept")));
	json_decref(r);
	r = get(d, "flows", "3");
	assert_int_equal(number(json_object_get(r, "value"), "bytes"), 77);
	json_decref(r);
	assert_int_equal(value_of(d, "own", "0"), 2); /* init has seen the old value */
	assert_true(note_of(d, 2, 3) > 4);
	load_now(d, "keeping"); /* without the option all values are new */
	assert_int_equal(value_of(d, "own", "0"), 1);
}

static void rollback_keeps_maps_of_the_running_version(void **state)
{
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);

	load_now(d, "keeping");
	load_now(d, "keeping2");
	set(d, "own", "3", "10");
	assert_int_equal(gbpf_policy_activate(g, 1, GBPF_LOAD_KEEP_MAPS, NULL), 0);
	assert_int_equal(value_of(d, "own", "3"), 10);
	assert_int_equal(gbpf_policy_activate(g, 2, 0, NULL), 0);
	assert_int_equal(value_of(d, "own", "3"), 0);
	gbpf_close(g);
}

static void a_restart_of_gbpfd_begins_with_init(void **state)
{
	struct gd *d = *state;

	load_now(d, "keeping");
	set(d, "own", "0", "50");
	gd_kill(d);
	assert_int_equal(gd_start(d, NULL), 0);
	assert_int_equal(value_of(d, "own", "0"), 1);
	assert_int_equal(note_of(d, 1, 3), 1);
}

static void each_tenants_maps_are_kept(void **state)
{
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);
	uint64_t *old, *new;
	struct fake a, b;

	load_now(d, "keeping");
	fake_enter(&a, d, BATCH, "a");
	fake_prepare(&a, 0);
	fake_enter(&b, d, BATCH, "b");
	fake_prepare(&b, 0);
	old = shm_map(a.region_fd, 4096, 1);
	old[2] = 1234;
	assert_int_equal(gbpf_policy_load(g, gd_object("keeping2"), NULL,
					  GBPF_LOAD_SWAP | GBPF_LOAD_KEEP_MAPS, NULL),
			 0); /* no process answers; it is kept nevertheless */
	assert_int_equal(fake_prepare(&a, 0), 2);
	new = shm_map(a.region_fd, 4096, 1);
	assert_int_equal(new[2], 1234);
	shm_unmap(old, 4096);
	shm_unmap(new, 4096);
	gbpf_close(g);
	fake_leave(&a);
	fake_leave(&b);
}

static void variables_are_kept_by_their_names(void **state)
{
	struct gd *d = *state;
	json_t *r, *e, *v;

	load_now(d, "keeping");
	set(d, ".data", "0", "{marker=99}");
	r = load(d, "keeping2", GBPF_LOAD_KEEP_MAPS);
	assert_int_equal(number(map_in(r, ".data"), "variables"), 1);
	assert_int_equal(number(map_in(r, ".data"), "new_variables"), 1);
	json_decref(r);
	e = get(d, ".data", "0");
	v = json_object_get(e, "value");
	assert_int_equal(number(v, "marker"), 99);
	assert_int_equal(number(v, "fresh"), 3);
	json_decref(e);
	e = get(d, ".bss", "0");
	assert_int_equal(number(json_object_get(e, "value"), "started"), 2);
	json_decref(e);
}

static void maps_that_do_not_match_are_new_and_reported(void **state)
{
	struct gd *d = *state;
	json_t *r, *e;

	load_now(d, "keeping");
	set(d, "pairs", "0", "{low=9}");
	r = load(d, "keeping2", GBPF_LOAD_KEEP_MAPS);
	assert_true(json_is_false(json_object_get(map_in(r, "pairs"), "kept")));
	assert_non_null(strstr(text(map_in(r, "pairs"), "reason"), "type"));
	assert_true(json_is_true(json_object_get(map_in(r, "seen"), "kept")));
	json_decref(r);
	e = get(d, "pairs", "0");
	assert_int_equal(number(json_object_get(e, "value"), "low"), 1);
	json_decref(e);
}

/* ---- methods ---- */

static void values_are_shown_by_the_names_of_their_fields(void **state)
{
	struct gd *d = *state;
	json_t *list, *m, *e, *v;

	load_now(d, "keeping");
	list = gd_call(d, "map.list", NULL);
	m = map_in(list, "flows");
	assert_string_equal(text(m, "type"), "array");
	assert_string_equal(text(m, "scope"), "global");
	assert_non_null(strstr(text(m, "value"), "struct flow"));
	assert_int_equal(number(m, "max_entries"), 8);
	json_decref(list);
	e = get(d, "flows", "1");
	v = json_object_get(e, "value");
	assert_int_equal(number(v, "weight"), 100);
	assert_string_equal(text(v, "name"), "ab");
	assert_string_equal(text(v, "colour"), "GREEN");
	assert_int_equal(json_array_size(json_object_get(v, "parts")), 2);
	json_decref(e);
}

static void a_part_of_a_value_can_be_set(void **state)
{
	struct gd *d = *state;
	json_t *e, *v;

	load_now(d, "keeping");
	set(d, "flows", "1", "{weight=5}");
	e = get(d, "flows", "1");
	v = json_object_get(e, "value");
	assert_int_equal(number(v, "weight"), 5);
	assert_string_equal(text(v, "name"), "ab"); /* stays */
	json_decref(e);
}

static void refused(struct gd *d, const char *map, const char *key, const char *value,
		    uint32_t tenant, int exit_code, const char *code)
{
	struct gbpf_map m = map_of(map);
	struct gbpf *g = gd_open(d);

	m.tenant = tenant;
	assert_true(gbpf_map_set(g, &m, key, value, NULL) < 0);
	assert_int_equal(gbpf_last_error(g)->exit, exit_code);
	assert_string_equal(gbpf_last_error(g)->code, code);
	gbpf_close(g);
}

static void invalid_changes_are_refused_with_a_code(void **state)
{
	struct gd *d = *state;

	refused(d, "flows", "1", "{}", GBPF_ALL_TENANTS, 5, "not-found"); /* no policy */
	load_now(d, "keeping");
	refused(d, ".rodata", "0", "hex:0000000000000000", GBPF_ALL_TENANTS, 2, "constant");
	refused(d, "nosuch", "0", "0", GBPF_ALL_TENANTS, 5, "not-found");
	refused(d, "flows", "8", "{weight=1}", GBPF_ALL_TENANTS, 5, "not-found");
	refused(d, "flows", "1", "{nosuch=1}", GBPF_ALL_TENANTS, 2, "usage");
	refused(d, "flows", "many", "{weight=1}", GBPF_ALL_TENANTS, 2, "usage");
	refused(d, "seen", "1", "1", GBPF_ALL_TENANTS, 2, "usage");
	refused(d, "seen", "1", "1", 5, 5, "not-found");
}

static void refused_call(struct gd *d, const char *params, int exit_code, const char *code)
{
	struct gbpf *g = gd_open(d);
	char *text = NULL;

	assert_true(gbpf_call(g, "map.get", params, -1, &text) < 0);
	if (gbpf_last_error(g)->exit != exit_code || strcmp(gbpf_last_error(g)->code, code) != 0) {
		fail_msg("%s: %d, %s: %s", params, gbpf_last_error(g)->exit,
			 gbpf_last_error(g)->code, gbpf_last_error(g)->message);
	}
	gbpf_close(g);
}

static void calls_for_what_is_not_there_are_refused(void **state)
{
	struct gd *d = *state;

	load_now(d, "keeping");
	refused_call(d, "{\"key\":\"0\"}", 2, "usage");
	refused_call(d, "{\"map\":\"flows\",\"version\":-1,\"key\":\"0\"}", 5, "not-found");
	refused_call(d, "{\"map\":\"flows\",\"version\":99,\"key\":\"0\"}", 5, "not-active");
	refused_call(d, "{\"map\":\"flows\",\"probe\":7,\"key\":\"0\"}", 5, "not-found");
	refused_call(d, "{\"map\":\"flows\",\"gpu\":3,\"key\":\"0\"}", 5, "not-found");
}

static void a_tenants_map_is_set_in_its_memory(void **state)
{
	struct gd *d = *state;
	struct gbpf_map m = map_of("seen");
	struct gbpf *g = gd_open(d);
	uint64_t *mine;
	struct fake f;

	load_now(d, "keeping");
	fake_enter(&f, d, BATCH, "f");
	fake_prepare(&f, 0);
	mine = shm_map(f.region_fd, 4096, 1);
	m.tenant = f.tenant;
	assert_int_equal(gbpf_map_set(g, &m, "3", "99", NULL), 0);
	assert_int_equal(load_relaxed(&mine[3]), 99);
	assert_int_equal(value_of(d, "seen", "3"), 99); /* of all tenants */
	shm_unmap(mine, 4096);
	gbpf_close(g);
	fake_leave(&f);
}

static unsigned dump(struct gd *d, const char *map, unsigned limit, int nonzero,
		     unsigned *ret_pages)
{
	struct gbpf_map m = map_of(map);
	struct gbpf *g = gd_open(d);
	char *after = NULL;
	unsigned n = 0;

	*ret_pages = 0;
	do {
		char *out = NULL;
		json_t *j;

		assert_int_equal(gbpf_map_dump(g, &m, after, limit, nonzero, &out), 0);
		j = parsed(out);
		n += (unsigned)json_array_size(json_object_get(j, "entries"));
		free(after);
		after = json_object_get(j, "next") ? strdup(text(j, "next")) : NULL;
		json_decref(j);
		++*ret_pages;
	} while (after);
	gbpf_close(g);
	return n;
}

static void a_dump_comes_in_pages_and_is_complete(void **state)
{
	struct gd *d = *state;
	unsigned pages;

	load_now(d, "keeping");
	assert_int_equal(dump(d, "flows", 3, 0, &pages), 8);
	assert_true(pages >= 3);
	assert_int_equal(dump(d, "flows", 0, 1, &pages), 1);
	assert_int_equal(dump(d, "seen", 0, 0, &pages), 0); /* no such tenant, no instance */
	set(d, "many", "999999", "1");
	assert_int_equal(dump(d, "many", 0, 1, &pages), 2);
}

static void a_dump_of_a_million_entries_does_not_hold_up_gbpfd(void **state)
{
	struct gd *d = *state;
	struct gbpf_map m = map_of("many");
	struct gbpf *g = gd_open(d);
	unsigned n = 0, slow = 0;
	char *after = NULL;

	load_now(d, "keeping");
	for (int page = 0; page < 200; page++) {
		uint64_t loop = gd_loop_ns(d), mine;
		char *out = NULL;
		json_t *j;

		assert_int_equal(gbpf_map_dump(g, &m, after, 4096, 0, &out), 0);
		loop = gd_loop_ns(d) - loop;
		mine = clock_cpu_ns();
		j = parsed(out);
		mine = clock_cpu_ns() - mine;
		slow += loop > DAEMON_MAPS_GET_NS + 4 * mine;
		n += (unsigned)json_array_size(json_object_get(j, "entries"));
		free(after);
		after = strdup(text(j, "next"));
		json_decref(j);
	}
	free(after);
	assert_true(n > 200);
	assert_in_range(slow, 0, 20); /* the machine may be busy, but not at each of 200 */
	gbpf_close(g);
}

struct watching {
	struct gd *d;
	unsigned n;
	bool swapped;
	json_t *last;
};

/* Changes an entry when the watch has begun, and swaps when the change was reported. */
static int on_watch(void *arg, const char *line)
{
	struct watching *w = arg;

	json_decref(w->last);
	w->last = json_loads(line, 0, NULL);
	if (json_object_get(w->last, "end")) {
		return 0;
	}
	w->n++;
	if (number(w->last, "value") >= 2000 && !w->swapped) {
		store_relaxed(&w->swapped, true);
		load_now(w->d, "plain");
	}
	return 0;
}

static void *keep_setting(void *arg)
{
	struct watching *w = arg;
	char value[24];

	for (int i = 1000; !load_relaxed(&w->swapped); i++) {
		struct gbpf_map m = map_of("own");
		struct gbpf *g = gd_open(w->d);

		snprintf(value, sizeof(value), "%d", i < 2000 ? i + 995 : i);
		gbpf_map_set(g, &m, "2", value, NULL);
		gbpf_close(g);
	}
	return NULL;
}

static void a_watch_reports_changes_and_its_end(void **state)
{
	struct watching w = { .d = *state };
	struct gbpf_map m = map_of("own");
	struct gbpf *g = gd_open(w.d);
	pthread_t thread;

	load_now(w.d, "keeping");
	assert_int_equal(pthread_create(&thread, NULL, keep_setting, &w), 0);
	assert_int_equal(gbpf_map_watch(g, &m, 10, PATIENCE_MS, on_watch, &w), 0);
	pthread_join(thread, NULL);
	assert_true(w.n >= 1);
	assert_non_null(strstr(text(w.last, "end"), "no longer active"));
	json_decref(w.last);
	gbpf_close(g);
}

static void a_watcher_that_leaves_is_forgotten(void **state)
{
	struct gd *d = *state;
	json_int_t fds = 0;

	load_now(d, "keeping");
	for (int i = 0; i < 100; i++) { /* more than the limit of watches */
		struct gbpf *g = gd_open(d);

		while (gbpf_call(g, "map.watch", "{\"map\":\"flows\",\"interval_ms\":10}", -1,
				 NULL) < 0) {
			assert_string_equal(gbpf_last_error(g)->code, "limit");
		}
		gbpf_close(g);
		fds = gd_number(d, "status", "fds");
	}
	assert_true(fds < 100);
}

static void wrong_pages_are_refused(void **state)
{
	static const char *const bad[] = {
		"{\"map\":\"flows\",\"after\":\"\"}",
		"{\"map\":\"flows\",\"after\":\"1\"}",
		"{\"map\":\"flows\",\"after\":\"-1.5\"}",
		"{\"map\":\"flows\",\"after\":7}",
		"{\"map\":\"flows\",\"after\":\"5000.1\"}",
		"{\"map\":\"flows\",\"limit\":0}",
		"{\"map\":7}",
		"{}",
		"{\"map\":\"flows\",\"version\":-1}",
		"{\"map\":\"flows\",\"version\":99}",
		"{\"map\":\"seen\",\"tenant\":-1}",
		"{\"map\":\"seen\",\"tenant\":1024}",
		"{\"map\":\"seen\",\"tenant\":\"x\"}",
		"{\"map\":\"flows\",\"after\":\"0.99999999999\"}",
	};
	struct gd *d = *state;
	struct gbpf *g = gd_open(d);

	load_now(d, "keeping");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (gbpf_call(g, "map.dump", bad[i], -1, NULL) >= 0) {
			fail_msg("%s was taken", bad[i]);
		}
		assert_true(strlen(gbpf_last_error(g)->message) > 10);
	}
	assert_int_equal(gbpf_call(g, "map.dump", "{\"map\":\"flows\",\"after\":\"0.4294967295\"}",
				   -1, NULL),
			 0);
	gbpf_close(g);
}

#define WITH_GBPFD(t) cmocka_unit_test_setup_teardown(t, gd_setup, gd_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_GBPFD(init_runs_before_a_version_is_active_and_exit_after_it),
		WITH_GBPFD(a_version_whose_init_refuses_leaves_the_old_one),
		WITH_GBPFD(a_process_that_prepared_a_refused_version_drops_it),
		WITH_GBPFD(the_list_has_the_end_of_versions),
		WITH_GBPFD(kept_maps_have_the_old_values),
		WITH_GBPFD(rollback_keeps_maps_of_the_running_version),
		WITH_GBPFD(a_restart_of_gbpfd_begins_with_init),
		WITH_GBPFD(each_tenants_maps_are_kept),
		WITH_GBPFD(variables_are_kept_by_their_names),
		WITH_GBPFD(maps_that_do_not_match_are_new_and_reported),
		WITH_GBPFD(values_are_shown_by_the_names_of_their_fields),
		WITH_GBPFD(a_part_of_a_value_can_be_set),
		WITH_GBPFD(invalid_changes_are_refused_with_a_code),
		WITH_GBPFD(calls_for_what_is_not_there_are_refused),
		WITH_GBPFD(a_tenants_map_is_set_in_its_memory),
		WITH_GBPFD(a_dump_comes_in_pages_and_is_complete),
		WITH_GBPFD(a_dump_of_a_million_entries_does_not_hold_up_gbpfd),
		WITH_GBPFD(a_watch_reports_changes_and_its_end),
		WITH_GBPFD(a_watcher_that_leaves_is_forgotten),
		WITH_GBPFD(wrong_pages_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
