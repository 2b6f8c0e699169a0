/* Functions that the session's files share. */
#ifndef GBPF_SHIM_SESSION_SESSION_INT_H
#define GBPF_SHIM_SESSION_SESSION_INT_H

#include "shim/object/driver_device.h"
#include "shim/session/session.h"

/* Reads the process's vGPU, or none, from the environment. Returns 0, or -EINVAL: the program must
 * not run without the limit that it was given. */
int shim_session_find_vgpu(struct proto_vgpu *ret);
/* Connects to gbpfd, if it is to be trusted, waiting at most timeout_ns (0: as long as it takes).
 * Returns the socket or -errno. */
int shim_session_open_socket(uint64_t timeout_ns);
/* Waits until the socket is readable, doing the scheduler's own work meanwhile. Returns 0,
 * -ETIMEDOUT or -errno. */
int shim_session_wait(struct shim_session *s, int sock, uint64_t deadline_ns);
void shim_session_close_fds(int *fds, unsigned n);
/* Waits for a message on a connection of its own. Returns 0, -ETIMEDOUT or another -errno. */
int shim_session_await_answer(int sock, uint64_t deadline, union proto_message *m, int fds[8],
			      unsigned *nfds);
/* Returns NULL if the descriptor is not a sealed page of that size. */
void *shim_session_map_page(int fd, size_t bytes, int writable);
/* Drops the versions that only an earlier gbpfd knew, once the current one's policy is prepared. */
void shim_session_sweep(struct shim_session *s);
/* Replaces the session's socket and closes the previous one. */
void shim_session_set_sock(struct shim_session *s, int sock);
/* Sends a message, from any thread. Returns -ENOTCONN without a connection. */
int shim_session_send(struct shim_session *s, union proto_message *m, enum proto_type type,
		      const int *fds, unsigned nfds);

/* ---- session_flags.c, on the session's thread ---- */
void shim_session_flag_add(struct shim_session *s, const struct proto_flag *m, int fd);
void shim_session_flag_remove(struct shim_session *s, uint32_t number);
void shim_session_flags_lost(
	struct shim_session *s); /* the connection is lost: drop other tenants' pages */
void shim_session_flags_offer(
	struct shim_session *s); /* offer this process's pages to a new gbpfd */
void shim_session_count_slots(struct shim_session *s); /* after a board was added or removed */
void shim_session_flags_abandon(void);		       /* in a child after fork */

bool shim_session_has_flag(uint32_t gpu); /* a page is offered for it */

/* ---- session_control.c, on the session's thread ---- */
extern const struct shim_device_control shim_session_control;
void shim_session_control_offer(struct shim_session *s); /* send the handles to a new gbpfd */
void shim_session_control_lost(void);
void shim_session_control_abandon(void);

#endif
