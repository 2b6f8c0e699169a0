/* What gbpfd does to a tenant's work from outside: time slices, getting it off the hardware now,
 * switching it off for a while. The calls take milliseconds, so a thread of their own makes them.
 */
#ifndef GBPF_DAEMON_HW_HW_CONTROL_H
#define GBPF_DAEMON_HW_HW_CONTROL_H

#include "daemon/session/tenant_session.h"

#define STEER_ALL_GPUS 0xffffu

int daemon_hw_open(struct daemon *d);
/* Takes back whatever is in force, within half a second; what is left the processes take back
 * themselves, which see gbpfd go. */
void daemon_hw_close(struct daemon *d);

/* Handles and the descriptor (taken) that commands one GPU's share of a process. */
void daemon_hw_take_handles(struct daemon_session *s, const struct proto_control *m, int fd);
void daemon_hw_session_ended(
	struct daemon_session *s); /* the session ends: what is in force is taken back */

/* Bits of the GBPF_LEVEL_* that can be had for the tenant. */
uint32_t daemon_hw_levels(const struct daemon_session *s);
uint32_t
daemon_hw_level(const struct daemon_session *s); /* in force: GBPF_LEVEL_SLICE, OFF, or NONE */
uint32_t daemon_hw_slice_us(
	const struct daemon_session *s); /* microseconds that are wanted; 0: none of ours */

/* Wishes of a policy's version, which are done soon and end with the version at the latest. The
 * last one counts. slice_us 0: the device's own. 0; -EINVAL; -ENOTSUP: not in this lane, or refused
 * by the driver. */
int daemon_hw_set_slice(struct daemon_session *s, uint32_t slice_us, uint64_t version);
/* GBPF_LEVEL_SLICE, OFF, or a lower one, which ends them. For a request of that tenant (gbpfd's
 * number of the GPU), with which it ends; for_s NULL: until it is said again or for
 * DAEMON_HOLD_LIMIT_NS. */
int daemon_hw_set_level(struct daemon_session *s, uint32_t level, uint32_t gpus, uint64_t version,
			const struct daemon_session *for_s);
void daemon_hw_version_ended(struct daemon *d, uint64_t version);

/* Looks what has run out. True while something is in force or waits to be done. */
bool daemon_hw_tick(struct daemon *d, uint64_t now);
/* Nobody looks any more (off, no policy): everything is taken back. */
void daemon_hw_release_levels(struct daemon *d);

/* The request of a latency tenant on a GPU: since when it is open, 0 it is not; key tells requests
 * apart. */
uint64_t daemon_hw_request_since(struct daemon_session *s, uint32_t gpu, uint64_t now,
				 uint64_t *ret_key);

#endif
