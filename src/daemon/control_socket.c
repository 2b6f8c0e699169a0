/* Connections of the control socket. Everything that a peer can make grow is bounded: the line it
 * sends, the answers it does not read, the connections it opens. */
#include "daemon/control_socket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "daemon/budget.h"
#include "daemon/clean_text.h"
#include "daemon/feature.h"

#define MAX_CONNECTIONS 256u
#define MAX_FOREIGN 32u	      /* connections of one user that is neither root nor the daemon's */
#define OWN_CONNECTIONS 32u   /* connections reserved for root and the daemon's user */
#define MAX_LINE (256u << 10) /* parsing a megabyte takes 10 ms and more */
#define LINES_AT_ONCE 64
#define TIME_AT_ONCE_NS                                                                            \
	25000u /* time slice of a connection with many lines, so that others get their turn */
#define MAX_OUT (4u << 20) /* no further request is read while more output than this is pending */
#define MAX_FOLLOW (1u << 20) /* a follower with more pending output than this is closed */

struct daemon_connection {
	struct daemon_connection *next;
	struct daemon *d;
	sd_event_source *io, *again;
	int sock, fd;
	uint64_t number;
	struct peer peer;
	bool greeted, closing, ended;
	const struct daemon_history *following; /* borrowed; NULL: none */
	bool follows_all;			/* the caller is an administrator */
	bool more; /* received lines are pending; nothing is read from the socket until they are
		      processed */
	struct buf in, out;
	size_t scanned;
};

struct daemon_control {
	struct daemon *d;
	int fd, admin_fd; /* owned; the listening sockets */
	sd_event_source *io, *admin_io, *reaper;
	struct daemon_connection *first;
	unsigned n;
	uint64_t next_number;
};

static void end(struct daemon_connection *c)
{
	if (!c->ended) {
		c->ended = true;
		sd_event_source_set_enabled(c->d->control->reaper, SD_EVENT_ONESHOT);
	}
}

static void destroy(struct daemon_connection *c)
{
	daemon_features_call(connection_closed, c->d, c->number);
	sd_event_source_disable_unref(c->io);
	sd_event_source_disable_unref(c->again);
	fd_close_peer(c->sock);
	fd_close_foreign(c->fd);
	buf_finish(&c->in);
	buf_finish(&c->out);
	free(c);
}

static int on_reaper(sd_event_source *src, void *arg)
{
	struct daemon_control *k = arg;
	struct daemon_connection **link = &k->first;

	(void)src;
	while (*link) {
		struct daemon_connection *c = *link;

		if (c->ended) {
			uint64_t begin = daemon_budget_begin();
			uid_t uid = c->peer.uid;

			*link = c->next;
			k->n--;
			destroy(c);
			daemon_budget_end(k->d, uid, begin);
		} else {
			link = &c->next;
		}
	}
	return 0;
}

/* ---- sending ---- */

static void flush(struct daemon_connection *c)
{
	while (c->out.len && !c->ended) {
		ssize_t n = send(c->sock, c->out.data, c->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0) {
			buf_drop(&c->out, (size_t)n);
		} else if (n < 0 && errno == EAGAIN) {
			break;
		} else if (n < 0 && errno != EINTR) {
			end(c);
		}
	}
	if (c->out.failed || (c->closing && !c->out.len)) {
		end(c);
	}
	if (!c->ended) {
		bool reads = c->out.len < MAX_OUT && !c->closing && !c->more;

		sd_event_source_set_io_events(c->io,
					      (reads ? (uint32_t)EPOLLIN : 0u) |
						      (c->out.len ? (uint32_t)EPOLLOUT : 0u));
	}
}

static void put(struct daemon_connection *c, json_t *line)
{
	char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;

	json_decref(line);
	if (!text) {
		end(c);
		return;
	}
	buf_puts(&c->out, text);
	buf_puts(&c->out, "\n");
	free(text);
	flush(c);
}

void daemon_control_result(struct daemon_call *c, json_t *result)
{
	if (result) {
		put(c->c, json_pack("{s:I,s:o}", "id", c->id, "result", result));
	} else {
		daemon_control_error(c, 1, "memory", NULL, "out of memory");
	}
}

void daemon_control_result_text(struct daemon_call *c, const struct buf *result)
{
	struct buf *out = &c->c->out;

	if (!result || result->failed) {
		daemon_control_error(c, 1, "memory", NULL, "out of memory");
		return;
	}
	buf_printf(out, "{\"id\":%lld,\"result\":", (long long)c->id);
	buf_add(out, result->data, result->len);
	buf_puts(out, "}\n");
	flush(c->c);
}

