/* Asking gbpfd for memory that another process has shared. */
#ifndef GBPF_SHIM_SESSION_SESSION_IPC_H
#define GBPF_SHIM_SESSION_SESSION_IPC_H

#include "proto/wire.h"

/* Asks for chunks: m is PROTO_IPC_OPEN, and then the answer, with m->n descriptors, which are the
 * caller's. *sock: negative at first; the connection for the next question, the caller's. Waits
 * until the deadline (clock_now_ns()), also while gbpfd is absent. Returns 0; -ENOENT: there is no
 * such memory for this user; -ETIMEDOUT: there is no answer; or another -errno. Any thread may call
 * it. */
int shim_session_open_ipc(int *sock, uint64_t deadline, struct proto_ipc *m,
			  int fds[PROTO_IPC_CHUNKS]);

#endif
