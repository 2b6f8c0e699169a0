/* Paths from the environment: which variable decides, for root and for a user, and exact lengths.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/paths.h"

#include "../users.h"

static const char *const all[] = {
	"GBPF_RUNTIME_DIR", "GBPF_STATE_DIR", "GBPF_LIBDIR", "GBPF_BINDIR",
	"XDG_RUNTIME_DIR",  "XDG_STATE_HOME", "HOME",	     "GBPF_SOFTGPU_SOCKET"
};

typedef int (*path_fn)(char *out, size_t cap, const char *leaf);

static int clear(void **state)
{
	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		unsetenv(all[i]);
	}
	return 0;
}

static void set(const char *name, const char *value)
{
	assert_int_equal(setenv(name, value, 1), 0);
}

/* Leaves nothing of an earlier call on the stack, from which a later one could read it. */
static NOINLINE void wipe_stack(void)
{
	volatile char bytes[32768];

	for (size_t i = 0; i < sizeof(bytes); i++) {
		bytes[i] = 'Z';
	}
}

/* Asserts the path without and with a leaf, in exactly as many bytes as it needs. */
static void assert_path(path_fn path, const char *want)
{
	char out[4200], leaf[4200];
	size_t n = strlen(want);

	wipe_stack();
	assert_int_equal(path(out, sizeof(out), NULL), 0);
	assert_string_equal(out, want);
	assert_int_equal(path(out, n + 1, NULL), 0);
	assert_string_equal(out, want);
	assert_int_equal(path(out, n, NULL), -ENAMETOOLONG);
	snprintf(leaf, sizeof(leaf), "%s/leaf", want);
	assert_int_equal(path(out, n + 6, "leaf"), 0);
	assert_string_equal(out, leaf);
	assert_int_equal(path(out, n + 5, "leaf"), -ENAMETOOLONG);
}

static void assert_invalid(path_fn path)
{
	char out[256] = "unchanged";

	assert_int_equal(path(out, sizeof(out), "leaf"), -EINVAL);
	assert_string_equal(out, "unchanged");
}

static void root_has_the_folders_of_the_machine(void **state)
{
	NEED_TWO_USERS();
	set("XDG_RUNTIME_DIR", "relative");
	set("XDG_STATE_HOME", "relative");
	set("HOME", "relative"); /* none of them counts */
	assert_path(path_runtime, "/run/gbpf");
	assert_path(path_state, "/var/lib/gbpf");
	assert_int_equal(path_runtime_mode(), 0755);
	assert_null(path_relative_variable());
	set("GBPF_RUNTIME_DIR", "");
	set("GBPF_STATE_DIR", "");
	assert_path(path_runtime, "/run/gbpf");
	assert_path(path_state, "/var/lib/gbpf");
	assert_true(path_state_is_default());
	set("GBPF_RUNTIME_DIR", "/r");
	set("GBPF_STATE_DIR", "/s");
	assert_path(path_runtime, "/r");
	assert_path(path_state, "/s");
	assert_false(path_state_is_default());
}

static void a_user_has_folders_of_the_session(void **state)
{
	NEED_TWO_USERS();
	assert_int_equal(seteuid(USER_A), 0);
	assert_path(path_runtime, "/tmp/gbpf-65533");
	assert_path(path_state, "/tmp/.local/state/gbpf");
	assert_int_equal(path_runtime_mode(), 0700);
	set("HOME", "/home/a");
	assert_path(path_state, "/home/a/.local/state/gbpf");
	set("XDG_STATE_HOME", "/xs");
	assert_path(path_state, "/xs/gbpf");
	set("GBPF_STATE_DIR", "/s");
	assert_path(path_state, "/s");
	set("XDG_RUNTIME_DIR", "/xr");
	assert_path(path_runtime, "/xr/gbpf");
	set("GBPF_RUNTIME_DIR", "/r");
	assert_path(path_runtime, "/r");
	assert_int_equal(seteuid(0), 0);
}

static void relative_folders_are_refused(void **state)
{
	NEED_TWO_USERS();
	assert_int_equal(seteuid(USER_A), 0);
	set("HOME", "h");
	assert_invalid(path_state);
	set("XDG_STATE_HOME", "x");
	assert_invalid(path_state);
	set("XDG_STATE_HOME", "/x"); /* HOME no longer counts */
	assert_path(path_state, "/x/gbpf");
	set("GBPF_STATE_DIR", "./s");
	assert_invalid(path_state);
	set("XDG_RUNTIME_DIR", "r");
	assert_invalid(path_runtime);
	set("GBPF_RUNTIME_DIR", "r");
	assert_invalid(path_runtime);
	set("GBPF_LIBDIR", "lib");
	assert_invalid(path_lib);
	set("GBPF_BINDIR", "bin");
	assert_invalid(path_program);
	assert_int_equal(seteuid(0), 0);
}

