/* What the session's files share. */
#ifndef GBPF_SHIM_SESSION_SESSION_INT_H
#define GBPF_SHIM_SESSION_SESSION_INT_H

#include "shim/session/session.h"

/* Until the socket can be read: 0, -ETIMEDOUT, -errno. The scheduler's own work goes on meanwhile.
 */
int shim_session_wait(struct shim_session *s, int sock, uint64_t deadline_ns);
void shim_session_close_fds(int *fds, unsigned n);
/* NULL: the descriptor is no sealed page of that size. */
void *shim_session_map_page(int fd, size_t bytes, int writable);
/* Takes away what only a gbpfd before this one knew, once that can be. */
void shim_session_sweep(struct shim_session *s);
/* Closes the one before. */
void shim_session_set_sock(struct shim_session *s, int sock);
/* Sends from any thread; nothing without a session. */
int shim_session_send(struct shim_session *s, union proto_message *m, enum proto_type type,
		      const int *fds, unsigned nfds);

/* session_flags.c, on the session's thread */
void shim_session_flag_add(struct shim_session *s, const struct proto_flag *m, int fd);
void shim_session_flag_remove(struct shim_session *s, uint32_t number);
void shim_session_flags_lost(struct shim_session *s);  /* gbpfd is gone: pages of others too */
void shim_session_flags_offer(struct shim_session *s); /* to a new gbpfd: our own pages */
void shim_session_count_slots(struct shim_session *s); /* a board came or went */
void shim_session_flags_abandon(void);		       /* child of a fork */

bool shim_session_has_flag(uint32_t gpu); /* session_offer_flag was called for it */

/* session_control.c, on the session's thread */
void shim_session_control_offer(struct shim_session *s); /* to a new gbpfd */
void shim_session_control_lost(void);
void shim_session_control_abandon(void);

#endif
