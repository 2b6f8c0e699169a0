/* Flag pages in the session: ours go to gbpfd, and again to the next one; those of others come from
 * it and are given to the device, which raises leases on them. */
#include "shim/session/session_int.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "gpu/flag_lease.h"
#include "shim/object/driver_device.h"

void (*session_slots_changed)(uint32_t slots);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
	int fd; /* owned */
	bool set;
} own[WIRE_GPUS];		/* mutex */
static struct session *session; /* mutex; set when there has been a welcome */
static uint32_t lease_slots;	/* atomic */

static int tell(struct session *s, uint32_t gpu)
{
	union wire_message m = { 0 };

	m.flag.gpu = gpu;
	m.flag.number = !own[gpu].set;
	return session_send(s, &m, WIRE_FLAG, &own[gpu].fd, own[gpu].set);
}

int session_offer_flag(uint32_t gpu, int fd)
{
	int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0), err;

	if (gpu >= WIRE_GPUS || (fd >= 0 && copy < 0)) {
		fd_close(copy);
		return -EINVAL;
	}
	pthread_mutex_lock(&mutex);
	if (own[gpu].set) {
		fd_close(own[gpu].fd);
	}
	own[gpu].fd = copy;
	own[gpu].set = copy >= 0;
	err = session ? tell(session, gpu) : 0; /* without one it is told when there is */
	pthread_mutex_unlock(&mutex);
	return err == -ENOTCONN ? 0 : err;
}

bool session_has_flag(uint32_t gpu)
{
	bool set;

	pthread_mutex_lock(&mutex);
	set = own[gpu].set;
	pthread_mutex_unlock(&mutex);
	return set;
}

void session_flags_offer(struct session *s)
{
	pthread_mutex_lock(&mutex);
	session = s;
	for (uint32_t i = 0; i < WIRE_GPUS; i++) {
		if (own[i].set) {
			(void)tell(s, i); /* fails when gbpfd has gone again: then to the next */
		}
	}
	pthread_mutex_unlock(&mutex);
}

static int ordinal_of(const struct session *s, uint32_t gpu)
{
	for (uint32_t i = 0; i < s->gpus; i++) {
		if (s->gpu_index[i] == gpu) {
			return (int)i;
		}
	}
	return -1;
}

void session_flag_add(struct session *s, const struct wire_flag *m, int fd)
{
	int gpu = ordinal_of(s, m->gpu);

	if (gpu >= 0 && m->slot < SCHED_MAX_LC) {
		(void)gpu_lease_add(device_gpu(), m->number, fd, (uint32_t)gpu, m->slot);
	}
}

void session_flag_remove(struct session *s, uint32_t number)
{
	(void)s;
	gpu_lease_remove(device_gpu(), number);
}

void session_flags_lose(struct session *s)
{
	for (uint32_t i = 0; i < WIRE_FLAGS; i++) {
		session_flag_remove(s, i);
	}
}

uint32_t session_lease_slots(void)
{
	return load_acquire(&lease_slots);
}

void session_count_slots(struct session *s)
{
	uint32_t n = SCHED_MAX_LC;

	while (n && !s->boards[n - 1]) {
		n--;
	}
	if (n != load_relaxed(&lease_slots)) {
		store_release(&lease_slots, n);
		if (session_slots_changed) {
			session_slots_changed(n);
		}
	}
}

void session_flags_abandon(void)
{
	pthread_mutex_init(&mutex, NULL); /* another thread of the parent may have held it */
	session = NULL;
	for (uint32_t i = 0; i < WIRE_GPUS; i++) {
		if (own[i].set) {
			own[i].fd = fd_close(own[i].fd);
			own[i].set = false;
		}
	}
}
