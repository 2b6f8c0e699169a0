/* State that outlives gbpfd: policies, history, processes. State that must not: stale sockets,
 * half-written files. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/shm.h"

enum { LATENCY, NORMAL, BATCH };

static void load(struct gd *d, const char *name)
{
	struct gbpf *g = gd_open(d);

	if (gbpf_policy_load(g, gd_object(name), NULL, GBPF_LOAD_SWAP, NULL) < 0) {
		fail_msg("%s", gbpf_last_error(g)->message);
	}
	gbpf_close(g);
}

static void restart_after_kill(struct gd *d)
{
	gbpf_close(d->g);
	d->g = NULL;
	gd_kill(d);
	assert_int_equal(gd_start(d, NULL), 0);
}

static void the_active_policy_is_active_again(void **state)
{
	struct gd *d = *state;

	load(d, "plain");
	load(d, "counting");
	restart_after_kill(d);
	assert_int_equal(gd_number(d, "policy.list", "active"), 2);
	load(d, "plain");
	assert_int_equal(gd_number(d, "policy.list", "active"), 3); /* numbering continues */
	gd_stop(d);
	assert_int_equal(gd_start(d, NULL), 0);
	assert_int_equal(gd_number(d, "policy.list", "active"), 3);
	json_decref(gd_call(d, "policy.rollback", NULL)); /* the previous version is known, too */
	assert_int_equal(gd_number(d, "policy.list", "active"), 2);
}

static void an_unloaded_policy_stays_unloaded(void **state)
{
	struct gd *d = *state;

	load(d, "plain");
	json_decref(gd_call(d, "policy.unload", NULL));
	json_decref(gd_call(d, "off", NULL));
	restart_after_kill(d);
	assert_int_equal(gd_number(d, "policy.list", "active"), 0);
	json_t *hello = gd_call(d, "hello", "{\"protocol\":1}");
	assert_true(json_is_true(json_object_get(hello, "off")));
	json_decref(hello);
}

static void the_history_goes_on(void **state)
{
	struct gd *d = *state;
	uint64_t last;

	load(d, "plain");
	last = gd_last_event(d);
	assert_true(last >= 3);
	restart_after_kill(d);
	gd_await_event(d, 0, "policy", "load: 'plain'");
	assert_true(gd_await_event(d, last, "serve", "gbpfd") > last);
}

static void a_process_comes_back_with_its_memory(void **state)
{
	struct gd *d = *state;
	struct fake f, lc;
	union proto_message m;
	uint32_t generation, tenant;
	uint64_t *mine;
	int fds[8];
	unsigned n;

	load(d, "counting");
	fake_enter(&lc, d, LATENCY, "other");
	fake_prepare(&lc, 0);
	fake_enter(&f, d, BATCH, "survivor");
	close(fake_expect(&f, &m, PROTO_BOARD_ADD));
	assert_int_equal(fake_prepare(&f, 0), 1);
	tenant = f.tenant;
	assert_int_equal(tenant, 1);
	generation = f.dir->generation;
	mine = shm_map(f.region_fd, 4096, 1);
	store_seqcst(&mine[3], UINT64_C(777));
	store_seqcst(&f.stats->launches, UINT64_C(4242));
	gd_kill(d);
	assert_int_equal(fake_receive(&f, &m, fds, &n),
			 0); /* the process sees the end of its session */
	assert_int_equal(load_seqcst(&f.dir->version[0]),
			 1); /* and continues with the last policy */
	gbpf_close(d->g);
	d->g = NULL;
	assert_int_equal(gd_start(d, NULL), 0);
	fake_reattach(&f, d, 1);
	assert_int_equal(f.tenant, tenant);
	assert_true(f.dir->generation != generation && f.dir->generation != 0);
	assert_int_equal(load_seqcst(&f.dir->version[0]), 1);
	assert_int_equal(fake_prepare(&f, 0), 1); /* global memory is new, its own memory is kept */
	shm_unmap(mine, 4096);
	mine = shm_map(f.region_fd, 4096, 0);
	assert_int_equal(load_seqcst(&mine[3]), 777);
	assert_int_equal(gd_number(d, "status", "tenants"), 1);
	gd_await_event(d, 0, "reattach", "tenant 1");
	json_t *ps = gd_call(d, "ps", NULL);
	json_t *stats = json_object_get(json_array_get(json_object_get(ps, "tenants"), 0), "stats");
	assert_int_equal(json_integer_value(json_object_get(stats, "launches")), 4242);
	json_decref(ps);
	shm_unmap(mine, 4096);
	fake_leave(&f);
	fake_leave(&lc);
}

