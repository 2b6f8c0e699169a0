/* Requests of the control socket: contexts, memory, modules, groups. One client's requests come one at a time, on its own
 * thread; whatever takes long (compiling PTX, committing memory) is done without the lock. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/report.h"
#include "base/shm.h"
#include "soft/server/device.h"

#define SLICE_MAX_US 10000000u

static CUresult attach(struct client *c, struct answer *a)
{
	struct device *dev = c->dev;
	int pair[2], shared_fd;

	if (c->shared) {
		return CUDA_ERROR_ILLEGAL_STATE;
	}
	shared_fd = shm_create("gbpf-soft-ring", sizeof(struct soft_shared), SHM_NOEXEC);
	if (shared_fd < 0) {
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	if (posix_fallocate(shared_fd, 0, sizeof(struct soft_shared)) != 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		close(shared_fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
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
	if (c->bell < 0 || !c->shared) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	a->fds[2] = dup(c->bell);
	if (a->fds[2] < 0) {
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	a->n_fds = 3;
	c->shared->magic = SOFT_MAGIC;
	c->shared->version = SOFT_VERSION;
	c->shared->asleep = 1;
	client_attach(c);
	a->reply.hello = (struct soft_hello){ SOFT_MAGIC, SOFT_VERSION, dev->opt.sms, dev->opt.workers,
					      dev->opt.memory_bytes, getpid(), 0 };
	a->len += sizeof(a->reply.hello);
	return CUDA_SUCCESS;
}

static CUresult hello(struct client *c, const struct soft_request *q, struct answer *a)
{
	a->reply.value32 = SOFT_VERSION;
	if (q->object != SOFT_VERSION) {
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	}
	return attach(c, a);
}

/* The request's context; lock held. */
static struct group *group_of(struct client *c, const struct soft_request *q)
{
	return q->context < SOFT_MAX_CONTEXTS ? c->groups[q->context] : NULL;
}

