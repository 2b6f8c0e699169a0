/* What the session's files share. */
#ifndef GBPF_SHIM_SESSION_SESSION_INT_H
#define GBPF_SHIM_SESSION_SESSION_INT_H

#include "shim/session/session.h"

/* Until the socket can be read: 0, -ETIMEDOUT, -errno. The scheduler's own work goes on meanwhile.
 */
int session_wait(struct session *s, int sock, uint64_t deadline_ns);
void session_close_fds(int *fds, unsigned n);
/* NULL: the descriptor is no sealed page of that size. */
void *session_map_page(int fd, size_t bytes, int writable);
/* Takes away what only a gbpfd before this one knew, once that can be. */
void session_sweep(struct session *s);
/* Closes the one before. */
void session_set_sock(struct session *s, int sock);
/* Sends from any thread; nothing without a session. */
int session_send(struct session *s, union wire_message *m, enum wire_type type, const int *fds,
		 unsigned nfds);

/* session_flags.c, on the session's thread */
void session_flag_add(struct session *s, const struct wire_flag *m, int fd);
void session_flag_remove(struct session *s, uint32_t number);
void session_flags_lose(struct session *s);  /* gbpfd is gone: pages of others too */
void session_flags_offer(struct session *s); /* to a new gbpfd: our own pages */
void session_count_slots(struct session *s); /* a board came or went */
void session_flags_abandon(void);	     /* child of a fork */

bool session_has_flag(uint32_t gpu); /* session_offer_flag was called for it */

/* session_control.c, on the session's thread */
void session_control_offer(struct session *s); /* to a new gbpfd */
void session_control_lose(void);
void session_control_abandon(void);

#endif
