/* The step of the agent thread: the work that is due although no application thread calls. Sleeping
 * is a handshake: the agent stores how deep it sleeps and then looks for work once more; a thread
 * that brings work publishes it and then looks at how deep the agent sleeps. Must not block on a
 * lock that is held over a driver call. */
#include "sched/sched_int.h"

#include "base/clock.h"

void sched_wake_agent(struct sched *s, uint32_t depth)
{
	if (load_seqcst(&s->agent.asleep) >= depth &&
	    xchg_acqrel(&s->agent.asleep, (uint32_t)SCHED_AGENT_AWAKE) != SCHED_AGENT_AWAKE &&
	    s->cfg.wake_agent) {
		s->cfg.wake_agent(s->cfg.arg);
	}
}

/* Returns whether work has come that does not allow this depth of sleep. Pairs with
 * sched_wake_agent: the store of `asleep` and its fence come before these reads, and a launch
 * stores its account before it reads `asleep` (the driver's locks between them are full barriers).
 */
static bool work_came(struct sched *s, uint32_t depth, uint32_t defers)
{
	return sched_requests_unseen(s) || sched_announce_pending(s) ||
	       load_seqcst(&s->defer_seq) != defers ||
	       (depth >= SCHED_AGENT_SLOW && load_seqcst(&s->n_runs)) ||
	       (depth == SCHED_AGENT_ASLEEP &&
		(SCHED_ACC_COUNT(sched_inflight(s)) || sched_collectives_unseen(s)));
}

/* Applies the time slices that queue_create chose; the control takes milliseconds. */
static void set_slices(struct sched *s)
{
	for (uint32_t g = 0; g < PROTO_MAX_GPUS; g++) {
		uint32_t slice = load_relaxed(&s->slice_wanted[g]);

		if (unlikely(slice)) {
			slice = xchg_acqrel(&s->slice_wanted[g], 0u);
			if (s->cfg.device->slice &&
			    s->cfg.device->slice(s->cfg.dev, g, slice - 1) < 0) {
				sched_note(s, "slice",
					   "cannot set the time slice that queue_create chose: the "
					   "device refused it");
			}
		}
	}
}

uint64_t sched_agent_step(struct sched *s)
{
	uint64_t now = clock_now_ns(), sleep, announced, deferred, inflight, stats;
	uint32_t depth, defers;

	if (load_relaxed(&s->forked)) {
		return UINT64_MAX;
	}
	store_seqcst(&s->agent.asleep, (uint32_t)SCHED_AGENT_AWAKE);
	defers = load_seqcst(&s->defer_seq);
	set_slices(s);
	sleep = sched_requests_step(s, now);
	announced = sched_announce_step(s, now);
	sleep = MIN(sleep, announced);
	deferred = sched_deferred_step(s, now);
	inflight = sched_inflight_step(s, now);
	sleep = MIN(MIN(sleep, deferred), inflight);
	if (sleep > SCHED_STEADY_NS || now - s->agent.last_stats_ns >= SCHED_STEADY_NS) {
		s->agent.last_stats_ns = now;
		stats = sched_stats_publish(s, now);
		sleep = MIN(sleep, stats);
	}
	if (sleep <= SCHED_OPEN_POLL_NS) {
		return sleep;
	}
	depth = sleep == UINT64_MAX	     ? SCHED_AGENT_ASLEEP
		: sleep > SCHED_RUN_QUIET_NS ? SCHED_AGENT_SLOW
					     : SCHED_AGENT_NEAR;
	store_seqcst(&s->agent.asleep, depth);
	fence_seqcst();
	if (work_came(s, depth, defers)) {
		store_relaxed(&s->agent.asleep, (uint32_t)SCHED_AGENT_AWAKE);
		return SCHED_OPEN_POLL_NS;
	}
	return sleep;
}
