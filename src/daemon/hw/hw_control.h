/* What gbpfd does to a tenant's work from outside: time slices, getting it off the hardware now,
 * switching it off for a while. The calls take milliseconds, so a thread of their own makes them.
 */
#ifndef GBPF_DAEMON_HW_HW_CONTROL_H
#define GBPF_DAEMON_HW_HW_CONTROL_H

#include "daemon/session/tenant_session.h"

#define STEER_ALL_GPUS 0xffffu

int steers_open(struct daemon *d);
/* Takes back whatever is in force, within half a second; what is left the processes take back
 * themselves, which see gbpfd go. */
void steers_close(struct daemon *d);

/* Handles and the descriptor (taken) that commands one GPU's share of a process. */
void steer_take(struct session *s, const struct wire_control *m, int fd);
void steer_forget(struct session *s); /* the session ends: what is in force is taken back */

/* Bits of the GBPF_LEVEL_* that can be had for the tenant. */
uint32_t steer_levels(const struct session *s);
uint32_t steer_level_of(const struct session *s); /* in force: GBPF_LEVEL_SLICE, OFF, or NONE */
uint32_t
steer_slice_of(const struct session *s); /* microseconds that are wanted; 0: none of ours */

/* Wishes of a policy's version, which are done soon and end with the version at the latest. The
 * last one counts. slice_us 0: the device's own. 0; -EINVAL; -ENOTSUP: not in this lane, or refused
 * by the driver. */
int steer_slice(struct session *s, uint32_t slice_us, uint64_t version);
/* GBPF_LEVEL_SLICE, OFF, or a lower one, which ends them. For a request of that tenant (gbpfd's
 * number of the GPU), with which it ends; for_s NULL: until it is said again or for
 * DAEMON_HOLD_LIMIT_NS. */
int steer_level(struct session *s, uint32_t level, uint32_t gpus, uint64_t version,
		const struct session *for_s);
void steer_version_ended(struct daemon *d, uint64_t version);

/* Looks what has run out. True while something is in force or waits to be done. */
bool steer_tick(struct daemon *d, uint64_t now);
/* Nobody looks any more (off, no policy): everything is taken back. */
void steer_release(struct daemon *d);

/* The request of a latency tenant on a GPU: since when it is open, 0 it is not; key tells requests
 * apart. */
uint64_t steer_request(struct session *s, uint32_t gpu, uint64_t now, uint64_t *ret_key);

#endif
