#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/buf.h"
#include "base/fd.h"
#include "base/shm.h"

/* ---- gbpfd ---- */

static void exec_gbpfd(struct gd *d, const char *const *more, int ready)
{
	const char *argv[32] = { getenv("GBPFD"), "--foreground",  "--device",
				 "soft",	  "--runtime-dir", d->runtime };
	char number[16];
	int n = 6, quiet = open("/dev/null", O_RDWR);
	/* opened as root: the user may lack access to the build folder */
	int program = open(argv[0], O_PATH | O_CLOEXEC);

	snprintf(number, sizeof(number), "%d", ready);
	argv[n++] = "--ready-fd";
	argv[n++] = number;
	if (d->state[0]) {
		argv[n++] = "--state-dir";
		argv[n++] = d->state;
	}
	while (more && *more && n < 31) {
		argv[n++] = *more++;
	}
	if (!getenv("GBPFD_LOUD")) {
		dup2(quiet, STDERR_FILENO);
	}
	fcntl(ready, F_SETFD, 0);
	if (d->uid && (setgroups(0, NULL) < 0 || setgid(d->uid) < 0 || setuid(d->uid) < 0)) {
		_exit(126);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that crashes leaves no gbpfd */
	fexecve(program, (char *const *)(uintptr_t)argv, environ);
	_exit(127);
}

int gd_start(struct gd *d, const char *const *more)
{
	size_t len = 0;
	ssize_t n;
	int p[2];

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	d->pid = fork();
	assert_true(d->pid >= 0);
	if (d->pid == 0) {
		exec_gbpfd(d, more, p[1]);
	}
	close(p[1]);
	while (len < sizeof(d->said) - 1 &&
	       (n = read(p[0], d->said + len, sizeof(d->said) - 1 - len)) > 0) {
		len += (size_t)n;
	}
	d->said[len] = 0;
	close(p[0]);
	if (strcmp(d->said, "ready\n") == 0) {
		return 0;
	}
	waitpid(d->pid, NULL, 0);
	d->pid = 0;
	return -1;
}

int gd_stop(struct gd *d)
{
	int status = 0;

	gbpf_close(d->g);
	d->g = NULL;
	if (d->pid) {
		kill(d->pid, SIGTERM);
		waitpid(d->pid, &status, 0);
		d->pid = 0;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void gd_kill(struct gd *d)
{
	kill(d->pid, SIGKILL);
	waitpid(d->pid, NULL, 0);
	d->pid = 0;
}

int gd_setup(void **state)
{
	struct gd *d = calloc(1, sizeof(*d));

	*state = d;
	snprintf(d->dir, sizeof(d->dir), "/tmp/gbpfd-test-XXXXXX");
	if (!mkdtemp(d->dir)) {
		return -1;
	}
	snprintf(d->runtime, sizeof(d->runtime), "%s/run", d->dir);
	snprintf(d->state, sizeof(d->state), "%s/state", d->dir);
	return gd_start(d, NULL);
}

void gd_renew(struct gd *d)
{
	char command[256];

	assert_int_equal(gd_stop(d), 0);
	snprintf(command, sizeof(command), "rm -rf '%s' '%s'", d->state, d->runtime);
	assert_int_equal(system(command), 0);
	assert_int_equal(gd_start(d, NULL), 0);
}

int gd_teardown(void **state)
{
	struct gd *d = *state;
	char command[128];
	int code = gd_stop(d);

	snprintf(command, sizeof(command), "rm -rf '%s'", d->dir);
	if (system(command) != 0 || code != 0) {
		fprintf(stderr, "gbpfd ended with code %d\n", code);
		free(d);
		return -1;
	}
	free(d);
	return 0;
}

struct gbpf *gd_open(struct gd *d)
{
	struct gbpf *g;

	if (gbpf_open(&g, d->runtime, 0) < 0) {
		fail_msg("%s", gbpf_last_error(g)->message);
	}
	gbpf_set_timeout(g, PATIENCE_MS);
	return g;
}

static struct gbpf *handle(struct gd *d)
{
	if (!d->g) {
		d->g = gd_open(d);
	}
	return d->g;
}

json_t *gd_call(struct gd *d, const char *method, const char *params)
{
	char *text = NULL;
	json_t *j;

	if (gbpf_call(handle(d), method, params, -1, &text) < 0) {
		fail_msg("%s: %s", method, gbpf_last_error(d->g)->message);
	}
	j = json_loads(text, 0, NULL);
	free(text);
	assert_non_null(j);
	return j;
}

json_int_t gd_number(struct gd *d, const char *method, const char *path)
{
	json_t *j = gd_call(d, method, NULL), *at = j;
	char copy[128], *save = NULL;
	json_int_t v;

	snprintf(copy, sizeof(copy), "%s", path);
	for (char *part = strtok_r(copy, ".", &save); part; part = strtok_r(NULL, ".", &save)) {
		at = json_object_get(at, part);
	}
	v = json_integer_value(at);
	json_decref(j);
	return v;
}

struct wanted {
	const char *kind, *what;
	uint64_t seq;
};

static int look_at_event(void *arg, const char *text)
{
	struct wanted *w = arg;
	json_t *j = json_loads(text, 0, NULL);
	int found = strcmp(json_string_value(json_object_get(j, "kind")), w->kind) == 0 &&
		    strstr(json_string_value(json_object_get(j, "text")), w->what) != NULL;

	if (found) {
		w->seq = (uint64_t)json_integer_value(json_object_get(j, "seq"));
	}
	json_decref(j);
	return found;
}

uint64_t gd_await_event(struct gd *d, uint64_t since, const char *kind, const char *what)
{
	struct wanted w = { kind, what, 0 };
	struct gbpf *g = gd_open(d);
	int r = gbpf_events(g, since, GBPF_EVENTS_FOLLOW, PATIENCE_MS, look_at_event, &w);

	if (r != 1) {
		fail_msg("no event %s '%s': %s", kind, what, gbpf_last_error(g)->message);
	}
	gbpf_close(g);
	return w.seq;
}

uint64_t gd_last_event(struct gd *d)
{
	return (uint64_t)gd_number(d, "status", "counters.events");
}

uint64_t gd_loop_ns(const struct gd *d)
{
	char path[64], *state;
	struct buf b;
	uint64_t ns;

	buf_init(&b);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)d->pid, (int)d->pid);
	do {
		b.len = 0;
		assert_int_equal(buf_read_file(&b, path, 4096), 0);
		state = strrchr(buf_text(&b), ')');
		assert_non_null(state);
	} while (state[2] != 'S');
	b.len = 0;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", (int)d->pid, (int)d->pid);
	assert_int_equal(buf_read_file(&b, path, 256), 0);
	ns = strtoull(buf_text(&b), NULL, 10);
	buf_finish(&b);
	return ns;
}

const char *gd_object(const char *name)
{
	static char path[4][512];
	static unsigned n; /* [atomic] */
	char *p = path[add_relaxed(&n, 1u) % 4];

	snprintf(p, 512, "%s/%s.bpf.o", getenv("TEST_POLICIES"), name);
	return p;
}

/* ---- fake processes ---- */

void fake_connect(struct fake *f, const struct gd *d)
{
	char path[128];

	memset(f, 0, sizeof(*f));
	f->dir_fd = f->board_fd = f->stats_fd = f->region_fd = -1;
	snprintf(path, sizeof(path), "%s/session.sock", d->runtime);
	f->sock = unix_connect(path, SOCK_SEQPACKET);
	assert_true(f->sock >= 0);
}

void fake_send(struct fake *f, union proto_message *m, enum proto_type type)
{
	assert_int_equal(proto_send(f->sock, m, type, NULL, 0), 0);
}

static void fill_hello(struct proto_hello *h, uint32_t class_id, uint32_t weight, const char *name)
{
	h->class_id = class_id;
	h->weight = weight;
	h->gpus = 1;
	memset(h->uuid[0], 7, 16);
	snprintf(h->name, sizeof(h->name), "%s", name);
	snprintf(h->command, sizeof(h->command), "./%s --fast", name);
}

void fake_say_hello(struct fake *f, uint32_t class_id, uint32_t weight, const char *name)
{
	union proto_message m = { 0 };

	fill_hello(&m.hello, class_id, weight, name);
	fake_send(f, &m, PROTO_HELLO);
}

int fake_receive_any(struct fake *f, union proto_message *m, int fds[8], unsigned *nfds)
{
	struct pollfd p = { .fd = f->sock, .events = POLLIN };

	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	return proto_recv(f->sock, m, fds, nfds);
}

int fake_receive(struct fake *f, union proto_message *m, int fds[8], unsigned *nfds)
{
	int r;

	do {
		r = fake_receive_any(f, m, fds, nfds);
	} while (r == 1 && m->head.type == PROTO_PROBE_END && !m->probe_order.version);
	return r;
}

int fake_expect(struct fake *f, union proto_message *m, enum proto_type type)
{
	int fds[8];
	unsigned n;

	assert_int_equal(fake_receive(f, m, fds, &n), 1);
	assert_int_equal(m->head.type, type);
	for (unsigned i = 1; i < n; i++) {
		close(fds[i]);
	}
	return n ? fds[0] : -1;
}

void fake_welcomed(struct fake *f)
{
	union proto_message m = { 0 };
	int fds[8];
	unsigned n;

	assert_int_equal(fake_receive(f, &m, fds, &n), 1);
	if (m.head.type == PROTO_REFUSED) {
		fail_msg("refused: %s", m.refused.text);
	}
	assert_int_equal(m.head.type, PROTO_WELCOME);
	f->welcome = m.welcome;
	f->tenant = m.welcome.tenant;
	fd_close(f->dir_fd);
	f->dir_fd = fds[0];
	f->dir = shm_map(fds[0], PROTO_PAGE_BYTES, 0);
	assert_non_null(f->dir);
	if (n == 3) {
		f->board_fd = fds[1];
		f->stats_fd = fds[2];
		f->board = shm_map(fds[1], PROTO_PAGE_BYTES, 1);
		f->stats = shm_map(fds[2], PROTO_STATS_BYTES, 1);
		assert_non_null(f->board);
		assert_non_null(f->stats);
	}
	fake_send(f, &m, PROTO_BOARD_MAPPED);
}

void fake_enter(struct fake *f, const struct gd *d, uint32_t class_id, const char *name)
{
	fake_connect(f, d);
	fake_say_hello(f, class_id, 100, name);
	fake_welcomed(f);
}

void fake_reattach(struct fake *f, const struct gd *d, uint64_t version)
{
	union proto_message m = { 0 };
	int fds[3] = { f->board_fd, f->stats_fd, f->region_fd };
	struct fake old = *f;

	fd_close(f->sock);
	fake_connect(f, d);
	f->board_fd = old.board_fd;
	f->stats_fd = old.stats_fd;
	f->region_fd = old.region_fd;
	f->board = old.board;
	f->stats = old.stats;
	f->dir_fd = old.dir_fd;
	fill_hello(&m.hello, 2, old.weight_asked ? old.weight_asked : 100, "returning");
	m.hello.flags = PROTO_REATTACH;
	m.hello.tenant = old.tenant;
	m.hello.policy_version = version;
	m.hello.regions = f->region_fd >= 0;
	assert_int_equal(proto_send(f->sock, &m, PROTO_HELLO, fds, 2 + m.hello.regions), 0);
	fake_welcomed(f);
}

void fake_leave(struct fake *f)
{
	fd_close(f->sock);
	fd_close(f->dir_fd);
	fd_close(f->board_fd);
	fd_close(f->stats_fd);
	fd_close(f->region_fd);
	shm_unmap((void *)(uintptr_t)f->dir, PROTO_PAGE_BYTES);
	shm_unmap(f->board, PROTO_PAGE_BYTES);
	shm_unmap(f->stats, PROTO_STATS_BYTES);
}

uint64_t fake_prepare(struct fake *f, int status)
{
	union proto_message m;
	int fds[8];
	unsigned n;
	uint64_t version;

	assert_int_equal(fake_receive(f, &m, fds, &n), 1);
	assert_int_equal(m.head.type, PROTO_PREPARE);
	version = m.version.version;
	if (m.version.regions & PROTO_REGION_TENANT) {
		fd_close(f->region_fd);
		f->region_fd = fds[--n];
	}
	while (n) {
		close(fds[--n]);
	}
	memset(&m, 0, sizeof(m));
	m.version.version = version;
	m.version.status = status;
	fake_send(f, &m, PROTO_PREPARED);
	return version;
}

unsigned count_fds(pid_t pid)
{
	char path[64];
	unsigned n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	d = opendir(path);
	assert_non_null(d);
	while (readdir(d)) {
		n++;
	}
	closedir(d);
	return n;
}
