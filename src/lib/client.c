/* The handle: connect, hello, and one request with its answer. */
#include "lib/lib_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/paths.h"
#include "base/procfs.h"

#define DEFAULT_TIMEOUT_MS 10000u
#define SOCKET_LEAF "/control.sock"

EXPORT const char *gbpf_version(void)
{
	return GBPF_VERSION_TEXT;
}

EXPORT const char *gbpf_socket_path(const struct gbpf *g)
{
	return g->socket;
}

EXPORT void gbpf_set_timeout(struct gbpf *g, unsigned timeout_ms)
{
	g->timeout_ms = timeout_ms;
}

EXPORT const struct gbpf_hello *gbpf_hello(const struct gbpf *g)
{
	return g->fd >= 0 ? &g->hello : NULL;
}

/* Returns the process id of the gbpfd whose lock file is in the directory, if it runs, else 0. The
 * lock itself is not tried: that could keep a gbpfd from starting. *ret_passing: it has not opened
 * its sockets yet, or has closed them. */
static int running_pid(const struct gbpf *g, bool *ret_passing)
{
	char path[LIB_CLIENT_PATH + 16], text[32] = "";
	int fd, pid;

	snprintf(path, sizeof(path), "%s/gbpfd.lock", g->dir);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0) {
		text[0] = 0;
	}
	fd_close(fd);
	pid = (int)strtol(text, NULL, 10);
	*ret_passing = strstr(text, " starts") || strstr(text, " stops");
	return procfs_runs(pid, "gbpfd", NULL) ? pid : 0;
}

static int fail_connect(struct gbpf *g, int err)
{
	bool passing;
	int pid;

	switch (err) {
	case -ENOENT:
	case -ECONNREFUSED:
		pid = running_pid(g, &passing);
		if (pid && passing) {
			return lib_fail(
				g, -ECONNREFUSED, GBPF_CODE_UNREACHABLE, "unreachable",
				"Try again in a moment, or see gbpfd.log there",
				"gbpfd (pid %d) starts or stops, and does not listen on %s yet",
				pid, g->socket);
		}
		if (pid) {
			char hint[160];

			snprintf(
				hint, sizeof(hint),
				"Its socket was removed: end it with `kill %d`; programs continue, "
				"and the next one takes over",
				pid);
			return lib_fail(g, -ECONNREFUSED, GBPF_CODE_UNREACHABLE, "unreachable",
					hint, "gbpfd (pid %d) runs, but does not listen on %s", pid,
					g->socket);
		}
		return lib_fail(g, -ECONNREFUSED, GBPF_CODE_UNREACHABLE, "unreachable",
				"Start it with `gbpfd`, or let `gbpf run` start one",
				"gbpfd is not running: no process listens on %s", g->socket);
	case -EACCES:
	case -EPERM:
		return lib_fail(
			g, err, GBPF_CODE_PERMISSION, "permission",
			"That gbpfd belongs to another user: run as that user, or with sudo",
			"not allowed to reach %s", g->socket);
	default:
		return lib_fail(g, err, GBPF_CODE_UNREACHABLE, "unreachable",
				err == -ENAMETOOLONG ? "Set GBPF_RUNTIME_DIR to a shorter path"
						     : "Set GBPF_RUNTIME_DIR to a folder",
				"cannot reach gbpfd on %s: %s", g->socket, strerror(-err));
	}
}

/* Returns true if the peer runs as root or as this user: the folder may be in /tmp, where any user
 * can create it. If the caller is root it trusts the peer, since root chooses the path. */
static bool is_trusted(int fd)
{
	uid_t own = geteuid();
	struct peer p;

	return own == 0 || (fd_peer(fd, &p) == 0 && (p.uid == own || p.uid == 0));
}

/* Connects to the socket for operators, in whose queue no other user's connections wait. Returns
 * the descriptor, or -errno if this user may not, gbpfd has none (0.1.0), or its queue is full. */
static int dial_admin(const struct gbpf *g)
{
	char path[LIB_CLIENT_PATH + 16];
	int fd;

	snprintf(path, sizeof(path), "%s/admin.sock", g->dir);
	fd = unix_connect(path, SOCK_STREAM | SOCK_NONBLOCK);
	if (fd >= 0 && !is_trusted(fd)) {
		fd_close(fd);
		return -EPERM;
	}
	return fd;
}

