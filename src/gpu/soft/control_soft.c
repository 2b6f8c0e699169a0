/* Controls of the soft GPU: its private table, which works on a descriptor in any process. The
 * owner gets the table from its own driver; gbpfd, which does not use the device, opens the library
 * for the table only. */
#include <dlfcn.h>
#include <errno.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "base/lock.h"
#include "gpu/control_int.h"

#define MAX_CONTEXTS 64u

static struct lock lock = LOCK_INITIALIZER(SOFT_CONTROL);
static const struct cuabi_soft_table *soft; /* set once, then read without the lock */

/* Control descriptors of this process's contexts. */
static struct {
	CUcontext ctx;
	int fd;
} known[MAX_CONTEXTS] GUARDED_BY(lock);
static uint32_t n_known GUARDED_BY(lock);

typedef CUresult export_fn(const void **ret, const CUuuid *id);

void gpu_control_soft_library(const char *path)
{
	static const CUuuid id = CUABI_SOFT_UUID;
	const struct cuabi_soft_table *table = NULL;
	const void *found = NULL;
	export_fn *ask;
	void *lib;

	lock_take(&lock);
	lib = soft ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
	ask = lib ? (export_fn *)(uintptr_t)dlsym(lib, "cuGetExportTable") : NULL;
	if (ask && ask(&found, &id) == CUDA_SUCCESS && found) {
		table = found;
	}
	if (table && table->size >= sizeof(*table)) {
		store_release(&soft, table);
	} else if (lib) {
		dlclose(lib);
	}
	lock_release(&lock);
}

static int error(CUresult e)
{
	switch (e) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_INVALID_VALUE:
		return -EINVAL;
	case CUDA_ERROR_NOT_SUPPORTED:
		return -ENOTSUP;
	case CUDA_ERROR_NOT_PERMITTED:
		return -EPERM;
	case CUDA_ERROR_NOT_READY:
		return -ETIMEDOUT;
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
	case CUDA_ERROR_INVALID_CONTEXT:
	case CUDA_ERROR_INVALID_HANDLE:
	case CUDA_ERROR_DEINITIALIZED:
		return -ENODEV;
	default:
		return -EIO;
	}
}

int gpu_control_soft(int fd, enum gpu_control what, uint64_t value, uint64_t *ret)
{
	static const int8_t verbs[GPU_CONTROLS] = {
		[GPU_CONTROL_SLICE_SET] = CUABI_SOFT_SLICE_SET,
		[GPU_CONTROL_SLICE_GET] = CUABI_SOFT_SLICE_GET,
		[GPU_CONTROL_PREEMPT] = CUABI_SOFT_PREEMPT,
		[GPU_CONTROL_SCHEDULE] = CUABI_SOFT_SCHEDULE,
		[GPU_CONTROL_PREEMPTION_MODE] = -1,
		[GPU_CONTROL_INTERLEAVE] = -1,
		[GPU_CONTROL_COUNTERS] = -1,
		[GPU_CONTROL_FLAG] = -1,
		[GPU_CONTROL_GREEN] = -1,
	};
	const struct cuabi_soft_table *table = load_acquire(&soft);
	struct gpu_switches s;
	int err;

	if (!table) {
		return -ENOTSUP;
	}
	if (what == GPU_CONTROL_COUNTERS) {
		err = gpu_control_soft_switches(fd, &s);
		*ret = s.saves;
		return err;
	}
	return verbs[what] < 0 ? -ENOTSUP
			       : error(table->control(fd, (enum cuabi_soft_control)verbs[what],
						      value, ret));
}

int gpu_control_soft_switches(int fd, struct gpu_switches *ret)
{
	const struct cuabi_soft_table *table = load_acquire(&soft);
	struct cuabi_soft_counters c = { 0 };
	int err = table ? error(table->control_counters(fd, &c)) : -ENOTSUP;

	*ret = (struct gpu_switches){ .saves = c.preempted, .restores = c.switches_in };
	return err;
}

void gpu_control_soft_test(struct gpu_handles *h, int fd)
{
	uint64_t slice = 0, nothing;

	h->capable |= 1u << GPU_CONTROL_FLAG;
	if (gpu_control_soft(fd, GPU_CONTROL_SLICE_GET, 0, &slice) == 0) {
		h->capable |= 1u << GPU_CONTROL_SLICE_GET;
		if (gpu_control_soft(fd, GPU_CONTROL_SLICE_SET, slice, &nothing) == 0) {
			h->capable |= 1u << GPU_CONTROL_SLICE_SET;
		}
	}
	if (gpu_control_soft(fd, GPU_CONTROL_PREEMPT, 0, &nothing) == 0) {
		h->capable |= 1u << GPU_CONTROL_PREEMPT;
	}
	if (gpu_control_soft(fd, GPU_CONTROL_SCHEDULE, 1, &nothing) == 0) {
		h->capable |= 1u << GPU_CONTROL_SCHEDULE;
	}
	if (gpu_control_soft(fd, GPU_CONTROL_COUNTERS, 0, &nothing) == 0) {
		h->capable |= 1u << GPU_CONTROL_COUNTERS;
	}
}

/* ---- the owner ---- */

/* Returns false if the descriptor's context has ended; another one may have its address. Every live
 * descriptor answers this call. */
static bool alive(const struct cuabi_soft_table *table, int fd)
{
	struct cuabi_soft_counters c;

	return table->control_counters(fd, &c) == CUDA_SUCCESS;
}

/* Removes descriptors of contexts that have ended. Under lock. */
static void drop_dead(const struct cuabi_soft_table *table) REQUIRES(lock)
{
	for (uint32_t i = 0; i < n_known;) {
		if (alive(table, known[i].fd)) {
			i++;
		} else {
			fd_close(known[i].fd);
			known[i] = known[--n_known];
		}
	}
}

static int descriptor(const struct cuabi_soft_table *table, CUcontext ctx) REQUIRES(lock)
{
	CUresult e;
	int fd = -1;

	drop_dead(table);
	for (uint32_t i = 0; i < n_known; i++) {
		if (known[i].ctx == ctx) {
			return known[i].fd;
		}
	}
	if (n_known == MAX_CONTEXTS) {
		return -ENOTSUP;
	}
	e = table->control_open(ctx, &fd);
	if (e != CUDA_SUCCESS) {
		return error(e) == -ENODEV ? -EAGAIN : error(e);
	}
	known[n_known].ctx = ctx;
	known[n_known++].fd = fd;
	return fd;
}

int gpu_control_soft_learn(const struct cuabi_soft_table *table, CUcontext ctx,
			   struct gpu_handles *ret, int *ret_fd)
{
	int fd;

	if (!ctx) {
		return -EAGAIN;
	}
	lock_take(&lock);
	if (!soft) {
		store_release(&soft, table);
	}
	fd = descriptor(table, ctx);
	lock_release(&lock);
	if (fd < 0) {
		return fd;
	}
	ret->kind = GPU_KIND_SOFT;
	*ret_fd = fd;
	return 0;
}
