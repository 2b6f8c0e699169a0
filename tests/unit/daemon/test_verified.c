/* Verification in gbpfd: an object is verified once, found by all of its bytes, and neither another
 * operation nor another request waits for it. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/buf.h"
#include "base/strmap.h"
#include "daemon/policy/verdict_file.h"
#include "daemon/policy/verified.h"

static void read_object(struct buf *b, const char *policy)
{
	buf_init(b);
	assert_int_equal(buf_read_file(b, gd_object(policy), 1 << 20), 0);
}

/* ---- the objects in memory ---- */

static struct daemon_verified *verified(const char *policy, const char *name)
{
	struct ebpf_built b;
	struct daemon_verified *v;
	struct buf object;
	struct report r;

	read_object(&object, policy);
	report_init(&r);
	assert_int_equal(ebpf_policy_build(&b, object.data, object.len, name, 0, 0, &r), 0);
	report_finish(&r);
	v = daemon_verified_new(&b, &object, name);
	assert_non_null(v);
	return v;
}

static void an_object_is_found_by_all_of_its_bytes(void **state)
{
	struct daemon_verified_cache c;
	struct daemon_verified *v = verified("plain", "plain"), *found;
	struct buf object;

	(void)state;
	daemon_verified_cache_init(&c);
	daemon_verified_add(&c, v);
	read_object(&object, "plain");
	found = daemon_verified_find(&c, "plain", &object);
	assert_ptr_equal(found, v);
	daemon_verified_drop(found);
	assert_null(daemon_verified_find(&c, "other", &object));
	object.data[object.len / 2] ^= 1;
	assert_null(daemon_verified_find(&c, "plain", &object));
	v->hash = hash_bytes(object.data, object.len); /* of both */
	assert_null(daemon_verified_find(&c, "plain", &object));
	object.len--;
	v->hash = hash_bytes(object.data, object.len);
	assert_null(daemon_verified_find(&c, "plain", &object));
	buf_finish(&object);
	daemon_verified_drop(v);
	daemon_verified_cache_finish(&c);
}

static void the_object_not_used_for_longest_is_forgotten(void **state)
{
	struct daemon_verified_cache c;
	struct buf object;
	char name[16];

	(void)state;
	daemon_verified_cache_init(&c);
	read_object(&object, "plain");
	for (unsigned i = 0; i <= DAEMON_VERIFIED_MAX; i++) {
		struct daemon_verified *v;

		snprintf(name, sizeof(name), "n%u", i);
		v = verified("plain", name);
		daemon_verified_add(&c, v);
		daemon_verified_add(&c, v); /* once */
		daemon_verified_drop(v);
		if (i) { /* the first one is used again and again */
			v = daemon_verified_find(&c, "n0", &object);
			assert_non_null(v);
			daemon_verified_drop(v);
		}
	}
	assert_int_equal(c.n, DAEMON_VERIFIED_MAX);
	assert_null(daemon_verified_find(&c, "n1", &object));
	daemon_verified_cache_finish(&c);
	buf_finish(&object);
}

static void images_differ_in_their_version_alone(void **state)
{
	struct daemon_verified *v = verified("plain", "plain");
	struct ebpf_policy p;
	int fds[EBPF_REGIONS] = EBPF_NO_REGIONS;

	(void)state;
	for (uint64_t version = 7; version < 9; version++) {
		int fd = daemon_verified_image(v, version);

		assert_true(fd >= 0);
		assert_int_equal(ebpf_policy_open(&p, fd, fds, EBPF_OPEN_DAEMON), 0);
		assert_int_equal(p.version, version);
		assert_string_equal(p.name, "plain");
		ebpf_policy_close(&p);
		close(fd);
	}
	daemon_verified_drop(v);
}

/* ---- the verdicts on disk ---- */

static char folder[64];

