/* Sessions: one for each connected process, which becomes a tenant once it has said hello and was
 * admitted. */
#ifndef GBPF_DAEMON_SESSION_TENANT_SESSION_H
#define GBPF_DAEMON_SESSION_TENANT_SESSION_H

#include "base/fd.h"
#include "daemon/daemon.h"
#include "daemon/feature.h"
#include "daemon/session/session_parts.h"
#include "proto/account.h"
#include "proto/wire.h"

enum daemon_session_state {
	DAEMON_SESSION_NEW,	 /* connected, no hello yet */
	DAEMON_SESSION_QUEUED,	 /* admit returned GBPF_QUEUE */
	DAEMON_SESSION_LANE,	 /* admitted; the shared lane is being started */
	DAEMON_SESSION_WELCOMED, /* was sent its pages and has not confirmed that it mapped them */
	DAEMON_SESSION_READY,
};

enum daemon_session_end {
	DAEMON_END_CLOSED, /* the socket was closed, or the process exited */
	DAEMON_END_REFUSED,
	DAEMON_END_DROPPED, /* by gbpfd: protocol error, timeout */
	DAEMON_END_SHUTDOWN,
};

struct daemon_session {
	struct daemon *d;
	struct daemon_session *next; /* of daemon.sessions */
	enum daemon_session_state state;
	bool dying;		     /* to be ended by the reaper */
	enum daemon_session_end end; /* why, if dying */
	bool dead;		     /* its process is known to have exited */

	/* identity */
	struct peer peer;
	int pidfd;  /* owned; -1: none */
	int tenant; /* number; -1: none yet */
	char name[PROTO_NAME], command[PROTO_TEXT];
	uint64_t connected_ns;
	uint32_t class_id, weight;
	uint32_t weight_asked;	 /* by the hello or gbpf set; admit computes weight from it */
	uint32_t gpus, gpu_mask; /* count; bits of gbpfd's numbers */
	uint32_t gpu_index[PROTO_MAX_GPUS]; /* gbpfd's number by the process's ordinal */
	struct daemon_page board, stats;

	/* features */
	struct daemon_session_conn conn;
	struct daemon_session_hello hello;
	struct daemon_session_grant grant;
	struct daemon_session_sent sent;
	struct daemon_session_lc lc;
	struct daemon_session_group group;
	struct daemon_session_idle idle;
	struct daemon_session_flags flags;
	struct daemon_session_hw hw;
	struct daemon_session_preempt preempt;
	struct daemon_session_explained explained;
	struct daemon_session_vgpu vgpu;
	struct daemon_session_ipc ipc;
	struct daemon_session_policy policy;
	struct daemon_session_rejoin rejoin;
	struct daemon_session_probes probes;
	char crash_reason[DAEMON_CRASH_TEXT]; /* mps_crash.c: the failure of an MPS client that may
						 have broken it; empty: none */
	struct rate_limit prints;	      /* policy_prints.c: lines of bpf_printk */
	uint64_t ticked_launches[PROTO_MAX_GPUS]; /* daemon_hooks.c: at the last tick, by ordinal */
};

int daemon_sessions_open(struct daemon *d, const char *path);
extern const struct daemon_feature daemon_sessions_feature;
void daemon_sessions_close(struct daemon *d);
/* Ends the sessions whose process has begun to exit (struct proto_board, owner). */
void daemon_sessions_reap_dying(struct daemon *d);

/* Watches the socket, with a timeout until the hello is complete. 0 or -errno. */
int daemon_session_watch_socket(struct daemon_session *s);
/* Replaces the timeout after an early hello: the driver may take minutes to start. */
void daemon_session_extend_timeout(struct daemon_session *s);
/* Returns true if an event of that user may be written. Limits the rate for users other than root
 * and gbpfd's own, so that they cannot displace all other events. */
bool daemon_session_event_allowed(struct daemon *d, uid_t uid);
/* Sends a line for the standard error of a program that has been welcomed. what: its kind. */
void daemon_session_note(struct daemon_session *s, const char *what, const char *fmt, ...)
	PRINTF_LIKE(3, 4);
void daemon_session_event(struct daemon_session *s, const char *kind, const char *fmt, ...)
	PRINTF_LIKE(3, 4);
/* Sends a message; ends the session if that is impossible. Descriptors are borrowed. PREPARE must
 * be sent with daemon_version_send_prepare(). */
void daemon_session_send(struct daemon_session *s, union proto_message *m, enum proto_type type,
			 const int *fds, unsigned nfds);
/* Marks the session as dying. The loop ends it later, so that iterations over sessions stay valid.
 */
void daemon_session_end(struct daemon_session *s, enum daemon_session_end end);
/* Writes an event with the reason, then ends the session as DAEMON_END_DROPPED. */
void daemon_session_drop(struct daemon_session *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
void daemon_session_refuse(struct daemon_session *s, int err, const char *fmt, ...)
	PRINTF_LIKE(3, 4);

/* Returns the process's statistics of one of its GPUs (gbpfd's number). It has statistics. */
const struct proto_stats_gpu *daemon_session_gpu_stats(const struct daemon_session *s,
						       uint32_t gpu);

/* Each change of class is broadcast to all sessions, so their rate is limited. */
#define DAEMON_SESSION_CHANGES_PER_SECOND 50u
bool daemon_session_may_change_class(struct daemon_session *s);
/* daemon_session_set_class() changes class and weight as if the tenant had asked for them, sends
 * the settings to the process, and publishes or withdraws its board. weight 0: unchanged. */
void daemon_session_send_settings(struct daemon_session *s);
void daemon_session_set_class(struct daemon_session *s, uint32_t class_id, uint32_t weight);

extern const struct daemon_feature daemon_notes_feature; /* tenant_session.c */

/* lc_boards.c: boards of latency tenants */
extern const struct daemon_feature daemon_lc_feature;
void daemon_lc_publish(struct daemon_session *s);
bool daemon_lc_any(const struct daemon *d);
void daemon_lc_withdraw(struct daemon_session *s);
void daemon_lc_send_boards(struct daemon_session *s); /* sends it the boards of the others */

/* groups.c: the process communicates across GPUs; it ends; which GPUs are led by others. */
extern const struct daemon_feature daemon_groups_feature;
void daemon_group_join(struct daemon_session *s);
void daemon_group_leave(struct daemon_session *s);
void daemon_groups_lead(struct daemon *d);

#define daemon_session_each(d, s)                                                                  \
	for (struct daemon_session *s = (d)->sessions.first; s; s = s->next)

#endif
