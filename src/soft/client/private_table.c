/* The private table, for what gBPF needs beyond the driver API: time slices, preemption, counters,
 * control descriptors, flag pages and windows. cuabi/private.h documents its members. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/shm.h"
#include "cuabi/private.h"
#include "soft/client/context/green.h"
#include "soft/client/memory/cpu_window.h"
#include "soft/client/server_link.h"

static CUresult find(CUcontext *ctx)
{
	CUresult e = soft_check();

	*ctx = *ctx ? soft_green_context(*ctx) : soft_thread_context();
	return e					   ? e
	       : soft_object_is(*ctx, SOFT_OBJECT_CONTEXT) ? CUDA_SUCCESS
							   : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult group_call(CUcontext ctx, unsigned verb, uint64_t value, struct soft_reply *r)
{
	struct soft_request q = { .op = SOFT_REQ_GROUP, .object = verb, .value = value };
	CUresult e = find(&ctx);

	if (e) {
		return e;
	}
	q.context = ctx->slot;
	return soft_link_call(&q, -1, r, sizeof(*r), NULL);
}

static CUresult timeslice_set(CUcontext ctx, uint32_t us)
{
	struct soft_reply r;

	return group_call(ctx, SOFT_GROUP_SLICE_SET, us, &r);
}

static CUresult timeslice_get(CUcontext ctx, uint32_t *ret)
{
	struct soft_reply r;
	CUresult e = group_call(ctx, SOFT_GROUP_SLICE_GET, 0, &r);

	if (!e && ret) {
		*ret = (uint32_t)r.value;
	}
	return e;
}

static CUresult preempt(CUcontext ctx)
{
	struct soft_reply r;

	return group_call(ctx, SOFT_GROUP_PREEMPT, 0, &r);
}

static CUresult preempt_wait(CUcontext ctx)
{
	struct soft_reply r;

	return group_call(ctx, SOFT_GROUP_PREEMPT, 1, &r);
}

static CUresult schedule(CUcontext ctx, int on)
{
	struct soft_reply r;

	return group_call(ctx, SOFT_GROUP_SCHEDULE, on != 0, &r);
}

static void fill_counters(struct cuabi_soft_counters *ret, const struct soft_counters *c)
{
	*ret = (struct cuabi_soft_counters){ c->switches_in, c->preempted,     c->run_ns,
					     c->blocks_done, c->launches_done, c->bytes_copied };
}

static CUresult counters(CUcontext ctx, struct cuabi_soft_counters *ret)
{
	struct soft_reply r = { 0 };
	CUresult e = group_call(ctx, SOFT_GROUP_COUNTERS, 0, &r);

	if (!e && ret) {
		fill_counters(ret, &r.counters);
	}
	return e;
}

static CUresult switches(CUcontext ctx, struct cuabi_soft_switches *ret, size_t bytes)
{
	struct soft_reply r = { 0 };
	CUresult e = group_call(ctx, SOFT_GROUP_COUNTERS, 0, &r);
	struct cuabi_soft_switches s = { r.counters.left_idle, r.counters.left_between,
					 r.counters.left_inside, r.counters.held_ns };

	if (!e && ret) {
		memcpy(ret, &s, MIN(bytes, sizeof(s)));
	}
	return e;
}

static CUresult server_pid(int *ret)
{
	CUresult e = soft_check();

	if (!e && ret) {
		*ret = soft.hello.pid;
	}
	return e;
}

static CUresult control_open(CUcontext ctx, int *ret_fd)
{
	struct soft_request q = { .op = SOFT_REQ_CONTROL_OPEN };
	struct soft_reply r;
	CUresult e = find(&ctx);

	if (e || !ret_fd) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	q.context = ctx->slot;
	*ret_fd = -1;
	e = soft_link_call(&q, -1, &r, sizeof(r), ret_fd);
	return e ? e : *ret_fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

static CUresult control(int fd, enum cuabi_soft_control what, uint64_t value, uint64_t *ret)
{
	static const unsigned verbs[] = {
		[CUABI_SOFT_SLICE_SET] = SOFT_GROUP_SLICE_SET,
		[CUABI_SOFT_SLICE_GET] = SOFT_GROUP_SLICE_GET,
		[CUABI_SOFT_PREEMPT] = SOFT_GROUP_PREEMPT,
		[CUABI_SOFT_SCHEDULE] = SOFT_GROUP_SCHEDULE,
	};
	struct soft_request q = { .op = SOFT_REQ_CONTROL, .value = value };
	struct soft_reply r = { 0 };
	CUresult e;

	if (fd < 0 || (unsigned)what >= ARRAY_SIZE(verbs)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	q.object = verbs[what];
	e = soft_link_query(&q, fd, &r, sizeof(r));
	if (!e && ret) {
		*ret = r.value;
	}
	return e;
}

static CUresult control_counters(int fd, struct cuabi_soft_counters *ret)
{
	struct soft_request q = { .op = SOFT_REQ_CONTROL, .object = SOFT_GROUP_COUNTERS };
	struct soft_reply r = { 0 };
	CUresult e = fd < 0 ? CUDA_ERROR_INVALID_VALUE : soft_link_query(&q, fd, &r, sizeof(r));

	if (!e && ret) {
		fill_counters(ret, &r.counters);
	}
	return e;
}

/* Maps a flag page on the host at its device address, in the context's window. */
static void *map_at(uint64_t address, size_t bytes, int fd, int prot)
{
	void *p = mmap((void *)(uintptr_t)address, bytes, prot, MAP_SHARED | MAP_FIXED, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void map_nothing(uint64_t address, size_t bytes)
{
	(void)!mmap((void *)(uintptr_t)address, bytes, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static CUresult flag_close(CUcontext ctx, CUdeviceptr device, size_t bytes)
{
	struct soft_request q = { .op = SOFT_REQ_FREE, .value = device };
	struct soft_reply r;
	CUresult e = find(&ctx);

	if (e) {
		return e;
	}
	if (bytes > SOFT_MAX_FLAG_BYTES || device < ctx->window->base ||
	    device - ctx->window->base >= ctx->window->bytes) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	q.context = ctx->slot;
	e = soft_link_call(&q, -1, &r, sizeof(r), NULL);
	if (!e) {
		map_nothing(device, ROUND_UP(MAX(bytes, 1u), SOFT_PAGE));
	}
	return e;
}

/* Checks an address from the server: the mapping must not replace memory outside the window. */
static bool inside(const struct CUcontext_st *ctx, uint64_t address, uint64_t bytes)
{
	return address >= ctx->window->base && bytes <= ctx->window->bytes &&
	       address - ctx->window->base <= ctx->window->bytes - bytes;
}

static CUresult flag_new(CUcontext ctx, size_t bytes, unsigned flags, CUdeviceptr *ret, int *ret_fd)
{
	struct soft_request q = { .op = SOFT_REQ_FLAG_NEW,
				  .object = flags & CUABI_SOFT_FLAG_KERNELS_WRITE,
				  .value = bytes };
	struct soft_reply r;
	int fd = -1;
	CUresult e = find(&ctx);

	if (e || !ret || !ret_fd || !bytes) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	q.context = ctx->slot;
	e = soft_link_call(&q, -1, &r, sizeof(r), &fd);
	if (e) {
		fd_close(fd);
		return e;
	}
	if (shm_check(fd, r.bytes) < 0 || !inside(ctx, r.value, r.bytes) ||
	    !map_at(r.value, r.bytes, fd, PROT_READ | PROT_WRITE) ||
	    ((flags & CUABI_SOFT_FLAG_SEALED) && shm_seal_future_write(fd) < 0)) {
		fd_close(fd);
		flag_close(ctx, r.value, bytes);
		return CUDA_ERROR_MAP_FAILED;
	}
	/* Other processes receive this descriptor; without F_SEAL_SEAL one of them could add seals
	 * and so refuse it to the next. */
	(void)fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL);
	*ret = r.value;
	*ret_fd = fd;
	return CUDA_SUCCESS;
}

static CUresult flag_open(CUcontext ctx, int fd, unsigned flags, CUdeviceptr *ret,
			  size_t *ret_bytes)
{
	struct soft_request q = { .op = SOFT_REQ_FLAG_MAP,
				  .object = flags & CUABI_SOFT_FLAG_KERNELS_WRITE };
	struct soft_reply r;
	CUresult e = find(&ctx);

	if (e || !ret || fd < 0) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	q.context = ctx->slot;
	e = soft_link_call(&q, fd, &r, sizeof(r), NULL);
	if (e) {
		return e;
	}
	if (!inside(ctx, r.value, r.bytes) ||
	    (!map_at(r.value, r.bytes, fd, PROT_READ | PROT_WRITE) &&
	     !map_at(r.value, r.bytes, fd, PROT_READ))) {
		flag_close(ctx, r.value, r.bytes);
		return CUDA_ERROR_MAP_FAILED;
	}
	*ret = r.value;
	if (ret_bytes) {
		*ret_bytes = r.bytes;
	}
	return CUDA_SUCCESS;
}

const struct cuabi_soft_table soft_private_table = {
	.size = sizeof(soft_private_table),
	.timeslice_set = timeslice_set,
	.timeslice_get = timeslice_get,
	.preempt = preempt,
	.schedule = schedule,
	.counters = counters,
	.server_pid = server_pid,
	.preempt_wait = preempt_wait,
	.switches = switches,
	.control_open = control_open,
	.control = control,
	.control_counters = control_counters,
	.flag_new = flag_new,
	.flag_open = flag_open,
	.flag_close = flag_close,
	.window_open = soft_cpu_window_open,
	.windows_watch = soft_cpu_windows_watch,
};
