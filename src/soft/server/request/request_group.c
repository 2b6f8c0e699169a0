/* Requests that control a group: time slice, preemption, disabling, counters. The owner uses its
 * context number; another process uses a control descriptor received from the owner. Also flag
 * pages. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/shm.h"
#include "soft/server/connection.h"
#include "soft/server/machine.h"
#include "soft/server/request/client_request.h"
#include "soft/server/run/context_group.h"
#include "soft/server/run/hw_lane.h"
#include "soft/server/run/op_stream.h"
#include "soft/server/memory/device_memory.h"

#define WAIT_MAX_NS 1000000000ull

/* Identifies a group. It is looked up again after each wait, because the group may be destroyed
 * meanwhile. */
struct softd_control_target {
	struct softd_machine *machine;
	struct softd_client *owner; /* the requesting client; NULL: by control descriptor */
	uint32_t slot;
	dev_t disk;
	ino_t file;
};

static struct softd_group *find(const struct softd_control_target *t)
{
	if (t->owner) {
		return t->slot < SOFT_MAX_CONTEXTS ? t->owner->groups[t->slot] : NULL;
	}
	softd_list_each (&t->machine->groups, g, struct softd_group, in_machine) {
		if (g->control >= 0 && g->control_disk == t->disk && g->control_file == t->file) {
			return g;
		}
	}
	return NULL;
}

static bool copies_run(const struct softd_group *g)
{
	softd_list_each (&g->copies, op, struct softd_op, in_copies) {
		if (op->running) {
			return true;
		}
	}
	return false;
}

/* Waits until the lane has left the GPU since `departures` was read, or, with off, until no block
 * or copy of the group runs. Returns CUDA_ERROR_NOT_READY after WAIT_MAX_NS. */