/* Returns true if no gbpfd listens, but one is about to, or to end. */
static bool is_passing(const struct gbpf *g, int err)
{
	bool passing;

	return (err == -ENOENT || err == -ECONNREFUSED) && running_pid(g, &passing) && passing;
}

/* Connects without blocking; retries on EAGAIN, which means that the listener's queue is full, and
 * while a gbpfd starts or stops. */
static int dial(struct gbpf *g, uint64_t deadline)
{
	int fd;

	fd = dial_admin(g);
	if (fd >= 0) {
		return fd;
	}
	while ((fd = unix_connect(g->socket, SOCK_STREAM | SOCK_NONBLOCK)) < 0 &&
	       is_passing(g, fd) && clock_now_ns() < deadline) {
		clock_sleep_ns(5000000);
	}
	while (fd == -EAGAIN &&
	       (fd = unix_connect(g->socket, SOCK_STREAM | SOCK_NONBLOCK)) == -EAGAIN) {
		if (clock_now_ns() >= deadline) {
			return lib_fail(g, -ETIMEDOUT, GBPF_CODE_TIMEOUT, "timeout",
					"Is gbpfd stopped?",
					"gbpfd does not accept connections on %s", g->socket);
		}
		clock_sleep_ns(2000000);
	}
	if (fd >= 0 && !is_trusted(fd)) {
		fd_close(fd);
		return lib_fail(g, -EPERM, GBPF_CODE_PERMISSION, "permission",
				"Set GBPF_RUNTIME_DIR, and check which user created that folder",
				"the listener on %s belongs to another user", g->socket);
	}
	return fd < 0 ? fail_connect(g, fd) : fd;
}

static void keep_hello(struct gbpf *g, const json_t *r)
{
	const char *version = json_string_value(json_object_get(r, "version"));
	const char *device = json_string_value(json_object_get(r, "device"));

	snprintf(g->version, sizeof(g->version), "%s", version ? version : "");
	snprintf(g->device, sizeof(g->device), "%s", device ? device : "none");
	g->hello = (struct gbpf_hello){
		.size = sizeof(g->hello),
		.protocol = (int)json_integer_value(json_object_get(r, "protocol")),
		.pid = (int)json_integer_value(json_object_get(r, "pid")),
		.uid = (int)json_integer_value(json_object_get(r, "uid")),
		.generation = (uint32_t)json_integer_value(json_object_get(r, "generation")),
		.off = json_is_true(json_object_get(r, "off")),
		.version = g->version,
		.device = g->device,
	};
}

/* Sends one request and reads lines until its answer arrives. */
static int exchange(struct gbpf *g, const char *method, json_t *params, int fd, json_t **ret)
{
	uint64_t deadline = lib_deadline(g->timeout_ms);
	json_int_t id = (json_int_t)++g->next_id;
	json_t *request = json_pack("{s:I,s:s,s:O}", "id", id, "method", method, "params", params);
	char *line = request ? json_dumps(request, JSON_COMPACT) : NULL;
	struct buf b;
	int err;

	json_decref(request);
	buf_init(&b);
	if (line) {
		buf_puts(&b, line);
		buf_puts(&b, "\n");
	}
	free(line);
	if (!b.len || b.failed) {
		buf_finish(&b);
		return lib_no_memory(g);
	}
	err = lib_send_line(g, b.data, b.len, fd, deadline);
	buf_finish(&b);
	while (!err) {
		json_t *answer, *error, *result;

		err = lib_read_line(g, deadline, false, &answer);
		if (err) {
			break;
		}
		error = json_object_get(answer, "error");
		result = json_object_get(answer, "result");
		if (json_integer_value(json_object_get(answer, "id")) != id &&
		    !(error && !json_object_get(answer, "id"))) {
			json_decref(
				answer); /* an event, or the answer to a request that timed out */
			continue;
		}
		if (json_is_object(error)) {
			err = lib_fail_json(g, error);
		} else {
			*ret = result ? json_incref(result) : json_object();
		}
		json_decref(answer);
		break;
	}
	return err;
}

int lib_connect(struct gbpf *g)
{
	json_t *params, *result = NULL;
	int err;

	err = dial(g, lib_deadline(g->timeout_ms));
	if (err < 0) {
		return err;
	}
	g->fd = err;
	params = json_pack("{s:i}", "protocol", GBPF_PROTOCOL);
	err = params ? exchange(g, "hello", params, -1, &result) : lib_no_memory(g);
	json_decref(params);
	if (err) {
		lib_disconnect(g);
		return err;
	}
	keep_hello(g, result);
	json_decref(result);
	return 0;
}