static void a_latency_process_that_comes_back_is_published_again(void **state)
{
	struct gd *d = *state;
	struct fake f, watcher;
	union proto_message m;
	int fd;

	fake_enter(&f, d, LATENCY, "lc");
	gd_await_event(d, 0, "start", "lc");
	restart_after_kill(d);
	fake_enter(&watcher, d, BATCH, "watcher");
	fake_reattach(&f, d, 0);
	json_decref(gd_call(d, "set", "{\"tenant\":1,\"class\":\"latency\"}"));
	fd = fake_expect(&watcher, &m, PROTO_BOARD_ADD);
	close(fd);
	fake_leave(&f);
	fake_expect(&watcher, &m, PROTO_BOARD_REMOVE);
	fake_leave(&watcher);
}

static void foreign_pages_are_not_taken_over(void **state)
{
	struct gd *d = *state;
	union proto_message m;
	int wrong[4];

	wrong[0] = open("/dev/null", O_RDWR);
	wrong[1] = shm_create("short", 4096, SHM_NOEXEC);
	wrong[2] = shm_create("long", 65536, SHM_NOEXEC);
	wrong[3] = open("/tmp", O_RDONLY);
	for (int i = 0; i < 4; i++) {
		int fds[3] = { wrong[i], i == 1 ? wrong[1] : wrong[i], wrong[2] };
		struct fake f;

		fake_connect(&f, d);
		memset(&m, 0, sizeof(m));
		m.hello.flags = PROTO_REATTACH;
		m.hello.tenant = 5000;
		m.hello.gpus = m.hello.regions = 1;
		m.hello.policy_version = 12345;
		assert_int_equal(proto_send(f.sock, &m, PROTO_HELLO, fds, 3), 0);
		fake_expect(&f, &m, PROTO_REFUSED);
		fake_leave(&f);
	}
	for (int i = 0; i < 4; i++) {
		close(wrong[i]);
	}
	while (gd_number(d, "status", "sessions") > 0) {
	}
	assert_int_equal(gd_number(d, "status", "leaked"), 0);
}

static void a_second_gbpfd_is_refused_with_the_pid_of_the_first(void **state)
{
	struct gd *d = *state, second = *d;
	char pid[32];
	struct fake f;

	second.g = NULL;
	assert_int_equal(gd_start(&second, NULL), -1);
	snprintf(pid, sizeof(pid), "(pid %d)", (int)d->pid);
	assert_non_null(strstr(second.said, pid));
	assert_non_null(strstr(second.said, "another gbpfd"));
	fake_enter(&f, d, BATCH, "unharmed"); /* the first gbpfd continues */
	fake_leave(&f);
}

static void two_daemons_do_not_share_a_state_directory(void **state)
{
	struct gd *d = *state, second = *d;
	char path[160];
	pid_t pid;
	int status;

	second.g = NULL;
	snprintf(second.runtime, sizeof(second.runtime), "%s/other", d->dir);
	assert_int_equal(gd_start(&second, NULL), -1); /* given on its command line */
	assert_non_null(strstr(second.said, "state directory"));
	assert_non_null(strstr(second.said, "in use by another gbpfd"));
	pid = fork();
	if (pid == 0) { /* by default only: it keeps its state in its runtime directory */
		setenv("GBPF_STATE_DIR", d->state, 1);
		second.state[0] = 0;
		if (gd_start(&second, NULL) != 0) {
			_exit(1);
		}
		json_t *j = gd_call(&second, "status", NULL);

		snprintf(path, sizeof(path), "%s/state", second.runtime);
		if (strcmp(json_string_value(json_object_get(j, "state_dir")), path) != 0) {
			_exit(2);
		}
		_exit(gd_stop(&second));
	}
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
}

