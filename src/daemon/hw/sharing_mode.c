/* Which lanes a tenant can have. The process lane always; the shared lane only where the driver has
 * not been started yet (an early hello) and for the daemon's own user: in it a tenant's fault may
 * end its neighbours, and MPS serves one user. */
#include "daemon/hw/sharing_mode.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/paths.h"
#include "daemon/consts.h"
#include "daemon/hw/mps.h"
#include "daemon/hw/mps_crash.h"

_Static_assert(LANE_ALL == (1u << GBPF_LANE_PROCESS | 1u << GBPF_LANE_SHARED), "all lanes");

void lane_pipe(const struct daemon *d, char *out, size_t cap)
{
	if (snprintf(out, cap, "%s/mps", d->opt.runtime) >= (int)cap) {
		out[0] = 0;
	}
}

static bool is_soft(const struct daemon *d)
{
	return strcmp(d->devices.kind, "soft") == 0;
}

/* The soft GPU needs nobody to serve the lane: who names the same folder shares it. */
const char *lane_why(const struct daemon *d)
{
	char pipe[WIRE_TEXT];

	lane_pipe(d, pipe, sizeof(pipe));
	if (!pipe[0]) {
		return "the path of the runtime directory is too long";
	}
	return is_soft(d) ? NULL : mps_why(d);
}

void lane_ask(struct session *s, uint32_t lane, uint32_t lanes)
{
	s->lane = lane;
	if (!s->early) { /* its driver runs: it is where it is */
		s->lanes = 1u << lane;
		return;
	}
	s->lanes = lanes ? lanes : LANE_ALL;
	if (s->peer.uid != s->d->uid || lane_why(s->d)) {
		s->lanes &= ~(1u << GBPF_LANE_SHARED);
	}
	s->lanes = s->lanes ? s->lanes : 1u << GBPF_LANE_PROCESS;
	if (!(s->lanes & 1u << s->lane)) {
		s->lane = s->lanes & 1u << GBPF_LANE_PROCESS ? GBPF_LANE_PROCESS : GBPF_LANE_SHARED;
	}
}

static void fall_back(struct session *s)
{
	const char *why = lane_why(s->d);

	session_event(s, "lane", "%s starts in the process lane: the shared one cannot be had: %s",
		      s->name, why ? why : "it could not be made");
	s->lane = GBPF_LANE_PROCESS;
	s->lanes = 1u << GBPF_LANE_PROCESS;
	s->sm_percent = 100;
	s->priority = 0;
}

int lane_make(struct session *s)
{
	int err;

	if (!s->early || s->lane != GBPF_LANE_SHARED) {
		return 0;
	}
	if (is_soft(s->d)) {
		char pipe[WIRE_TEXT];

		lane_pipe(s->d, pipe, sizeof(pipe));
		if (path_make_private(pipe, 0700) < 0) { /* its name alone does not share it */
			fall_back(s);
		}
		return 0;
	}
	s->state = SESSION_LANE;
	err = mps_want(s->d);
	if (err == -EINPROGRESS) {
		return err;
	}
	if (err) {
		fall_back(s);
	}
	return 0;
}

void lane_ready(struct daemon *d, bool made)
{
	session_each(d, s)
	{
		if (s->state == SESSION_LANE && !s->dying) {
			if (!made) {
				fall_back(s);
			}
			session_admitted(s);
		}
	}
}

bool lane_is_in(const struct session *s)
{
	return s->tenant >= 0 && !s->dying && s->lane == GBPF_LANE_SHARED &&
	       s->state != SESSION_QUEUED && s->state != SESSION_NEW;
}

unsigned lane_tenants(const struct daemon *d)
{
	unsigned n = 0;

	session_each(d, s)
	{
		n += lane_is_in(s);
	}
	return n;
}

void lane_broken(struct daemon *d)
{
	neighbours_hurt(d, "the MPS control daemon of its shared lane has ended");
}

void lane_neighbours(const struct session *s, char *out, size_t cap)
{
	size_t n = 0;

	out[0] = 0;
	session_each(s->d, t)
	{
		if (t != s && lane_is_in(t) && s->lane == GBPF_LANE_SHARED && n < cap) {
			n += (size_t)snprintf(out + n, cap - n, "%s%s (pid %d)", n ? ", " : "",
					      t->name, (int)t->peer.pid);
		}
	}
}