static json_t *error_json(json_int_t id, const char *code, int exit_code, const char *message,
			  const char *hint, const char *detail)
{
	char clean[4][4096];

	snprintf(clean[0], sizeof(clean[0]), "%s", code);
	snprintf(clean[1], sizeof(clean[1]), "%s", message);
	snprintf(clean[2], sizeof(clean[2]), "%s", hint ? hint : "");
	for (int i = 0; i < 3; i++) {
		daemon_text_clean(clean[i]);
	}
	json_t *error = json_pack("{s:s,s:i,s:s,s:s}", "code", clean[0], "exit", exit_code,
				  "message", clean[1], "hint", clean[2]);
	json_t *d = detail ? json_string(detail)
			   : NULL; /* several lines, so not cleaned; NULL if not UTF-8 */

	if (error) {
		json_object_set_new(error, "detail", d ? d : json_string(""));
	}
	return json_pack("{s:I,s:o}", "id", id, "error", error);
}

void daemon_control_error(struct daemon_call *c, int exit_code, const char *code, const char *hint,
			  const char *fmt, ...)
{
	char message[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	put(c->c, error_json(c->id, code, exit_code, message, hint, NULL));
}

static struct daemon_connection *by_number(const struct daemon *d, uint64_t conn)
{
	struct daemon_connection *c = d->control ? d->control->first : NULL;

	while (c && c->number != conn) {
		c = c->next;
	}
	return c && !c->ended ? c : NULL;
}

bool daemon_control_push(struct daemon *d, uint64_t conn, const struct buf *line)
{
	struct daemon_connection *c = by_number(d, conn);

	if (!c) {
		return false;
	}
	if (line->failed) {
		end(c);
		return false;
	}
	buf_add(&c->out, line->data, line->len);
	flush(c);
	return !c->ended;
}

size_t daemon_control_waiting(const struct daemon *d, uint64_t conn)
{
	const struct daemon_connection *c = by_number(d, conn);

	return c ? c->out.len : SIZE_MAX;
}

void daemon_control_answer(struct daemon *d, uint64_t conn, json_int_t id, const json_t *result,
			   const struct report *r, int exit_code)
{
	struct daemon_connection *c = by_number(d, conn);
	char message[4096];

	if (!c) {
		return;
	}
	if (result) {
		put(c, json_pack("{s:I,s:O}", "id", id, "result", result));
		return;
	}
	if (!r) {
		put(c, error_json(id, "memory", exit_code, "out of memory", "", NULL));
		return;
	}
	snprintf(message, sizeof(message), "%s%s%s", buf_text(&r->place), r->place.len ? ": " : "",
		 buf_text(&r->message));
	put(c,
	    error_json(id, r->code, exit_code, message, buf_text(&r->hint), buf_text(&r->detail)));
}

static void send_event(struct daemon_control *k, const struct daemon_history *h,
		       const struct daemon_history_event *e)
{
	for (struct daemon_connection *c = k->first; c; c = c->next) {
		if (c->following != h || c->ended ||
		    !(c->follows_all || daemon_history_may_read(e, c->peer.uid))) {
			continue;
		}
		if (c->out.len > MAX_FOLLOW) {
			end(c);
		} else {
			put(c, json_pack("{s:o}", "event", daemon_history_json(e)));
		}
	}
}

void daemon_control_print(struct daemon *d, const struct daemon_history_event *e)
{
	for (struct daemon_connection *c = d->control ? d->control->first : NULL; c; c = c->next) {
		if (c->following == &d->history && !c->ended && c->out.len <= MAX_FOLLOW &&
		    (c->follows_all || e->uid == (int64_t)c->peer.uid)) {
			put(c, json_pack("{s:o}", "event", daemon_history_json(e)));
		}
	}
}

static void on_event(void *arg, const struct daemon_history_event *e)
{
	struct daemon_control *k = arg;

	send_event(k, &k->d->history, e);
}

static void on_audit(void *arg, const struct daemon_history_event *e)
{
	struct daemon_control *k = arg;

	send_event(k, &k->d->audit, e);
}

/* ---- receiving ---- */

static void fatal(struct daemon_connection *c, json_int_t id, const char *code, const char *message)
{
	c->closing = true;
	put(c, error_json(id, code, 2, message, "", NULL));
}

static void take_line(struct daemon_connection *c, const char *line, size_t len)
{
	json_t *j = json_loadb(line, len, 0, NULL), *params;
	const char *method = json_string_value(json_object_get(j, "method"));
	struct daemon_call call = {
		.d = c->d, .c = c, .conn = c->number, .sock = c->sock, .peer = c->peer, .fd = &c->fd
	};

	call.id = json_integer_value(json_object_get(j, "id"));
	params = json_object_get(j, "params");
	if (!method || (params && !json_is_object(params))) {
		fatal(c, call.id, "protocol",
		      "a line must be an object with id, method and params");
		json_decref(j);
		return;
	}
	params = params ? json_incref(params) : json_object();
	call.params = params;
	daemon_method_call(&call, method, c->greeted);
	json_decref(params);
	json_decref(j);
	c->fd = fd_close_foreign(c->fd); /* it belonged to the line just processed */
}

/* Processes received lines for TIME_AT_ONCE_NS. Returns true if more may be pending. */
static bool take_some(struct daemon_connection *c)
{
	uint64_t begin = clock_now_ns();
	size_t at = 0;
	bool more = true;

	for (int i = 0; i < LINES_AT_ONCE && more && clock_now_ns() - begin < TIME_AT_ONCE_NS;
	     i++) {
		const char *text = buf_text(&c->in) + at, *nl;

		if (c->ended || c->closing || c->out.len >= MAX_OUT) {
			break;
		}
		nl = c->in.len > at + c->scanned
			     ? memchr(text + c->scanned, '\n', c->in.len - at - c->scanned)
			     : NULL;
		if (nl) {
			take_line(c, text, (size_t)(nl - text));
			at += (size_t)(nl - text) + 1;
		}
		c->scanned = nl ? 0 : c->in.len - at;
		more = nl != NULL;
	}
	buf_drop(&c->in, at);
	if (!more && c->in.len > MAX_LINE) {
		fatal(c, 0, "limit", "a line has more than 256 KiB");
	}
	return more;
}

static int on_again(sd_event_source *src, void *arg);

/* Yields to other connections. sd-event dispatches the source that has been pending for longest,
 * and a deferred source that is enabled again counts as pending since it was created, so it would
 * always be next. A new one comes last. */
static void come_back(struct daemon_connection *c)
{
	c->again = sd_event_source_disable_unref(c->again);
	if (sd_event_add_defer(c->d->loop, &c->again, on_again, c) < 0) {
		end(c);
	}
}

static void take_lines(struct daemon_connection *c)
{
	c->more = take_some(c);
	flush(c);
	if (c->more && !c->ended && !c->closing && c->out.len < MAX_OUT) {
		come_back(c);
	}
}

static int on_again(sd_event_source *src, void *arg)
{
	struct daemon_connection *c = arg;
	uint64_t begin = daemon_budget_begin();

	(void)src;
	take_lines(c);
	daemon_budget_end(c->d, c->peer.uid, begin);
	return 0;
}

static ssize_t receive(struct daemon_connection *c, char *data, size_t cap)
{
	int fds[FD_PASS_MAX];
	unsigned n;
	ssize_t got = msg_recv(c->sock, data, cap, fds, &n);

	for (unsigned i = 0; i < n; i++) {
		if (i == 0 && c->fd < 0 && got > 0) {
			c->fd = fds[0];
		} else {
			fd_close_foreign(fds[i]); /* a method takes at most one descriptor */
		}
	}
	return got;
}

static void handle_io(struct daemon_connection *c, uint32_t revents)
{
	char chunk[65536];
	ssize_t n;

	if (revents & EPOLLOUT) {
		take_lines(c);
	}
	if (c->ended || c->more || !(revents & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
		return;
	}
	n = receive(c, chunk, sizeof(chunk));
	if (n == -EAGAIN) {
		return;
	}
	if (n <= 0 || buf_add(&c->in, chunk, (size_t)n) < 0) {
		end(c);
		return;
	}
	take_lines(c);
}

static int on_io(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
	struct daemon_connection *c = arg;
	uint64_t begin = daemon_budget_begin();

	(void)src;
	(void)fd;
	handle_io(c, revents);
	daemon_budget_end(c->d, c->peer.uid, begin);
	return 0;
}

void daemon_control_greeted(struct daemon_call *c)
{
	c->c->greeted = true;
}

void daemon_control_follow(struct daemon_call *c, const struct daemon_history *h)
{
	c->c->following = h;
	c->c->follows_all = daemon_may_administer(c->d, c->sock);
}

unsigned daemon_control_connections(const struct daemon *d)
{
	return d->control->n;
}

/* Returns whether the sources of a connection are enabled. */
static int polling(const struct daemon_connection *c)
{
	return daemon_budget_is_paused(c->d, c->peer.uid) ? SD_EVENT_OFF : SD_EVENT_ON;
}

static void poll_sources(struct daemon *d, bool accepts_paused)
{
	struct daemon_control *k = d->control;

	if (!k) {
		return;
	}
	sd_event_source_set_enabled(k->io, accepts_paused ? SD_EVENT_OFF : SD_EVENT_ON);
	for (struct daemon_connection *c = k->first; c; c = c->next) {
		int on = polling(c);

		sd_event_source_set_enabled(c->io, on);
		if (c->again && c->more) {
			sd_event_source_set_enabled(c->again,
						    on == SD_EVENT_ON ? SD_EVENT_ONESHOT : on);
		}
	}
}

const struct daemon_feature daemon_control_feature = { .poll = poll_sources };

static bool too_many(const struct daemon_control *k, const struct peer *peer)
{
	bool foreign = peer->uid != 0 && peer->uid != k->d->uid;
	unsigned n = 0;

	for (struct daemon_connection *c = k->first; c; c = c->next) {
		n += c->peer.uid == peer->uid;
	}
	return k->n >= MAX_CONNECTIONS ||
	       (foreign && (n >= MAX_FOREIGN || k->n >= MAX_CONNECTIONS - OWN_CONNECTIONS));
}

static void welcome(struct daemon_control *k, int sock, struct peer *peer)
{
	struct daemon_connection *c = NULL;

	if (fd_peer(sock, peer) == 0 && !too_many(k, peer)) {
		c = calloc(1, sizeof(*c));
	}
	if (!c) {
		fd_close_peer(sock);
		return;
	}
	*c = (struct daemon_connection){
		.d = k->d, .sock = sock, .fd = -1, .peer = *peer, .number = ++k->next_number
	};
	if (sd_event_add_io(k->d->loop, &c->io, sock, EPOLLIN, on_io, c) < 0) {
		destroy(c);
		return;
	}
	/* Same priority as sessions: the source that has waited for longest is next, so that a
	 * process that sends without end cannot lock the operator out. */
	sd_event_source_set_enabled(c->io, polling(c));
	c->next = k->first;
	k->first = c;
	k->n++;
}

static int on_accept(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
	struct daemon_control *k = arg;

	(void)src;
	(void)revents;
	for (int i = 0; i < 16 && !(fd == k->fd && k->d->users.accepts_paused); i++) {
		uint64_t begin = daemon_budget_begin();
		int sock = daemon_accept(k->d, fd);
		struct peer peer = { 0 };

		if (sock < 0) {
			break;
		}
		welcome(k, sock, &peer);
		daemon_budget_accepted(k->d, peer.uid, begin);
	}
	return 0;
}

/* Listens on the operators' socket, in whose queue no other user's connections wait. */
static int open_admin(struct daemon_control *k, const char *path)
{
	gid_t group = k->d->access.group;
	bool shared = k->d->uid == 0 && group != (gid_t)-1;
	int err;

	k->admin_fd = unix_listen(path, SOCK_STREAM, 0600);
	if (k->admin_fd < 0) {
		return k->admin_fd;
	}
	if (shared && (lchown(path, (uid_t)-1, group) < 0 || chmod(path, 0660) < 0)) {
		return -errno;
	}
	err = sd_event_add_io(k->d->loop, &k->admin_io, k->admin_fd, EPOLLIN, on_accept, k);
	return MIN(err, 0);
}

int daemon_control_open(struct daemon *d, const char *path, const char *admin_path)
{
	struct daemon_control *k = calloc(1, sizeof(*k));
	int err;

	if (!k) {
		return -ENOMEM;
	}
	k->d = d;
	k->admin_fd = -1;
	d->control = k;
	k->fd = unix_listen(path, SOCK_STREAM, d->uid == 0 ? 0666 : 0600);
	if (k->fd < 0) {
		return k->fd;
	}
	err = sd_event_add_io(d->loop, &k->io, k->fd, EPOLLIN, on_accept, k);
	if (err >= 0) {
		err = sd_event_add_defer(d->loop, &k->reaper, on_reaper, k);
	}
	if (err >= 0) {
		err = open_admin(k, admin_path);
	}
	if (err < 0) {
		return err;
	}
	sd_event_source_set_enabled(k->reaper, SD_EVENT_OFF);
	d->history.listener = on_event;
	d->audit.listener = on_audit;
	d->history.arg = d->audit.arg = k;
	return 0;
}

void daemon_control_close(struct daemon *d)
{
	struct daemon_control *k = d->control;

	if (!k) {
		return;
	}
	d->history.listener = d->audit.listener = NULL;
	d->control = NULL;
	while (k->first) {
		struct daemon_connection *c = k->first;

		k->first = c->next;
		destroy(c);
	}
	sd_event_source_disable_unref(k->io);
	sd_event_source_disable_unref(k->admin_io);
	sd_event_source_disable_unref(k->reaper);
	fd_close(k->fd);
	fd_close(k->admin_fd);
	free(k);
}
