/* Looking at a vGPU from outside (shim/session/session_look.h). Each look is a connection of its
 * own: an account that was kept could be that of a vGPU that has ended and begun again since. */
#include "shim/session/session_look.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/shm.h"
#include "shim/session/session_int.h"

#define LOOK_TIMEOUT_NS 1000000000u /* for all attempts */
#define RETRY_NS 10000000u

int shim_session_await_answer(int sock, uint64_t deadline, union proto_message *m, int fds[8],
			      unsigned *nfds)
{
	for (;;) {
		struct pollfd p = { .fd = sock, .events = POLLIN };
		uint64_t now = clock_now_ns();
		int err;

		if (now >= deadline) {
			return -ETIMEDOUT;
		}
		if (poll(&p, 1, (int)((deadline - now) / 1000000u) + 1) <= 0) {
			continue;
		}
		err = proto_recv(sock, m, fds, nfds);
		if (err == -EAGAIN) {
			continue;
		}
		return err == 1 ? 0 : err ? err : -EPIPE;
	}
}

static int take(struct shim_look *l, const union proto_message *m, int fd)
{
	if (m->head.type != PROTO_ACCOUNT) {
		return -EPROTO; /* refused, as by a gbpfd of another version */
	}
	if (m->account.error) {
		return -m->account.error;
	}
	memcpy(l->limit, m->account.limit, sizeof(l->limit));
	l->swap = m->account.swap;
	if (!m->account.accounts) {
		return 0;
	}
	l->page = shim_session_map_page(fd, PROTO_ACCOUNT_BYTES, 0);
	return l->page ? 0 : -EPROTO;
}

static int look_once(const struct proto_vgpu *vgpu, uint64_t deadline, struct shim_look *l)
{
	int sock = shim_session_open_socket(clock_patience(LOOK_TIMEOUT_NS)), err, fds[8];
	union proto_message m = { 0 };
	unsigned nfds = 0;

	if (sock < 0) {
		return sock == -EAGAIN ? -ETIMEDOUT : sock;
	}
	m.hello.flags = PROTO_LOOK;
	m.hello.vgpu = *vgpu;
	err = proto_send(sock, &m, PROTO_HELLO, NULL, 0);
	if (!err) {
		err = shim_session_await_answer(sock, deadline, &m, fds, &nfds);
	}
	if (!err) {
		err = take(l, &m, nfds ? fds[0] : -1);
		shim_session_close_fds(fds, nfds);
	}
	fd_close(sock);
	return err;
}

/* Fills in what the environment says. */
static int begin(struct shim_look *l, struct proto_vgpu *ret)
{
	memset(l, 0, sizeof(*l));
	if (shim_session_find_vgpu(ret) < 0) {
		return -EINVAL;
	}
	memcpy(l->limit, ret->config.mem, sizeof(l->limit));
	l->swap = proto_vgpu_shown_swap(&ret->config);
	return proto_vgpu_is_set(ret) ? 0 : -ENOENT;
}

int shim_session_look(struct shim_look *ret)
{
	uint64_t deadline = clock_now_ns() + clock_patience(LOOK_TIMEOUT_NS);
	struct proto_vgpu vgpu;
	int err = begin(ret, &vgpu);

	if (err) {
		return err;
	}
	/* -EAGAIN: the processes of the vGPU bring its account to a gbpfd that was restarted */
	while ((err = look_once(&vgpu, deadline, ret)) == -EAGAIN && clock_now_ns() < deadline) {
		clock_sleep_ns(RETRY_NS);
	}
	return err && (err == -EPERM || vgpu.name[0]) ? -EPERM : 0;
}

int shim_session_look_limit(struct shim_look *ret)
{
	struct proto_vgpu vgpu;

	return begin(ret, &vgpu);
}

void shim_look_finish(struct shim_look *l)
{
	if (l->page) {
		shm_unmap(l->page, PROTO_ACCOUNT_BYTES);
		l->page = NULL;
	}
}