static void stale_files_do_not_stop_a_start(void **state)
{
	struct gd *d = *state;
	char path[160];
	FILE *file;

	load(d, "plain");
	gd_kill(d);
	gbpf_close(d->g);
	d->g = NULL;
	snprintf(path, sizeof(path), "%s/policies/2.json", d->state); /* without an object */
	file = fopen(path, "w");
	fputs("{\"name\":\"ghost\"}", file);
	fclose(file);
	snprintf(path, sizeof(path), "%s/policies/3.json.part", d->state);
	file = fopen(path, "w");
	fputs("{\"na", file);
	fclose(file);
	snprintf(path, sizeof(path), "%s/events.jsonl", d->state);
	file = fopen(path, "a");
	fputs("{\"seq\":9,\"wall", file); /* torn line */
	fclose(file);
	assert_int_equal(gd_start(d, NULL), 0);
	assert_int_equal(gd_number(d, "policy.list", "active"), 1);
	gd_stop(d);
	snprintf(path, sizeof(path), "%s/policies/state.json", d->state);
	file = fopen(path, "w");
	fputs("[1,2", file);
	fclose(file);
	assert_int_equal(gd_start(d, NULL), 0);
	load(d, "counting");
}

static void a_stored_policy_that_is_damaged_is_left_out(void **state)
{
	struct gd *d = *state;
	char path[160];

	load(d, "plain");
	gd_stop(d);
	snprintf(path, sizeof(path), "%s/policies/1.bpf.o", d->state);
	assert_int_equal(truncate(path, 100), 0);
	assert_int_equal(gd_start(d, NULL), 0);
	assert_int_equal(gd_number(d, "policy.list", "active"), 0);
	gd_await_event(d, 0, "policy", "restore of 'plain' failed");
	load(d, "plain");
}

static void a_runtime_directory_that_is_no_directory_is_explained(void **state)
{
	struct gd *d = *state, other = *d;
	FILE *file;

	other.g = NULL;
	snprintf(other.runtime, sizeof(other.runtime), "%s/file", d->dir);
	file = fopen(other.runtime, "w");
	fclose(file);
	assert_int_equal(gd_start(&other, NULL), -1);
	assert_non_null(strstr(other.said, "runtime directory"));
	assert_non_null(strstr(other.said, other.runtime));
	snprintf(other.runtime, sizeof(other.runtime), "relative/path");
	assert_int_equal(gd_start(&other, NULL), -1);
	assert_non_null(strstr(other.said, "absolute"));
}

/* Mounts in a mount namespace of its own, so that nothing stays mounted. 0, or 77 if that is not
 * permitted. */
static int mount_small(const char *dir, const char *options)
{
	if ((mkdir(dir, 0755) < 0 && errno != EEXIST) || unshare(CLONE_NEWNS) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", dir, "tmpfs", 0, options) < 0) {
		return 77;
	}
	return 0;
}

/* Runs the test in a process with mounts of its own; its exit code must be 0. */
static void in_namespace(struct gd *d, int (*test)(struct gd *other))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct gd other = *d;

		other.g = NULL;
		_exit(test(&other));
	}
	waitpid(pid, &status, 0);
	if (WEXITSTATUS(status) == 77) {
		skip(); /* no permission to mount here */
	}
	assert_int_equal(status, 0);
}

static int start_in_full_directory(struct gd *other)
{
	snprintf(other->runtime, sizeof(other->runtime), "%s/full", other->dir);
	if (mount_small(other->runtime, "size=4k,nr_inodes=1,mode=0755")) {
		return 77;
	}
	if (gd_start(other, NULL) == 0) {
		gd_stop(other);
		return 1;
	}
	return strstr(other->said, "full") && strstr(other->said, other->runtime) ? 0 : 2;
}

