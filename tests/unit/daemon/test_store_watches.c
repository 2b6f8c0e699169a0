/* The watches of state.json: written and read back, and files that are cut off or made up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "daemon/policy/policy_store.h"

#define OLD "[1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1]"
#define GOOD(version)                                                                              \
	"{\"version\":" version ",\"name\":\"a\",\"watch_ns\":60000000000,\"end_wall_ns\":5,"      \
	"\"gpus\":32769,\"keep_maps\":true,\"condition\":\"holds>1\",\"old\":" OLD "}"

static char dir[64];

static int make_dir(void **state)
{
	struct daemon_store s;

	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/gbpf-store-XXXXXX");
	if (!mkdtemp(dir) || daemon_store_open(&s, dir) < 0) {
		return -1;
	}
	daemon_store_close(&s);
	return 0;
}

static int remove_dir(void **state)
{
	char path[128];

	(void)state;
	snprintf(path, sizeof(path), "%s/policies/state.json", dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/policies", dir);
	return rmdir(path) | rmdir(dir);
}

/* Makes this text the state and opens the store. Does not wait for the disk, which a thousand
 * states need not reach. */
static void open_with(struct daemon_store *s, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/policies/state.json", dir);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(daemon_store_open(s, dir), 0);
}

static struct daemon_stored_watch sample(uint64_t version)
{
	struct daemon_stored_watch w = { .version = version,
					 .ns = 60000000000,
					 .end_wall_ns = 1800000000000000000,
					 .gpu_mask = 0xffff,
					 .keep_maps = true,
					 .name = "mine",
					 .condition = "p99[tenant=\"x]>6ms" };

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		w.old[i] = 10 + i;
	}
	return w;
}

static void watches_are_read_back(void **state)
{
	struct daemon_stored_watch w = sample(2), *r;
	struct daemon_store s;
	char *text;

	(void)state;
	assert_int_equal(daemon_store_open(&s, dir), 0);
	assert_true(daemon_store_watch_set(&s, &w));
	w.version = 3;
	assert_true(daemon_store_watch_set(&s, &w));
	assert_true(daemon_store_watch_set(&s, &w)); /* the same again */
	assert_int_equal(s.n_watches, 2);
	assert_true(daemon_store_watch_remove(&s, 2));
	assert_false(daemon_store_watch_remove(&s, 2));
	text = daemon_store_state_text(&s);
	daemon_store_close(&s);
	open_with(&s, text);
	free(text);
	assert_int_equal(s.n_watches, 1);
	assert_int_equal(s.bad_watches, 0);
	assert_false(s.bad_state);
	r = daemon_store_watch_find(&s, 3);
	assert_non_null(r);
	assert_int_equal(r->ns, w.ns);
	assert_int_equal(r->end_wall_ns, w.end_wall_ns);
	assert_int_equal(r->gpu_mask, w.gpu_mask);
	assert_true(r->keep_maps);
	assert_memory_equal(r->old, w.old, sizeof(w.old));
	assert_string_equal(r->name, w.name);
	assert_string_equal(r->condition, w.condition);
	daemon_store_close(&s);
}

static void a_watch_protects_the_versions_that_it_returns_to(void **state)
{
	struct daemon_stored_watch w = sample(64);
	struct daemon_store s;
	uint64_t removed;

	(void)state;
	memset(w.old, 0, sizeof(w.old));
	w.old[0] = 1;
	w.old[15] = 2;
	assert_int_equal(daemon_store_open(&s, dir), 0);
	for (uint64_t v = 1; v <= DAEMON_STORE_VERSIONS; v++) {
		assert_int_equal(daemon_store_add(&s, v, json_object(), &removed), 0);
	}
	assert_true(daemon_store_watch_set(&s, &w));
	assert_int_equal(daemon_store_add(&s, 100, json_object(), &removed), 0);
	assert_int_equal(removed, 3);
	assert_true(daemon_store_watch_remove(&s, 64));
	assert_int_equal(daemon_store_add(&s, 101, json_object(), &removed), 0);
	assert_int_equal(removed, 1);
	daemon_store_close(&s);
}

static void there_is_room_for_a_watch_of_each_gpu_and_one_more(void **state)
{
	struct daemon_stored_watch w = sample(1);
	struct daemon_store s;

	(void)state;
	assert_int_equal(daemon_store_open(&s, dir), 0);
	for (; w.version <= PROTO_MAX_GPUS + 1; w.version++) {
		assert_true(daemon_store_watch_set(&s, &w));
	}
	assert_false(daemon_store_watch_set(&s, &w));
	daemon_store_close(&s);
}

