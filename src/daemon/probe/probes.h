/* Tools: objects with programs inside kernels, attached in addition to the active policy. They only
 * observe. A tool is sent to the sessions of its target, also to those that become ready later, and
 * ends with its detachment or with the connection that holds it. It is stored, and attached again
 * when gbpfd was restarted. */
#ifndef GBPF_DAEMON_PROBE_PROBES_H
#define GBPF_DAEMON_PROBE_PROBES_H

#include "daemon/control_socket.h"
#include "daemon/feature.h"
#include "daemon/policy/version.h"

#define DAEMON_PROBES 16u	    /* tools at a time */
#define DAEMON_PROBES_OF_USER 4u    /* of one user that may not administer */
#define DAEMON_PROBES_OF_USERS 12u  /* of all these users together */
#define DAEMON_PROBE_ATTACH_MS 500u /* for the answers of all sessions to PROBE */
#define DAEMON_PROBE_END_MS 1000u   /* to PROBE_END */
#define DAEMON_PROBE_DRAIN_MS 200u  /* to PROBE_DRAIN */
#define DAEMON_COVERAGE_MS 2000u    /* to COVERAGE */
#define DAEMON_PROBE_SWAP_MS 10000u /* until all kernels run the tool that replaces another */

/* The version of tool `id` is this plus id, beyond all versions of policies. */
#define DAEMON_PROBE_VERSION (UINT64_C(1) << 48)

struct daemon_probe;

int daemon_probes_open(struct daemon *d);
void daemon_probes_close(struct daemon *d);
/* Attaches the stored tools again, before sessions are accepted. */
void daemon_probes_restore(struct daemon *d);

/* ---- for sessions ---- */
extern const struct daemon_feature daemon_probes_feature;
/* Returns whether a tool has memory of that tenant. */
bool daemon_probes_have_region(const struct daemon *d, uint32_t tenant);

/* ---- for maps ---- */
/* Return the memory of the tool with this version or number, or NULL if there is none or the caller
 * may not see it. */
struct daemon_version *daemon_probe_version(const struct daemon_call *c, uint64_t version);
struct daemon_version *daemon_probe_numbered(const struct daemon_call *c, json_int_t id);
/* Returns true if the caller may administer gbpfd, or has attached the tool with this memory for
 * its own programs, which one that may not administer does. */
bool daemon_probe_version_may_watch(const struct daemon_call *c, const struct daemon_version *l);
/* Iterates over the memory of the tools that the caller sees, without those that are being detached
 * or replaced: NULL begins, NULL ends. */
struct daemon_version *daemon_probe_next(const struct daemon_call *c,
					 const struct daemon_version *after);
/* Returns the number of the tool with this version. */
static inline json_int_t daemon_probe_id(const struct daemon_version *l)
{
	return (json_int_t)(l->version - DAEMON_PROBE_VERSION);
}
static inline bool daemon_version_is_probe(const struct daemon_version *l)
{
	return l->version > DAEMON_PROBE_VERSION;
}
/* Has its sessions (tenant >= 0: that one) copy maps in memory of the GPU, unless they are at it.
 * For a reader that looks again later. */
void daemon_probe_refresh(struct daemon_version *l, int tenant);
/* The same for the caller, which is answered when they have, or are late. */
void daemon_probe_drain_call(struct daemon_call *c, struct daemon_version *l, int tenant);

/* methods */
void daemon_method_probe_attach(struct daemon_call *c);
void daemon_method_probe_detach(struct daemon_call *c);
void daemon_method_probe_list(struct daemon_call *c);
void daemon_method_probe_coverage(struct daemon_call *c);
void daemon_method_probe_set(struct daemon_call *c);
void daemon_method_probe_log(struct daemon_call *c);

#endif
