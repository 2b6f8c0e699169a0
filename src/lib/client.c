/* The handle: connect, hello, and one request with its answer. */
#include "lib/lib_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/paths.h"
#include "base/runtime_choice.h"

#define DEFAULT_TIMEOUT_MS 10000u
#define LOOK_NS 5000000u
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
static int exchange(struct gbpf *g, const char *method, json_t *params, int fd, uint64_t deadline,
		    json_t **ret)
{
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

static int greet(struct gbpf *g, uint64_t deadline)
{
	json_t *params = json_pack("{s:i}", "protocol", GBPF_PROTOCOL), *result = NULL;
	int err = params ? exchange(g, "hello", params, -1, deadline, &result) : lib_no_memory(g);

	json_decref(params);
	if (err) {
		lib_disconnect(g);
		return err;
	}
	keep_hello(g, result);
	json_decref(result);
	return 0;
}

/* Returns 0 to connect again after a hello failed: a gbpfd that stops listens for a while, but does
 * not answer, and the next one may serve by now. Otherwise returns the error. */
static int judge_greeting(struct gbpf *g, int err, uint64_t deadline)
{
	struct runtime_state h = runtime_state_read(g->dir);

	if (runtime_state_is_passing(h) && (err == -ETIMEDOUT || lib_is_lost(err)) &&
	    !lib_may_await(g, h, deadline)) {
		return lib_fail_passing(g, h);
	}
	if (!lib_is_lost(err) || !lib_may_await(g, h, deadline) ||
	    !(h.phase != RUNTIME_SERVES || (h.pid && h.pid != g->peer_pid))) {
		return err;
	}
	clock_sleep_ns(LOOK_NS);
	return 0;
}

int lib_connect(struct gbpf *g, uint64_t deadline)
{
	int err;

	do {
		err = lib_dial(g, deadline);
		if (err < 0) {
			return err;
		}
		g->fd = err;
		err = greet(g, deadline);
		if (!err) {
			return 0;
		}
		err = judge_greeting(g, err, deadline);
	} while (!err);
	return err;
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
	uint64_t deadline = lib_deadline(g->timeout_ms); /* of connecting and the answer */
	int err = 0;

	lib_ok(g);
	if (!params) {
		return lib_no_memory(g);
	}
	if (g->fd >= 0 && is_stale(g)) {
		lib_disconnect(g);
	}
	if (g->fd < 0) {
		err = lib_connect(g, deadline);
	}
	if (!err) {
		err = exchange(g, method, params, fd, deadline, ret);
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

static int set_socket(struct gbpf *g)
{
	int n = snprintf(g->socket, sizeof(g->socket), "%s%s", g->dir, SOCKET_LEAF);

	return n < 0 || n >= (int)sizeof(g->socket) ? -ENAMETOOLONG : 0;
}

static int choose_dir(struct gbpf *g, bool roots)
{
	g->is_roots = roots;
	return runtime_path_of(roots, g->dir, sizeof(g->dir), NULL);
}

static int set_paths(struct gbpf *g, const char *dir)
{
	size_t leaf = strlen(SOCKET_LEAF);
	int n;

	if (!dir) {
		int err = choose_dir(g, runtime_is_roots());

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
	return set_socket(g);
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

int lib_leave_roots(struct gbpf *g)
{
	int err = choose_dir(g, false);

	err = err ? err : set_socket(g);
	return err ? fail_paths(g, err) : 0;
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
	g->wait = flags & GBPF_OPEN_NO_WAIT ? LIB_NO_WAIT : LIB_WAIT;
	lib_ok(g);
	err = set_paths(g, runtime_dir);
	if (err < 0) {
		return fail_paths(g, err);
	}
	if (flags & GBPF_OPEN_NO_CONNECT) {
		return 0;
	}
	err = lib_connect(g, lib_deadline(g->timeout_ms));
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
