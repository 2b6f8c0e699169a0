/* Kernels of machine code that were found waiting for later blocks are remembered for later runs.
 * Each run is a process of its own here. */
#include "code_rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "shim/code/shim_code.h"
#include "shim/kernel/clone.h"

#define MAX_BYTES 65536

static char folder[] = "/tmp/gbpf-waiting-XXXXXX", state_folder[64], path[64];

static CUfunction next_function;

static CUresult get_next(CUfunction *ret, CUmodule m, const char *name)
{
	*ret = next_function;
	return CUDA_SUCCESS;
}

/* Returns the function's clone of a module that is loaded now, NULL: it is not to be stopped. */
static struct shim_clone *load(CUfunction as, const char *name, enum proto_block_why *ret_why)
{
	CUmodule m = RIG_MODULE;
	struct shim_clone *t;
	CUfunction f;

	next_function = as;
	if (cuModuleLoadData(&m, rig_image) != CUDA_SUCCESS ||
	    cuModuleGetFunction(&f, m, name) != CUDA_SUCCESS) {
		_exit(100);
	}
	t = shim_clone_get(f);
	*ret_why = t ? t->why : PROTO_BLOCK_UNKNOWN;
	return t && t->handle ? t : NULL;
}

/* A run in which the kernel hangs when it is stopped. Returns the reason why it cannot be, before
 * that. */
static int run_hangs(CUfunction as, const char *name)
{
	enum proto_block_why why;
	struct shim_clone *t = load(as, name, &why), *again;

	if (t) {
		shim_clone_exclude(t->handle);
		shim_code_save_waiting();
		again = load(RIG_OTHER, name, &why); /* the same code, loaded again */
		if (again || why != PROTO_BLOCK_WAITED) {
			return 101;
		}
		return PROTO_BLOCK_OK;
	}
	return (int)why;
}

/* A run that only loads the kernel. */
static int run_loads(CUfunction as, const char *name)
{
	enum proto_block_why why;

	return load(as, name, &why) ? PROTO_BLOCK_OK : (int)why;
}

static pid_t start(int (*run)(CUfunction as, const char *name), CUfunction as, const char *name)
{
	pid_t pid = fork();

	if (pid == 0) {
		double_noted[0] = 0;
		_exit(run(as, name));
	}
	return pid;
}

