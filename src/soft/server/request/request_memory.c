/* Requests about memory: allocations, physical handles, address ranges, export and import between
 * processes. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/shm.h"
#include "soft/server/connection.h"
#include "soft/server/machine.h"
#include "soft/server/memory/shadow.h"
#include "soft/server/request/client_request.h"
#include "soft/server/run/context_group.h"
#include "soft/server/memory/device_memory.h"

bool softd_request_is_memory(uint32_t op)
{
	return op == SOFT_REQ_ALLOC || op == SOFT_REQ_FREE || op == SOFT_REQ_MEMORY ||
	       (op >= SOFT_REQ_IPC_EXPORT && op <= SOFT_REQ_POOL_IMPORT) || op == SOFT_REQ_WINDOW;
}

static bool may_map(const struct softd_client *c)
{
	uint32_t own = 0;

	for (unsigned i = 0; i < SOFT_MAX_GPUS; i++) {
		own += c->windows[i] ? c->windows[i]->pinned : 0;
	}
	return own < SOFT_MAX_PINNED && c->machine->pinned < SOFT_MAX_PINNED_ALL;
}

/* Charges the bytes before they are committed, so that concurrent requests stay within the limit.
 */
static bool reserve_pinned(struct softd_client *c, uint64_t bytes)
{
	struct softd_machine *machine = c->machine;
	bool ok;

	softd_machine_lock(machine);
	ok = may_map(c) && bytes <= machine->pinned_limit - machine->pinned_used;
	machine->pinned_used += ok ? bytes : 0;
	softd_machine_unlock(machine);
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

static void carry(struct softd_answer *a, int fd)
{
	a->fds[0] = fd;
	a->n_fds = 1;
	a->close_fds = true;
}

/* Has the answer carry a duplicate of a descriptor. Returns false if there is none left. */
static bool carry_duplicate(struct softd_answer *a, int fd)
{
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (own < 0) {
		return false;
	}
	carry(a, own);
	return true;
}

static CUresult alloc_pinned(struct softd_client *c, const struct soft_request *q,
			     struct softd_answer *a)
{
	uint64_t bytes;
	struct softd_group *g;
	int fd;

	if (q->value == 0 || q->value > c->machine->pinned_limit) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	bytes = ROUND_UP(q->value, SOFT_PAGE);
	if (!reserve_pinned(c, bytes)) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	fd = commit(bytes);
	softd_machine_lock(c->machine);
	c->machine->pinned_used -= bytes;
	g = softd_request_group(c, q);
	if (g && fd >= 0) {
		a->reply.value = softd_memory_alloc(g->memory, c->machine, g->slot, bytes,
						    SOFT_MEMORY_PINNED, fd);
	}
	softd_machine_unlock(c->machine);
	if (!a->reply.value) {
		fd_close(fd);
		return g ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_CONTEXT;
	}
	carry(a, fd);
	return CUDA_SUCCESS;
}

static CUresult alloc_device(struct softd_client *c, struct softd_group *g,
			     const struct soft_request *q, struct softd_answer *a)
	REQUIRES(softd_lock)
{
	a->reply.value = softd_memory_alloc(g->memory, c->machine, g->slot, q->value,
					    SOFT_MEMORY_DEVICE, -1);
	if (!a->reply.value) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	softd_shadow_set_allocated(&g->memory->space, a->reply.value - g->memory->space.base,
				   q->value);
	return CUDA_SUCCESS;
}

/* IPC handles of allocations. */

static CUresult ipc_export(struct softd_client *c, struct softd_group *g,
			   const struct soft_request *q, struct softd_answer *a)
	REQUIRES(softd_lock)
{
	struct softd_extent *x = softd_memory_export(g->memory, q->value);

	if (!x) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	a->reply.ipc = (struct soft_ipc_handle){ softd_share_server_id(),
						 (uint32_t)c->pid,
						 g->slot,
						 q->value,
						 { x->secret[0], x->secret[1] } };
	a->len += sizeof(a->reply.ipc);
	return CUDA_SUCCESS;
}

/* Returns the live allocation that the handle was exported for, and its owner; NULL if it was freed
 * or the handle is forged. */
static struct softd_alloc *find_exported(struct softd_client *c, const struct soft_ipc_handle *h,
					 struct softd_client **ret_owner) REQUIRES(softd_lock)
{
	if (h->server != softd_share_server_id() || h->context >= SOFT_MAX_CONTEXTS) {
		return NULL;
	}
	softd_list_each (&c->machine->clients, o, struct softd_client, in_machine) {
		struct softd_group *g = o->groups[h->context];
		struct softd_alloc *a = g && !g->dead && (uint32_t)o->pid == h->pid
						? softd_memory_alloc_at(g->memory, h->address)
						: NULL;

		if (a && a->kind == SOFTD_ALLOC_DEVICE && a->owner == h->context && a->extent &&
		    a->extent->secret[0] == h->secret[0] && a->extent->secret[1] == h->secret[1]) {
			*ret_owner = o;
			return a;
		}
	}
	return NULL;
}

static CUresult ipc_open(struct softd_client *c, struct softd_group *g,
			 const struct soft_request *q, struct softd_answer *a) REQUIRES(softd_lock)
{
	struct soft_ipc_handle h;
	struct softd_client *owner;
	struct softd_alloc *x;

	_Static_assert(sizeof(h) <= sizeof(q->more), "a handle fits the request");
	memcpy(&h, q->more, sizeof(h));
	x = find_exported(c, &h, &owner);
	if (!x) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (owner == c && !q->object) { /* a process must not open its own handle */
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (!may_map(c)) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	a->reply.bytes = x->bytes;
	a->reply.value =
		softd_memory_open_extent(g->memory, c->machine, g->slot, x->extent, x->bytes);
	return a->reply.value ? CUDA_SUCCESS : CUDA_ERROR_MAP_FAILED;
}

/* Handles of physical memory (cuMemCreate), numbered from 1. */

static CUresult give_handle(struct softd_client *c, struct softd_extent *x, struct softd_answer *a)
{
	struct softd_extent **grown;
	uint32_t i = 0, n;

	while (i < c->n_handles && c->handles[i]) {
		i++;
	}
	if (i == c->n_handles) {
		n = MIN(c->n_handles ? c->n_handles * 2 : 16, SOFT_MAX_HANDLES);
		grown = n > i ? realloc(c->handles, n * sizeof(struct softd_extent *)) : NULL;
		if (!grown) {
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		memset(grown + i, 0, (n - i) * sizeof(struct softd_extent *));
		c->handles = grown;
		c->n_handles = n;
	}
	c->handles[i] = x;
	a->reply.value = i + 1;
	a->reply.bytes = x->bytes;
	a->reply.value32 = x->host ? SOFT_ON_HOST : x->gpu->index;
	return CUDA_SUCCESS;
}

static struct softd_extent **handle_at(struct softd_client *c, uint64_t handle)
{
	return handle >= 1 && handle <= c->n_handles && c->handles[handle - 1]
		       ? &c->handles[handle - 1]
		       : NULL;
}

static CUresult handle_create(struct softd_client *c, const struct soft_request *q,
			      struct softd_answer *a) REQUIRES(softd_lock)
{
	struct softd_extent *x;
	CUresult e;

	if (q->index >= c->machine->opt.gpus || !q->value || q->value % SOFT_GRANULARITY ||
	    q->object > 1) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	x = softd_extent_create(&c->machine->gpus[q->index], q->value, q->object);
	if (!x) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	x->maker = x->host ? 0 : c->number;
	e = give_handle(c, x, a);
	if (e) {
		softd_extent_unref(x);
	}
	return e;
}

static CUresult handle_release(struct softd_client *c, const struct soft_request *q)
	REQUIRES(softd_lock)
{
	struct softd_extent **x = handle_at(c, q->value);

	if (!x) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	softd_extent_unref(*x);
	*x = NULL;
	return CUDA_SUCCESS;
}

static CUresult give_token(struct softd_client *c, struct softd_extent *x, uint64_t pool,
			   struct softd_gpu *gpu, struct softd_answer *a) REQUIRES(softd_lock)
{
	int fd = softd_token_create(c, x, pool, gpu);

	if (fd < 0) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	carry(a, fd);
	return CUDA_SUCCESS;
}

static CUresult handle_export(struct softd_client *c, const struct soft_request *q,
			      struct softd_answer *a) REQUIRES(softd_lock)
{
	struct softd_extent **x = handle_at(c, q->value);

	return x ? give_token(c, *x, 0, (*x)->gpu, a) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult handle_import(struct softd_client *c, const struct stat *st, struct softd_answer *a)
	REQUIRES(softd_lock)
{
	struct softd_extent *x;
	struct softd_gpu *gpu;
	uint64_t pool;
	CUresult e;

	if (softd_token_find(st, &x, &pool, &gpu) < 0 || !x) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	e = give_handle(c, x, a);
	if (!e) {
		x->refs++;
	}
	return e;
}

static CUresult pool_export(struct softd_client *c, const struct soft_request *q,
			    struct softd_answer *a) REQUIRES(softd_lock)
{
	static uint64_t last; /* guarded by the machine's lock */

	if (q->index >= c->machine->opt.gpus || q->value > last) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	a->reply.value = q->value ? q->value : ++last;
	return give_token(c, NULL, a->reply.value, &c->machine->gpus[q->index], a);
}

static CUresult pool_import(const struct stat *st, struct softd_answer *a) REQUIRES(softd_lock)
{
	struct softd_extent *x;
	struct softd_gpu *gpu;

	if (softd_token_find(st, &x, &a->reply.value, &gpu) < 0 || x) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	a->reply.value32 = gpu->index;
	return CUDA_SUCCESS;
}

/* Address ranges. */

static CUresult reserve(struct softd_memory *m, const struct soft_request *q,
			struct softd_answer *a) REQUIRES(softd_lock)
{
	uint64_t align = q->more[0];

	if (!q->value || q->value % SOFT_GRANULARITY || (align & (align - 1)) ||
	    align > SOFT_WINDOW_STRIDE / 4) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	a->reply.value = softd_memory_reserve(m, q->value, align, q->more[1]);
	return a->reply.value ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult map(struct softd_client *c, struct softd_memory *m, const struct soft_request *q,
		    struct softd_answer *a) REQUIRES(softd_lock)
{
	struct softd_extent **x = handle_at(c, q->more[2]);
	int err;

	if (!x) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	err = may_map(c) ? softd_memory_map(m, c->machine, q->value, q->more[0], *x, q->more[1])
			 : -ENOMEM;
	if (!err && (*x)->host && !carry_duplicate(a, (*x)->store->fd)) {
		softd_memory_unmap(m, c->machine, q->value, q->more[0]);
		err = -EMFILE;
	}
	if (!err) {
		softd_memory_reservation(m, q->value, &a->reply.value, &a->reply.bytes);
	}
	return err == 0		? CUDA_SUCCESS
	       : err == -EINVAL ? CUDA_ERROR_INVALID_VALUE
				: CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult valid(int err)
{
	return err ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Frees an allocation; the pages of a large one are discarded without the lock. */
static CUresult release(struct softd_client *c, struct softd_group *g, uint64_t address)
	REQUIRES(softd_lock)
{
	struct softd_release l;

	if (!softd_memory_release_begin(g->memory, address, &l)) {
		return valid(softd_memory_free(g->memory, c->machine, address));
	}
	softd_machine_unlock(c->machine);
	softd_memory_release_pages(g->memory, &l);
	softd_machine_lock(c->machine);
	softd_memory_release_end(g->memory, c->machine, &l);
	return CUDA_SUCCESS;
}

/* Answers requests that name a context. */
static CUresult in_context(struct softd_client *c, struct softd_group *g,
			   const struct soft_request *q, struct softd_answer *a)
	REQUIRES(softd_lock)
{
	struct softd_memory *m = g->memory;

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
		return valid(softd_memory_close_extent(m, c->machine, q->value));
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

/* Gives the client its own device memory. A store is one client's; of memory that another one has
 * imported it was the owner, too. Not while accesses are checked, which would not be seen. */
static CUresult show(const struct softd_memory *m, const struct soft_request *q,
		     struct softd_answer *a)
{
	uint64_t offset = q->value - m->space.base, end;

	if (m->space.shadow) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (q->value < m->space.base || offset % SOFT_PAGE || q->more[0] % SOFT_PAGE ||
	    !q->more[0] || checked_add(offset, q->more[0], &end) ||
	    end > m->device_pages * SOFT_PAGE) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!carry_duplicate(a, m->store->fd)) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	a->reply.value = offset;
	return CUDA_SUCCESS;
}

/* Answers requests about the addresses of a GPU, whatever contexts there are. */
static CUresult in_window(struct softd_client *c, const struct soft_request *q,
			  struct softd_answer *a) REQUIRES(softd_lock)
{
	struct softd_memory *m;

	if (q->index >= c->machine->opt.gpus) {
		return CUDA_ERROR_INVALID_DEVICE;
	}
	m = softd_client_window(c, &c->machine->gpus[q->index]);
	if (!m) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	switch (q->op) {
	case SOFT_REQ_RESERVE:
		return reserve(m, q, a);
	case SOFT_REQ_UNRESERVE:
		return valid(softd_memory_unreserve(m, q->value, q->more[0]));
	case SOFT_REQ_MAP:
		return map(c, m, q, a);
	case SOFT_REQ_UNMAP:
		return valid(softd_memory_unmap(m, c->machine, q->value, q->more[0]));
	case SOFT_REQ_ACCESS:
		return q->object > 3 ? CUDA_ERROR_INVALID_VALUE
				     : valid(softd_memory_set_access(m, q->value, q->more[0],
								     (uint8_t)q->object));
	case SOFT_REQ_WINDOW:
		return show(m, q, a);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

static CUresult memory_info(struct softd_client *c, const struct soft_request *q,
			    struct softd_answer *a)
{
	if (q->index >= c->machine->opt.gpus) {
		return CUDA_ERROR_INVALID_DEVICE;
	}
	a->reply.value = c->machine->opt.memory_bytes - c->machine->gpus[q->index].memory_used;
	a->reply.bytes = c->machine->opt.memory_bytes;
	return CUDA_SUCCESS;
}

static CUresult locked(struct softd_client *c, const struct soft_request *q, const struct stat *st,
		       struct softd_answer *a) REQUIRES(softd_lock)
{
	struct softd_group *g;

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
	case SOFT_REQ_RESERVE:
	case SOFT_REQ_UNRESERVE:
	case SOFT_REQ_MAP:
	case SOFT_REQ_UNMAP:
	case SOFT_REQ_ACCESS:
	case SOFT_REQ_WINDOW:
		return in_window(c, q, a);
	default:
		g = softd_request_group(c, q);
		return g ? in_context(c, g, q, a) : CUDA_ERROR_INVALID_CONTEXT;
	}
}

CUresult softd_request_memory(struct softd_client *c, const struct soft_request *q, int fd,
			      struct softd_answer *a)
{
	struct stat st = { 0 };
	CUresult e;

	if (q->op == SOFT_REQ_ALLOC && q->object == SOFT_MEMORY_PINNED) {
		return alloc_pinned(c, q, a);
	}
	if (fd >= 0 && fstat(fd, &st) < 0) {
		/* without the lock: fstat may block on a file system of the client's choice */
		return CUDA_ERROR_INVALID_HANDLE;
	}
	softd_machine_lock(c->machine);
	e = locked(c, q, &st, a);
	softd_machine_unlock(c->machine);
	return e;
}
