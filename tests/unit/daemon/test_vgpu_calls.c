/* libgbpf's calls about virtual GPUs. */
#include "vgpu_rig.h"

#include <errno.h>

#define MIB(n) ((uint64_t)(n) << 20)

/* Returns the gbpfd of a test, with a handle. */
static struct gd *connected(void **state)
{
	struct gd *d = *state;

	d->g = gd_open(d);
	assert_non_null(d->g);
	return d;
}

static json_t *show(struct gd *d, const char *name)
{
	char *text = NULL;
	json_t *v;

	assert_int_equal(gbpf_vgpu_show(d->g, name, &text), 0);
	v = json_loads(text, 0, NULL);
	assert_non_null(v);
	free(text);
	return v;
}

static void assert_member(struct gd *d, const char *name, const char *member, uint64_t value)
{
	json_t *v = show(d, name);

	assert_int_equal(json_integer_value(json_object_get(v, member)), value);
	json_decref(v);
}

static void assert_shows(struct gd *d, const char *word, bool burst)
{
	json_t *v = show(d, "train");

	assert_string_equal(json_string_value(json_object_get(v, "show")), word);
	assert_int_equal(json_is_true(json_object_get(v, "burst")), burst);
	json_decref(v);
}

/* The example of gbpf.h, and each member on its own. */
static void members_that_are_given_are_set(void **state)
{
	struct gd *d = connected(state);
	struct gbpf_vgpu v = { .size = sizeof(v), .given = GBPF_GIVEN_MEM | GBPF_GIVEN_COMPUTE };
	const uint32_t users[] = { 1234, 4321 };
	json_t *j;

	v.mem = MIB(64);
	v.compute = 25;
	v.copy = 99; /* not given */
	assert_int_equal(gbpf_vgpu_create(d->g, "train", &v, NULL), 0);
	assert_member(d, "train", "mem", MIB(64));
	assert_member(d, "train", "compute", 25);
	assert_member(d, "train", "copy", 0);
	v = (struct gbpf_vgpu){ .size = sizeof(v),
				.given = GBPF_GIVEN_RESERVE | GBPF_GIVEN_PINNED | GBPF_GIVEN_WAIT |
					 GBPF_GIVEN_COPY | GBPF_GIVEN_PRIO | GBPF_GIVEN_BURST |
					 GBPF_GIVEN_USERS | GBPF_GIVEN_SWAP | GBPF_GIVEN_SHOW,
				.burst = 1,
				.show = GBPF_SHOW_MEM,
				.reserve = MIB(32),
				.pinned = MIB(5),
				.swap = MIB(96),
				.wait_ns = 7,
				.copy = 30,
				.prio = 9,
				.users = users,
				.n_users = 2 };
	assert_int_equal(gbpf_vgpu_set(d->g, "train", &v, NULL), 0);
	assert_member(d, "train", "mem", MIB(64));
	assert_member(d, "train", "reserve", MIB(32));
	assert_member(d, "train", "pinned", MIB(5));
	assert_member(d, "train", "swap", MIB(96));
	assert_member(d, "train", "swap_used", 0);
	assert_member(d, "train", "wait_ns", 7);
	assert_member(d, "train", "copy", 30);
	assert_member(d, "train", "prio", 9);
	assert_shows(d, "mem", true);
	j = show(d, "train");
	assert_int_equal(json_array_size(json_object_get(j, "users")), 2);
	json_decref(j);
	v = (struct gbpf_vgpu){ .size = sizeof(v), .given = GBPF_GIVEN_MEM | GBPF_GIVEN_USERS };
	assert_int_equal(gbpf_vgpu_set(d->g, "train", &v, NULL), -EINVAL); /* swap needs mem */
	v.given |= GBPF_GIVEN_SWAP;
	assert_int_equal(gbpf_vgpu_set(d->g, "train", &v, NULL), 0); /* takes all three back */
	assert_member(d, "train", "swap", 0);
	j = show(d, "train");
	assert_int_equal(json_array_size(json_object_get(j, "users")), 0);
	json_decref(j);
	assert_member(d, "train", "mem", 0);
	assert_member(d, "train", "reserve", MIB(32));
}

/* Each is changed without the other one. */
static void burst_and_show_are_changed_apart(void **state)
{
	struct gd *d = connected(state);
	struct gbpf_vgpu v = { .size = sizeof(v), .given = GBPF_GIVEN_SHOW, .show = GBPF_SHOW_MEM };

	assert_int_equal(gbpf_vgpu_create(d->g, "train", NULL, NULL), 0);
	assert_shows(d, "all", false);
	assert_int_equal(gbpf_vgpu_set(d->g, "train", &v, NULL), 0); /* without swap */
	assert_shows(d, "mem", false);
	v = (struct gbpf_vgpu){ .size = sizeof(v), .given = GBPF_GIVEN_BURST, .burst = 1 };
	assert_int_equal(gbpf_vgpu_set(d->g, "train", &v, NULL), 0);
	assert_shows(d, "mem", true);
	v = (struct gbpf_vgpu){ .size = sizeof(v), .given = GBPF_GIVEN_SHOW };
	assert_int_equal(gbpf_vgpu_set(d->g, "train", &v, NULL), 0);
	assert_shows(d, "all", true);
	v.show = GBPF_SHOW_MEM;
	assert_int_equal(gbpf_vgpu_set(d->g, "train", &v, NULL), 0);
	v = (struct gbpf_vgpu){ .size = sizeof(v), .given = GBPF_GIVEN_BURST };
	assert_int_equal(gbpf_vgpu_set(d->g, "train", &v, NULL), 0);
	assert_shows(d, "mem", false);
	v = (struct gbpf_vgpu){ .size = sizeof(v), .given = GBPF_GIVEN_SHOW, .show = 2 };
	assert_int_equal(gbpf_vgpu_set(d->g, "train", &v, NULL), -EINVAL);
	assert_non_null(strstr(gbpf_last_error(d->g)->message, "show: mem or all"));
	assert_shows(d, "mem", false);
}

