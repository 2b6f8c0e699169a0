/* The versions in use: which is active on which GPU, its instances there, what a new session is
 * sent, and dropping the instances that no GPU runs any more. */
#include "daemon/policy/policies_int.h"

#include <errno.h>

#include "base/atomic.h"
#include "base/point.h"
#include "daemon/consts.h"
#include "daemon/hw/hw_control.h"
#include "daemon/policy/daemon_hooks.h"
#include "daemon/policy/policy_failures.h"

#define MAKE_AT_ONCE_BYTES (1u << 20) /* of memory, which is cleared */

struct daemon_version *daemon_version_find(struct daemon *d, uint64_t version)
{
	struct daemon_version *found = NULL;

	for (struct daemon_version *l = d->policies->live_versions; l && version; l = l->next) {
		if (l->version == version && (!found || l->gpu < found->gpu)) {
			found = l;
		}
	}
	return found;
}

struct daemon_version *daemon_version_on(struct daemon *d, uint64_t version, uint32_t gpu)
{
	for (struct daemon_version *l = d->policies->live_versions; l && version; l = l->next) {
		if (l->version == version && l->gpu == gpu) {
			return l;
		}
	}
	return NULL;
}

struct daemon_version *daemon_policy_active_on(struct daemon *d, uint32_t gpu)
{
	return daemon_version_on(d, daemon_policy_active_version(d, gpu), gpu);
}

static bool is_active(const struct daemon_version *l)
{
	return daemon_policy_active_version(l->d, l->gpu) == l->version;
}

struct daemon_version *daemon_policy_next_live(struct daemon *d, struct daemon_version *after)
{
	return after ? after->next : d->policies ? d->policies->live_versions : NULL;
}

struct daemon_version *daemon_policy_next_active(struct daemon *d, struct daemon_version *after)
{
	struct daemon_version *l = after ? after->next : d->policies->live_versions;

	while (l && !is_active(l)) {
		l = l->next;
	}
	return l;
}

static void send_drop(struct daemon_session *s, uint64_t version, uint32_t gpu)
{
	union proto_message m = { 0 };

	m.version.version = version;
	m.version.gpu = gpu;
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

/* An instance that was active has ended, and is no longer in the list. */
static void ended(struct daemon *d, struct daemon_version *l, uint32_t reason)
{
	struct daemon_stored_version *v = daemon_store_find(&d->policies->store, l->version);

	for (unsigned i = 0; i < PROTO_NOTES; i++) {
		l->of->tally.notes[i] += load_relaxed(&l->run.env.notes[i]);
	}
	if (daemon_version_find(d, l->version)) {
		return; /* it goes on on other GPUs */
	}
	daemon_hw_version_ended(d, l->version);
	daemon_store_ended(&d->policies->store, l->version, end_name(reason));
	if (v) {
		json_decref(v->counters);
		v->counters = daemon_policy_counters_json(d, l);
	}
}

/* A word names the version, which has no other instance: a GPU that becomes known needs one from
 * which to make its own. */
static bool is_last(const struct daemon_version *l)
{
	bool named = daemon_policy_gpus_of(l->d, l->version);

	for (const struct daemon_version *o = l->d->policies->live_versions; o; o = o->next) {
		named &= o == l || o->version != l->version;
	}
	return named;
}

static void drop(struct daemon_version **link, uint32_t reason)
{
	struct daemon_version *l = *link;
	struct daemon *d = l->d;

	*link = l->next;
	if (l->activated) {
		daemon_version_run_exit(l, reason);
		ended(d, l, reason);
	}
	daemon_features_call(version_ends, l, "the version is no longer active");
	daemon_session_each(d, s)
	{
		if (s->state == DAEMON_SESSION_READY && !s->dying && daemon_version_is_for(l, s)) {
			send_drop(s, l->version, l->gpu);
			POINT("daemon.drop.sent");
		}
	}
	POINT("daemon.drop.sent_all");
	daemon_version_destroy_later(l);
}

void daemon_policy_drop_unused(struct daemon *d, uint32_t reason)
{
	struct daemon_version **link = &d->policies->live_versions;

	while (*link) {
		if ((*link)->pending || is_active(*link) || is_last(*link)) {
			link = &(*link)->next;
		} else {
			drop(link, reason);
		}
	}
}

void daemon_policy_drop_kept(struct daemon *d, uint64_t version, uint32_t gpu)
{
	struct daemon_version **link = &d->policies->live_versions;

	while (*link && ((*link)->version != version || (*link)->gpu != gpu)) {
		link = &(*link)->next;
	}
	if (*link && !(*link)->pending && !is_active(*link)) {
		drop(link, GBPF_EXIT_SWAP);
	}
}

struct daemon_version *daemon_policy_active_of(struct daemon *d, uint64_t version, uint32_t gpu)
{
	return daemon_policy_active_version(d, gpu) == version ? daemon_version_on(d, version, gpu)
							       : NULL;
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
		send_drop(s, s->hello.had_version, PROTO_EVERY_GPU);
	}
}

