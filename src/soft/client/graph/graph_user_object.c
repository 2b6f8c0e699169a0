/* User objects: a resource of the program that graphs and execs hold references to; its destructor
 * runs when the last reference is released. */
#include <stdlib.h>
#include <string.h>

#include "soft/client/graph/graph.h"
#include "soft/client/host_call.h"
#include "soft/client/strict.h"

struct CUuserObject_st {
	struct soft_object object;
	void *ptr;
	CUhostFn destroy;
	uint64_t refs; /* guarded by soft.lock */
};

static void drop(CUuserObject u, uint64_t n)
{
	CUhostFn destroy = NULL;
	void *ptr = NULL;

	lock_take(&soft.lock);
	u->refs -= MIN(n, u->refs);
	if (!u->refs) {
		destroy = u->destroy;
		ptr = u->ptr;
		soft_object_destroy(u);
	}
	lock_release(&soft.lock);
	if (destroy) {
		soft_host_enter();
		destroy(ptr); /* without the lock */
		soft_host_leave();
	}
}

static CUresult check(CUuserObject u, unsigned count)
{
	CUresult e = soft_check();

	return e ? e
	       : soft_handle_is(u, SOFT_OBJECT_USER) && count && count <= INT32_MAX
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuUserObjectCreate(CUuserObject *ret, void *ptr, CUhostFn destroy, unsigned int refs,
			    unsigned int flags)
{
	CUuserObject u;
	CUresult e = soft_check();

	if (e) {
		return e;
	}
	if (!ret || !destroy || !refs || refs > INT32_MAX ||
	    flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	lock_take(&soft.lock);
	u = soft_object_create(SOFT_OBJECT_USER, sizeof(*u));
	if (u) {
		u->ptr = ptr;
		u->destroy = destroy;
		u->refs = refs;
	}
	lock_release(&soft.lock);
	*ret = u;
	return u ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuUserObjectRetain(CUuserObject u, unsigned int count)
{
	CUresult e = check(u, count);

	if (!e) {
		lock_take(&soft.lock);
		u->refs += count;
		lock_release(&soft.lock);
	}
	return e;
}

CUresult cuUserObjectRelease(CUuserObject u, unsigned int count)
{
	CUresult e = check(u, count);

	if (!e) {
		drop(u, count);
	}
	return e;
}

static struct soft_graph_user *find(CUgraph g, CUuserObject u)
{
	for (uint32_t i = 0; i < g->n_users; i++) {
		if (g->users[i].object == u) {
			return &g->users[i];
		}
	}
	return NULL;
}

CUresult cuGraphRetainUserObject(CUgraph g, CUuserObject u, unsigned int count, unsigned int flags)
{
	struct soft_graph_user *r;
	CUresult e = soft_graph_check(g);

	e = e ? e : check(u, count);
	if (e) {
		return e;
	}
	if (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	r = find(g, u);
	if (!r) {
		struct soft_graph_user *grown =
			realloc(g->users, (g->n_users + 1) * sizeof(*grown));

		if (!grown) {
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		g->users = grown;
		r = &grown[g->n_users++];
		*r = (struct soft_graph_user){ u, 0 };
	}
	r->count += count;
	return flags ? CUDA_SUCCESS
		     : cuUserObjectRetain(
			       u, count); /* without MOVE the graph takes references of its own */
}

CUresult cuGraphReleaseUserObject(CUgraph g, CUuserObject u, unsigned int count)
{
	struct soft_graph_user *r;
	CUresult e = soft_graph_check(g);

	e = e ? e : check(u, count);
	if (e) {
		return e;
	}
	r = find(g, u);
	if (!r || count > r->count) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	r->count -= count;
	if (!r->count) {
		*r = g->users[--g->n_users];
	}
	drop(u, count);
	return CUDA_SUCCESS;
}

/* A clone holds one reference of its own to each object. */
CUresult soft_graph_users_copy(struct soft_graph_user **to, uint32_t *to_n,
			       const struct soft_graph_user *from, uint32_t n)
{
	*to_n = 0;
	if (!n) {
		return CUDA_SUCCESS;
	}
	*to = calloc(n, sizeof(**to));
	if (!*to) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (uint32_t i = 0; i < n; i++) {
		(*to)[i] = (struct soft_graph_user){ from[i].object, 1 };
		cuUserObjectRetain(from[i].object, 1);
	}
	*to_n = n;
	return CUDA_SUCCESS;
}

void soft_graph_users_release(struct soft_graph_user *users, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		drop(users[i].object, users[i].count);
	}
	free(users);
}
