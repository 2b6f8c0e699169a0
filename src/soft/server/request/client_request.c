/* Dispatch of requests on the control socket. The requests of one client are answered one at a time
 * on its own thread; slow ones (compiling PTX, committing memory) run without the lock. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/shm.h"
#include "soft/server/connection.h"
#include "soft/server/machine.h"
#include "soft/server/request/client_request.h"
#include "soft/server/request/ipc_event.h"
#include "soft/server/run/context_group.h"

/* Answers a request for which the server lacks something that no CUDA error tells: the reply and
 * the log say what, and what to do. */
static CUresult refuse(const struct softd_client *c, struct softd_answer *a, int err)
{
	char *text = a->reply.text;
	size_t room = sizeof(a->reply.text);

	if (err == -ENOSPC) {
		snprintf(text, room,
			 "the soft GPU serves %u programs already, its limit; end some, or start "
			 "another "
			 "server with GBPF_SOFTGPU_SOCKET",
			 SOFT_MAX_CLIENTS);
	} else {
		snprintf(text, room,
			 "the soft GPU cannot serve another program or context: %s; end some "
			 "programs, "
			 "or raise the limits of gbpf-softgpu (ulimit -n, -u, -v; a smaller --mem "
			 "takes "
			 "fewer addresses)",
			 strerror(-err));
	}
	log_warn("process %d refused: %s", c->pid, text);
	a->len += strlen(text) + 1;
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult attach(struct softd_client *c, struct softd_answer *a)
{
	struct softd_machine *machine = c->machine;
	int pair[2], shared_fd, err;

	if (c->shared || c->event >= 0) { /* also refused after a HELLO that failed half-way */
		return CUDA_ERROR_ILLEGAL_STATE;
	}
	shared_fd = shm_create("gbpf-soft-ring", sizeof(struct soft_shared), SHM_NOEXEC);
	if (shared_fd < 0) {
		return refuse(c, a, shared_fd);
	}
	/* The words that every turn touches; the large buffers take memory when they are used,
	 * since a thousand programs that do little must not take gigabytes. */
	err = posix_fallocate(shared_fd, 0, offsetof(struct soft_shared, print));
	if (err || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		err = err ? err : errno;
		close(shared_fd);
		return refuse(c, a, -err);
	}
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	c->event = pair[0];
	c->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->shared = shm_map(shared_fd, sizeof(struct soft_shared), 1);
	a->fds[0] = shared_fd;
	a->fds[1] = pair[1];
	a->fds[2] = -1;
	a->n_fds = 2;
	a->close_fds = true;
	a->fds[2] = c->bell < 0 || !c->shared ? -1 : fcntl(c->bell, F_DUPFD_CLOEXEC, 0);
	if (a->fds[2] < 0) {
		return refuse(c, a, -errno);
	}
	a->n_fds = 3;
	c->shared->magic = SOFT_MAGIC;
	c->shared->version = SOFT_VERSION;
	c->shared->asleep = 1;
	err = softd_client_attach(c);
	if (err) {
		return refuse(c, a, err);
	}
	a->reply.hello = (struct soft_hello){ .magic = SOFT_MAGIC,
					      .version = SOFT_VERSION,
					      .sms = c->sms,
					      .workers = machine->opt.workers,
					      .memory_bytes = machine->opt.memory_bytes,
					      .pid = machine->pid,
					      .gpus = machine->opt.gpus,
					      .clock_khz = machine->opt.clock_khz,
					      .copy_engines = machine->opt.copy_engines,
					      .window_bytes = machine->window_bytes };
	a->len += sizeof(a->reply.hello);
	return CUDA_SUCCESS;
}

/* Sets the client's lane: value is its key, more[0] the percentage of SMs, more[1] bit 0
 * below-normal priority. */
static CUresult choose_lane(struct softd_client *c, const struct soft_request *q)
{
	uint32_t sms = c->machine->opt.sms;

	if (q->more[0] > 100 || q->more[1] > 1) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	c->lane = q->value;
	c->sms = sms;
	if (c->lane) {
		c->below_normal = q->more[1];
		c->sms = q->more[0] ? MAX((sms * (uint32_t)q->more[0] + 99) / 100, 1u) : sms;
	}
	return CUDA_SUCCESS;
}

static CUresult hello(struct softd_client *c, const struct soft_request *q, struct softd_answer *a)
{
	CUresult r;

	a->reply.value32 = SOFT_VERSION;
	if (q->object != SOFT_VERSION) {
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	}
	r = c->attached ? CUDA_SUCCESS : choose_lane(c, q);
	return r ? r : attach(c, a);
}

struct softd_group *softd_request_group(struct softd_client *c, const struct soft_request *q)
{
	return q->context < SOFT_MAX_CONTEXTS ? c->groups[q->context] : NULL;
}

static CUresult context_create(struct softd_client *c, const struct soft_request *q,
			       struct softd_answer *a) REQUIRES(softd_lock)
{
	if (q->index >= c->machine->opt.gpus) {
		return CUDA_ERROR_INVALID_DEVICE;
	}
	for (uint32_t slot = 0; slot < SOFT_MAX_CONTEXTS; slot++) {
		struct softd_group *g;

		if (c->groups[slot]) {
			continue;
		}
		g = softd_group_create(c, &c->machine->gpus[q->index], slot);
		if (!g) {
			return refuse(c, a, -ENOMEM);
		}
		a->reply.context = (struct soft_context_info){ slot };
		a->len += sizeof(a->reply.context);
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Answers the requests that are short. */
static CUresult quick(struct softd_client *c, const struct soft_request *q, const char *name,
		      struct softd_answer *a) REQUIRES(softd_lock)
{
	switch (q->op) {
	case SOFT_REQ_CONTEXT_CREATE:
		return context_create(c, q, a);
	case SOFT_REQ_CONTEXT_DESTROY:
		if (!softd_request_group(c, q)) {
			return CUDA_ERROR_INVALID_CONTEXT;
		}
		softd_group_destroy(softd_request_group(c, q));
		return CUDA_SUCCESS;
	case SOFT_REQ_MODULE_UNLOAD:
		return softd_request_module_unload(c, q);
	case SOFT_REQ_FUNCTION:
		return softd_request_function_get(c, q, name, a);
	case SOFT_REQ_FUNCTION_AT:
		return softd_request_function_at(c, q, a);
	case SOFT_REQ_GLOBAL:
		return softd_request_global_get(c, q, name, a);
	case SOFT_REQ_GROUP:
		return softd_request_group_control(c, q, a);
	case SOFT_REQ_EVENT:
		return softd_ipc_event_request(c, q, a);
	case SOFT_REQ_CONTROL_OPEN:
		return softd_request_control_open(c, q, a);
	case SOFT_REQ_PART:
		return softd_request_sm_set(c, q, a);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

void softd_request_answer(struct softd_client *c, const struct soft_request *q, int fd,
			  struct softd_answer *a)
{
	CUresult result;

	memset(a, 0, sizeof(*a));
	a->len = SOFT_REPLY_MIN;
	if (q->op == SOFT_REQ_STATS) {
		softd_machine_stats(c->machine, &a->reply.stats);
		a->len += sizeof(a->reply.stats);
		result = CUDA_SUCCESS;
	} else if (q->op == SOFT_REQ_GPUS) {
		result = softd_request_gpus(c->machine, q, a);
	} else if (q->op == SOFT_REQ_UNSUPPORTED) {
		result = softd_request_unsupported(c->machine, q, a);
	} else if (q->op == SOFT_REQ_CONTROL) {
		result = softd_request_control(c, q, fd, a);
	} else if (q->op == SOFT_REQ_HELLO) {
		result = hello(c, q, a);
	} else if (!c->attached) { /* its ring is not served */
		result = CUDA_ERROR_NOT_INITIALIZED;
	} else if (q->op == SOFT_REQ_MODULE_LOAD) {
		result = softd_request_module_load(c, q, fd, a);
	} else if (softd_request_is_memory(q->op)) {
		result = softd_request_memory(c, q, fd, a);
	} else if (q->op == SOFT_REQ_GROUP && q->object == SOFT_GROUP_HEAP) {
		result = softd_request_group_heap(c, q);
	} else if (q->op == SOFT_REQ_FLAG_NEW) {
		result = softd_request_flag_new(c, q, a);
	} else if (q->op == SOFT_REQ_FLAG_MAP) {
		result = softd_request_flag_map(c, q, fd, a);
	} else {
		char *held;
		const char *name = softd_request_name(q, fd, &held);

		softd_machine_lock(c->machine);
		result = quick(c, q, name, a);
		softd_machine_unlock(c->machine);
		free(held);
	}
	a->reply.result = (int32_t)result;
}
