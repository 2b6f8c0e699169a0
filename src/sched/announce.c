/* Announcements: a process states when its next request comes (gbpf_hint), or its rhythm does. The
 * time is published on the board for the policies of other tenants, and leases are raised a little
 * earlier, so that the GPU is free when the request arrives. A process that announces requests
 * which do not come is ignored for a while. Must not open requests. */
#include "sched/sched_int.h"

#include <errno.h>

#include "base/clock.h"

#define PAST_NS 1000000u /* age up to which a time counts as now */
#define MAX_LEAD_NS 10000000u

static void on_board(struct sched *s, uint32_t gpu, uint64_t at, uint64_t deadline)
{
	struct policy_reader *pin = policy_read_enter();
	struct proto_board_gpu *b = sched_own_board(s, gpu);

	if (b) {
		store_relaxed(&b->deadline_ns, deadline);
		store_release(&b->next_ns, at);
	}
	policy_read_leave(pin);
}

static void announce(struct sched *s, uint32_t gpu, uint64_t at, uint64_t deadline, uint64_t late)
{
	struct sched_request *r = &s->req[gpu];

	store_relaxed(&r->next_deadline_ns, deadline);
	store_relaxed(&r->late_ns, late);
	store_release(&r->next_ns, at);
	on_board(s, gpu, at, deadline);
	(void)add_seqcst(&r->announced, 1u);
	sched_stat_add(s, hints, 1u);
}

int sched_announce(struct sched *s, uint32_t gpu, uint64_t at_ns, uint64_t deadline_ns)
{
	uint64_t now = clock_now_ns();

	if (gpu >= PROTO_MAX_GPUS || at_ns + PAST_NS < now || at_ns > now + SCHED_ANNOUNCE_MAX_NS ||
	    (deadline_ns && deadline_ns < at_ns)) {
		return -EINVAL;
	}
	if (load_relaxed(&s->forked) || load_relaxed(&s->policy.off) ||
	    (!load_relaxed(&s->latency_queues) &&
	     load_relaxed(&s->class_id) != GBPF_CLASS_LATENCY)) {
		return -EPERM;
	}
	if (now < load_relaxed(&s->req[gpu].ann.mute_ns)) {
		return -EAGAIN;
	}
	announce(s, gpu, MAX(at_ns, now), deadline_ns, SCHED_LATE_NS);
	sched_wake_agent(s, SCHED_AGENT_NEAR);
	return 0;
}

void sched_set_lead(struct sched *s, uint64_t lead_ns, uint64_t warm_ns)
{
	store_relaxed(&s->announce.lead_ns,
		      lead_ns == SCHED_LEAD_AUTO ? lead_ns : MIN(lead_ns, (uint64_t)MAX_LEAD_NS));
	store_relaxed(&s->announce.warm_ns, MIN(warm_ns, (uint64_t)MAX_LEAD_NS));
}

void sched_set_rhythm(struct sched *s, enum sched_rhythm mode, uint64_t period_ns)
{
	store_relaxed(&s->announce.rhythm_ns, period_ns);
	store_release(&s->announce.rhythm_mode, (uint32_t)mode);
}

/* Returns how early leases are raised. In process mode a context switch must fit in after other
 * work has left the GPU. */
static uint64_t lead_of(const struct sched *s)
{
	uint64_t lead = load_relaxed(&s->announce.lead_ns);

	return lead != SCHED_LEAD_AUTO ? lead : sched_lead_ns(s);
}

/* An announcement further ahead stays in force: the request that came is another one. */
void sched_announce_met(struct sched *s, uint32_t gpu, uint64_t now)
{
	struct proto_board_gpu *b = sched_own_board(s, gpu);
	struct sched_request *r = &s->req[gpu];
	uint64_t at = load_acquire(&r->next_ns), deadline = load_relaxed(&r->next_deadline_ns);

	if (!at || now + lead_of(s) < at || !cas_acqrel(&r->next_ns, &at, 0u)) {
		return;
	}
	store_relaxed(&r->deadline_ns, deadline);
	store_relaxed(&r->ann.wrong, 0u);
	store_seqcst(&r->ahead, 0u);
	if (b) {
		store_relaxed(&b->deadline_ns, deadline);
		store_release(&b->next_ns, (uint64_t)0);
	}
}

bool sched_announce_pending(const struct sched *s)
{
	for (uint32_t g = 0; g < PROTO_MAX_GPUS; g++) {
		if (load_seqcst(&s->req[g].announced) != s->req[g].ann.seen) {
			return true;
		}
	}
	return false;
}