static void errors_have_their_numbers(void **state)
{
	struct gd *d = connected(state);
	struct gbpf_vgpu v = { .size = sizeof(v), .given = GBPF_GIVEN_MEM, .mem = 1 };
	struct gbpf_vgpu huge = { .size = sizeof(v),
				  .given = GBPF_GIVEN_RESERVE,
				  .reserve = MIB(2048),
				  .device_mem = MIB(1024) };
	struct gbpf_vgpu wrong = { .given = GBPF_GIVEN_MEM };

	assert_int_equal(gbpf_vgpu_create(d->g, "train", NULL, NULL), 0);
	assert_int_equal(gbpf_vgpu_create(d->g, "train", NULL, NULL), -EEXIST);
	assert_int_equal(gbpf_vgpu_create(d->g, "9x", NULL, NULL), -EINVAL);
	assert_int_equal(gbpf_vgpu_create(d->g, "\xff", NULL, NULL), -EINVAL);
	assert_int_equal(gbpf_vgpu_create(d->g, NULL, NULL, NULL), -EINVAL);
	assert_int_equal(gbpf_vgpu_set(d->g, "train", &v, NULL), -EINVAL);
	v.mem = UINT64_MAX;
	assert_int_equal(gbpf_vgpu_set(d->g, "train", &v, NULL), -EINVAL);
	v = (struct gbpf_vgpu){ .size = sizeof(v), .given = GBPF_GIVEN_SWAP, .swap = MIB(2) };
	assert_int_equal(gbpf_vgpu_set(d->g, "train", &v, NULL), -EINVAL); /* without mem */
	v.given |= GBPF_GIVEN_MEM;
	v.mem = MIB(64);
	v.swap = 1;
	assert_int_equal(gbpf_vgpu_set(d->g, "train", &v, NULL), -EINVAL);
	v.swap = (UINT64_C(1) << 50) + 1;
	assert_int_equal(gbpf_vgpu_set(d->g, "train", &v, NULL), -EINVAL);
	assert_int_equal(gbpf_vgpu_set(d->g, "train", &wrong, NULL), -EINVAL);
	assert_string_equal(gbpf_last_error(d->g)->code, "usage");
	assert_int_equal(gbpf_vgpu_set(d->g, "train", &huge, NULL), -E2BIG);
	assert_int_equal(gbpf_vgpu_set(d->g, "nosuch", &v, NULL), -ENOENT);
	assert_int_equal(gbpf_vgpu_show(d->g, "nosuch", NULL), -ENOENT);
	assert_int_equal(gbpf_last_error(d->g)->exit, GBPF_CODE_NOT_FOUND);
	assert_int_equal(gbpf_vgpu_show(d->g, NULL, NULL), -ENOENT);
	assert_int_equal(gbpf_vgpu_remove(d->g, "nosuch", 0, NULL), -ENOENT);
	assert_int_equal(gbpf_vgpu_set_of(d->g, 7, NULL, NULL), -ENOENT);
}

/* A struct of a program that was built for a later library. */
static void a_longer_struct_is_accepted(void **state)
{
	struct gd *d = connected(state);
	struct {
		struct gbpf_vgpu v;
		uint64_t later[4];
	} longer = { .v = { .size = sizeof(longer), .given = GBPF_GIVEN_MEM, .mem = MIB(64) } };
	struct gbpf_vgpu shorter = { .size = offsetof(struct gbpf_vgpu, device_mem),
				     .given = GBPF_GIVEN_RESERVE,
				     .reserve = MIB(32),
				     .device_mem = 1 };

	assert_int_equal(gbpf_vgpu_create(d->g, "train", &longer.v, NULL), 0);
	assert_member(d, "train", "mem", MIB(64));
	assert_int_equal(gbpf_vgpu_set(d->g, "train", &shorter, NULL), 0);
	assert_member(d, "train", "reserve", MIB(32));
}

static void one_with_programs_is_removed_by_draining(void **state)
{
	struct gd *d = connected(state);
	struct proto_hello h = hello_of(0, 0);
	char *text = NULL;
	struct member p;

	assert_int_equal(gbpf_vgpu_create(d->g, "train", NULL, NULL), 0);
	snprintf(h.vgpu.name, sizeof(h.vgpu.name), "train");
	say(&p, d, &h, NULL, 0);
	assert_int_equal(p.error, 0);
	assert_int_equal(gbpf_vgpu_remove(d->g, "train", 0, NULL), -EBUSY);
	assert_int_equal(gbpf_vgpu_remove(d->g, "train", GBPF_VGPU_DRAIN, NULL), 0);
	assert_int_equal(gbpf_vgpu_show(d->g, "train", &text), 0);
	assert_non_null(strstr(text, "draining"));
	free(text);
	part(&p);
	assert_int_equal(gbpf_vgpu_create(d->g, "other", NULL, NULL), 0);
	assert_int_equal(gbpf_vgpu_remove(d->g, "other", 0, NULL), 0);
	assert_int_equal(gbpf_vgpu_list(d->g, &text), 0);
	assert_null(strstr(text, "other"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, gd_setup, gd_teardown)
		TEST(members_that_are_given_are_set),
		TEST(burst_and_show_are_changed_apart),
		TEST(errors_have_their_numbers),
		TEST(a_longer_struct_is_accepted),
		TEST(one_with_programs_is_removed_by_draining),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