static int make_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/gbpf-verdicts-XXXXXX");
	if (!mkdtemp(folder)) {
		return -1;
	}
	setenv("GBPF_CACHE_DIR", folder, 1);
	unsetenv("GBPF_CACHE");
	return 0;
}

static int remove_folder(void **state)
{
	char command[96];

	(void)state;
	setenv("GBPF_CACHE", "off", 1);
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	return system(command);
}

/* Returns the path of the only verdict. */
static const char *verdict_path(void)
{
	static char path[256];
	char command[128];
	FILE *f;

	snprintf(command, sizeof(command), "ls %s/verdict-*.image", folder);
	f = popen(command, "r");
	assert_non_null(f);
	assert_non_null(fgets(path, sizeof(path), f));
	path[strcspn(path, "\n")] = 0;
	pclose(f);
	return path;
}

static void flip_byte(const char *path, size_t at)
{
	int fd = open(path, O_RDWR);
	char c;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &c, 1, (off_t)at), 1);
	c = (char)~c;
	assert_int_equal(pwrite(fd, &c, 1, (off_t)at), 1);
	close(fd);
}

static void a_damaged_foreign_or_other_verdict_is_ignored(void **state)
{
	struct daemon_verdict v = { .n = 2, .verify_ns = 5 }, got;
	struct buf object, other;
	struct stat st;
	const char *path;

	(void)state;
	v.stats[1].cost = 42;
	read_object(&object, "plain");
	read_object(&other, "plain");
	other.data[100] ^= 1;
	assert_true(daemon_verdict_read("plain", &object, &got) < 0);
	daemon_verdict_write("plain", &object, &v);
	assert_int_equal(daemon_verdict_read("plain", &object, &got), 0);
	assert_int_equal(got.n, 2);
	assert_int_equal(got.verify_ns, 5);
	assert_int_equal(got.stats[1].cost, 42);
	assert_true(daemon_verdict_read("plain2", &object, &got) < 0);
	assert_true(daemon_verdict_read("plain", &other, &got) < 0);

	path = verdict_path();
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	for (size_t at = 0; at < (size_t)st.st_size; at += 1 + (size_t)st.st_size / 500) {
		flip_byte(path, at);
		assert_int_equal(daemon_verdict_read("plain", &object, &got), -EBADMSG);
		flip_byte(path, at);
	}
	assert_int_equal(daemon_verdict_read("plain", &object, &got), 0);
	assert_int_equal(chmod(path, 0666), 0);
	assert_true(daemon_verdict_read("plain", &object, &got) < 0);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(chmod(folder, 0777), 0);
	assert_true(daemon_verdict_read("plain", &object, &got) < 0);
	assert_int_equal(chmod(folder, 0700), 0);
	assert_int_equal(truncate(path, st.st_size - 1), 0);
	assert_int_equal(daemon_verdict_read("plain", &object, &got), -EBADMSG);
	assert_int_equal(truncate(path, 10), 0);
	assert_int_equal(daemon_verdict_read("plain", &object, &got), -EBADMSG);
	daemon_verdict_write("plain", &object, &v); /* takes its place */
	assert_int_equal(daemon_verdict_read("plain", &object, &got), 0);
	buf_finish(&object);
	buf_finish(&other);
}

static void known_programs_are_counted(void **state)
{
	struct ebpf_verify_stats stats[EBPF_MAX_PROGS] = { { .cost = 3 } };
	struct ebpf_built b;
	struct buf object;
	struct report r;

	(void)state;
	read_object(&object, "plain");
	report_init(&r);
	assert_int_equal(ebpf_policy_build_known(&b, object.data, object.len, "plain", 0, 0, stats,
						 EBPF_MAX_PROGS, &r),
			 -EINVAL);
	report_finish(&r);
	buf_finish(&object);
}