uint32_t daemon_policy_known_gpus(const struct daemon *d, uint32_t mask)
{
	uint32_t known = 0;

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		known |= d->devices.d[i].used ? mask & 1u << i : 0;
	}
	return known || !mask ? known : 1u << __builtin_ctz(mask);
}

void daemon_version_add(struct daemon_version *l)
{
	struct daemon_policies *p = l->d->policies;

	l->next = p->live_versions;
	p->live_versions = l;
}

/* The GPU has no policy until the worker has made the instance, or for good. */
static void make_later(struct daemon *d, uint64_t version, uint32_t gpu)
{
	struct daemon_policy_request o = { .op = DAEMON_POLICY_ACTIVATE,
					   .gpu_mask = 1u << gpu,
					   .object_fd = -1,
					   .is_late = true,
					   .version = version };

	store_seqcst(&daemon_directory(d)->version[gpu], UINT64_C(0));
	if (daemon_policy_submit(d, &o) < 0) {
		daemon_history_add(&d->history, "policy", -1,
				   "GPU %u has no policy: too many operations wait", gpu);
	}
}

static void cannot_run(struct daemon_version *l, const struct report *r)
{
	if (!l->pending) {
		store_seqcst(&daemon_directory(l->d)->version[l->gpu], UINT64_C(0));
		daemon_history_add(&l->d->history, "policy", -1,
				   "GPU %u has no policy: version %llu cannot run there: %s",
				   l->gpu, (unsigned long long)l->version, buf_text(&r->message));
	}
	daemon_version_destroy(l);
}

static void send_to_all(struct daemon_version *l)
{
	daemon_session_each(l->d, s)
	{
		if (s->state == DAEMON_SESSION_READY && !s->dying) {
			daemon_version_send_prepare(l, s);
		}
	}
}

/* Makes an instance like another one. Returns false if that has to be done later: large memory
 * takes the loop too long. */
static bool make(const struct daemon_version *other, uint32_t gpu, bool pending, bool inits)
{
	const size_t *bytes = other->built->region_bytes;
	struct daemon_version *l;
	struct report r;
	int err = -E2BIG;

	report_init(&r);
	if (bytes[EBPF_REGION_GLOBAL] + bytes[EBPF_REGION_DAEMON] + bytes[EBPF_REGION_ALL_GPUS] <=
	    MAKE_AT_ONCE_BYTES) {
		err = daemon_version_create(&l, other->d, other->of, other->version, gpu, &r);
	}
	if (err) {
		report_finish(&r);
		return false;
	}
	l->pending = pending;
	if (inits && daemon_hook_init(l, 0, other->run.name, &r)) {
		cannot_run(l, &r);
	} else {
		l->activated = !pending;
		daemon_version_add(l);
		send_to_all(l);
	}
	report_finish(&r);
	return true;
}

void daemon_policy_add_gpu(struct daemon *d, uint32_t gpu)
{
	const struct daemon_policies *p = d->policies;
	uint64_t version = daemon_policy_active_version(d, gpu);
	const struct daemon_version *active = daemon_version_find(d, version);
	const struct daemon_version *next = daemon_version_find(d, p->pending);

	if (version && !daemon_version_on(d, version, gpu) &&
	    (!active || !make(active, gpu, false, true))) {
		make_later(d, version, gpu);
	}
	if (next && p->first->o.gpu_mask & 1u << gpu && !daemon_version_on(d, p->pending, gpu)) {
		(void)make(next, gpu, true, p->first->inited); /* else at the flip */
	}
}

void daemon_policy_remove_tenant(struct daemon *d, uint32_t tenant)
{
	for (struct daemon_version *l = d->policies ? d->policies->live_versions : NULL; l;
	     l = l->next) {
		daemon_version_remove_tenant(l, tenant);
	}
}

void daemon_policy_leave_other_gpus(struct daemon_session *s)
{
	for (struct daemon_version *l = s->d->policies->live_versions; l; l = l->next) {
		if (!daemon_version_is_for(l, s)) {
			daemon_version_remove_tenant(l, (uint32_t)s->tenant);
		}
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

void daemon_policy_adopt_regions(struct daemon_session *s, uint64_t version, uint32_t ordinals,
				 int *fds)
{
	for (uint32_t i = 0; i < s->gpus; i++) {
		struct daemon_version *l = daemon_version_on(s->d, version, s->gpu_index[i]);

		if (ordinals & 1u << i && l) {
			daemon_version_adopt_tenant(l, (uint32_t)s->tenant, fds);
		}
		fds += ordinals >> i & 1;
	}
}