static int ended(pid_t pid)
{
	int status = 0;

	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int hangs(void)
{
	return ended(start(run_hangs, RIG_TWO, "two"));
}

static int loads(void)
{
	return ended(start(run_loads, RIG_TWO, "two"));
}

static size_t file_bytes(void)
{
	struct stat st;

	return stat(path, &st) == 0 ? (size_t)st.st_size : 0;
}

static char *contents(void)
{
	struct buf b;

	buf_init(&b);
	assert_int_equal(buf_read_file(&b, path, 1 << 20), 0);
	return buf_steal(&b);
}

static void put_file(const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static unsigned count_lines(const char *text)
{
	unsigned n = 0;

	for (; *text; text++) {
		n += *text == '\n';
	}
	return n;
}

/* ---- */

static void a_waiting_kernel_is_remembered(void **state)
{
	char *text;

	assert_int_equal(loads(), PROTO_BLOCK_OK);
	assert_int_equal(file_bytes(), 0);
	assert_int_equal(hangs(), PROTO_BLOCK_OK);
	assert_int_equal(loads(), PROTO_BLOCK_WAITED);
	assert_int_equal(hangs(), PROTO_BLOCK_WAITED);
	assert_int_equal(ended(start(run_loads, RIG_NONE, "none")), PROTO_BLOCK_OK);
	text = contents();
	assert_int_equal(strlen(text), 16 + 1 + strlen("two") + 1);
	assert_string_equal(text + 16, " two\n");
	free(text);
}

static void removing_the_file_forgets(void **state)
{
	assert_int_equal(hangs(), PROTO_BLOCK_OK);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(loads(), PROTO_BLOCK_OK);
}

static void processes_save_at_the_same_time(void **state)
{
	static const struct {
		CUfunction as;
		const char *name;
	} of[] = { { RIG_TWO, "two" }, { RIG_NONE, "none" }, { RIG_MANY, "many" } };
	pid_t pid[24];
	char *text;

	for (unsigned i = 0; i < ARRAY_SIZE(pid); i++) {
		pid[i] = start(run_hangs, of[i % 3].as, of[i % 3].name);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(pid); i++) {
		int r = ended(pid[i]);

		assert_true(r == PROTO_BLOCK_OK || r == PROTO_BLOCK_WAITED);
	}
	text = contents();
	assert_int_equal(count_lines(text), 3);
	for (unsigned i = 0; i < ARRAY_SIZE(of); i++) {
		assert_non_null(strstr(text, of[i].name));
	}
	free(text);
}

static int run_notes_damage(CUfunction as, const char *name)
{
	enum proto_block_why why;

	(void)load(as, name, &why);
	return strstr(double_noted, "waiting-kernels: ") &&
			       strstr(double_noted, "damaged lines ignored: 5;") &&
			       why == PROTO_BLOCK_WAITED
		       ? 0
		       : 1;
}

static void damaged_lines_are_ignored_and_noted(void **state)
{
	char *text, more[512];

	assert_int_equal(hangs(), PROTO_BLOCK_OK);
	text = contents();
	snprintf(more, sizeof(more), "\n0123\nABCDEF0123456789 x\n0123456789abcdefx\n%sffff", text);
	free(text);
	put_file(more);
	assert_int_equal(ended(start(run_notes_damage, RIG_TWO, "two")), 0);
	/* The last line was torn; what is added does not continue it. */
	assert_int_equal(ended(start(run_hangs, RIG_NONE, "none")), PROTO_BLOCK_OK);
	assert_int_equal(ended(start(run_loads, RIG_NONE, "none")), PROTO_BLOCK_WAITED);
	assert_int_equal(loads(), PROTO_BLOCK_WAITED);
}

static void the_file_stays_small(void **state)
{
	FILE *f = fopen(path, "w");
	char *text;

	assert_non_null(f);
	for (unsigned i = 1; i < 4000; i++) {
		assert_true(fprintf(f, "%016x gemm_kernel\n", i) > 0);
	}
	assert_int_equal(fclose(f), 0);
	assert_true(file_bytes() > MAX_BYTES);
	assert_int_equal(hangs(), PROTO_BLOCK_OK);
	assert_true(file_bytes() <= MAX_BYTES);
	assert_int_equal(loads(), PROTO_BLOCK_WAITED);
	text = contents();
	assert_non_null(strstr(text, "0000000000000f9f gemm_kernel\n")); /* the newest */
	assert_null(strstr(text, "0000000000000001 gemm_kernel\n"));	 /* the oldest */
	free(text);
}

static int run_notes_refusal(CUfunction as, const char *name)
{
	enum proto_block_why why;

	return load(as, name, &why) && strstr(double_noted, "waiting-kernels: cannot read") ? 0 : 1;
}

static void a_file_that_cannot_be_read_is_noted(void **state)
{
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(ended(start(run_notes_refusal, RIG_TWO, "two")), 0);
	assert_int_equal(hangs(), PROTO_BLOCK_OK);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(symlink("/dev/null", path), 0);
	assert_int_equal(ended(start(run_notes_refusal, RIG_TWO, "two")), 0);
	assert_int_equal(unlink(path), 0);
}

static int before(void **state)
{
	(void)unlink(path);
	return rig_before(state);
}

static int setup(void **state)
{
	if (rig_setup(state) < 0 || !mkdtemp(folder)) {
		return -1;
	}
	shim_driver.cuModuleGetFunction = get_next;
	shim_real.cuModuleGetFunction = get_next;
	snprintf(path, sizeof(path), "%s/state/waiting-kernels", folder);
	snprintf(state_folder, sizeof(state_folder), "%s/state", folder);
	return setenv("GBPF_STATE_DIR", state_folder, 1);
}

static int teardown(void **state)
{
	(void)unlink(path);
	(void)rmdir(state_folder);
	return rmdir(folder);
}

#define TEST(f) cmocka_unit_test_setup(f, before)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_waiting_kernel_is_remembered),
		TEST(removing_the_file_forgets),
		TEST(processes_save_at_the_same_time),
		TEST(damaged_lines_are_ignored_and_noted),
		TEST(the_file_stays_small),
		TEST(a_file_that_cannot_be_read_is_noted),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
