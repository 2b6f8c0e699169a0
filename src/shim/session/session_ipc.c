/* Asking for memory that another process has shared (shim/session/session_ipc.h). The questions of
 * one call have a connection of their own, on which the thread waits by itself: the session's agent
 * may be busy, or wait for another process. */
#include "shim/session/session_ipc.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "shim/session/session_int.h"

#define RETRY_NS 10000000u

/* Returns 0 with an answer, or -errno without one. */
static int ask(int *sock, const struct proto_ipc *wanted, uint64_t deadline, union proto_message *m,
	       int fds[8], unsigned *nfds)
{
	uint64_t now = clock_now_ns();
	int err;

	if (now >= deadline) {
		return -ETIMEDOUT;
	}
	if (*sock < 0) {
		*sock = shim_session_open_socket(deadline - now);
	}
	if (*sock < 0) {
		return *sock;
	}
	memset(m, 0, sizeof(*m));
	m->ipc = *wanted;
	err = proto_send(*sock, m, PROTO_IPC_OPEN, NULL, 0);
	if (!err) {
		err = shim_session_await_answer(*sock, deadline, m, fds, nfds);
	}
	if (err) {
		*sock = fd_close_peer(*sock);
	}
	return err;
}

static bool is_worth_a_retry(int err)
{
	return err == -EAGAIN || err == -EPIPE || err == -ECONNRESET || err == -ECONNREFUSED ||
	       err == -ENOENT;
}

int shim_session_open_ipc(int *sock, uint64_t deadline, struct proto_ipc *m,
			  int fds[PROTO_IPC_CHUNKS])
{
	union proto_message answer;
	unsigned nfds = 0;
	int err;

	for (;;) {
		err = ask(sock, m, deadline, &answer, fds, &nfds);
		if (!err && answer.head.type != PROTO_IPC_OPENED) {
			shim_session_close_fds(fds, nfds);
			return -EPROTO; /* refused, as by a gbpfd of another version */
		}
		if (!err && answer.ipc.error != EAGAIN) {
			*m = answer.ipc;
			return -answer.ipc.error;
		}
		if (err && !is_worth_a_retry(err)) {
			return err;
		}
		if (clock_now_ns() >= deadline) {
			return -ETIMEDOUT;
		}
		clock_sleep_ns(RETRY_NS);
	}
}
