/* Supervision of the MPS control daemon, with a script in its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "daemon/hw/mps.h"
#include "daemon/session/tenant_session.h"

#include "../eventually.h"

/* The time that the supervision sees. It stands still, so that no time limit ends a start on a
 * loaded machine, until the test advances it. */
static uint64_t now_ns;

static uint64_t given_time(void)
{
	return now_ns;
}

struct world {
	char dir[64];
	struct daemon d;
};

static void open_daemon(struct world *w)
{
	memset(&w->d, 0, sizeof(w->d));
	snprintf(w->d.opt.runtime, sizeof(w->d.opt.runtime), "%s", w->dir);
	snprintf(w->d.devices.kind, sizeof(w->d.devices.kind), "nvidia");
	w->d.sessions.end = &w->d.sessions.first;
	assert_true(sd_event_new(&w->d.loop) >= 0);
	assert_int_equal(daemon_history_open(&w->d.history, w->dir, "events"), 0);
	assert_int_equal(daemon_mps_open(&w->d), 0);
}

static void close_daemon(struct world *w, bool tenants_left)
{
	daemon_mps_close(&w->d, tenants_left);
	daemon_history_close(&w->d.history);
	sd_event_unref(w->d.loop);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	char from[512], to[128];

	*state = w;
	now_ns = clock_now_ns();
	clock_set_source(given_time);
	snprintf(w->dir, sizeof(w->dir), "/tmp/gbpf-mps-XXXXXX");
	if (!mkdtemp(w->dir)) {
		return -1;
	}
	if (!getenv("TEST_MPS")) {
		return -1;
	}
	snprintf(from, sizeof(from), "%s", getenv("TEST_MPS"));
	snprintf(to, sizeof(to), "%s/nvidia-cuda-mps-control", w->dir);
	setenv("PATH", w->dir, 1);
	setenv("LD_PRELOAD", "", 1);
	setenv("CUDA_VISIBLE_DEVICES", "7", 1);
	if (symlink(from, to) < 0) {
		return -1;
	}
	snprintf(to, sizeof(to), "%s:/usr/bin:/bin", w->dir);
	setenv("PATH", to, 1);
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	char command[128];
	int err;

	clock_set_source(NULL);
	setenv("PATH", "/usr/bin:/bin", 1);
	snprintf(command, sizeof(command), "rm -rf '%s'", w->dir);
	err = system(command);
	free(w);
	return err;
}

/* Runs the loop once; time limits are the test's own. */
static void turn(struct world *w)
{
	assert_true(sd_event_run(w->d.loop, EVENTUALLY_MS * UINT64_C(1000)) > 0);
}

static int run_until_it_serves(struct world *w)
{
	int err = daemon_mps_start(&w->d);

	if (err == 0) {
		return daemon_mps_pid(&w->d);
	}
	assert_int_equal(err, -EINPROGRESS);
	while (!daemon_mps_pid(&w->d)) {
		turn(w);
	}
	return daemon_mps_pid(&w->d);
}

static bool has_file(struct world *w, const char *leaf)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", w->dir, leaf);
	return access(path, F_OK) == 0;
}

static bool history_has(struct world *w, const char *what)
{
	for (unsigned i = 0; i < w->d.history.n; i++) {
		const struct daemon_history_event *e = daemon_history_at(&w->d.history, i);

		if (e && strstr(e->text, what)) {
			return true;
		}
	}
	return false;
}

static void without_the_program_the_lane_says_why(void **state)
{
	struct world *w = *state;

	setenv("PATH", "/nowhere", 1);
	open_daemon(w);
	assert_non_null(strstr(daemon_mps_unavailable_reason(&w->d), "not found"));
	assert_int_equal(daemon_mps_start(&w->d), -ENOENT);
	close_daemon(w, false);
}

