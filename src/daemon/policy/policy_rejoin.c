/* admit of a version that is about to become active, for the tenants that are present: it fills the
 * version's maps and answers with weight and time slice, which apply at the flip. So each way in
 * which a version becomes active leaves a tenant as if it had started under it, except for what is
 * fixed at the start (class, sharing mode). */
#include "daemon/policy/policies_int.h"

#include "base/clock.h"
#include "base/point.h"
#include "daemon/consts.h"
#include "daemon/hw/hw_control.h"
#include "daemon/policy/daemon_hooks.h"

#define SLICE_NS 1000000u

static bool is_present(const struct daemon_session *s)
{
	return !s->dying && s->tenant >= 0 &&
	       (s->state == DAEMON_SESSION_LANE || s->state == DAEMON_SESSION_WELCOMED ||
		s->state == DAEMON_SESSION_READY);
}

/* Returns the GPUs on which the operation changes the version. */
static uint32_t new_gpus(const struct daemon_policy_op *q)
{
	uint32_t mask = 0;

	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		bool is_new = daemon_policy_active_version(q->d, i) != q->o.version;

		mask |= (q->o.gpu_mask & 1u << i) && is_new ? 1u << i : 0;
	}
	return mask;
}

static void rejoin(struct daemon_policy_op *q, struct daemon_session *s)
{
	struct daemon_rejoin_answer a;
	int answers = daemon_hook_rejoin(s, q->o.version, q->rejoin_gpus, &a);

	s->rejoin = (struct daemon_session_rejoin){
		.asked = true, .changes = answers >= 0, .weight = a.weight, .slice_us = a.slice_us
	};
	q->rejoined += answers > 0;
}

static int on_slice(sd_event_source *src, uint64_t usec, void *arg);

/* Asks for at most SLICE_NS, then continues in a later turn of the loop: admit may take a
 * millisecond, and there may be a thousand tenants. Tenants that start meanwhile are asked, too:
 * the flip follows in the same turn in which none is left. */
static void rejoin_some(struct daemon_policy_op *q)
{
	struct daemon *d = q->d;
	struct daemon_policies *p = d->policies;
	uint64_t begin = clock_now_ns();

	p->timer = sd_event_source_disable_unref(p->timer);
	daemon_session_each(d, s)
	{
		if (s->rejoin.asked || !is_present(s)) {
			continue;
		}
		if (clock_now_ns() - begin > SLICE_NS &&
		    sd_event_add_time(d->loop, &p->timer, CLOCK_MONOTONIC, 0, 1, on_slice, d) >=
			    0) {
			return;
		}
		rejoin(q, s);
		POINT("daemon.rejoin.ran");
	}
	POINT("daemon.rejoin.ran_all");
	q->rejoin_ns = MAX(clock_now_ns() - q->rejoin_begin_ns, 1u);
	daemon_swap_flip(q);
}

static int on_slice(sd_event_source *src, uint64_t usec, void *arg)
{
	struct daemon *d = arg;

	(void)src;
	(void)usec;
	rejoin_some(d->policies->first);
	return 0;
}

void daemon_swap_rejoin(struct daemon_policy_op *q)
{
	struct daemon_version *l = daemon_version_find(q->d, q->o.version);

	q->rejoin_gpus = new_gpus(q);
	q->rejoin_begin_ns = clock_now_ns();
	daemon_session_each(q->d, s)
	{
		s->rejoin = (struct daemon_session_rejoin){ 0 };
	}
	if (daemon_version_has_hook(l, HOOK_admit) && q->rejoin_gpus) {
		rejoin_some(q);
	} else {
		daemon_swap_flip(q);
	}
}

/* ---- at the flip ---- */

/* Returns true if the weight of a tenant is the answer of an active version's admit. */
static bool is_answered(const struct daemon_session *s)
{
	for (uint32_t i = 0; i < PROTO_MAX_GPUS; i++) {
		struct daemon_version *l = daemon_policy_active_on(s->d, i);

		if ((!s->gpu_mask || s->gpu_mask & 1u << i) && l &&
		    daemon_version_has_hook(l, HOOK_admit)) {
			return true;
		}
	}
	return false;
}

static void set_weight(struct daemon_session *s, uint32_t weight)
{
	s->weight = weight;
	if (s->state == DAEMON_SESSION_READY && s->sent.weight != weight) {
		daemon_session_send_settings(s); /* else WELCOME or hello.c does */
		POINT("daemon.rejoin.sent");
	}
}

static void set_slice(struct daemon_session *s, uint32_t slice_us, uint64_t version)
{
	if (slice_us) {
		s->grant.slice_us = slice_us;
		s->grant.slice_version = version;
		/* A device that cannot have it leaves it out, as at the start of a tenant. */
		(void)daemon_hw_set_slice(s, slice_us, version);
	}
}

void daemon_rejoin_apply(struct daemon *d, uint64_t version)
{
	daemon_session_each(d, s)
	{
		struct daemon_session_rejoin r = s->rejoin;

		s->rejoin = (struct daemon_session_rejoin){ 0 };
		if (!is_present(s)) {
			continue;
		}
		if (r.changes) {
			set_weight(s, r.weight);
			set_slice(s, r.slice_us, version);
		} else if (s->weight != s->weight_asked && !is_answered(s)) {
			set_weight(s, s->weight_asked);
		}
	}
}