/* Sees each opening once: while a request is open the agent does not sleep long. */
static void follow_rhythm(struct sched *s, uint32_t gpu, uint64_t now)
{
	struct sched_request *r = &s->req[gpu];
	uint64_t opened = load_relaxed(&r->opened_ns), period, spread = SCHED_LATE_NS / 2;
	uint32_t mode = load_acquire(&s->announce.rhythm_mode);

	if (mode == SCHED_RHYTHM_OFF || opened == r->ann.opened_ns) {
		return;
	}
	r->ann.opened_ns = opened;
	sched_rhythm_add(&r->ann.rhythm, opened);
	period = mode == SCHED_RHYTHM_PERIOD ? load_relaxed(&s->announce.rhythm_ns)
					     : sched_rhythm_period(&r->ann.rhythm, &spread);
	if (period && opened + period > now && !load_relaxed(&r->next_ns) &&
	    now >= load_relaxed(&r->ann.mute_ns)) {
		announce(s, gpu, opened + period, 0, MIN(2 * spread, (uint64_t)SCHED_LATE_NS));
	}
}

/* Raises leases for the announced time `at`; 0 lowers them unless the request is open. */
static void ahead_set(struct sched *s, uint32_t gpu, uint64_t now, uint64_t at)
{
	struct sched_request *r = &s->req[gpu];

	r->ann.since_ns = at ? now : 0;
	store_seqcst(&r->ahead, at ? 1u : 0u);
	fence_seqcst();
	if (at && load_seqcst(&r->next_ns) !=
			  at) { /* it was met between the caller's look and the store */
		store_seqcst(&r->ahead, 0u);
	}
	sched_lease_update(s, gpu, now);
}

static void was_wrong(struct sched *s, uint32_t gpu, uint64_t now)
{
	struct sched_request *r = &s->req[gpu];
	uint32_t wrong = load_relaxed(&r->ann.wrong) + 1;

	sched_stat_add(s, wrong_hints, 1u);
	if (wrong >= SCHED_WRONG_MAX) {
		wrong = 0;
		store_relaxed(&r->ann.mute_ns, now + SCHED_MUTE_NS);
		sched_note(s, "hints-wrong",
			   "three announced requests in a row did not come: announcements are "
			   "ignored for 1 s");
	}
	store_relaxed(&r->ann.wrong, wrong);
}

/* Launches the empty kernel when it is due. Returns ns until then, or UINT64_MAX. */
static uint64_t warm(struct sched *s, uint32_t gpu, uint64_t at, uint64_t now)
{
	uint64_t ahead = load_relaxed(&s->announce.warm_ns);
	struct sched_request *r = &s->req[gpu];

	if (!s->cfg.device->warm || !ahead || load_relaxed(&s->lane) != GBPF_LANE_PROCESS ||
	    r->ann.warmed_ns == at || now >= at) {
		return UINT64_MAX;
	}
	if (now + ahead < at) {
		return at - ahead - now;
	}
	r->ann.warmed_ns = at;
	if (load_seqcst(&r->open) == SCHED_REQUEST_CLOSED && sched_lease_allowed(s, gpu)) {
		s->cfg.device->warm(s->cfg.dev, gpu);
	}
	return UINT64_MAX;
}

/* Follows one announcement. Returns ns until the next look. */
static uint64_t follow(struct sched *s, uint32_t gpu, uint64_t at, uint64_t now)
{
	uint64_t lead = lead_of(s), late, next;
	struct sched_request *r = &s->req[gpu];

	if (now >= at && load_seqcst(&r->open) != SCHED_REQUEST_CLOSED) {
		sched_announce_met(s, gpu,
				   now); /* it opened before the announced time and is still open */
		return UINT64_MAX;
	}
	if (now + lead < at) {
		if (r->ann.since_ns) { /* postponed after other tenants have made way for it */
			ahead_set(s, gpu, now, 0);
			was_wrong(s, gpu, now);
		}
		next = warm(s, gpu, at, now);
		return MIN(next, at - lead - now);
	}
	late = load_relaxed(&r->late_ns);
	if (!r->ann.since_ns) {
		ahead_set(s, gpu, now, at);
	}
	if (now > at + late || now > r->ann.since_ns + lead + late) {
		if (cas_acqrel(&r->next_ns, &at, 0u)) {
			on_board(s, gpu, 0, 0);
			ahead_set(s, gpu, now, 0);
			was_wrong(s, gpu, now);
		}
		return UINT64_MAX;
	}
	next = warm(s, gpu, at, now);
	return MIN(next, MIN(at + late - now + 1, (uint64_t)SCHED_RENEW_NS));
}

uint64_t sched_announce_step(struct sched *s, uint64_t now)
{
	uint64_t sleep = UINT64_MAX;

	for (uint32_t g = 0; g < PROTO_MAX_GPUS; g++) {
		struct sched_request *r = &s->req[g];
		uint64_t at, again;

		r->ann.seen = load_seqcst(&r->announced);
		follow_rhythm(s, g, now);
		if (!load_seqcst(&r->ahead)) { /* the announced request came */
			r->ann.since_ns = 0;
		}
		at = load_acquire(&r->next_ns);
		if (at) {
			again = follow(s, g, at, now);
			sleep = MIN(sleep, again);
		}
		sched_lease_step(s, g, now);
	}
	return sleep;
}
