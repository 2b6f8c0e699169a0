/* In the shared lane one client's crash may take the server down, and with it the work of all. The
 * driver does not say whose crash it was; who was seen to fail first is named. Nobody is started
 * again by gbpfd: that is what `gbpf run --restart` does, as often as admit has allowed. */
#include "daemon/hw/mps_crash.h"

#include <stdio.h>

#include "base/clock.h"
#include "daemon/hw/sharing_mode.h"

void neighbour_hurt(struct session *s, const char *why)
{
	union wire_message m = { 0 };

	if (s->hurt[0]) {
		return;
	}
	snprintf(s->hurt, sizeof(s->hurt), "%s", why);
	session_event(s, "neighbour", "%s (pid %d) may fail: %s", s->name, (int)s->peer.pid, why);
	if (s->state != SESSION_READY) {
		return; /* it waits for something else */
	}
	snprintf(m.note.what, sizeof(m.note.what), "neighbour");
	snprintf(m.note.text, sizeof(m.note.text), "%s: CUDA calls of this program may fail now",
		 why);
	session_send(s, &m, WIRE_NOTE, NULL, 0);
}

void neighbours_hurt(struct daemon *d, const char *why)
{
	session_each(d, s)
	{
		if (lane_is_in(s)) {
			neighbour_hurt(s, why);
		}
	}
}

void neighbour_ended(struct daemon *d, int pid, uid_t uid, uint32_t restart, const char *why)
{
	struct fate *f = &d->fates[d->n_fates++ % DAEMON_FATES];

	f->pid = pid;
	f->uid = uid;
	f->at_ns = clock_now_ns();
	f->restart = restart;
	snprintf(f->why, sizeof(f->why), "%s", why);
}

const struct fate *neighbour_fate(const struct daemon *d, int pid, uint64_t age_ns)
{
	uint64_t now = clock_now_ns(), born = age_ns < now ? now - age_ns : 0;
	const struct fate *found = NULL;

	/* Numbers are used again: the latest counts, and only if it was alive since then. */
	for (unsigned i = d->n_fates > DAEMON_FATES ? d->n_fates - DAEMON_FATES : 0; i < d->n_fates;
	     i++) {
		const struct fate *f = &d->fates[i % DAEMON_FATES];

		found = f->pid == pid && f->at_ns >= born ? f : found;
	}
	return found;
}
