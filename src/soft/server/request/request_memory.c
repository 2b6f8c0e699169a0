/* Requests about memory: allocations, handles, mappings, what processes give each other. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/shm.h"
#include "soft/server/request/client_request.h"
#include "soft/server/memory/shadow.h"

bool request_is_memory(uint32_t op)
{
	return op == SOFT_REQ_ALLOC || op == SOFT_REQ_FREE || op == SOFT_REQ_MEMORY ||
	       (op >= SOFT_REQ_IPC_EXPORT && op <= SOFT_REQ_POOL_IMPORT);
}

static bool may_map(const struct client *c)
{
	uint32_t own = 0;

	for (unsigned i = 0; i < SOFT_MAX_CONTEXTS; i++) {
		own += c->groups[i] ? c->groups[i]->memory.pinned : 0;
	}
	return own < SOFT_MAX_PINNED && c->dev->pinned < SOFT_MAX_PINNED_ALL;
}

/* Counts the bytes before they are committed, so that many clients at once stay within the limit.
 */
static bool reserve_pinned(struct client *c, uint64_t bytes)
{
	struct device *dev = c->dev;
	bool ok;

	pthread_mutex_lock(&dev->lock);
	ok = may_map(c) && bytes <= dev->pinned_limit - dev->pinned_used;
	dev->pinned_used += ok ? bytes : 0;
	pthread_mutex_unlock(&dev->lock);
	return ok;
}

static int commit(uint64_t bytes)
{
	int fd = shm_create("gbpf-soft-pinned", bytes, SHM_NOEXEC);

	if (fd >= 0 && posix_fallocate(fd, 0, (off_t)bytes) != 0) {
		fd = fd_close(fd);
	}
	return fd;
}

static void carry(struct answer *a, int fd)
{
	a->fds[0] = fd;
	a->n_fds = 1;
	a->close_fds = true;
}

static CUresult alloc_pinned(struct client *c, const struct soft_request *q, struct answer *a)
{
	uint64_t bytes;
	struct group *g;
	int fd;

	if (q->value == 0 || q->value > c->dev->pinned_limit) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	bytes = ROUND_UP(q->value, SOFT_PAGE);
	if (!reserve_pinned(c, bytes)) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	fd = commit(bytes);
	pthread_mutex_lock(&c->dev->lock);
	c->dev->pinned_used -= bytes;
	g = request_group(c, q);
	if (g && fd >= 0) {
		a->reply.value = memory_alloc(&g->memory, c->dev, bytes, SOFT_MEMORY_PINNED, fd);
	}
	pthread_mutex_unlock(&c->dev->lock);
	if (!a->reply.value) {
		fd_close(fd);
		return g ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_CONTEXT;
	}
	carry(a, fd);
	return CUDA_SUCCESS;
}

static CUresult alloc_device(struct client *c, struct group *g, const struct soft_request *q,
			     struct answer *a)
{
	a->reply.value = memory_alloc(&g->memory, c->dev, q->value, SOFT_MEMORY_DEVICE, -1);
	if (!a->reply.value) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	shadow_new(&g->memory.space, a->reply.value - g->memory.space.base, q->value);
	return CUDA_SUCCESS;
}

/* IPC. */

static CUresult ipc_export(struct client *c, struct group *g, const struct soft_request *q,
			   struct answer *a)
{
	struct extent *x = memory_share(&g->memory, q->value);

	if (!x) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	a->reply.ipc = (struct soft_ipc_handle){
		share_server(), (uint32_t)c->pid, g->slot, q->value, { x->secret[0], x->secret[1] }
	};
	a->len += sizeof(a->reply.ipc);
	return CUDA_SUCCESS;
}

/* The allocation that the handle means, in whoever has it; NULL: no more, or never. */
static struct alloc *find_exported(struct client *c, const struct soft_ipc_handle *h,
				   struct client **ret_owner)
{
	if (h->server != share_server() || h->context >= SOFT_MAX_CONTEXTS) {
		return NULL;
	}
	list_each (&c->dev->clients, o, struct client, in_device) {
		struct group *g = o->groups[h->context];
		struct alloc *a = g && !g->dead && (uint32_t)o->pid == h->pid
					  ? memory_alloc_at(&g->memory, h->address)
					  : NULL;

		if (a && a->kind == ALLOC_DEVICE && a->extent &&
		    a->extent->secret[0] == h->secret[0] && a->extent->secret[1] == h->secret[1]) {
			*ret_owner = o;
			return a;
		}
	}
	return NULL;
}