static void it_starts_with_the_first_tenant_and_quits_after_the_last(void **state)
{
	struct world *w = *state;
	char path[128];
	struct stat st;
	struct buf b;
	int pid;

	open_daemon(w);
	assert_null(daemon_mps_unavailable_reason(&w->d));
	assert_int_equal(daemon_mps_pid(&w->d), 0);
	pid = run_until_it_serves(w);
	assert_int_equal(daemon_mps_start(&w->d), 0);
	assert_int_equal(daemon_mps_pid(&w->d), pid);
	snprintf(path, sizeof(path), "%s/mps", w->dir);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	snprintf(path, sizeof(path), "%s/environment", w->dir);
	buf_init(&b);
	assert_int_equal(buf_read_file(&b, path, 65536), 0);
	assert_non_null(strstr(buf_text(&b), "/mps-log"));
	assert_non_null(strstr(buf_text(&b), "GBPF_OFF=1"));
	assert_null(strstr(buf_text(&b), "LD_PRELOAD"));
	assert_null(strstr(buf_text(&b), "CUDA_VISIBLE_DEVICES"));
	buf_finish(&b);
	close_daemon(w, false);
	assert_true(has_file(w, "quit"));
	assert_int_equal(kill(pid, 0), -1);
}

static void newer_ones_serve_a_socket(void **state)
{
	struct world *w = *state;
	char path[128];
	FILE *f;
	int pid;

	snprintf(path, sizeof(path), "%s/socket", w->dir);
	f = fopen(path, "w");
	assert_non_null(f);
	fclose(f);
	open_daemon(w);
	pid = run_until_it_serves(w);
	close_daemon(w, false);
	assert_true(has_file(w, "quit"));
	assert_int_equal(kill(pid, 0), -1);
}

static void a_crash_is_reported_and_followed_by_a_restart(void **state)
{
	struct world *w = *state;
	int pid;

	open_daemon(w);
	pid = run_until_it_serves(w);
	kill(pid, SIGKILL);
	while (daemon_mps_pid(&w->d)) {
		turn(w);
	}
	assert_true(history_has(w, "signal 9"));
	assert_int_equal(daemon_mps_start(&w->d), -ENOENT); /* not at once */
	assert_non_null(daemon_mps_unavailable_reason(&w->d));
	now_ns += UINT64_C(1000000000);
	assert_null(daemon_mps_unavailable_reason(&w->d));
	assert_true(run_until_it_serves(w) != pid);
	close_daemon(w, false);
}

static void one_that_does_not_start_takes_the_lane_away_for_a_while(void **state)
{
	struct world *w = *state;
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/fails", w->dir);
	f = fopen(path, "w");
	assert_non_null(f);
	fclose(f);
	open_daemon(w);
	assert_int_equal(daemon_mps_start(&w->d), -EINPROGRESS);
	while (!daemon_mps_unavailable_reason(&w->d)) {
		turn(w);
	}
	assert_non_null(strstr(daemon_mps_unavailable_reason(&w->d), "does not start"));
	assert_true(history_has(w, "exit code 3"));
	close_daemon(w, false);
}

static void it_outlives_gbpfd_while_tenants_are_left(void **state)
{
	struct world *w = *state;
	int pid;

	open_daemon(w);
	pid = run_until_it_serves(w);
	close_daemon(w, true);
	assert_int_equal(kill(pid, 0), 0);
	open_daemon(w);
	assert_int_equal(daemon_mps_pid(&w->d), pid);
	assert_int_equal(daemon_mps_start(&w->d), 0);
	close_daemon(w, false);
	assert_int_equal(kill(pid, 0), -1);
}

/* The file names a process, but its ID belongs to another process now. */
static void a_stranger_is_not_adopted(void **state)
{
	struct world *w = *state;
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/mps.pid", w->dir);
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "%d 1\n", (int)getpid());
	fclose(f);
	open_daemon(w);
	assert_int_equal(daemon_mps_pid(&w->d), 0);
	close_daemon(w, false);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(without_the_program_the_lane_says_why),
		CASE(it_starts_with_the_first_tenant_and_quits_after_the_last),
		CASE(newer_ones_serve_a_socket),
		CASE(a_crash_is_reported_and_followed_by_a_restart),
		CASE(one_that_does_not_start_takes_the_lane_away_for_a_while),
		CASE(it_outlives_gbpfd_while_tenants_are_left),
		CASE(a_stranger_is_not_adopted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
