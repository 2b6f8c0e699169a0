/* The agent's step: what must happen although no application thread calls. Sleeping and waking is a
 * handshake: it says that it sleeps, then looks once more; whoever brings work makes it visible,
 * then looks whether it sleeps. */
#include "sched/sched_int.h"

#include "base/clock.h"

void wake_agent(struct sched *s, uint32_t depth)
{
	if (load_seqcst(&s->agent_asleep) >= depth &&
	    xchg_acqrel(&s->agent_asleep, (uint32_t)AGENT_SOON) != AGENT_SOON &&
	    s->cfg.wake_agent) {
		s->cfg.wake_agent(s->cfg.arg);
	}
}

/* Work that does not allow this depth of sleep has come meanwhile. (A launch adds itself to
 * inflight, calls the driver, whose locks are full barriers, and then looks whether the agent
 * sleeps.) */
static bool work_came(struct sched *s, uint32_t depth)
{
	return requests_any(s) || announce_came(s) || load_seqcst(&s->deferred) ||
	       (depth == AGENT_ASLEEP && ACC_COUNT(tally_sum(&s->inflight)));
}

uint64_t sched_agent_step(struct sched *s)
{
	uint64_t now = clock_now_ns(), sleep, announced;
	uint32_t depth;

	if (load_relaxed(&s->forked)) {
		return UINT64_MAX;
	}
	store_seqcst(&s->agent_asleep, (uint32_t)AGENT_SOON);
	sleep = requests_step(s, now);
	announced = announce_step(s, now);
	sleep = MIN(sleep, announced);
	sleep = MIN(sleep, deferred_step(s, now));
	sleep = MIN(sleep, inflight_step(s, now));
	if (sleep > OPEN_POLL_NS || now - s->last_stats_ns >= STEADY_NS) {
		s->last_stats_ns = now;
		stats_publish(s, now);
	}
	if (sleep <= OPEN_POLL_NS) {
		return sleep;
	}
	depth = sleep == UINT64_MAX ? AGENT_ASLEEP : AGENT_SLOW;
	store_seqcst(&s->agent_asleep, depth);
	fence_seqcst();
	if (work_came(s, depth)) {
		store_relaxed(&s->agent_asleep, (uint32_t)AGENT_SOON);
		return OPEN_POLL_NS;
	}
	return sleep;
}
