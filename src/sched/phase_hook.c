/* The hook collective_phase: tells the policy that a collective begins or has ended. Builds its
 * context and checks its verdict; group.c applies it. */
#include "sched/sched_int.h"

#include "policy/hook.h"

#define DEFAULT_HOLD_NS 1000000u

static void fill(struct gbpf_collective_phase_ctx *c, const struct sched_queue *q, uint64_t number,
		 uint64_t kernel, uint64_t now)
{
	const struct sched *s = q->s;
	struct sched_ranks r = sched_group_look(q, number, now);

	c->now_ns = now;
	c->number = number;
	c->kernel = kernel;
	c->waited_ns = 0;
	if (kernel && r.first_ns) {
		c->waited_ns = now - r.first_ns;
	} else if (!kernel && r.own_ns) {
		c->waited_ns = r.last_ns - r.own_ns;
	}
	c->hold_ns = 0;
	c->phase = kernel ? GBPF_PHASE_BEGIN : GBPF_PHASE_END;
	c->ranks = r.ranks;
	c->ready = r.ready;
	c->tenant = s->cfg.tenant;
	c->queue = q->index;
	c->class_id = load_relaxed(&q->class_id);
	c->weight = load_relaxed(&s->weight);
	c->uid = load_relaxed(&s->uid);
	c->vgpu = load_relaxed(&s->vgpu);
	c->lane = load_relaxed(&s->lane);
	c->gpu = sched_gpu_number(q);
	c->group = sched_group_number(s);
}

struct sched_phase_verdict sched_hook_phase(struct sched_queue *q, uint64_t number, uint64_t kernel,
					    uint64_t now)
{
	struct sched_phase_verdict go = { .verdict = GBPF_COLLECTIVE_GO }, a = go;
	struct gbpf_collective_phase_ctx c;
	struct policy *p = &q->s->policy;
	struct policy_version *v = policy_is_off(p) ? NULL : policy_current(p, q->gpu);
	enum policy_failure failed;

	if (!v || !policy_fills(v, POLICY_HOOK_collective_phase)) {
		return go;
	}
	fill(&c, q, number, kernel, now);
	a.verdict = (uint32_t)policy_hook_run(v, POLICY_HOOK_collective_phase, &c, &failed);
	a.version = v->policy.version;
	a.hold_ns = c.hold_ns ? c.hold_ns : DEFAULT_HOLD_NS;
	a.failed = failed != POLICY_FINE;
	a.out_of_range = !a.failed && a.verdict > GBPF_COLLECTIVE_HOLD;
	if (unlikely(a.failed || a.out_of_range)) {
		a.verdict = GBPF_COLLECTIVE_GO;
	}
	return a;
}
