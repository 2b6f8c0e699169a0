/* The hook mem_fault: whether memory that a launch names comes back to the device first. Builds its
 * context, checks its verdict, and bounds how long it may hold. */
#include "sched/sched_int.h"

#include "base/clock.h"
#include "policy/hook.h"

#define DEFAULT_HOLD_NS 1000000u
#define DRAIN_MAX_NS UINT64_C(10000000000)

static void fill(struct gbpf_mem_fault_ctx *c, const struct sched *s,
		 const struct sched_mem_fault *f, uint64_t now)
{
	c->now_ns = now;
	c->kernel = f->kernel;
	c->bytes = f->bytes;
	c->missing = f->missing;
	c->room = f->room;
	c->in_place_ns = f->in_place_ns;
	c->lost_ns = f->lost_ns;
	c->ratio = f->ratio;
	c->move_ns = f->move_ns;
	c->held_ns = sched_since_ns(f->came_ns, now);
	c->drain_ns = SCHED_MEM_DRAIN_NS;
	c->hold_ns = 0;
	c->asked = f->asked;
	c->tenant = s->cfg.tenant;
	c->class_id = load_relaxed(&s->class_id);
	c->weight = load_relaxed(&s->weight);
	c->gpu = load_relaxed(&s->policy.gpu[f->gpu].index);
	c->lane = load_relaxed(&s->lane);
	c->uid = load_relaxed(&s->uid);
	c->vgpu = load_relaxed(&s->vgpu);
}

bool sched_mem_decide(struct sched *s, struct sched_mem_fault *f, uint32_t *ret_verdict)
{
	uint64_t now = clock_now_ns(), limit = load_relaxed(&s->limit_ns);
	struct policy_result a;
	struct gbpf_mem_fault_ctx c;
	bool failed;

	f->came_ns = f->came_ns ? f->came_ns : now;
	fill(&c, s, f, now);
	f->asked++;
	if (!policy_hook_call(&s->policy, f->gpu, POLICY_HOOK_mem_fault, &c, &a)) {
		return false;
	}
	failed = a.failed != POLICY_FINE;
	if (failed || a.verdict > GBPF_MEM_HOLD) {
		sched_fault_report(s, a.version, POLICY_HOOK_mem_fault, failed,
				   failed ? "a helper failed in mem_fault; it does not count"
					  : "verdict of mem_fault out of range; it does not count");
		return false;
	}
	if (a.verdict == GBPF_MEM_HOLD &&
	    (c.held_ns >= limit || load_acquire(&s->policy.dir) == &s->absent.dir)) {
		a.verdict = GBPF_MEM_IN_PLACE;
	}
	f->drain_ns = MIN(c.drain_ns, DRAIN_MAX_NS);
	f->hold_ns = MIN(c.hold_ns ? c.hold_ns : DEFAULT_HOLD_NS, limit);
	*ret_verdict = (uint32_t)a.verdict;
	return true;
}