static void a_full_runtime_directory_is_explained(void **state)
{
	in_namespace(*state, start_in_full_directory);
}

/* The disk fills up while gbpfd runs: a load is refused and the policy before it stays; a volatile
 * load works; the next gbpfd has what was stored. */
static int load_on_full_disk(struct gd *other)
{
	int err = 0, version = 0;
	struct gbpf *g;

	snprintf(other->runtime, sizeof(other->runtime), "%s/run-small", other->dir);
	snprintf(other->state, sizeof(other->state), "%s/state-small", other->dir);
	if (mount_small(other->state, "size=96k,mode=0755")) {
		return 77;
	}
	if (gd_start(other, NULL) != 0) {
		return 1;
	}
	g = gd_open(other);
	for (int i = 0; i < 60 && !err; i++) {
		version = (int)gd_number(other, "policy.list", "active");
		err = gbpf_policy_load(g, gd_object("counting"), NULL, GBPF_LOAD_SWAP, NULL);
	}
	if (err != -ENOSPC || gbpf_last_error(g)->exit != GBPF_CODE_UNSTORED ||
	    gd_number(other, "policy.list", "active") != version) {
		return 3;
	}
	err = gbpf_policy_load(g, gd_object("counting"), NULL, GBPF_LOAD_SWAP | GBPF_LOAD_VOLATILE,
			       NULL);
	gbpf_close(g);
	if (err || gd_number(other, "policy.list", "active") <= version) {
		return 5;
	}
	if (gd_stop(other) != 0 || gd_start(other, NULL) != 0 ||
	    gd_number(other, "policy.list", "active") != version) {
		return 4;
	}
	return gd_stop(other);
}

static void a_full_disk_refuses_a_load_that_is_not_volatile(void **state)
{
	in_namespace(*state, load_on_full_disk);
}

static void it_leaves_no_socket_and_ends_with_zero(void **state)
{
	struct gd *d = *state;
	char path[160];
	struct stat st;
	struct fake f;
	const struct proto_directory *dir;

	fake_enter(&f, d, BATCH, "f");
	dir = f.dir;
	assert_int_equal(gd_stop(d), 0);
	assert_int_equal(load_seqcst(&dir->generation), 0); /* marks that no gbpfd serves */
	snprintf(path, sizeof(path), "%s/session.sock", d->runtime);
	assert_int_equal(stat(path, &st), -1);
	snprintf(path, sizeof(path), "%s/control.sock", d->runtime);
	assert_int_equal(stat(path, &st), -1);
	fake_leave(&f);
}

static void it_exits_when_idle(void **state)
{
	const char *const more[] = { "--idle-exit", "1", NULL };
	struct gd *d = *state;
	int status;

	gd_stop(d);
	assert_int_equal(gd_start(d, more), 0);
	waitpid(d->pid, &status, 0);
	d->pid = 0;
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void the_policy_of_the_command_line_is_loaded_once(void **state)
{
	const char *const more[] = { "--policy", gd_object("plain"), NULL };
	struct gd *d = *state;

	gd_stop(d);
	assert_int_equal(gd_start(d, more), 0);
	assert_int_equal(gd_number(d, "policy.list", "active"), 1);
	gd_stop(d);
	assert_int_equal(gd_start(d, more), 0);
	assert_int_equal(gd_number(d, "policy.list", "active"),
			 1); /* the same bytes: the same version */
}

static void several_callers_start_one(void **state)
{
	struct gd *d = *state;
	struct gbpf_start_options o = { .size = sizeof(o),
					.program = getenv("GBPFD"),
					.device = "soft",
					.state_dir = d->state };
	pid_t pids[6];
	struct gbpf *g;
	int pid, status, p[2], fd;
	char c, lock[160];

	gd_stop(d);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	for (int i = 0; i < 6; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			int err = gbpf_open(&g, d->runtime, GBPF_OPEN_NO_CONNECT);

			err = err ? err : gbpf_start_daemon(g, &o);
			pid = err ? 0 : gbpf_hello(g)->pid;
			_exit(write(p[1], &pid, sizeof(pid)) != sizeof(pid) || err);
		}
	}
	close(p[1]);
	for (int i = 0; i < 6; i++) {
		int other;

		waitpid(pids[i], &status, 0);
		assert_int_equal(status, 0);
		assert_int_equal(read(p[0], &other, sizeof(other)), sizeof(other));
		assert_true(i == 0 || other == pid);
		pid = other;
	}
	assert_int_equal(read(p[0], &c, 1), 0); /* gbpfd does not hold descriptors of its starter */
	close(p[0]);
	g = gd_open(d);
	assert_int_equal(gbpf_shutdown(g), 0);
	gbpf_close(g);
	snprintf(lock, sizeof(lock), "%s/gbpfd.lock", d->runtime);
	fd = open(lock, O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX), 0); /* until it has exited */
	close(fd);
}

