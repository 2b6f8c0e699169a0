/* Crashes in the shared lane: one client's crash may end the MPS server, and with it the work of
 * all clients. The driver does not report which client crashed, so the one whose failure was seen
 * first is named. gbpfd restarts no process; `gbpf run --restart` does, as often as admit has
 * allowed. */
#include "daemon/hw/mps_crash.h"

#include <stdio.h>

#include "base/clock.h"
#include "daemon/hw/sharing_mode.h"

void daemon_mps_crash_mark(struct daemon_session *s, const char *why)
{
	if (s->crash_reason[0]) {
		return;
	}
	snprintf(s->crash_reason, sizeof(s->crash_reason), "%s", why);
	daemon_session_event(s, "neighbour", "%s (pid %d) may fail: %s", s->name, (int)s->peer.pid,
			     why);
	daemon_session_note(s, "neighbour", "%s: CUDA calls of this program may fail now", why);
}

void daemon_mps_crash_mark_all(struct daemon *d, const char *why)
{
	daemon_session_each(d, s)
	{
		if (daemon_lane_is_shared(s)) {
			daemon_mps_crash_mark(s, why);
		}
	}
}

void daemon_mps_exit_add(struct daemon *d, int pid, uid_t uid, uint32_t restart, const char *why)
{
	struct daemon_mps_exit *f = &d->mps_exits.last[d->mps_exits.n++ % DAEMON_MPS_EXITS];

	f->pid = pid;
	f->uid = uid;
	f->at_ns = clock_now_ns();
	f->restart = restart;
	snprintf(f->why, sizeof(f->why), "%s", why);
}

const struct daemon_mps_exit *daemon_mps_exit_find(const struct daemon *d, int pid, uint64_t age_ns)
{
	uint64_t now = clock_now_ns(), born = age_ns < now ? now - age_ns : 0;
	const struct daemon_mps_exit *found = NULL;

	/* Process IDs are reused: take the latest entry, and only if that process lived at the
	 * given time. */
	for (unsigned i = d->mps_exits.n > DAEMON_MPS_EXITS ? d->mps_exits.n - DAEMON_MPS_EXITS : 0;
	     i < d->mps_exits.n; i++) {
		const struct daemon_mps_exit *f = &d->mps_exits.last[i % DAEMON_MPS_EXITS];

		found = f->pid == pid && f->at_ns >= born ? f : found;
	}
	return found;
}
