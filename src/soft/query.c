/* Queries to a soft GPU. Checks replies, since the server may have another version. */
#include "soft/query.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "cuabi/api.h"
#include "soft/socket.h"

#define ANSWER_SECONDS 5

int soft_query_open(struct soft_query *q)
{
	struct timeval wait = { .tv_sec = (time_t)clock_patience(ANSWER_SECONDS) };
	char path[SOFT_SOCKET_PATH_MAX];
	struct peer p;
	int err = soft_socket_path(path, sizeof(path), false);

	q->sock = -1;
	if (err) {
		return err;
	}
	q->sock = unix_connect(path, SOCK_SEQPACKET);
	if (q->sock < 0) {
		return q->sock;
	}
	setsockopt(q->sock, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	if (fd_peer(q->sock, &p) < 0 || (p.uid != geteuid() && p.uid != 0 && geteuid() != 0)) {
		soft_query_close(q);
		return -EPERM;
	}
	return 0;
}

void soft_query_close(struct soft_query *q)
{
	q->sock = fd_close(q->sock);
}

/* Sends one request and requires a reply of at least `bytes`. */
static int ask(struct soft_query *q, const struct soft_request *request, struct soft_reply *r,
	       size_t bytes)
{
	int fds[FD_PASS_MAX], err;
	unsigned n = 0;
	ssize_t len;

	err = msg_send(q->sock, request, SOFT_REQUEST_MIN + 1, NULL, 0);
	if (err) {
		return err;
	}
	len = msg_recv(q->sock, r, sizeof(*r), fds, &n);
	while (n) {
		fd_close(fds[--n]);
	}
	if (len == -EAGAIN) {
		return -ETIMEDOUT;
	}
	if (len < (ssize_t)SOFT_REPLY_MIN) {
		return len < 0 ? (int)len : -EPROTO;
	}
	if (r->result == CUDA_ERROR_INVALID_DEVICE) {
		return -ENODEV;
	}
	return r->result || (size_t)len < SOFT_REPLY_MIN + bytes ? -EPROTO : 0;
}

int soft_query_gpu(struct soft_query *q, uint32_t gpu, uint32_t first, struct soft_gpu_info *ret)
{
	struct soft_request request = { .op = SOFT_REQ_GPUS, .index = gpu, .value = first };
	struct soft_reply r;
	int err = ask(q, &request, &r, offsetof(struct soft_gpu_info, group));

	if (err == 0) {
		*ret = r.gpu;
		ret->n = MIN(ret->n, SOFT_GPU_GROUPS);
	}
	return err;
}

int soft_query_unsupported(struct soft_query *q, int pid, uint32_t *from,
			   struct soft_unsupported_info *ret)
{
	struct soft_request request = { .op = SOFT_REQ_UNSUPPORTED,
					.index = *from,
					.value = (uint64_t)pid };
	struct soft_reply r;
	int err = ask(q, &request, &r, offsetof(struct soft_unsupported_info, entry));

	if (err) {
		return err;
	}
	*ret = r.unsupported;
	ret->n = MIN(ret->n, SOFT_UNSUPPORTED_NAMES);
	for (uint32_t i = 0; i < ret->n; i++) {
		ret->entry[i].name[sizeof(ret->entry[i].name) - 1] = 0;
	}
	/* Ends the iteration if the server does not advance, which would loop forever. */
	*from = r.value32 > *from ? r.value32 : 0;
	return 0;
}