/* gbpfd is killed during swaps: whatever the moment, the next one starts with consistent state. */
static void *load_for_ever(void *arg)
{
	struct gd *d = arg;

	for (int i = 0; i < 1000; i++) {
		struct gbpf *g;
		int err = gbpf_open(&g, d->runtime, 0);

		if (!err) {
			err = gbpf_policy_load(g, gd_object(i % 2 ? "plain" : "counting"), NULL,
					       GBPF_LOAD_SWAP, NULL);
		}
		gbpf_close(g);
		if (err) {
			break;
		}
	}
	return NULL;
}

static void killed_at_any_moment_it_starts_again(void **state)
{
	struct gd *d = *state;
	json_int_t active = 1;
	struct fake f;

	fake_enter(&f, d, BATCH, "f");
	load(d, "plain"); /* answered because f is late */
	srandom(4);
	for (int i = 0; i < 25; i++) {
		pthread_t loader;
		json_t *list;

		assert_int_equal(pthread_create(&loader, NULL, load_for_ever, d), 0);
		clock_sleep_ns(1000000u + (uint64_t)random() % 150000000u); /* the random moment */
		gd_kill(d);
		pthread_join(loader, NULL);
		gbpf_close(d->g);
		d->g = NULL;
		assert_int_equal(gd_start(d, NULL), 0);
		list = gd_call(d, "policy.list", NULL);
		assert_true(json_integer_value(json_object_get(list, "active")) >= active);
		active = json_integer_value(json_object_get(list, "active"));
		json_decref(list);
		fake_reattach(&f, d, 0);
		assert_int_equal(fake_prepare(&f, 0), active);
	}
	fake_leave(&f);
}

#define WITH_GBPFD(t) cmocka_unit_test_setup_teardown(t, gd_setup, gd_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_GBPFD(the_active_policy_is_active_again),
		WITH_GBPFD(an_unloaded_policy_stays_unloaded),
		WITH_GBPFD(the_history_goes_on),
		WITH_GBPFD(a_process_comes_back_with_its_memory),
		WITH_GBPFD(a_latency_process_that_comes_back_is_published_again),
		WITH_GBPFD(foreign_pages_are_not_taken_over),
		WITH_GBPFD(a_second_gbpfd_is_refused_with_the_pid_of_the_first),
		WITH_GBPFD(two_daemons_do_not_share_a_state_directory),
		WITH_GBPFD(stale_files_do_not_stop_a_start),
		WITH_GBPFD(a_stored_policy_that_is_damaged_is_left_out),
		WITH_GBPFD(a_runtime_directory_that_is_no_directory_is_explained),
		WITH_GBPFD(a_full_runtime_directory_is_explained),
		WITH_GBPFD(a_full_disk_refuses_a_load_that_is_not_volatile),
		WITH_GBPFD(it_leaves_no_socket_and_ends_with_zero),
		WITH_GBPFD(it_exits_when_idle),
		WITH_GBPFD(the_policy_of_the_command_line_is_loaded_once),
		WITH_GBPFD(several_callers_start_one),
		WITH_GBPFD(killed_at_any_moment_it_starts_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