/* An invalid watch is counted; the valid one behind it is used. */
static void invalid_watches_are_counted(void **state)
{
	static const char *const bad[] = {
		"7",
		"null",
		"[]",
		"{}",
		GOOD("0"),
		GOOD("-1"),
		GOOD("9007199254740992"),
		GOOD("\"1\""),
		GOOD("1.5"),
		"{\"version\":4,\"name\":\"a\",\"watch_ns\":1,\"end_wall_ns\":5,\"gpus\":1,"
		"\"condition\":\"holds>1\",\"old\":" OLD "}",
		"{\"version\":4,\"name\":\"a\",\"watch_ns\":86400000000001,\"end_wall_ns\":5,"
		"\"gpus\":1,\"condition\":\"holds>1\",\"old\":" OLD "}",
		"{\"version\":4,\"name\":\"a\",\"watch_ns\":1000000000,\"end_wall_ns\":-5,"
		"\"gpus\":1,\"condition\":\"holds>1\",\"old\":" OLD "}",
		"{\"version\":4,\"name\":\"a\",\"watch_ns\":1000000000,\"end_wall_ns\":5,"
		"\"gpus\":0,\"condition\":\"holds>1\",\"old\":" OLD "}",
		"{\"version\":4,\"name\":\"a\",\"watch_ns\":1000000000,\"end_wall_ns\":5,"
		"\"gpus\":65536,\"condition\":\"holds>1\",\"old\":" OLD "}",
		"{\"version\":4,\"watch_ns\":1000000000,\"end_wall_ns\":5,"
		"\"gpus\":1,\"condition\":\"holds>1\",\"old\":" OLD "}",
		"{\"version\":4,\"name\":\"a\",\"watch_ns\":1000000000,\"end_wall_ns\":5,"
		"\"gpus\":1,\"condition\":\"\",\"old\":" OLD "}",
		"{\"version\":4,\"name\":\"a\",\"watch_ns\":1000000000,\"end_wall_ns\":5,"
		"\"gpus\":1,\"condition\":5,\"old\":" OLD "}",
		"{\"version\":4,\"name\":\"a\",\"watch_ns\":1000000000,\"end_wall_ns\":5,"
		"\"gpus\":1,\"condition\":\"holds>1\",\"old\":[1]}",
		"{\"version\":4,\"name\":\"a\",\"watch_ns\":1000000000,\"end_wall_ns\":5,"
		"\"gpus\":1,\"condition\":\"holds>1\",\"old\":"
		"[1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,-1]}",
		"{\"version\":4,\"name\":\"a\",\"watch_ns\":1000000000,\"end_wall_ns\":5,"
		"\"gpus\":1,\"condition\":\"holds>1\",\"old\":"
		"[1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,null]}",
		GOOD("9"), /* the same version twice */
	};
	struct daemon_store s;
	char text[2048];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(text, sizeof(text), "{\"next\":10,\"watches\":[%s,%s]}", bad[i],
			 GOOD("9"));
		open_with(&s, text);
		assert_int_equal(s.n_watches, 1);
		assert_int_equal(s.bad_watches, 1);
		assert_int_equal(s.watch[0].version, 9);
		assert_int_equal(s.watch[0].gpu_mask, 0x8001);
		daemon_store_close(&s);
	}
	open_with(&s, "{\"next\":10,\"watches\":{\"a\":1}}");
	assert_int_equal(s.n_watches, 0);
	assert_int_equal(s.bad_watches, 1);
	daemon_store_close(&s);
}

static void a_condition_that_is_too_long_is_invalid(void **state)
{
	struct daemon_stored_watch w = sample(2);
	struct daemon_store s;
	char *text, *longer, *at;

	(void)state;
	memset(w.condition, 'x', sizeof(w.condition) - 1);
	assert_int_equal(daemon_store_open(&s, dir), 0);
	assert_true(daemon_store_watch_set(&s, &w));
	text = daemon_store_state_text(&s);
	daemon_store_close(&s);
	open_with(&s, text);
	assert_int_equal(s.n_watches, 1); /* the longest one that fits */
	daemon_store_close(&s);
	at = strstr(text, "xxx");
	assert_non_null(at);
	longer = malloc(strlen(text) + 2);
	assert_non_null(longer);
	snprintf(longer, strlen(text) + 2, "%.*sx%s", (int)(at - text), text, at);
	open_with(&s, longer);
	assert_int_equal(s.n_watches, 0);
	assert_int_equal(s.bad_watches, 1);
	daemon_store_close(&s);
	free(longer);
	free(text);
}

/* Cut off after each byte, and with each byte changed: read, counted or refused as a whole. */
static void a_damaged_state_is_read_or_reported(void **state)
{
	static const char replacements[] = { 0, '"', '{', ']', '9', '-', (char)0xff };
	struct daemon_stored_watch w = sample(2);
	struct daemon_store s;
	char *text, *damaged;
	size_t len;

	(void)state;
	assert_int_equal(daemon_store_open(&s, dir), 0);
	assert_true(daemon_store_watch_set(&s, &w));
	text = daemon_store_state_text(&s);
	daemon_store_close(&s);
	len = strlen(text);
	for (size_t i = 1; i < len; i++) {
		damaged = strdup(text);
		assert_non_null(damaged);
		damaged[i] = 0;
		open_with(&s, damaged);
		assert_true(s.bad_state);
		assert_int_equal(s.n_watches, 0);
		daemon_store_close(&s);
		for (size_t k = 0; k < sizeof(replacements); k++) {
			memcpy(damaged, text, len + 1);
			damaged[i] = replacements[k];
			open_with(&s, damaged);
			assert_true(s.n_watches + s.bad_watches <= 1);
			assert_true(s.n_watches == 0 || s.watch[0].gpu_mask != 0);
			daemon_store_close(&s);
		}
		free(damaged);
	}
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(watches_are_read_back, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(a_watch_protects_the_versions_that_it_returns_to,
						make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(there_is_room_for_a_watch_of_each_gpu_and_one_more,
						make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(invalid_watches_are_counted, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(a_condition_that_is_too_long_is_invalid, make_dir,
						remove_dir),
		cmocka_unit_test_setup_teardown(a_damaged_state_is_read_or_reported, make_dir,
						remove_dir),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