/* Returns true if the peer closed the connection while it was idle since the last call. */
static bool is_stale(struct gbpf *g)
{
	char c;
	ssize_t n = recv(g->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);

	return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

int lib_request(struct gbpf *g, const char *method, json_t *params, int fd, json_t **ret)
{
	int err = 0;

	lib_ok(g);
	if (!params) {
		return lib_no_memory(g);
	}
	if (g->fd >= 0 && is_stale(g)) {
		lib_disconnect(g);
	}
	if (g->fd < 0) {
		err = lib_connect(g);
	}
	if (!err) {
		err = exchange(g, method, params, fd, ret);
	}
	json_decref(params);
	return err;
}

int lib_give_text(struct gbpf *g, const json_t *v, char **ret_json)
{
	char *text = json_dumps(v, JSON_COMPACT);

	if (!text) {
		return lib_no_memory(g);
	}
	if (ret_json) {
		*ret_json = text;
	} else {
		free(text);
	}
	return 0;
}

int lib_text(struct gbpf *g, const char *method, json_t *params, int fd, char **ret_json)
{
	json_t *result = NULL;
	int err = lib_request(g, method, params, fd, &result);

	err = err ? err : lib_give_text(g, result, ret_json);
	json_decref(result);
	return err;
}

EXPORT int gbpf_call(struct gbpf *g, const char *method, const char *params, int fd,
		     char **ret_json)
{
	json_error_t e;
	json_t *p = params ? json_loads(params, 0, &e) : json_object();

	if (params && !json_is_object(p)) {
		json_decref(p);
		return lib_fail(g, -EINVAL, GBPF_CODE_USAGE, "usage", NULL,
				"parameters of %s are not a JSON object", method);
	}
	return lib_text(g, method, p, fd, ret_json);
}

static int set_paths(struct gbpf *g, const char *dir)
{
	size_t leaf = strlen(SOCKET_LEAF);
	int n;

	if (!dir) {
		int err = path_runtime(g->dir, sizeof(g->dir), NULL);

		if (err) {
			return err;
		}
	} else if (snprintf(g->dir, sizeof(g->dir), "%s", dir) >= (int)sizeof(g->dir)) {
		return -ENAMETOOLONG;
	}
	n = (int)strlen(g->dir);
	if ((size_t)n > leaf && strcmp(g->dir + n - leaf, SOCKET_LEAF) == 0) {
		g->dir[(size_t)n - leaf] = 0;
	}
	n = snprintf(g->socket, sizeof(g->socket), "%s%s", g->dir, SOCKET_LEAF);
	return n < 0 || n >= (int)sizeof(g->socket) ? -ENAMETOOLONG : 0;
}

static int fail_paths(struct gbpf *g, int err)
{
	char text[512];

	if (err == -EINVAL) {
		path_explain(err, text, sizeof(text));
		return lib_fail(g, err, GBPF_CODE_USAGE, "usage",
				"Unset it, or set it to an absolute path", "%s", text);
	}
	return lib_fail(g, err, GBPF_CODE_USAGE, "usage", "Set GBPF_RUNTIME_DIR to a shorter path",
			"the path of the runtime directory is too long");
}

EXPORT int gbpf_open(struct gbpf **ret, const char *runtime_dir, unsigned flags)
{
	struct gbpf *g = calloc(1, sizeof(*g));
	int err;

	*ret = g;
	if (!g) {
		return -ENOMEM;
	}
	g->fd = -1;
	g->gpu = -1;
	g->timeout_ms = (unsigned)clock_patience(DEFAULT_TIMEOUT_MS);
	lib_ok(g);
	err = set_paths(g, runtime_dir);
	if (err < 0) {
		return fail_paths(g, err);
	}
	if (flags & GBPF_OPEN_NO_CONNECT) {
		return 0;
	}
	err = lib_connect(g);
	if (err == -ECONNREFUSED && (flags & GBPF_OPEN_START)) {
		return gbpf_start_daemon(g, NULL);
	}
	if (!err) {
		lib_ok(g);
	}
	return err;
}

EXPORT void gbpf_close(struct gbpf *g)
{
	if (!g) {
		return;
	}
	lib_disconnect(g);
	buf_finish(&g->in);
	buf_finish(&g->code);
	buf_finish(&g->message);
	buf_finish(&g->hint);
	buf_finish(&g->detail);
	free(g);
}