static CUresult ipc_open(struct client *c, struct group *g, const struct soft_request *q,
			 struct answer *a)
{
	struct soft_ipc_handle h;
	struct client *owner;
	struct alloc *x;

	_Static_assert(sizeof(h) <= sizeof(q->more), "a handle fits the request");
	memcpy(&h, q->more, sizeof(h));
	x = find_exported(c, &h, &owner);
	if (!x) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (owner == c && !q->object) { /* not in the process that it comes from */
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (!may_map(c)) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	a->reply.bytes = x->bytes;
	a->reply.value = memory_open(&g->memory, c->dev, x->extent, x->bytes);
	return a->reply.value ? CUDA_SUCCESS : CUDA_ERROR_MAP_FAILED;
}

/* Handles of physical memory: numbers from 1 on. */

static CUresult give_handle(struct client *c, struct extent *x, struct answer *a)
{
	struct extent **grown;
	uint32_t i = 0, n;

	while (i < c->n_handles && c->handles[i]) {
		i++;
	}
	if (i == c->n_handles) {
		n = MIN(c->n_handles ? c->n_handles * 2 : 16, SOFT_MAX_HANDLES);
		grown = n > i ? realloc(c->handles, n * sizeof(struct extent *)) : NULL;
		if (!grown) {
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		memset(grown + i, 0, (n - i) * sizeof(struct extent *));
		c->handles = grown;
		c->n_handles = n;
	}
	c->handles[i] = x;
	a->reply.value = i + 1;
	a->reply.bytes = x->bytes;
	a->reply.value32 = x->gpu->index;
	return CUDA_SUCCESS;
}

static struct extent **handle_at(struct client *c, uint64_t handle)
{
	return handle >= 1 && handle <= c->n_handles && c->handles[handle - 1]
		       ? &c->handles[handle - 1]
		       : NULL;
}

static CUresult handle_create(struct client *c, const struct soft_request *q, struct answer *a)
{
	struct extent *x;
	CUresult e;

	if (q->index >= c->dev->opt.gpus || !q->value || q->value % SOFT_GRANULARITY) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	x = extent_create(&c->dev->gpus[q->index], q->value);
	if (!x) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	e = give_handle(c, x, a);
	if (e) {
		extent_unref(x);
	}
	return e;
}

static CUresult handle_release(struct client *c, const struct soft_request *q)
{
	struct extent **x = handle_at(c, q->value);

	if (!x) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	extent_unref(*x);
	*x = NULL;
	return CUDA_SUCCESS;
}

static CUresult give_token(struct client *c, struct extent *x, uint64_t pool, struct gpu *gpu,
			   struct answer *a)
{
	int fd = token_create(c, x, pool, gpu);

	if (fd < 0) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	carry(a, fd);
	return CUDA_SUCCESS;
}

static CUresult handle_export(struct client *c, const struct soft_request *q, struct answer *a)
{
	struct extent **x = handle_at(c, q->value);

	return x ? give_token(c, *x, 0, (*x)->gpu, a) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult handle_import(struct client *c, const struct stat *st, struct answer *a)
{
	struct extent *x;
	struct gpu *gpu;
	uint64_t pool;
	CUresult e;

	if (token_find(st, &x, &pool, &gpu) < 0 || !x) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = give_handle(c, x, a);
	if (!e) {
		x->refs++;
	}
	return e;
}

static CUresult pool_export(struct client *c, const struct soft_request *q, struct answer *a)
{
	static uint64_t last; /* under the lock */

	if (q->index >= c->dev->opt.gpus || q->value > last) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	a->reply.value = q->value ? q->value : ++last;
	return give_token(c, NULL, a->reply.value, &c->dev->gpus[q->index], a);
}

static CUresult pool_import(const struct stat *st, struct answer *a)
{
	struct extent *x;
	struct gpu *gpu;

	if (token_find(st, &x, &a->reply.value, &gpu) < 0 || x) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	a->reply.value32 = gpu->index;
	return CUDA_SUCCESS;
}

/* Addresses. */

static CUresult reserve(struct group *g, const struct soft_request *q, struct answer *a)
{
	uint64_t align = q->more[0];

	if (!q->value || q->value % SOFT_GRANULARITY || (align & (align - 1)) ||
	    align > SOFT_WINDOW_STRIDE / 4) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	a->reply.value = memory_reserve(&g->memory, q->value, align, q->more[1]);
	return a->reply.value ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult map(struct client *c, struct group *g, const struct soft_request *q)
{
	struct extent **x = handle_at(c, q->more[2]);
	int err;

	if (!x) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	err = may_map(c) ? memory_map(&g->memory, c->dev, q->value, q->more[0], *x, q->more[1])
			 : -ENOMEM;
	return err == 0		? CUDA_SUCCESS
	       : err == -EINVAL ? CUDA_ERROR_INVALID_VALUE
				: CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult valid(int err)
{
	return err ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Others do not wait while pages go back. */
static CUresult release(struct client *c, struct group *g, uint64_t address)
{
	struct leaving l;

	if (!memory_leave(&g->memory, address, &l)) {
		return valid(memory_free(&g->memory, c->dev, address));
	}
	pthread_mutex_unlock(&c->dev->lock);
	memory_leave_pages(&g->memory, &l);
	pthread_mutex_lock(&c->dev->lock);
	memory_left(&g->memory, c->dev, &l);
	return CUDA_SUCCESS;
}

/* Requests that name a context. */
static CUresult in_context(struct client *c, struct group *g, const struct soft_request *q,
			   struct answer *a)
{
	struct memory *m = &g->memory;

	switch (q->op) {
	case SOFT_REQ_ALLOC:
		return alloc_device(c, g, q, a);
	case SOFT_REQ_FREE:
		return release(c, g, q->value);
	case SOFT_REQ_IPC_EXPORT:
		return ipc_export(c, g, q, a);
	case SOFT_REQ_IPC_OPEN:
		return ipc_open(c, g, q, a);
	case SOFT_REQ_IPC_CLOSE:
		return valid(memory_close(m, c->dev, q->value));
	case SOFT_REQ_RESERVE:
		return reserve(g, q, a);
	case SOFT_REQ_UNRESERVE:
		return valid(memory_unreserve(m, q->value, q->more[0]));
	case SOFT_REQ_MAP:
		return map(c, g, q);
	case SOFT_REQ_UNMAP:
		return valid(memory_unmap(m, c->dev, q->value, q->more[0]));
	case SOFT_REQ_ACCESS:
		return q->object > 3
			       ? CUDA_ERROR_INVALID_VALUE
			       : valid(memory_access(m, q->value, q->more[0], (uint8_t)q->object));
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

static CUresult memory_info(struct client *c, const struct soft_request *q, struct answer *a)
{
	if (q->index >= c->dev->opt.gpus) {
		return CUDA_ERROR_INVALID_DEVICE;
	}
	a->reply.value = c->dev->opt.memory_bytes - c->dev->gpus[q->index].memory_used;
	a->reply.bytes = c->dev->opt.memory_bytes;
	return CUDA_SUCCESS;
}

static CUresult locked(struct client *c, const struct soft_request *q, const struct stat *st,
		       struct answer *a)
{
	struct group *g;

	switch (q->op) {
	case SOFT_REQ_MEMORY:
		return memory_info(c, q, a);
	case SOFT_REQ_HANDLE_CREATE:
		return handle_create(c, q, a);
	case SOFT_REQ_HANDLE_RELEASE:
		return handle_release(c, q);
	case SOFT_REQ_HANDLE_EXPORT:
		return handle_export(c, q, a);
	case SOFT_REQ_HANDLE_IMPORT:
		return handle_import(c, st, a);
	case SOFT_REQ_POOL_EXPORT:
		return pool_export(c, q, a);
	case SOFT_REQ_POOL_IMPORT:
		return pool_import(st, a);
	default:
		g = request_group(c, q);
		return g ? in_context(c, g, q, a) : CUDA_ERROR_INVALID_CONTEXT;
	}
}

CUresult request_memory(struct client *c, const struct soft_request *q, int fd, struct answer *a)
{
	struct stat st = { 0 };
	CUresult e;

	if (q->op == SOFT_REQ_ALLOC && q->object == SOFT_MEMORY_PINNED) {
		return alloc_pinned(c, q, a);
	}
	if (fd >= 0 && fstat(fd, &st) < 0) { /* may take long: it may be a stranger's file system */
		return CUDA_ERROR_INVALID_HANDLE;
	}
	pthread_mutex_lock(&c->dev->lock);
	e = locked(c, q, &st, a);
	pthread_mutex_unlock(&c->dev->lock);
	return e;
}
