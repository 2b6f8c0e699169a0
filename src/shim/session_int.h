/* What the session's files share. */
#ifndef GBPF_SHIM_SESSION_INT_H
#define GBPF_SHIM_SESSION_INT_H

#include "shim/session.h"

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

#endif
