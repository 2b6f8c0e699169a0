/* The agent's step: what must happen although no application thread calls. Sleeping and waking is a handshake: it says that
 * it sleeps, then looks once more; whoever brings work makes it visible, then looks whether it sleeps. */
#include "sched/sched_int.h"

#include "base/clock.h"

void wake_agent(struct sched *s)
{
	if (load_relaxed(&s->agent_asleep) && xchg_acqrel(&s->agent_asleep, 0u) && s->cfg.wake_agent) {
		s->cfg.wake_agent(s->cfg.arg);
	}
}

static bool work_left(struct sched *s)
{
	return requests_any(s) || load_seqcst(&s->deferred) || ACC_COUNT(load_seqcst(&s->inflight));
}

uint64_t sched_agent_step(struct sched *s)
{
	uint64_t now = clock_now_ns(), sleep;

	if (load_relaxed(&s->forked)) {
		return UINT64_MAX;
	}
	store_seqcst(&s->agent_asleep, 0u);
	sleep = requests_step(s, now);
	sleep = MIN(sleep, deferred_step(s, now));
	sleep = MIN(sleep, inflight_step(s, now));
	stats_publish(s, now);
	if (sleep != UINT64_MAX) {
		return sleep;
	}
	store_seqcst(&s->agent_asleep, 1u);
	fence_seqcst();
	if (work_left(s)) {
		store_relaxed(&s->agent_asleep, 0u);
		return OPEN_POLL_NS;
	}
	return UINT64_MAX;
}
