/* Flag pages in the session: this process's pages are offered to gbpfd, and again to the next one;
 * other tenants' pages arrive from it and are passed to the device, which raises leases in them. */
#include "shim/session/session_int.h"

#include <errno.h>
#include <fcntl.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/lock.h"
#include "gpu/flag_lease.h"
#include "shim/fork_lock.h"
#include "shim/object/driver_device.h"

void (*shim_session_slots_changed)(uint32_t slots);

static struct lock mutex = LOCK_INITIALIZER(FLAGS);
static struct {
	int fd; /* owned */
	bool set;
} own[PROTO_MAX_GPUS] GUARDED_BY(mutex);
static struct shim_session *session GUARDED_BY(mutex); /* NULL before the first welcome */
static uint32_t lease_slots;			       /* [atomic] */

static int send_flag(struct shim_session *s, uint32_t gpu) REQUIRES(mutex)
{
	union proto_message m = { 0 };

	m.flag.gpu = gpu;
	m.flag.number = !own[gpu].set;
	return shim_session_send(s, &m, PROTO_FLAG, &own[gpu].fd, own[gpu].set);
}

int shim_session_offer_flag(uint32_t gpu, int fd)
{
	int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0), err;

	if (gpu >= PROTO_MAX_GPUS || (fd >= 0 && copy < 0)) {
		fd_close(copy);
		return -EINVAL;
	}
	lock_take(&mutex);
	if (own[gpu].set) {
		fd_close(own[gpu].fd);
	}
	own[gpu].fd = copy;
	own[gpu].set = copy >= 0;
	err = session ? send_flag(session, gpu)
		      : 0; /* without a session it is sent when there is one */
	lock_release(&mutex);
	return err == -ENOTCONN ? 0 : err;
}

bool shim_session_has_flag(uint32_t gpu)
{
	bool set;

	lock_take(&mutex);
	set = own[gpu].set;
	lock_release(&mutex);
	return set;
}

void shim_session_flags_offer(struct shim_session *s)
{
	lock_take(&mutex);
	session = s;
	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		if (own[i].set) {
			(void)send_flag(
				s,
				i); /* fails if gbpfd has disappeared again; the next one gets it */
		}
	}
	lock_release(&mutex);
}

static int ordinal_of(const struct shim_session *s, uint32_t gpu)
{
	for (uint32_t i = 0; i < s->gpus; i++) {
		if (s->gpu_index[i] == gpu) {
			return (int)i;
		}
	}
	return -1;
}

void shim_session_flag_add(struct shim_session *s, const struct proto_flag *m, int fd)
{
	int gpu = ordinal_of(s, m->gpu);

	if (gpu >= 0 && m->slot < PROTO_MAX_LC) {
		(void)gpu_lease_add(shim_device_gpu(), m->number, fd, (uint32_t)gpu, m->slot);
	}
}

void shim_session_flag_remove(struct shim_session *s, uint32_t number)
{
	(void)s;
	gpu_lease_remove(shim_device_gpu(), number);
}

void shim_session_flags_lost(struct shim_session *s)
{
	for (uint32_t i = 0; i < PROTO_FLAGS; i++) {
		shim_session_flag_remove(s, i);
	}
}

uint32_t shim_session_lease_slots(void)
{
	return load_acquire(&lease_slots);
}

void shim_session_count_slots(struct shim_session *s)
{
	uint32_t n = PROTO_MAX_LC;

	while (n && !s->boards[SCHED_BOARD_LATENCY][n - 1]) {
		n--;
	}
	if (n != load_relaxed(&lease_slots)) {
		store_release(&lease_slots, n);
		if (shim_session_slots_changed) {
			shim_session_slots_changed(n);
		}
	}
}

void shim_session_flags_abandon(void)
{
	shim_lock_after_fork(&mutex, LOCK_FLAGS);
	session = NULL;
	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		if (own[i].set) {
			own[i].fd = fd_close(own[i].fd);
			own[i].set = false;
		}
	}
}
