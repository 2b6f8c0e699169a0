/* The versions that are in use: which is active where, what a process gets when it comes, and what
 * goes when no GPU runs a version any more. */
#include "daemon/policy/policies_int.h"

#include "base/atomic.h"
#include "daemon/consts.h"
#include "daemon/policy/policy_failures.h"
#include "daemon/maps/maps_watch.h"
#include "base/point.h"
#include "daemon/hw/hw_control.h"

struct live *policy_live_find(struct daemon *d, uint64_t version)
{
	for (struct live *l = d->policies->lives; l && version; l = l->next) {
		if (l->version == version) {
			return l;
		}
	}
	return NULL;
}

uint64_t policy_active_version(struct daemon *d, unsigned gpu)
{
	return gpu < SCHED_MAX_GPUS ? load_relaxed(&daemon_directory(d)->version[gpu]) : 0;
}

struct live *policy_on(struct daemon *d, uint32_t gpu)
{
	return policy_live_find(d, policy_active_version(d, gpu));
}

static bool is_active(struct daemon *d, uint64_t version)
{
	for (unsigned i = 0; i < SCHED_MAX_GPUS; i++) {
		if (policy_active_version(d, i) == version) {
			return true;
		}
	}
	return false;
}

struct live *policy_next_active(struct daemon *d, struct live *after)
{
	struct live *l = after ? after->next : d->policies->lives;

	while (l && !is_active(d, l->version)) {
		l = l->next;
	}
	return l;
}

static void send_drop(struct session *s, uint64_t version)
{
	union wire_message m = { 0 };

	m.version.version = version;
	session_send(s, &m, WIRE_DROP, NULL, 0);
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

static void keep_counters(struct daemon *d, const struct live *l, uint32_t reason)
{
	struct stored *v = store_find(&d->policies->store, l->version);

	store_ended(&d->policies->store, l->version, end_name(reason));
	if (v) {
		json_decref(v->counters);
		v->counters = policy_counters_json(d, l);
	}
}

void policy_drop_unused(struct daemon *d, uint32_t reason)
{
	struct live **link = &d->policies->lives;

	while (*link) {
		struct live *l = *link;

		if (l == d->policies->pending || is_active(d, l->version)) {
			link = &l->next;
			continue;
		}
		*link = l->next;
		if (l->activated) {
			live_end(l, reason);
			steer_version_ended(d, l->version);
			keep_counters(d, l, reason);
		}
		maps_watch_version_gone(d, l, "the version is no longer active");
		session_each(d, s)
		{
			if (s->state == SESSION_READY && !s->dying) {
				send_drop(s, l->version);
				POINT("daemon.drop.sent");
			}
		}
		POINT("daemon.drop.sent_all");
		live_destroy_later(l);
	}
}

void policy_introduce(struct session *s)
{
	struct daemon *d = s->d;

	failures_wake(d);

	/* Also to a process that came back and has that version: the global memory is new, and the
	 * number alone does not prove that it is the same program (the state directory may have
	 * been emptied). Its own memory it gets back. */
	for (struct live *l = d->policies->lives; l; l = l->next) {
		live_prepare(l, s);
	}
	s->offered = true;
	if (s->had_version && !policy_live_find(d, s->had_version)) {
		send_drop(s, s->had_version);
	}
}

void policy_forget_tenant(struct daemon *d, uint32_t tenant)
{
	for (struct live *l = d->policies ? d->policies->lives : NULL; l; l = l->next) {
		maps_watch_tenant_gone(d, l, tenant);
		live_forget_tenant(l, tenant);
	}
}

unsigned policy_regions_of(struct daemon *d, uint32_t tenant)
{
	unsigned n = 0;

	for (struct live *l = d->policies->lives; l; l = l->next) {
		n += l->region[tenant].map != NULL;
	}
	return n;
}

void policy_adopt_region(struct session *s, uint64_t version, int *fd)
{
	struct live *l = policy_live_find(s->d, version);

	if (l) {
		live_adopt_tenant(l, (uint32_t)s->tenant, fd);
	}
}
