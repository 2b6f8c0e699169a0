/* Lines over the control socket, each with a deadline. The socket is non-blocking; poll waits. */
#include "lib/lib_int.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"

uint64_t lib_deadline(unsigned timeout_ms)
{
	return timeout_ms ? clock_now_ns() + (uint64_t)timeout_ms * 1000000u : UINT64_MAX;
}

void lib_disconnect(struct gbpf *g)
{
	g->fd = fd_close(g->fd);
	buf_clear(&g->in);
	g->scanned = 0;
}

bool lib_is_lost(int err)
{
	return err == -ECONNRESET || err == -EPIPE;
}

static int lost(struct gbpf *g, int err)
{
	lib_disconnect(g);
	return lib_fail(g, err, GBPF_CODE_UNREACHABLE, "unreachable",
			"See gbpfd.log in that directory", "gbpfd closed the connection of %s",
			g->socket);
}

static int wait_for(struct gbpf *g, short what, uint64_t deadline, bool interruptible)
{
	for (;;) {
		struct pollfd p = { .fd = g->fd, .events = what };
		uint64_t now = clock_now_ns();
		int ms = -1, n;

		if (deadline != UINT64_MAX) {
			uint64_t left = deadline > now ? (deadline - now + 999999u) / 1000000u : 0;

			ms = (int)MIN(left, (uint64_t)INT32_MAX);
		}
		n = poll(&p, 1, ms);
		if (n > 0) {
			return 0;
		}
		if (n < 0 && errno == EINTR) {
			if (interruptible) {
				return lib_fail(g, -EINTR, GBPF_CODE_FAILED, "interrupted", NULL,
						"interrupted");
			}
			continue;
		}
		if (n < 0) {
			return lost(g, -errno);
		}
		lib_disconnect(g); /* a late answer must not be taken for the next request's */
		return lib_fail(g, -ETIMEDOUT, GBPF_CODE_TIMEOUT, "timeout",
				"Is gbpfd stopped or overloaded? A longer --timeout may help",
				"gbpfd did not answer in time on %s", g->socket);
	}
}

static ssize_t send_some(int sock, const char *data, size_t len, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} ctl;
	struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd >= 0) {
		struct cmsghdr *c;

		memset(&ctl, 0, sizeof(ctl));
		m.msg_control = ctl.bytes;
		m.msg_controllen = sizeof(ctl.bytes);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	return sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int lib_send_line(struct gbpf *g, const char *line, size_t len, int fd, uint64_t deadline)
{
	while (len) {
		ssize_t n = send_some(g->fd, line, len, fd);

		if (n >= 0) {
			line += n;
			len -= (size_t)n;
			fd = -1; /* sent with the first bytes */
		} else if (errno == EAGAIN) {
			int err = wait_for(g, POLLOUT, deadline, false);

			if (err) {
				return err;
			}
		} else if (errno != EINTR) {
			return lost(g, -errno);
		}
	}
	return 0;
}

/* Cuts the first line off g->in. 1 and *ret; 0: no complete line; -EBADMSG. */
static int cut_line(struct gbpf *g, json_t **ret)
{
	const char *text = buf_text(&g->in), *nl;
	json_t *j;

	nl = g->in.len > g->scanned ? memchr(text + g->scanned, '\n', g->in.len - g->scanned)
				    : NULL;
	g->scanned = g->in.len;
	if (!nl) {
		return 0;
	}
	j = json_loadb(text, (size_t)(nl - text), 0, NULL);
	buf_drop(&g->in, (size_t)(nl - text) + 1);
	g->scanned = 0;
	if (!json_is_object(j)) {
		json_decref(j);
		return -EBADMSG;
	}
	*ret = j;
	return 1;
}

int lib_read_line(struct gbpf *g, uint64_t deadline, bool interruptible, json_t **ret)
{
	char chunk[16384];

	for (;;) {
		int err = cut_line(g, ret);
		ssize_t n;

		if (err > 0) {
			return 0;
		}
		if (err < 0 || g->in.len > LIB_CLIENT_MAX_ANSWER) {
			lib_disconnect(g);
			return lib_fail(g, -EBADMSG, GBPF_CODE_FAILED, "protocol",
					"Is that socket gbpfd's?",
					"the answer on %s is not a line of JSON", g->socket);
		}
		n = recv(g->fd, chunk, sizeof(chunk), MSG_DONTWAIT);
		if (n > 0) {
			if (buf_add(&g->in, chunk, (size_t)n) < 0) {
				lib_disconnect(g);
				return lib_no_memory(g);
			}
		} else if (n == 0) {
			return lost(g, -ECONNRESET);
		} else if (errno == EAGAIN) {
			err = wait_for(g, POLLIN, deadline, interruptible);
			if (err) {
				return err;
			}
		} else if (errno != EINTR) {
			return lost(g, -errno);
		}
	}
}
