/* The life cycle of sessions: accepting, watching the process, ending; and gbpfd's own exit when it
 * is idle. */
#include "daemon/session/tenant_session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/point.h"
#include "daemon/budget.h"

#define MAX_SESSIONS (PROTO_MAX_TENANTS + 64u)
#define OWN_SESSIONS 64u /* sessions reserved for root and the daemon's user */
#define MAX_FOREIGN 256u /* sessions of one user that is neither root nor the daemon's */

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

static int on_death(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
	struct daemon_session *s = arg;

	(void)src;
	(void)fd;
	(void)revents;
	s->dead = true;
	daemon_session_end(s, DAEMON_END_CLOSED);
	return 0;
}

/* Watches the process itself, because a forked child may keep the socket open after its parent
 * died. Without a pidfd (another pid namespace) only the end of the socket is seen. */
static void watch_process(struct daemon_session *s)
{
	socklen_t len = sizeof(s->pidfd);

	if (getsockopt(s->conn.sock, SOL_SOCKET, SO_PEERPIDFD, &s->pidfd, &len) < 0) {
		s->pidfd = s->peer.pid > 0 ? (int)syscall(SYS_pidfd_open, s->peer.pid, 0) : -1;
	}
	if (s->pidfd >= 0) {
		fcntl(s->pidfd, F_SETFD, FD_CLOEXEC);
		sd_event_add_io(s->d->loop, &s->conn.death, s->pidfd, EPOLLIN, on_death, s);
	}
}

/* The driver may take tens of milliseconds to end a process, whose pidfd and socket report nothing
 * before that, although none of its threads will run again. */
void daemon_sessions_reap_dying(struct daemon *d)
{
	daemon_session_each(d, s)
	{
		if (s->state == DAEMON_SESSION_READY && !s->dying &&
		    proto_board_dead(s->board.map)) {
			s->dead = true;
			daemon_session_end(s, DAEMON_END_CLOSED);
		}
	}
}

static void unlink_session(struct daemon_session *s)
{
	struct daemon_session **link = &s->d->sessions.first;

	while (*link != s) {
		link = &(*link)->next;
	}
	*link = s->next;
	if (s->d->sessions.end == &s->next) {
		s->d->sessions.end = link;
	}
	s->d->sessions.n--;
}

static void destroy(struct daemon_session *s)
{
	struct daemon *d = s->d;
	bool was_tenant = s->tenant >= 0;

	unlink_session(s);
	if (was_tenant) {
		if (s->end ==
		    DAEMON_END_CLOSED) { /* first, because other tenants may be waiting for it */
			daemon_board_clear(&s->board);
			POINT("daemon.death.board_cleared");
		}
		d->sessions.tenant[s->tenant] = NULL;
		daemon_features_call(session_ended, s);
		for (uint32_t i = 0; i < s->gpus; i++) {
			daemon_gpus_release(&d->devices, s->gpu_index[i]);
		}
	}
	sd_event_source_disable_unref(s->conn.io);
	sd_event_source_disable_unref(s->conn.timer);
	sd_event_source_disable_unref(s->conn.death);
	daemon_outbox_finish(&s->conn.out);
	daemon_page_destroy(&s->board);
	daemon_page_destroy(&s->stats);
	fd_close(s->pidfd);
	fd_close_peer(s->conn.sock);
	free(s);
	if (was_tenant) {
		sd_event_source_set_enabled(d->sessions.requeue, SD_EVENT_ONESHOT);
	}
}

static void arm_idle_exit(struct daemon *d)
{
	uint64_t now;

	if (d->sessions.idle_timer) {
		sd_event_now(d->loop, CLOCK_MONOTONIC, &now);
		sd_event_source_set_time(d->sessions.idle_timer,
					 now + (uint64_t)d->opt.idle_exit_s * 1000000u);
		sd_event_source_set_enabled(d->sessions.idle_timer,
					    d->sessions.n ? SD_EVENT_OFF : SD_EVENT_ONESHOT);
	}
}

static int on_reaper(sd_event_source *src, void *arg)
{
	struct daemon *d = arg;
	bool again = true;

	(void)src;
	while (again) { /* the end of one session may break another, which is then dying too */
		again = false;
		daemon_session_each(d, s)
		{
			if (s->dying) {
				uint64_t begin = daemon_budget_begin();
				uid_t uid = s->peer.uid;

				destroy(s);
				daemon_budget_end(d, uid, begin);
				again = true;
				break;
			}
		}
	}
	arm_idle_exit(d);
	daemon_features_call(sessions_reaped, d);
	return 0;
}

static int on_requeue(sd_event_source *src, void *arg)
{
	struct daemon *d = arg;

	(void)src;
	daemon_features_call(retry_queued, d);
	return 0;
}

static int on_idle(sd_event_source *src, uint64_t usec, void *arg)
{
	struct daemon *d = arg;

	(void)src;
	(void)usec;
	log_info("no session for %u s: exiting", d->opt.idle_exit_s);
	return sd_event_exit(d->loop, 0);
}

static unsigned sessions_of(const struct daemon *d, uid_t uid)
{
	unsigned n = 0;

	daemon_session_each(d, s)
	{
		n += s->peer.uid == uid;
	}
	return n;
}

