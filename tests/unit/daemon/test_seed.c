/* gbpfd seeds the hash tables of policies at random, and seeds stay with the memory of a table. */
#include "harness.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "bpf/run/map/map_seed.h"

enum { BATCH = 2, BUCKETS = 512, BUCKET_MAX = 128, N_KEYS = BUCKET_MAX + 1 };

static const struct {
	const char *name;
	bool own;  /* of gbpfd alone */
	bool each; /* an instance for each tenant */
} tables[] = {
	{ "all", false, false },     { "own", true, false },	 { "each", false, true },
	{ "lru_all", false, false }, { "lru_own", true, false }, { "lru_each", false, true },
};

/* Finds keys that share a bucket of a table whose seed is 0: gbpfd would refuse the last one. */
static void choose(uint32_t keys[N_KEYS], bool own)
{
	const struct ebpf_seed zero = ebpf_seed_of((const uint64_t[2]){ 0, 0 });
	uint32_t n = 0;

	for (uint64_t k = 0; n < N_KEYS; k++) {
		if ((own ? ebpf_sip(&zero, &k, 1) : ebpf_mix(&zero, &k, 1)) % BUCKETS == 0) {
			keys[n++] = (uint32_t)k;
		}
	}
}

static void load(struct gd *d, unsigned flags)
{
	struct gbpf *g = gd_open(d);

	if (gbpf_policy_load(g, gd_object("seeded"), NULL, flags, NULL) < 0) {
		fail_msg("%s", gbpf_last_error(g)->message);
	}
	gbpf_close(g);
}

static void call_each(struct gd *d, const char *method, const char *value, size_t t)
{
	uint32_t keys[N_KEYS];
	char params[160];

	choose(keys, tables[t].own);
	for (uint32_t i = 0; i < N_KEYS; i++) {
		snprintf(params, sizeof(params), "{\"map\":\"%s\",\"key\":\"%u\"%s%s}",
			 tables[t].name, keys[i], value, tables[t].each ? ",\"tenant\":0" : "");
		json_decref(gd_call(d, method, params)); /* must succeed */
	}
}

static void store(struct gd *d, size_t t)
{
	call_each(d, "map.set", ",\"value\":\"1\"", t);
}

static void find(struct gd *d, size_t t)
{
	call_each(d, "map.get", "", t);
}

static void chosen_keys_are_stored_and_found_in_the_next_version(void **state)
{
	struct gd *d = *state;
	struct fake f;

	load(d, GBPF_LOAD_SWAP);
	fake_enter(&f, d, BATCH, "chooser");
	assert_int_equal(fake_prepare(&f, 0), 1);
	for (size_t t = 0; t < ARRAY_SIZE(tables); t++) {
		store(d, t);
		find(d, t);
	}
	/* maps of the new version have other seeds: keeping them inserts each key again */
	load(d, GBPF_LOAD_SWAP | GBPF_LOAD_KEEP_MAPS);
	assert_int_equal(fake_prepare(&f, 0), 2);
	for (size_t t = 0; t < ARRAY_SIZE(tables); t++) {
		find(d, t);
	}
	fake_leave(&f);
}

static void tables_of_a_tenant_outlive_gbpfd(void **state)
{
	struct gd *d = *state;
	struct fake f;

	load(d, GBPF_LOAD_SWAP);
	fake_enter(&f, d, BATCH, "survivor");
	assert_int_equal(fake_prepare(&f, 0), 1);
	for (size_t t = 0; t < ARRAY_SIZE(tables); t++) {
		store(d, t);
	}
	gbpf_close(d->g);
	d->g = NULL;
	gd_kill(d);
	assert_int_equal(gd_start(d, NULL), 0);
	fake_reattach(&f, d, 1);
	assert_int_equal(fake_prepare(&f, 0), 1);
	for (size_t t = 0; t < ARRAY_SIZE(tables); t++) {
		if (tables[t].each) {
			find(d, t);
		} else {
			store(d, t); /* new memory, with a new seed */
		}
	}
	fake_leave(&f);
}

#define WITH_GBPFD(f) cmocka_unit_test_setup_teardown(f, gd_setup, gd_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_GBPFD(chosen_keys_are_stored_and_found_in_the_next_version),
		WITH_GBPFD(tables_of_a_tenant_outlive_gbpfd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
