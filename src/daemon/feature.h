/* Features of gbpfd: what the folder's own files and session/ call without knowing which features
 * there are. */
#ifndef GBPF_DAEMON_FEATURE_H
#define GBPF_DAEMON_FEATURE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/wire.h"

struct daemon;
struct daemon_session;
struct daemon_stored_watch;
struct daemon_version;
struct daemon_vgpu_claim;

/* A message of a tenant's process, and the descriptors that came with it. */
struct daemon_received {
	union proto_message m;
	int fds[8];
	unsigned nfds;
};

/* How a message of the session socket is handled. Each type belongs to one feature. */
struct daemon_message {
	uint32_t type;	 /* enum proto_type; 0: none */
	uint32_t states; /* bits of enum daemon_session_state in which the message is legal */
	/* Handles the message and takes its descriptors; or returns false, and takes none: the
	 * session is dropped, with the handler's reason (daemon_session_drop), else because it may
	 * not send the message now. */
	bool (*take)(struct daemon_session *s, struct daemon_received *r);
};

#define DAEMON_FEATURE_MESSAGES 4u

/* Members may be NULL. All run in the loop's thread. */
struct daemon_feature {
	/* The budgets of users have changed (budget.h): poll the sources of those that are not
	 * paused, and accept unless that is paused. */
	void (*poll)(struct daemon *d, bool accepts_paused);
	/* A connection of the control socket is closed; its number is never used again. */
	void (*connection_closed)(struct daemon *d, uint64_t conn);

	/* ---- sessions ---- */
	struct daemon_message messages[DAEMON_FEATURE_MESSAGES];
	/* Returns true if the note of a tenant's process is of this feature's kind, which does not
	 * belong into the history. */
	bool (*note)(struct daemon_session *s, const struct proto_note *n);
	/* The shared lane, for which the session has waited in state lane, is ready, or the session
	 * starts without it. */
	void (*lane_ready)(struct daemon_session *s);
	/* The session has become ready: send it what it is to have from its start on. */
	void (*session_ready)(struct daemon_session *s);
	/* The board of a latency tenant was published, or was withdrawn: while it ends, too. */
	void (*board_published)(struct daemon_session *s);
	void (*board_withdrawn)(struct daemon_session *s);
	/* A tenant's session ends and is freed after this. It is not in daemon.sessions.first, and
	 * its number is free, but still in s->tenant; its board has its slot until lc_boards.c is
	 * called. One that was refused in its hello may have no pages and no devices. */
	void (*session_ended)(struct daemon_session *s);
	/* Sessions have ended, and are freed: answer what waits for them alone. */
	void (*sessions_reaped)(struct daemon *d);
	/* What sessions in state queued wait for may be there now. */
	void (*retry_queued)(struct daemon *d);

	/* ---- vGPUs ---- */
	/* One has come, gone or changed. */
	void (*vgpus_changed)(struct daemon *d);
	/* Memory of a vGPU is about to be taken for another one. Returns true if a policy decides
	 * how many bytes at most, false: no restriction. */
	bool (*reclaim)(struct daemon *d, const struct daemon_vgpu_claim *c, uint64_t *ret_bytes);
	/* A caller has given a vGPU these shares: add to the answer what it should know. */
	void (*shares_given)(struct daemon *d, const struct proto_vgpu_config *given,
			     json_t *answer);

	/* ---- versions of policies, and tools ---- */
	/* The memory of one tenant in a version, or all of its memory, is about to be unmapped. The
	 * tenant may have none. */
	void (*tenant_memory_ends)(struct daemon_version *l, uint32_t tenant);
	void (*version_ends)(struct daemon_version *l, const char *why);
	/* A flip has changed the version words. ordered: the watch of the new version, which is in
	 * the store, or NULL. */
	void (*versions_changed)(struct daemon *d, const struct daemon_stored_watch *ordered);
};

/* main/features.c has the order in which they are called; NULL ends it. */
extern const struct daemon_feature *const daemon_features[];

#define daemon_features_each(f)                                                                    \
	for (const struct daemon_feature *const *f = daemon_features; *f; f++)
/* Calls a hook, with these arguments, of the features that have it. */
#define daemon_features_call(hook, ...)                                                            \
	daemon_features_each(f_)                                                                   \
	{                                                                                          \
		if ((*f_)->hook) {                                                                 \
			(*f_)->hook(__VA_ARGS__);                                                  \
		}                                                                                  \
	}

#endif
