/* Which lanes a tenant can have. The process lane (time slicing between contexts) is always
 * available. The shared lane (MPS) needs a driver that has not been started yet, that is, an early
 * hello, and gbpfd's own user: in it a tenant's fault may end the others, and MPS serves one user.
 */
#include "daemon/hw/sharing_mode.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/private_dir.h"
#include "daemon/consts.h"
#include "daemon/hw/mps.h"
#include "daemon/hw/mps_crash.h"

_Static_assert(DAEMON_LANE_ALL == (1u << GBPF_LANE_PROCESS | 1u << GBPF_LANE_SHARED), "all lanes");

void daemon_lane_pipe_dir(const struct daemon *d, char *out, size_t cap)
{
	if (snprintf(out, cap, "%s/mps", d->opt.runtime) >= (int)cap) {
		out[0] = 0;
	}
}

static bool is_soft(const struct daemon *d)
{
	return strcmp(d->devices.kind, "soft") == 0;
}

/* The soft GPU needs no server: processes that name the same folder share the lane. */
const char *daemon_lane_unavailable_reason(const struct daemon *d)
{
	char pipe[PROTO_TEXT];

	daemon_lane_pipe_dir(d, pipe, sizeof(pipe));
	if (!pipe[0]) {
		return "the path of the runtime directory is too long";
	}
	return is_soft(d) ? NULL : daemon_mps_unavailable_reason(d);
}

void daemon_lane_negotiate(struct daemon_session *s, uint32_t lane, uint32_t lanes)
{
	s->grant.lane = lane;
	if (!s->hello.early) { /* its driver runs already, so its lane is fixed */
		s->grant.lanes = 1u << lane;
		return;
	}
	s->grant.lanes = lanes ? lanes : DAEMON_LANE_ALL;
	if (s->peer.uid != s->d->uid || daemon_lane_unavailable_reason(s->d)) {
		s->grant.lanes &= ~(1u << GBPF_LANE_SHARED);
	}
	s->grant.lanes = s->grant.lanes ? s->grant.lanes : 1u << GBPF_LANE_PROCESS;
	if (!(s->grant.lanes & 1u << s->grant.lane)) {
		s->grant.lane = s->grant.lanes & 1u << GBPF_LANE_PROCESS ? GBPF_LANE_PROCESS
									 : GBPF_LANE_SHARED;
	}
}

static void fall_back(struct daemon_session *s)
{
	const char *why = daemon_lane_unavailable_reason(s->d);

	daemon_session_event(s, "lane",
			     "%s starts in the process lane: the shared lane is unavailable: %s",
			     s->name, why ? why : "it could not be started");
	s->grant.lane = GBPF_LANE_PROCESS;
	s->grant.lanes = 1u << GBPF_LANE_PROCESS;
	s->grant.sm_percent = 100;
	s->grant.priority = 0;
}

int daemon_lane_prepare(struct daemon_session *s)
{
	int err;

	if (!s->hello.early || s->grant.lane != GBPF_LANE_SHARED) {
		return 0;
	}
	if (is_soft(s->d)) {
		char pipe[PROTO_TEXT];

		daemon_lane_pipe_dir(s->d, pipe, sizeof(pipe));
		if (private_dir_make(pipe, 0700, false, NULL) <
		    0) { /* the folder must exist for processes to share the lane */
			fall_back(s);
		}
		return 0;
	}
	s->state = DAEMON_SESSION_LANE;
	err = daemon_mps_start(s->d);
	if (err == -EINPROGRESS) {
		return err;
	}
	if (err) {
		fall_back(s);
	}
	return 0;
}

void daemon_lane_ready(struct daemon *d, bool made)
{
	daemon_session_each(d, s)
	{
		if (s->state == DAEMON_SESSION_LANE && !s->dying) {
			if (!made) {
				fall_back(s);
			}
			daemon_features_call(lane_ready, s);
		}
	}
}

bool daemon_lane_is_shared(const struct daemon_session *s)
{
	return s->tenant >= 0 && !s->dying && s->grant.lane == GBPF_LANE_SHARED &&
	       s->state != DAEMON_SESSION_QUEUED && s->state != DAEMON_SESSION_NEW;
}

unsigned daemon_lane_tenants(const struct daemon *d)
{
	unsigned n = 0;

	daemon_session_each(d, s)
	{
		n += daemon_lane_is_shared(s);
	}
	return n;
}

void daemon_lane_broken(struct daemon *d)
{
	daemon_mps_crash_mark_all(d, "the MPS control daemon of its shared lane has ended");
}

void daemon_lane_neighbours(const struct daemon_session *s, char *out, size_t cap)
{
	size_t n = 0;

	out[0] = 0;
	daemon_session_each(s->d, t)
	{
		if (t != s && daemon_lane_is_shared(t) && s->grant.lane == GBPF_LANE_SHARED &&
		    n < cap) {
			n += (size_t)snprintf(out + n, cap - n, "%s%s (pid %d)", n ? ", " : "",
					      t->name, (int)t->peer.pid);
		}
	}
}