static void known_programs_print_formats_on_the_stack(void **state)
{
	struct ebpf_verify_stats stats[EBPF_MAX_PROGS] = { { .cost = 3 } };
	struct ebpf_built b;
	struct buf object;
	struct report r;

	(void)state;
	read_object(&object, "printing_stack");
	report_init(&r);
	assert_int_equal(ebpf_policy_build_known(&b, object.data, object.len, "printing_stack", 0,
						 0, stats, 1, &r),
			 0);
	assert_int_equal(b.object.progs[0].texts->n, 1);
	assert_string_equal(b.object.progs[0].texts->at[0].text, "block %llu");
	ebpf_built_finish(&b);
	report_finish(&r);
	buf_finish(&object);
}

/* ---- in gbpfd ---- */

struct loading {
	pthread_t thread;
	struct gbpf *g;
	const char *policy;
	unsigned flags;
	char *json;
	int err;
};

static void *run_load(void *arg)
{
	struct loading *l = arg;

	l->err = gbpf_policy_load(l->g, gd_object(l->policy), NULL, l->flags, &l->json);
	return NULL;
}

static void begin(struct loading *l, struct gd *d, const char *policy)
{
	*l = (struct loading){ .g = gd_open(d), .policy = policy, .flags = GBPF_LOAD_SWAP };
	assert_int_equal(pthread_create(&l->thread, NULL, run_load, l), 0);
}

static void end(struct loading *l)
{
	pthread_join(l->thread, NULL);
	gbpf_close(l->g);
	free(l->json);
}

static json_t *load(struct gd *d, const char *policy, const char *name, unsigned flags)
{
	struct gbpf *g = gd_open(d);
	char *text = NULL;
	json_t *j;

	if (gbpf_policy_load(g, gd_object(policy), name, flags | GBPF_LOAD_SWAP, &text) < 0) {
		fail_msg("%s", gbpf_last_error(g)->message);
	}
	j = json_loads(text, 0, NULL);
	free(text);
	gbpf_close(g);
	return j;
}

static uint64_t number(const json_t *j, const char *name)
{
	assert_true(json_is_integer(json_object_get(j, name)));
	return (uint64_t)json_integer_value(json_object_get(j, name));
}

/* Checks the times of an answer, and returns whether gbpfd knew the object. */
static bool was_known(json_t *j)
{
	bool known = json_is_true(json_object_get(j, "verified_before"));

	assert_int_equal(number(j, "total_ns"),
			 number(j, "verify_ns") + number(j, "queued_ns") + number(j, "swap_ns"));
	assert_true(number(j, "swap_ns") >= number(j, "flip_ns"));
	json_decref(j);
	return known;
}

static void an_object_is_verified_once(void **state)
{
	struct gd *d = *state;
	json_t *j;

	assert_false(was_known(load(d, "plain", NULL, 0)));
	assert_false(was_known(load(d, "counting", NULL, 0)));
	assert_true(was_known(load(d, "plain", NULL, 0)));
	assert_false(was_known(load(d, "counting", "plain", 0))); /* other bytes of a known name */
	assert_true(was_known(gd_call(d, "policy.rollback", NULL)));
	assert_int_equal(gd_number(d, "policy.list", "active"), 3);
	assert_true(was_known(gd_call(d, "policy.rollback", "{\"version\":1}")));
	j = gd_call(d, "policy.show", "{\"version\":3}");
	assert_true(number(j, "verify_ns") > 0);
	json_decref(j);
}

/* Returns whether the second load took effect while the first one was verified. */
static bool overtakes(struct gd *d)
{
	struct loading slow;
	const struct gbpf_error *e;
	bool passed;

	begin(&slow, d, "slow");
	json_decref(load(d, "plain", NULL, GBPF_LOAD_VOLATILE));
	json_decref(gd_call(d, "status", NULL));
	pthread_join(slow.thread, NULL);
	e = gbpf_last_error(slow.g);
	passed = slow.err < 0 && strcmp(e->code, "superseded") == 0;
	if (passed) {
		json_t *list = gd_call(d, "policy.list", NULL);

		/* The last request wins, and the other one has left nothing. */
		assert_int_equal(number(list, "active"), 1);
		assert_int_equal(json_array_size(json_object_get(list, "versions")), 1);
		json_decref(list);
		assert_non_null(strstr(e->message, "'slow'"));
	} else {
		assert_int_equal(slow.err, 0); /* it was verified before the other one came */
	}
	gbpf_close(slow.g);
	free(slow.json);
	return passed;
}

