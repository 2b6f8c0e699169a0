/* Which lanes a tenant can have. The process lane always; the shared lane only where the driver has
 * not been started yet (an early hello) and for the daemon's own user: in it a tenant's fault may
 * end its neighbours, and MPS serves one user. */
#include "daemon/lane.h"

#include <stdio.h>
#include <string.h>

#include "daemon/consts.h"

_Static_assert(LANE_ALL == (1u << GBPF_LANE_PROCESS | 1u << GBPF_LANE_SHARED), "all lanes");

void lane_pipe(const struct daemon *d, char *out, size_t cap)
{
	if (snprintf(out, cap, "%s/mps", d->opt.runtime) >= (int)cap) {
		out[0] = 0;
	}
}

static bool shared_can_be_had(const struct session *s)
{
	char pipe[WIRE_TEXT];

	lane_pipe(s->d, pipe, sizeof(pipe));
	return pipe[0] && s->peer.uid == s->d->uid && strcmp(s->d->devices.kind, "soft") == 0;
}

void lane_ask(struct session *s, uint32_t lane, uint32_t lanes)
{
	s->lane = lane;
	if (!s->early) { /* its driver runs: it is where it is */
		s->lanes = 1u << lane;
		return;
	}
	s->lanes = lanes ? lanes : LANE_ALL;
	if (!shared_can_be_had(s)) {
		s->lanes &= ~(1u << GBPF_LANE_SHARED);
	}
	s->lanes = s->lanes ? s->lanes : 1u << GBPF_LANE_PROCESS;
	if (!(s->lanes & 1u << s->lane)) {
		s->lane = s->lanes & 1u << GBPF_LANE_PROCESS ? GBPF_LANE_PROCESS : GBPF_LANE_SHARED;
	}
}
