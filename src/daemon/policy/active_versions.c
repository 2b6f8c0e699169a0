/* The versions in use: which is active on which GPU, what a new session is sent, and dropping the
 * versions that no GPU runs any more. */
#include "daemon/policy/policies_int.h"

#include "base/atomic.h"
#include "base/point.h"
#include "daemon/consts.h"
#include "daemon/hw/hw_control.h"
#include "daemon/maps/maps_watch.h"
#include "daemon/policy/policy_failures.h"

struct daemon_version *daemon_version_find(struct daemon *d, uint64_t version)
{
	for (struct daemon_version *l = d->policies->live_versions; l && version; l = l->next) {
		if (l->version == version) {
			return l;
		}
	}
	return NULL;
}

uint64_t daemon_policy_active_version(struct daemon *d, unsigned gpu)
{
	return gpu < PROTO_MAX_GPUS ? load_relaxed(&daemon_directory(d)->version[gpu]) : 0;
}

struct daemon_version *daemon_policy_active_on(struct daemon *d, uint32_t gpu)
{
	return daemon_version_find(d, daemon_policy_active_version(d, gpu));
}

static bool is_active(struct daemon *d, uint64_t version)
{
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		if (daemon_policy_active_version(d, i) == version) {
			return true;
		}
	}
	return false;
}

struct daemon_version *daemon_policy_next_live(struct daemon *d, struct daemon_version *after)
{
	return after ? after->next : d->policies ? d->policies->live_versions : NULL;
}

struct daemon_version *daemon_policy_next_active(struct daemon *d, struct daemon_version *after)
{
	struct daemon_version *l = after ? after->next : d->policies->live_versions;

	while (l && !is_active(d, l->version)) {
		l = l->next;
	}
	return l;
}

static void send_drop(struct daemon_session *s, uint64_t version)
{
	union proto_message m = { 0 };

	m.version.version = version;
	daemon_session_send(s, &m, PROTO_DROP, NULL, 0);
}

static const char *end_name(uint32_t reason)
{
	switch (reason) {
	case GBPF_EXIT_UNLOAD:
		return "unload";
	case GBPF_EXIT_ROLLBACK:
		return "rollback";
	default:
		return "swap";
	}
}

static void keep_counters(struct daemon *d, const struct daemon_version *l, uint32_t reason)
{
	struct daemon_stored_version *v = daemon_store_find(&d->policies->store, l->version);

	daemon_store_ended(&d->policies->store, l->version, end_name(reason));
	if (v) {
		json_decref(v->counters);
		v->counters = daemon_policy_counters_json(d, l);
	}
}

void daemon_policy_drop_unused(struct daemon *d, uint32_t reason)
{
	struct daemon_version **link = &d->policies->live_versions;

	while (*link) {
		struct daemon_version *l = *link;

		if (l == d->policies->pending || is_active(d, l->version)) {
			link = &l->next;
			continue;
		}
		*link = l->next;
		if (l->activated) {
			daemon_version_run_exit(l, reason);
			daemon_hw_version_ended(d, l->version);
			keep_counters(d, l, reason);
		}
		daemon_maps_watch_version_ended(d, l, "the version is no longer active");
		daemon_session_each(d, s)
		{
			if (s->state == DAEMON_SESSION_READY && !s->dying) {
				send_drop(s, l->version);
				POINT("daemon.drop.sent");
			}
		}
		POINT("daemon.drop.sent_all");
		daemon_version_destroy_later(l);
	}
}

void daemon_policy_send_active(struct daemon_session *s)
{
	struct daemon *d = s->d;

	daemon_failures_schedule(d);

	/* Also to a process that reattached and has that version: its mapping of the global memory
	 * is the old one, and the number alone does not prove that it is the same program (the
	 * state directory may have been emptied). It keeps its own memory. */
	for (struct daemon_version *l = d->policies->live_versions; l; l = l->next) {
		daemon_version_send_prepare(l, s);
	}
	s->policy.offered = true;
	if (s->hello.had_version && !daemon_version_find(d, s->hello.had_version)) {
		send_drop(s, s->hello.had_version);
	}
}

void daemon_policy_remove_tenant(struct daemon *d, uint32_t tenant)
{
	for (struct daemon_version *l = d->policies ? d->policies->live_versions : NULL; l;
	     l = l->next) {
		daemon_maps_watch_tenant_ended(d, l, tenant);
		daemon_version_remove_tenant(l, tenant);
	}
}

unsigned daemon_policy_regions_of(struct daemon *d, uint32_t tenant)
{
	unsigned n = 0;

	for (struct daemon_version *l = d->policies->live_versions; l; l = l->next) {
		n += l->region[tenant].map != NULL;
	}
	return n;
}

void daemon_policy_adopt_region(struct daemon_session *s, uint64_t version, int *fd)
{
	struct daemon_version *l = daemon_version_find(s->d, version);

	if (l) {
		daemon_version_adopt_tenant(l, (uint32_t)s->tenant, fd);
	}
}
