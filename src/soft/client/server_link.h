/* The link to the server: requests and their replies, and the log for debugging. */
#ifndef GBPF_SOFT_CLIENT_SERVER_LINK_H
#define GBPF_SOFT_CLIENT_SERVER_LINK_H

#include "soft/client/process.h"

CUresult soft_link_open(void);
/* soft_link_call that also works before cuInit, if a server runs; never starts one. */
CUresult soft_link_query(struct soft_request *q, int fd, struct soft_reply *r, size_t r_bytes);
CUresult soft_link_call(struct soft_request *q, int fd, struct soft_reply *r, size_t r_bytes,
			int *ret_fd);
/* Writes why the server refused a request to standard error if the reply says so: programs show the
 * CUDA error alone, which says nothing about the server's limits. */
void soft_link_explain(const struct soft_reply *r);
int soft_link_agent_start(void);
/* Appends a line to the file that GBPF_SOFT_LOG names, for debugging; does nothing if it is unset.
 */
void soft_log(const char *text);
/* Waits up to 100 ms until the agent has written the description of a fault: a program that sees a
 * fault may exit at once. */
void soft_log_wait(void);

#endif