/* A variable that another one overrules is not named. */
static void relative_variables_are_named(void **state)
{
	static const char *const always[] = { "GBPF_RUNTIME_DIR", "GBPF_STATE_DIR", "GBPF_LIBDIR",
					      "GBPF_BINDIR", "GBPF_SOFTGPU_SOCKET" };

	NEED_TWO_USERS();
	for (unsigned i = 0; i < sizeof(always) / sizeof(always[0]); i++) {
		set(always[i], "relative");
		assert_string_equal(path_relative_variable(), always[i]);
		set(always[i], "/absolute");
		assert_null(path_relative_variable());
	}
	clear(state);
	assert_int_equal(seteuid(USER_A), 0);
	assert_null(path_relative_variable());
	set("HOME", "h");
	assert_string_equal(path_relative_variable(), "HOME");
	set("XDG_STATE_HOME", "/x");
	assert_null(path_relative_variable());
	set("XDG_STATE_HOME", "x");
	assert_string_equal(path_relative_variable(), "XDG_STATE_HOME");
	set("GBPF_STATE_DIR", "/s");
	assert_null(path_relative_variable());
	set("XDG_RUNTIME_DIR", "r");
	assert_string_equal(path_relative_variable(), "XDG_RUNTIME_DIR");
	set("GBPF_RUNTIME_DIR", "/r");
	assert_null(path_relative_variable());
	assert_int_equal(seteuid(0), 0);
}

static void errors_are_explained(void **state)
{
	char out[300];

	set("GBPF_LIBDIR", "lib");
	assert_int_equal(path_explain(-EINVAL, out, sizeof(out)), -EINVAL);
	assert_string_equal(out, "invalid GBPF_LIBDIR 'lib': expected an absolute path");
	assert_int_equal(path_explain(-ENAMETOOLONG, out, sizeof(out)), -ENAMETOOLONG);
	assert_string_equal(out, "the paths in the environment are too long");
	assert_int_equal(path_explain(-ENOENT, out, sizeof(out)), -ENOENT);
	assert_string_equal(out, "No such file or directory");
	set("GBPF_LIBDIR", "/lib");
	assert_int_equal(path_explain(-EINVAL, out, sizeof(out)), -EINVAL);
	assert_string_equal(out, "Invalid argument");
}

static void the_installed_tree_is_beside_the_program(void **state)
{
	char own[1024], want[1100];
	ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);

	assert_true(n > 0);
	own[n] = 0;
	*strrchr(own, '/') = 0;
	assert_path(path_program, own);
	snprintf(want, sizeof(want), "%s/../lib/gbpf", own);
	assert_path(path_lib, want);
	set("GBPF_LIBDIR", "/lib/own");
	assert_path(path_lib, "/lib/own");
	set("GBPF_BINDIR", "/bin/own");
	assert_path(path_program, "/bin/own");
	clear(state);
	set("GBPF_LIBDIR", "");
	assert_path(path_lib, want);
}

/* The folder of installed files in that test: folders come before what is in them. */
static const char *const tree[] = { "policies", "policies/examples", "policies/fair.bpf.o",
				    "policies/examples/fair.bpf.o",
				    "policies/examples/mlfq.bpf.o" };

static void make_tree(const char *dir)
{
	char path[300];

	for (unsigned i = 0; i < ARRAY_SIZE(tree); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, tree[i]);
		assert_int_equal(strchr(tree[i], '.') ? mknod(path, S_IFREG | 0600, 0)
						      : mkdir(path, 0700),
				 0);
	}
}

static void remove_tree(const char *dir)
{
	char path[300];

	for (unsigned i = ARRAY_SIZE(tree); i-- > 0;) {
		snprintf(path, sizeof(path), "%s/%s", dir, tree[i]);
		assert_int_equal(remove(path), 0);
	}
	assert_int_equal(rmdir(dir), 0);
}

static void assert_policy(const char *word, const char *dir, const char *leaf)
{
	char out[300], want[300];

	snprintf(want, sizeof(want), "%s/policies/%s", dir, leaf);
	assert_int_equal(path_policy(out, sizeof(out), word), 0);
	assert_string_equal(out, want);
}

/* Of words with slashes only examples/NAME can name an installed policy. */
static void policies_are_named_without_a_path(void **state)
{
	static const char *const paths[] = {
		"examples/../fair", "../fair",	      "examples/",     "/mlfq", "./examples/mlfq",
		"examples//mlfq",   "examples/mlfq/", "policies/fair", ""
	};
	char dir[] = "/tmp/gbpf-paths-XXXXXX", out[300], name[600];

	assert_non_null(mkdtemp(dir));
	set("GBPF_LIBDIR", dir);
	make_tree(dir);
	assert_policy("fair", dir, "fair.bpf.o");
	assert_policy("examples/fair", dir, "examples/fair.bpf.o");
	assert_policy("examples/mlfq", dir, "examples/mlfq.bpf.o");
	assert_int_equal(path_policy(out, sizeof(out), "mlfq"), -ENOENT);
	assert_int_equal(path_policy(out, sizeof(out), "examples/.."), -ENOENT);
	for (unsigned i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		assert_int_equal(path_policy(out, sizeof(out), paths[i]), -EINVAL);
		assert_false(path_policy_is_example(paths[i]));
	}
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	assert_int_equal(path_policy(out, sizeof(out), name), -ENAMETOOLONG);
	assert_false(path_policy_is_example(name));
	assert_true(path_policy_is_example("mlfq"));
	assert_false(path_policy_is_example("fair")); /* an installed policy of that name, too */
	assert_false(path_policy_is_example("examples/mlfq"));
	assert_false(path_policy_is_example("nosuch"));
	remove_tree(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(root_has_the_folders_of_the_machine, clear),
		cmocka_unit_test_setup(a_user_has_folders_of_the_session, clear),
		cmocka_unit_test_setup(relative_folders_are_refused, clear),
		cmocka_unit_test_setup(relative_variables_are_named, clear),
		cmocka_unit_test_setup(policies_are_named_without_a_path, clear),
		cmocka_unit_test_setup(errors_are_explained, clear),
		cmocka_unit_test_setup(the_installed_tree_is_beside_the_program, clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