static void a_swap_does_not_wait_for_the_verification_of_another(void **state)
{
	struct gd *d = *state;

	for (int i = 0; !overtakes(d); i++) {
		assert_true(i < 20);
		gd_renew(d);
	}
}

static void verifications_at_the_same_time_lead_to_one_policy(void **state)
{
	static const char *const policies[] = { "slow",	 "plain", "counting", "slow",
						"heavy", "slow",  "plain",    "kinds" };
	struct loading l[ARRAY_SIZE(policies)];
	struct gd *d = *state;
	unsigned good = 0;

	for (size_t i = 0; i < ARRAY_SIZE(policies); i++) {
		begin(&l[i], d, policies[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(policies); i++) {
		pthread_join(l[i].thread, NULL);
		good += l[i].err == 0;
		assert_true(l[i].err == 0 ||
			    strcmp(gbpf_last_error(l[i].g)->code, "superseded") == 0);
		gbpf_close(l[i].g);
		free(l[i].json);
	}
	assert_true(good >= 1);
	assert_int_equal(gd_number(d, "policy.list", "active"), good);
	assert_int_equal(gd_number(d, "status", "counters.loads"), good);
}

static void gbpfd_exits_during_a_verification(void **state)
{
	struct gd *d = *state;
	struct loading slow;

	begin(&slow, d, "slow");
	assert_int_equal(gd_stop(d), 0);
	end(&slow);
	assert_int_equal(gd_start(d, NULL), 0);
}

static int setup_with_folder(void **state)
{
	return make_folder(state) ? -1 : gd_setup(state);
}

static int teardown_with_folder(void **state)
{
	int err = gd_teardown(state);

	return remove_folder(NULL) ? -1 : err;
}

static bool known_after_restart(struct gd *d)
{
	assert_int_equal(gd_stop(d), 0);
	assert_int_equal(gd_start(d, NULL), 0);
	return was_known(load(d, "slow", NULL, 0));
}

static void the_next_gbpfd_knows_verified_objects(void **state)
{
	struct gd *d = *state;

	assert_false(was_known(load(d, "slow", NULL, 0)));
	json_decref(gd_call(d, "policy.unload", NULL)); /* else the start has it in memory */
	assert_true(known_after_restart(d));
	json_decref(gd_call(d, "policy.unload", NULL));
	flip_byte(verdict_path(), 200);
	assert_false(known_after_restart(d)); /* it is written again */
	json_decref(gd_call(d, "policy.unload", NULL));
	assert_true(known_after_restart(d));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_object_is_found_by_all_of_its_bytes),
		cmocka_unit_test(the_object_not_used_for_longest_is_forgotten),
		cmocka_unit_test(images_differ_in_their_version_alone),
		cmocka_unit_test_setup_teardown(a_damaged_foreign_or_other_verdict_is_ignored,
						make_folder, remove_folder),
		cmocka_unit_test(known_programs_are_counted),
		cmocka_unit_test(known_programs_print_formats_on_the_stack),
#define WITH_GBPFD(f) cmocka_unit_test_setup_teardown(f, gd_setup, gd_teardown)
		WITH_GBPFD(an_object_is_verified_once),
		WITH_GBPFD(a_swap_does_not_wait_for_the_verification_of_another),
		WITH_GBPFD(verifications_at_the_same_time_lead_to_one_policy),
		WITH_GBPFD(gbpfd_exits_during_a_verification),
		cmocka_unit_test_setup_teardown(the_next_gbpfd_knows_verified_objects,
						setup_with_folder, teardown_with_folder),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
