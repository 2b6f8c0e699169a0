/* Lanes: how a tenant shares the hardware with others, fixed when its driver starts. */
#ifndef GBPF_DAEMON_LANE_H
#define GBPF_DAEMON_LANE_H

#include <stddef.h>

#include "daemon/session.h"

#define LANE_ALL 3u /* bits of GBPF_LANE_PROCESS and GBPF_LANE_SHARED */

#define LANE_MAX_SLICE_US 1000000u

/* What a hello asks for, and what is left of what it can take (lanes: bits, 0 any). */
void lane_ask(struct session *s, uint32_t lane, uint32_t lanes);
/* Folder of the shared lane's pipes; the same for all tenants. */
void lane_pipe(const struct daemon *d, char *out, size_t cap);

#endif
