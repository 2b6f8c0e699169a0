/* Hardware control: time slices, eviction and suspension of a tenant's work, applied by gbpfd from
 * outside the process through handles that the process gave it. The driver calls take milliseconds,
 * so the control thread makes them; all functions here belong to the main thread and return at
 * once. */
#ifndef GBPF_DAEMON_HW_HW_CONTROL_H
#define GBPF_DAEMON_HW_HW_CONTROL_H

#include "daemon/session/tenant_session.h"

#define DAEMON_HW_ALL_GPUS 0xffffu

/* Starts the control thread. 0 or -errno. */
int daemon_hw_open(struct daemon *d);
/* Undoes what is in force, within half a second. The processes undo the rest themselves when they
 * see that gbpfd has exited. */
void daemon_hw_close(struct daemon *d);

extern const struct daemon_feature daemon_hw_feature, daemon_flags_feature;
/* Returns false if the process has exceeded the rate of handles and flag pages, and drops its
 * session: contexts change slowly, and each flag page is sent to every latency tenant. */
bool daemon_hw_may_offer(struct daemon_session *s);

/* Returns bits of the GBPF_LEVEL_* that the tenant's lane and device support. */
uint32_t daemon_hw_levels(const struct daemon_session *s);
/* Returns the level wanted for it: GBPF_LEVEL_SLICE, OFF, or NONE. */
uint32_t daemon_hw_level(const struct daemon_session *s);
/* Returns the time slice wanted for it, us; 0: the device's default. */
uint32_t daemon_hw_slice_us(const struct daemon_session *s);

/* Sets the tenant's time slice (0: the device's default) on behalf of a policy version, with which
 * it ends at the latest. The last call counts. 0; -EINVAL: too long; -ENOTSUP: not in this lane, or
 * the driver does not support it. */
int daemon_hw_set_slice(struct daemon_session *s, uint32_t slice_us, uint64_t version);
/* Sets GBPF_LEVEL_SLICE or OFF on these GPUs (gbpfd's numbers) on behalf of a policy version; a
 * lower level ends it. With for_s the level lasts for that tenant's open request on the one GPU;
 * without, for DAEMON_HOLD_LIMIT_NS after the last call. 0, -EINVAL, -ENOTSUP. */
int daemon_hw_set_level(struct daemon_session *s, uint32_t level, uint32_t gpus, uint64_t version,
			struct daemon_session *for_s);
void daemon_hw_version_ended(struct daemon *d, uint64_t version);

/* Ends levels that have expired and submits what is due. Returns true while further ticks are
 * needed. */
bool daemon_hw_tick(struct daemon *d, uint64_t now);
/* Ends all levels, because ticks stop (policies are off, or there is none). */
void daemon_hw_release_levels(struct daemon *d);

/* Returns since when a request of a latency tenant is open on a GPU, ns; 0: none is. *ret_key
 * differs between consecutive requests. */
uint64_t daemon_hw_request_since(struct daemon_session *s, uint32_t gpu, uint64_t now,
				 uint64_t *ret_key);

#endif