static void turn_away(int fd, int err, const char *text)
{
	union proto_message m = { 0 };

	m.refused.error = -err;
	snprintf(m.refused.text, sizeof(m.refused.text), "%s", text);
	proto_send(fd, &m, PROTO_REFUSED, NULL,
		   0); /* a failure only means that the peer has closed it */
	fd_close_peer(fd);
}

/* Returns whether the socket of a session is polled. Its process's death is noticed in any case. */
static int polling(const struct daemon_session *s)
{
	return daemon_budget_is_paused(s->d, s->peer.uid) ? SD_EVENT_OFF : SD_EVENT_ON;
}

static void poll_sources(struct daemon *d, bool accepts_paused)
{
	if (d->sessions.io) {
		sd_event_source_set_enabled(d->sessions.io,
					    accepts_paused ? SD_EVENT_OFF : SD_EVENT_ON);
	}
	daemon_session_each(d, s)
	{
		sd_event_source_set_enabled(s->conn.io, polling(s));
	}
}

const struct daemon_feature daemon_sessions_feature = { .poll = poll_sources };

static void welcome_connection(struct daemon *d, int fd, struct peer *ret_peer)
{
	struct daemon_session *s;
	struct peer peer;
	bool foreign;

	if (fd_peer(fd, &peer) < 0) {
		fd_close_peer(fd);
		return;
	}
	*ret_peer = peer;
	if (d->uid != 0 && peer.uid != d->uid && peer.uid != 0) {
		turn_away(fd, -EPERM, "this gbpfd belongs to another user");
		return;
	}
	foreign = peer.uid != 0 && peer.uid != d->uid;
	if (d->sessions.n >= MAX_SESSIONS ||
	    (foreign && (d->sessions.n >= PROTO_MAX_TENANTS - OWN_SESSIONS ||
			 sessions_of(d, peer.uid) >= MAX_FOREIGN))) {
		d->counters.refused_sessions++;
		turn_away(fd, -EUSERS, "too many sessions");
		return;
	}
	s = calloc(1, sizeof(*s));
	if (!s) {
		fd_close_peer(fd);
		return;
	}
	*s = (struct daemon_session){ .d = d,
				      .peer = peer,
				      .pidfd = -1,
				      .tenant = -1,
				      .connected_ns = clock_now_ns(),
				      .board = DAEMON_PAGE_NONE,
				      .stats = DAEMON_PAGE_NONE,
				      .conn.sock = fd,
				      .lc.slot = -1,
				      .group.slot = -1 };
	if (daemon_session_watch_socket(s) < 0) {
		fd_close_peer(fd);
		free(s);
		return;
	}
	*d->sessions.end = s;
	d->sessions.end = &s->next;
	d->sessions.n++;
	watch_process(s);
	sd_event_source_set_enabled(s->conn.io, polling(s));
	arm_idle_exit(d);
}

static int on_accept(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
	struct daemon *d = arg;

	(void)src;
	(void)revents;
	for (int i = 0; i < 16 && !d->users.accepts_paused; i++) {
		uint64_t begin = daemon_budget_begin();
		int c = daemon_accept(d, fd);
		struct peer peer = { 0 };

		if (c < 0) {
			break;
		}
		welcome_connection(d, c, &peer);
		daemon_budget_accepted(d, peer.uid, begin);
	}
	return 0;
}

int daemon_sessions_open(struct daemon *d, const char *path)
{
	int err;

	d->sessions.end = &d->sessions.first;
	d->sessions.fd = unix_listen(path, SOCK_SEQPACKET, d->uid == 0 ? 0666 : 0600);
	if (d->sessions.fd < 0) {
		return d->sessions.fd;
	}
	err = sd_event_add_io(d->loop, &d->sessions.io, d->sessions.fd, EPOLLIN, on_accept, d);
	if (err >= 0) {
		err = sd_event_add_defer(d->loop, &d->sessions.reaper, on_reaper, d);
	}
	if (err >= 0) {
		err = sd_event_add_defer(d->loop, &d->sessions.requeue, on_requeue, d);
	}
	if (err < 0) {
		return err;
	}
	sd_event_source_set_priority(d->sessions.reaper, SD_EVENT_PRIORITY_IMPORTANT);
	sd_event_source_set_enabled(d->sessions.reaper, SD_EVENT_OFF);
	sd_event_source_set_enabled(d->sessions.requeue, SD_EVENT_OFF);
	if (d->opt.idle_exit_s) {
		err = sd_event_add_time(d->loop, &d->sessions.idle_timer, CLOCK_MONOTONIC,
					UINT64_MAX, 100000, on_idle, d);
		arm_idle_exit(d);
	}
	return err < 0 ? err : 0;
}

void daemon_sessions_close(struct daemon *d)
{
	d->sessions.io = sd_event_source_disable_unref(d->sessions.io);
	d->sessions.fd = fd_close(d->sessions.fd);
	while (d->sessions.first) {
		d->sessions.first->dying = true;
		d->sessions.first->end = DAEMON_END_SHUTDOWN;
		destroy(d->sessions.first);
	}
	d->sessions.reaper = sd_event_source_disable_unref(d->sessions.reaper);
	d->sessions.requeue = sd_event_source_disable_unref(d->sessions.requeue);
	d->sessions.idle_timer = sd_event_source_disable_unref(d->sessions.idle_timer);
}