static CUresult wait_for_leave(const struct softd_control_target *t, uint64_t departures, bool off)
	REQUIRES(softd_lock)
{
	struct timespec ts = clock_timespec(clock_now_ns() + WAIT_MAX_NS);
	struct softd_group *g;
	int err = 0;

	while ((g = find(t))) {
		if (g->running_blocks == 0 && !copies_run(g)) {
			return CUDA_SUCCESS;
		}
		if (!off && g->lane->departures != departures) {
			return CUDA_SUCCESS;
		}
		if (err) {
			return CUDA_ERROR_NOT_READY;
		}
		g->watchers++;
		err = softd_machine_wait_until(t->machine, &t->machine->quiescent, &ts);
		g = find(t);
		if (g) {
			g->watchers--;
		}
	}
	return CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult preempt(const struct softd_control_target *t, struct softd_group *g, bool wait)
	REQUIRES(softd_lock)
{
	uint64_t departures = g->lane->departures;

	softd_runlist_preempt(g->lane);
	return wait ? wait_for_leave(t, departures, false) : CUDA_SUCCESS;
}

static CUresult schedule(const struct softd_control_target *t, struct softd_group *g, bool on)
	REQUIRES(softd_lock)
{
	g->enabled = on;
	softd_group_touch(g);
	softd_machine_kick(t->machine);
	return on ? CUDA_SUCCESS : wait_for_leave(t, 0, true);
}

/* Bounds the sum of the slices of a client's contexts beyond the default, so that a process does
 * not delay others more by creating more contexts. */
static bool slice_allowed(const struct softd_group *g, uint64_t us)
{
	const struct softd_client *c = g->client;
	uint64_t usual = c->machine->opt.slice_ns / 1000, limit = c->machine->opt.slice_max_us;
	uint64_t sum = us > usual ? us : 0;

	for (unsigned i = 0; i < SOFT_MAX_CONTEXTS && us <= limit; i++) {
		const struct softd_group *o = c->groups[i];

		sum += o && o != g && o->lane->slice_ns / 1000 > usual ? o->lane->slice_ns / 1000
								       : 0;
	}
	return us <= limit && sum <= limit;
}

static CUresult control(const struct softd_control_target *t, const struct soft_request *q,
			struct softd_answer *a) REQUIRES(softd_lock)
{
	struct softd_group *g = find(t);

	if (!g) {
		return t->owner ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_CONTEXT_IS_DESTROYED;
	}
	/* A shared lane belongs to several processes: none of them may control it. */
	if (g->lane->key && q->object <= SOFT_GROUP_SCHEDULE && q->object != SOFT_GROUP_SLICE_GET) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	switch (q->object) {
	case SOFT_GROUP_SLICE_SET:
		if (!slice_allowed(g, q->value)) {
			return CUDA_ERROR_INVALID_VALUE;
		}
		g->lane->slice_ns = q->value ? q->value * 1000 : t->machine->opt.slice_ns;
		return CUDA_SUCCESS;
	case SOFT_GROUP_SLICE_GET:
		a->reply.value = g->lane->slice_ns / 1000;
		return CUDA_SUCCESS;
	case SOFT_GROUP_PREEMPT:
		return preempt(t, g, q->value & 1);
	case SOFT_GROUP_SCHEDULE:
		return schedule(t, g, q->value != 0);
	case SOFT_GROUP_COUNTERS:
		softd_runlist_account(g->lane, clock_now_ns());
		a->reply.counters = g->counters;
		a->len += sizeof(a->reply.counters);
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult softd_request_group_control(struct softd_client *c, const struct soft_request *q,
				     struct softd_answer *a)
{
	struct softd_control_target t = { .machine = c->machine, .owner = c, .slot = q->context };

	return control(&t, q, a);
}

/* The heap's lock is taken before the machine's. Using g unlocked is safe: only this thread
 * destroys contexts of this client. */
CUresult softd_request_group_heap(struct softd_client *c, const struct soft_request *q)
{
	struct softd_group *g;

	softd_machine_lock(c->machine);
	g = softd_request_group(c, q);
	softd_machine_unlock(c->machine);
	if (!g) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (q->value > SOFT_MAX_HEAP_BYTES || q->value > c->machine->opt.memory_bytes) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return softd_heap_resize(&g->heap, q->value) < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult softd_request_control(struct softd_client *c, const struct soft_request *q, int fd,
			       struct softd_answer *a)
{
	struct softd_control_target t = { .machine = c->machine };
	struct stat st;
	CUresult r;

	if (fd < 0 || fstat(fd, &st) < 0) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	t.disk = st.st_dev;
	t.file = st.st_ino;
	softd_machine_lock(c->machine);
	r = control(&t, q, a);
	softd_machine_unlock(c->machine);
	return r;
}

/* Returns a memfd that represents the group. Its inode cannot be forged, so any process that
 * presents it received it from the owner. */
CUresult softd_request_control_open(struct softd_client *c, const struct soft_request *q,
				    struct softd_answer *a)
{
	struct softd_group *g = softd_request_group(c, q);
	struct stat st;

	if (!g) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (g->control < 0) {
		g->control = shm_create("gbpf-soft-control", SOFT_PAGE, SHM_NOEXEC);
		if (g->control < 0 || fstat(g->control, &st) < 0) {
			g->control = fd_close(g->control);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		g->control_disk = st.st_dev;
		g->control_file = st.st_ino;
	}
	a->fds[0] = g->control;
	a->n_fds = 1;
	return CUDA_SUCCESS;
}

static CUresult place_flag(struct softd_client *c, const struct soft_request *q, int fd,
			   uint64_t bytes, struct softd_answer *a) REQUIRES(softd_lock)
{
	struct softd_group *g = softd_request_group(c, q);
	uint64_t at;

	if (!g) {
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (g->flags >= SOFT_MAX_FLAGS || c->machine->pinned >= SOFT_MAX_PINNED_ALL) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	at = softd_memory_alloc(g->memory, c->machine, g->slot, bytes, SOFT_MEMORY_PINNED, fd);
	if (!at) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	softd_memory_take_local(g->memory, at); /* on hardware flag pages are device memory */
	if (!(q->object & 1)) {
		softd_memory_restrict(g->memory, at, 1);
	}
	g->flags++;
	a->reply.value = at;
	a->reply.bytes = bytes;
	return CUDA_SUCCESS;
}

CUresult softd_request_flag_new(struct softd_client *c, const struct soft_request *q,
				struct softd_answer *a)
{
	uint64_t bytes = ROUND_UP(MAX(q->value, 1u), SOFT_PAGE);
	CUresult r;
	int fd;

	if (q->value > SOFT_MAX_FLAG_BYTES) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	fd = shm_create("gbpf-soft-flags", bytes, SHM_NOEXEC);
	if (fd < 0) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	softd_machine_lock(c->machine);
	r = place_flag(c, q, fd, bytes, a);
	softd_machine_unlock(c->machine);
	a->fds[0] = fd;
	a->n_fds = r ? 0 : 1;
	a->close_fds = true;
	if (r) {
		fd_close(fd);
	}
	return r;
}

static bool may_write(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS), flags = fcntl(fd, F_GETFL);

	return seals >= 0 && !(seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) &&
	       (flags & O_ACCMODE) == O_RDWR;
}

/* Maps a page of another process. The file must be sealed against shrinking, so that the server
 * never faults on it. */
CUresult softd_request_flag_map(struct softd_client *c, const struct soft_request *q, int fd,
				struct softd_answer *a)
{
	long bytes = fd < 0 ? -EBADF : shm_checked_size(fd, SOFT_MAX_FLAG_BYTES);
	CUresult r;

	if (bytes <= 0 || bytes % SOFT_PAGE) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if ((q->object & 1) && !may_write(fd)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	softd_machine_lock(c->machine);
	r = place_flag(c, q, fd, (uint64_t)bytes, a);
	softd_machine_unlock(c->machine);
	return r;
}
