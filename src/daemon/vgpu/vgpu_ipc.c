/* Memory that a process has shared with others (cuIpcGetMemHandle): passes questions for its chunks
 * on to the process that has it, and the descriptors in the answers to the process that asks. It
 * keeps neither: no memory lives longer by it, and it knows nothing that a restart could lose. A
 * question is a connection's first message, and belongs to no tenant; only processes of the user
 * whose memory it is, and root's, are answered. That the process that asks may have the memory is
 * proved by the key, which its owner compares. */
#include "daemon/vgpu/vgpu_int.h"

#include <errno.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "daemon/session/tenant_session.h"

#define ASKED_MAX 16u /* questions to a process at a time; it may be stopped */

/* Answers a question without memory. */
static void refuse(struct daemon_session *s, int error)
{
	union proto_message m = { .ipc.error = error };

	s->ipc.number = 0;
	daemon_session_send(s, &m, PROTO_IPC_OPENED, NULL, 0);
}

/* Returns the newest session of the process, if the user may open its memory, or NULL. */
static struct daemon_session *find(const struct daemon *d, int pid, uid_t uid)
{
	struct daemon_session *found = NULL;

	daemon_session_each(d, s)
	{
		if (s->peer.pid == pid && s->state == DAEMON_SESSION_READY && !s->dying &&
		    (uid == 0 || uid == s->peer.uid)) {
			found = s;
		}
	}
	return found;
}

static bool is_alive(int pid)
{
	struct pollfd p = { .fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1,
			    .events = POLLIN };
	bool alive = p.fd >= 0 && poll(&p, 1, 0) == 0;

	fd_close(p.fd);
	return alive;
}

/* Returns true if a process without a session may have one soon: it is in a vGPU and has lost its
 * connection, or gbpfd was restarted. */
static bool may_return(const struct daemon *d, int pid, uid_t uid)
{
	for (const struct daemon_vgpu *v = d->vgpus.first; v; v = v->next) {
		bool look = v->n_lines && daemon_vgpu_is_open_to(v, uid);

		for (unsigned i = 0; look && i < PROTO_ACCOUNT_LINES; i++) {
			const struct daemon_vgpu_line *l = &v->line[i];

			if (l->death && !l->gone && l->left && l->pid == pid) {
				return true;
			}
		}
	}
	return daemon_vgpus_are_awaited(d) && is_alive(pid);
}

static bool take_open(struct daemon_session *s, struct daemon_received *r)
{
	struct daemon_session *owner = find(s->d, r->m.ipc.pid, s->peer.uid);
	union proto_message m = { 0 };

	if (s->ipc.number) {
		return false; /* the last question has not been answered */
	}
	if (!owner) {
		refuse(s, may_return(s->d, r->m.ipc.pid, s->peer.uid) ? EAGAIN : ENOENT);
		return true;
	}
	if (owner->ipc.asked >= ASKED_MAX) {
		refuse(s, EAGAIN);
		return true;
	}
	owner->ipc.asked++;
	s->ipc.number = ++s->d->vgpus.questions;
	s->ipc.owner = owner->tenant;
	m.ipc = r->m.ipc;
	m.ipc.number = s->ipc.number;
	daemon_session_send(owner, &m, PROTO_IPC_WANTED, NULL, 0);
	return true;
}

static bool take_given(struct daemon_session *owner, struct daemon_received *r)
{
	uint64_t number = r->m.ipc.number;

	owner->ipc.asked -= owner->ipc.asked > 0;
	daemon_session_each(owner->d, s)
	{
		if (number && s->ipc.number == number && s->ipc.owner == owner->tenant) {
			s->ipc.number = 0;
			daemon_session_send(s, &r->m, PROTO_IPC_OPENED, r->fds, r->nfds);
		}
	}
	while (r->nfds) {
		fd_close_foreign(r->fds[--r->nfds]);
	}
	return true;
}

static void session_ended(struct daemon_session *owner)
{
	daemon_session_each(owner->d, s)
	{
		if (s->ipc.number && s->ipc.owner == owner->tenant) {
			refuse(s, EAGAIN); /* it may only have lost its connection */
		}
	}
}

const struct daemon_feature daemon_ipc_feature = {
	.messages = { { PROTO_IPC_OPEN, 1u << DAEMON_SESSION_NEW, take_open },
		      { PROTO_IPC_GIVEN, 1u << DAEMON_SESSION_READY, take_given } },
	.session_ended = session_ended,
};
