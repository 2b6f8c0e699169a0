/* Parts of gbpfd in the test's process: sessions without a process, whose messages the test reads,
 * on a clock that the test moves. */
#ifndef GBPF_TESTS_DAEMON_PARTS_H
#define GBPF_TESTS_DAEMON_PARTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/consts.h"
#include "daemon/policy/policies_int.h"
#include "daemon/session/tenant_session.h"

#define MS UINT64_C(1000000)
#define OWN_USER 500 /* gbpfd's */
#define PARTS_SESSIONS 100

static uint64_t parts_now;

static inline uint64_t parts_clock(void)
{
	return parts_now;
}

struct parts {
	struct daemon *d;
	struct proto_directory directory;
	unsigned n;
	struct part {
		struct daemon_session s;
		struct proto_board board;
		struct proto_stats stats;
		int peer; /* the process's end of the socket */
	} part[PARTS_SESSIONS];
};

static inline int parts_on_reaper(sd_event_source *src, void *arg)
{
	return 0;
}

static inline struct parts *parts_new(void)
{
	struct parts *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	parts_now = 1000000 * MS;
	clock_set_source(parts_clock);
	p->d = calloc(1, sizeof(*p->d));
	assert_non_null(p->d);
	p->d->uid = OWN_USER;
	p->d->sessions.end = &p->d->sessions.first;
	p->d->policies = calloc(1, sizeof(*p->d->policies));
	assert_non_null(p->d->policies);
	p->d->directory.map = &p->directory;
	assert_true(sd_event_new(&p->d->loop) >= 0);
	assert_true(sd_event_add_defer(p->d->loop, &p->d->sessions.reaper, parts_on_reaper, NULL) >=
		    0);
	assert_int_equal(daemon_history_open(&p->d->history, "/proc/nowhere", "events"), 0);
	return p;
}

static inline void parts_free(struct parts *p)
{
	for (unsigned i = 0; i < p->n; i++) {
		daemon_outbox_finish(&p->part[i].s.conn.out);
		close(p->part[i].s.conn.sock);
		close(p->part[i].peer);
		close(p->part[i].s.board.fd);
	}
	sd_event_source_disable_unref(p->d->sessions.reaper);
	sd_event_unref(p->d->loop);
	daemon_history_close(&p->d->history);
	free(p->d->policies);
	free(p->d);
	free(p);
	clock_set_source(NULL);
}

/* Adds a tenant of that user and class that is ready. */
static inline struct part *parts_add(struct parts *p, uid_t uid, uint32_t class_id)
{
	struct part *a = &p->part[p->n];
	struct daemon_session *s = &a->s;
	int pair[2];

	assert_true(p->n < PARTS_SESSIONS);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
	*s = (struct daemon_session){ .d = p->d,
				      .state = DAEMON_SESSION_READY,
				      .peer = { .uid = uid, .pid = (int)(10000 + p->n) },
				      .pidfd = -1,
				      .tenant = (int)p->n,
				      .class_id = class_id,
				      .weight = 100,
				      .gpu_mask = 1,
				      .conn.sock = pair[0],
				      .lc.slot = -1,
				      .group.slot = -1 };
	s->board = (struct daemon_page){ .fd = open("/dev/null", O_RDONLY | O_CLOEXEC),
					 .map = &a->board };
	s->stats = (struct daemon_page){ .fd = -1, .map = &a->stats };
	a->peer = pair[1];
	*p->d->sessions.end = s;
	p->d->sessions.end = &s->next;
	p->d->sessions.tenant[p->n] = s;
	p->d->sessions.n++;
	p->n++;
	return a;
}

/* Reads the next message of the process; returns its type, 0 if there is none. Descriptors are
 * closed; *ret_fds is their number. */
static inline int parts_message(struct part *a, union proto_message *m, unsigned *ret_fds)
{
	int fds[8], type = proto_recv(a->peer, m, fds, ret_fds);

	for (unsigned i = 0; type > 0 && i < *ret_fds; i++) {
		close(fds[i]);
	}
	return type > 0 ? (int)m->head.type : 0;
}

/* Expects one message about a board, which an ADD brings along; slot -1: no message. */
static inline void parts_expect_board(struct part *a, int type, int slot, int tenant)
{
	union proto_message m;
	unsigned fds = 0;

	assert_int_equal(parts_message(a, &m, &fds), slot < 0 ? 0 : type);
	if (slot >= 0) {
		assert_int_equal(m.board.slot, slot);
		assert_int_equal(m.board.tenant, tenant);
		assert_int_equal(fds, type == PROTO_BOARD_ADD || type == PROTO_PEER_ADD);
		assert_int_equal(m.board.group, type == PROTO_PEER_ADD ? a->s.group.number : 0);
	}
}

static inline unsigned parts_events(const struct parts *p, const char *with)
{
	unsigned n = 0;

	for (unsigned i = 0; i < p->d->history.n; i++) {
		n += strstr(daemon_history_at(&p->d->history, i)->text, with) != NULL;
	}
	return n;
}

#endif