static CUresult context_create(struct client *c, struct answer *a)
{
	for (uint32_t slot = 0; slot < SOFT_MAX_CONTEXTS; slot++) {
		struct group *g;

		if (c->groups[slot]) {
			continue;
		}
		g = group_create(c, slot);
		if (!g) {
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		a->reply.context = (struct soft_context_info){ slot, 0, g->memory.space.base, g->memory.space.bytes };
		a->len += sizeof(a->reply.context);
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult alloc_device(struct client *c, const struct soft_request *q, struct answer *a)
{
	struct group *g = group_of(c, q);

	if (!g) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	a->reply.value = memory_alloc(&g->memory, c->dev, q->value, SOFT_MEMORY_DEVICE, -1);
	return a->reply.value ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult alloc_pinned(struct client *c, const struct soft_request *q, struct answer *a)
{
	uint64_t bytes = ROUND_UP(q->value, SOFT_PAGE);
	struct group *g;
	int fd;

	if (q->value == 0 || q->value > c->dev->pinned_limit) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	fd = shm_create("gbpf-soft-pinned", bytes, SHM_NOEXEC);
	if (fd < 0 || posix_fallocate(fd, 0, (off_t)bytes) != 0) {
		fd_close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_lock(&c->dev->lock);
	g = group_of(c, q);
	a->reply.value = g ? memory_alloc(&g->memory, c->dev, bytes, SOFT_MEMORY_PINNED, fd) : 0;
	pthread_mutex_unlock(&c->dev->lock);
	if (!a->reply.value) {
		close(fd);
		return g ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_CONTEXT;
	}
	a->fds[0] = fd;
	a->n_fds = 1;
	a->close_fds = true;
	return CUDA_SUCCESS;
}

static CUresult memory_release(struct client *c, const struct soft_request *q)
{
	struct group *g = group_of(c, q);

	if (!g) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	return memory_free(&g->memory, c->dev, q->value) < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* A private copy of the text, since the client could change it while it is parsed. */
static char *copy_text(int fd, size_t *ret_bytes)
{
	long bytes = fd < 0 ? -EBADF : shm_checked_size(fd, SOFT_MAX_PTX_BYTES);
	const char *shared;
	char *text;

	if (bytes < 0) {
		return NULL;
	}
	shared = shm_map(fd, (size_t)bytes, 0);
	text = malloc((size_t)bytes);
	if (shared && text) {
		memcpy(text, shared, (size_t)bytes);
		*ret_bytes = (size_t)bytes;
	} else {
		free(text);
		text = NULL;
	}
	shm_unmap((void *)(uintptr_t)shared, (size_t)bytes);
	return text;
}

static uint32_t free_module_slot(struct client *c)
{
	struct module **grown;

	for (uint32_t i = 0; i < c->n_modules; i++) {
		if (!c->modules[i]) {
			return i;
		}
	}
	if (c->n_modules >= SOFT_MAX_MODULES) {
		return UINT32_MAX;
	}
	grown = realloc(c->modules, (c->n_modules + 16) * sizeof(*grown));
	if (!grown) {
		return UINT32_MAX;
	}
	memset(grown + c->n_modules, 0, 16 * sizeof(*grown));
	c->modules = grown;
	c->n_modules += 16;
	return c->n_modules - 16;
}

/* Gives the module's globals their memory and the module its number. */
static CUresult module_place(struct client *c, const struct soft_request *q, struct exec_module *exec, struct answer *a)
{
	size_t bytes = exec_module_global_bytes(exec);
	struct module *m = calloc(1, sizeof(*m));
	struct device *dev = c->dev;
	uint32_t slot = UINT32_MAX;
	void *host = NULL;

	pthread_mutex_lock(&dev->lock);
	if (m) {
		m->group = group_of(c, q);
		m->exec = exec;
		slot = m->group ? free_module_slot(c) : UINT32_MAX;
	}
	if (slot != UINT32_MAX && bytes) {
		m->globals = memory_alloc(&m->group->memory, dev, bytes, SOFT_MEMORY_DEVICE, -1);
		host = m->globals ? memory_at(&m->group->memory, m->globals, bytes, 2) : NULL;
		slot = host ? slot : UINT32_MAX;
	}
	pthread_mutex_unlock(&dev->lock);
	if (slot == UINT32_MAX) {
		free(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (host) { /* only this thread could take the context away */
		exec_module_bind(exec, m->globals, host);
	}
	pthread_mutex_lock(&dev->lock);
	c->modules[slot] = m;
	dev->modules++;
	pthread_mutex_unlock(&dev->lock);
	a->reply.value32 = slot;
	return CUDA_SUCCESS;
}

static CUresult module_load(struct client *c, const struct soft_request *q, int fd, struct answer *a)
{
	struct exec_module *exec = NULL;
	struct report rep;
	struct buf text;
	size_t bytes = 0;
	char *ptx = copy_text(fd, &bytes);
	CUresult result;
	int err;

	if (!ptx) {
		return CUDA_ERROR_INVALID_IMAGE;
	}
	report_init(&rep);
	buf_init(&text);
	err = exec_module_load(&exec, ptx, bytes, q->name[0] ? q->name : "ptx", &rep);
	free(ptx);
	if (err) {
		report_text(&rep, &text);
		strncpy(a->reply.text, buf_text(&text), sizeof(a->reply.text) - 1);
		a->len += strlen(a->reply.text) + 1;
		result = err == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
	} else {
		result = module_place(c, q, exec, a);
		if (result) {
			exec_module_unref(exec);
		}
	}
	buf_finish(&text);
	report_finish(&rep);
	return result;
}

static struct module *module_of(struct client *c, const struct soft_request *q)
{
	return q->object < c->n_modules ? c->modules[q->object] : NULL;
}

static CUresult module_unload(struct client *c, const struct soft_request *q)
{
	struct module *m = module_of(c, q);

	if (!m) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	for (uint32_t i = 0; i < c->n_functions; i++) {
		if (c->functions[i].module == q->object) {
			c->functions[i].exec = NULL;
		}
	}
	if (m->globals) {
		memory_free(&m->group->memory, c->dev, m->globals);
	}
	c->modules[q->object] = NULL;
	c->dev->modules--;
	exec_module_unref(m->exec);
	free(m);
	return CUDA_SUCCESS;
}

static uint32_t function_id(struct client *c, uint32_t module, const struct exec_function *f)
{
	uint32_t free_id = c->n_functions;

	for (uint32_t i = 0; i < c->n_functions; i++) {
		if (c->functions[i].exec == f && c->functions[i].module == module) {
			return i;
		}
		if (!c->functions[i].exec) {
			free_id = i;
		}
	}
	if (free_id == c->n_functions) {
		if (c->n_functions >= SOFT_MAX_FUNCTIONS) {
			return UINT32_MAX;
		}
		if (c->n_functions == c->functions_cap) {
			uint32_t cap = c->functions_cap ? c->functions_cap * 2 : 64;
			struct function *grown = realloc(c->functions, cap * sizeof(*grown));

			if (!grown) {
				return UINT32_MAX;
			}
			c->functions = grown;
			c->functions_cap = cap;
		}
		c->n_functions++;
	}
	c->functions[free_id] = (struct function){ f, module };
	return free_id;
}

static CUresult function_get(struct client *c, const struct soft_request *q, struct answer *a)
{
	struct module *m = module_of(c, q);
	const struct exec_function *f = m ? exec_module_function(m->exec, q->name) : NULL;
	struct soft_function_info *out = &a->reply.function;
	const struct exec_function_info *info;

	if (!f) {
		return m ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
	}
	info = exec_function_info(f);
	if (info->n_params > SOFT_PARAMS_MAX || info->param_bytes > SOFT_MAX_PARAM_BYTES) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	*out = (struct soft_function_info){ .id = function_id(c, q->object, f), .n_params = info->n_params,
					    .param_bytes = info->param_bytes, .shared_bytes = info->shared_bytes,
					    .local_bytes = info->local_bytes, .const_bytes = info->const_bytes,
					    .registers = info->registers, .max_threads = info->max_threads };
	if (out->id == UINT32_MAX) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (uint32_t i = 0; i < info->n_params; i++) {
		out->params[i].offset = info->params[i].offset;
		out->params[i].bytes = info->params[i].bytes;
	}
	a->len += offsetof(struct soft_function_info, params) + info->n_params * sizeof(out->params[0]);
	return CUDA_SUCCESS;
}

static CUresult function_at(struct client *c, const struct soft_request *q, struct answer *a)
{
	struct module *m = module_of(c, q);
	const struct exec_function *f;

	if (!m) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	a->reply.value32 = exec_module_functions(m->exec);
	f = q->index < a->reply.value32 ? exec_module_function_at(m->exec, q->index) : NULL;
	if (f) {
		strncpy(a->reply.text, exec_function_info(f)->name, SOFT_NAME_MAX - 1);
		a->len += strlen(a->reply.text) + 1;
	}
	return CUDA_SUCCESS;
}

static CUresult global_get(struct client *c, const struct soft_request *q, struct answer *a)
{
	struct module *m = module_of(c, q);
	uint64_t address, bytes;

	if (!m) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (exec_module_global(m->exec, q->name, &address, &bytes) < 0) {
		return CUDA_ERROR_NOT_FOUND;
	}
	a->reply.value = address;
	a->reply.bytes = bytes;
	return CUDA_SUCCESS;
}

static CUresult group_control(struct client *c, const struct soft_request *q, struct answer *a)
{
	struct group *g = group_of(c, q);

	if (!g) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	switch (q->object) {
	case SOFT_GROUP_SLICE_SET:
		if (q->value > SLICE_MAX_US) {
			return CUDA_ERROR_INVALID_VALUE;
		}
		g->slice_ns = q->value ? q->value * 1000 : c->dev->opt.slice_ns;
		return CUDA_SUCCESS;
	case SOFT_GROUP_SLICE_GET:
		a->reply.value = g->slice_ns / 1000;
		return CUDA_SUCCESS;
	case SOFT_GROUP_PREEMPT:
		worker_preempt(c->dev, g);
		return CUDA_SUCCESS;
	case SOFT_GROUP_SCHEDULE:
		g->enabled = q->value != 0;
		g->dirty = true;
		device_kick(c->dev);
		return CUDA_SUCCESS;
	case SOFT_GROUP_COUNTERS:
		a->reply.counters = g->counters;
		a->len += sizeof(a->reply.counters);
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* Requests that are short and run under the lock. */
static CUresult quick(struct client *c, const struct soft_request *q, struct answer *a)
{
	switch (q->op) {
	case SOFT_REQ_CONTEXT_CREATE:
		return context_create(c, a);
	case SOFT_REQ_CONTEXT_DESTROY:
		if (!group_of(c, q)) {
			return CUDA_ERROR_INVALID_CONTEXT;
		}
		group_destroy(group_of(c, q));
		return CUDA_SUCCESS;
	case SOFT_REQ_ALLOC:
		return alloc_device(c, q, a);
	case SOFT_REQ_FREE:
		return memory_release(c, q);
	case SOFT_REQ_MEMORY:
		a->reply.value = c->dev->opt.memory_bytes - c->dev->memory_used;
		a->reply.bytes = c->dev->opt.memory_bytes;
		return CUDA_SUCCESS;
	case SOFT_REQ_MODULE_UNLOAD:
		return module_unload(c, q);
	case SOFT_REQ_FUNCTION:
		return function_get(c, q, a);
	case SOFT_REQ_FUNCTION_AT:
		return function_at(c, q, a);
	case SOFT_REQ_GLOBAL:
		return global_get(c, q, a);
	case SOFT_REQ_GROUP:
		return group_control(c, q, a);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

void request_answer(struct client *c, const struct soft_request *q, int fd, struct answer *a)
{
	CUresult result;

	memset(a, 0, sizeof(*a));
	a->len = SOFT_REPLY_MIN;
	if (q->op == SOFT_REQ_STATS) {
		device_stats(c->dev, &a->reply.stats);
		a->len += sizeof(a->reply.stats);
		result = CUDA_SUCCESS;
	} else if (q->op == SOFT_REQ_HELLO) {
		result = hello(c, q, a);
	} else if (!c->shared) {
		result = CUDA_ERROR_NOT_INITIALIZED;
	} else if (q->op == SOFT_REQ_MODULE_LOAD) {
		result = module_load(c, q, fd, a);
	} else if (q->op == SOFT_REQ_ALLOC && q->object == SOFT_MEMORY_PINNED) {
		result = alloc_pinned(c, q, a);
	} else {
		pthread_mutex_lock(&c->dev->lock);
		result = quick(c, q, a);
		pthread_mutex_unlock(&c->dev->lock);
	}
	a->reply.result = (int32_t)result;
}
