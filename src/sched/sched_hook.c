/* The hooks of the scheduler: their contexts and their verdicts. Builds contexts and checks
 * verdicts; running a program is room policy's. A verdict out of range, or of a program in which a
 * helper failed, counts as GO and is reported. */
#include "sched/sched_int.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/point.h"
#include "policy/hook.h"

#define DEFAULT_HOLD_NS 1000000u /* of a HOLD or DEFER that names no time */
#define MAX_RANK 1000000u
/* The default gate mode, from measurements on an H200 (docs/PREEMPTION.md): asking costs a block
 * about 0.3 us, which is noticeable in blocks below GATE_SHORT_BLOCK_NS; their kernels drain soon,
 * unless they are long. Reading the lease first costs 0.2 us more, and keeps the whole first wave
 * of a queued kernel from starting under a lease. */
#define GATE_SHORT_BLOCK_NS 4000u
#define GATE_LONG_KERNEL_NS 500000u
#define GATE_LONG_BLOCK_NS 30000u

static inline uint32_t waves_of(const struct sched_launch *l)
{
	uint64_t waves = l->resident ? l->blocks / l->resident + (l->blocks % l->resident != 0) : 0;

	return (uint32_t)MIN(waves, (uint64_t)UINT32_MAX);
}

static inline void fill_submit(struct gbpf_submit_ctx *c, struct sched_queue *q,
			       const struct sched_launch *l, uint64_t now, uint64_t held_ns)
{
	struct sched *s = q->s;
	uint64_t inflight = sched_gpu_inflight(&s->gpu[q->gpu]);

	c->now_ns = now;
	c->kernel = l->kernel ? l->kernel->hash : 0;
	c->est_ns = l->est_ns;
	c->bytes = l->bytes;
	c->blocks = l->blocks;
	c->inflight_ns = SCHED_ACC_NS(inflight);
	c->held_ns = held_ns;
	c->hold_ns = 0;
	c->tenant = s->cfg.tenant;
	c->queue = q->index;
	c->class_id = load_relaxed(&q->class_id);
	c->weight = load_relaxed(&s->weight);
	c->priority = q->priority;
	c->kind = l->kind;
	c->flags = l->flags;
	c->threads = l->threads;
	c->smem_bytes = l->smem_bytes;
	c->inflight = SCHED_ACC_COUNT(inflight);
	c->level = GBPF_LEVEL_HOLD;
	c->split_blocks = 0;
	c->block_ns = l->block_ns;
	c->deadline_ns = load_relaxed(&s->req[q->gpu].deadline_ns);
	c->block_ok = l->block_ok;
	c->lane = load_relaxed(&s->lane);
	c->uid = load_relaxed(&s->uid);
	c->vgpu = load_relaxed(&s->vgpu);
	c->gpu = sched_gpu_number(q);
	c->group = sched_group_number(s);
	c->stop = l->block_ok ? l->stop : GBPF_STOP_NONE;
	c->resident = l->resident;
	c->waves = waves_of(l);
	c->persistent = c->waves == 1;
	c->gate = GBPF_GATE_DEFAULT;
	c->granted_ns = l->granted_ns;
	c->granted = l->n_granted;
	c->granted_last_ns = l->granted_last_ns;
	c->grant = 0;
	c->why = GBPF_WHY_NONE;
	c->tool = 0;
	c->gpu_ns = 0;
}

/* Returns the gate mode of a launch at block level; wanted: the policy's answer. */
static uint8_t gate_mode(const struct sched_launch *l, uint32_t wanted)
{
	if (l->stop != GBPF_STOP_MACHINE_CODE) {
		return 0;
	}
	if (wanted != GBPF_GATE_DEFAULT && wanted <= GBPF_GATE_FLAG_FIRST) {
		return (uint8_t)wanted;
	}
	if (l->block_ns >= GATE_LONG_BLOCK_NS) {
		return GBPF_GATE_FLAG_FIRST;
	}
	return l->block_ns && l->block_ns < GATE_SHORT_BLOCK_NS && l->est_ns < GATE_LONG_KERNEL_NS
		       ? GBPF_GATE_OFF
		       : GBPF_GATE_TOGETHER;
}

void sched_decide_inside(struct sched_queue *q, const struct sched_launch *l, uint64_t now,
			 uint64_t held_ns, uint32_t asked, struct sched_decision *a)
{
	struct gbpf_submit_ctx c;
	struct sched *s = q->s;
	enum policy_failure failed;
	struct policy_version *v;
	uint64_t verdict;

	a->version = 0;
	a->hold_ns = 0;
	a->why = GBPF_WHY_NONE;
	a->word = NULL;
	a->lc_open = 0;
	a->verdict = GBPF_GO;
	a->level = GBPF_LEVEL_HOLD;
	a->pieces = a->grant = 0;
	a->group = false;
	a->gate = 0;
	a->fault = SCHED_FAULT_NONE;
	v = policy_is_off(&s->policy) ? NULL : policy_current(&s->policy, q->gpu);
	if (!v) {
		return;
	}
	a->version = v->policy.version;
	if (unlikely(load_relaxed(&s->communicates)) && l->may_hold &&
	    (sched_group_waits(q, now, a) || sched_group_boosted(q, now, a->version))) {
		return;
	}
	c.lc_open = sched_boards_scan(s, sched_gpu_number(q), now, a, &c.lc_idle_ns, &c.lc_next_ns);
	a->lc_open = c.lc_open;
	if (!policy_fills(v, POLICY_HOOK_submit)) {
		return;
	}
	fill_submit(&c, q, l, now, held_ns);
	c.asked = asked;
	if (asked) {
		/* reported by the first call */
		c.granted_ns = c.granted_last_ns = c.granted = 0;
	}
	POINT("sched.submit.pinned");
	verdict = policy_hook_run(v, POLICY_HOOK_submit, &c, &failed) & 0xffffffffu;
	POINT("sched.submit.ran");
	if (l->block_ok && !failed && (c.level == GBPF_LEVEL_BLOCK || verdict == GBPF_SPLIT)) {
		a->level = GBPF_LEVEL_BLOCK;
		a->pieces = verdict == GBPF_SPLIT ? c.split_blocks : 0;
		a->gate = gate_mode(l, c.gate);
		verdict = verdict == GBPF_SPLIT ? GBPF_GO : verdict;
	}
	if (unlikely(failed || verdict > GBPF_DEFER)) {
		a->fault = failed == POLICY_OUTLIVED	    ? SCHED_FAULT_OUTLIVED
			   : failed == POLICY_HELPER_FAILED ? SCHED_FAULT_HELPER
			   : verdict == GBPF_SPLIT	    ? SCHED_FAULT_SPLIT
							    : SCHED_FAULT_RANGE;
		return;
	}
	a->fault = unlikely(c.gate > GBPF_GATE_FLAG_FIRST) ? SCHED_FAULT_GATE : SCHED_FAULT_NONE;
	a->verdict = (uint8_t)verdict;
	a->grant = verdict == GBPF_GO && a->level != GBPF_LEVEL_BLOCK ? MIN(c.grant, GBPF_GRANT_MAX)
								      : 0;
	a->hold_ns = c.hold_ns ? c.hold_ns : DEFAULT_HOLD_NS;
	a->why = c.why;
	if (unlikely(load_relaxed(&s->communicates)) && l->may_hold) {
		sched_group_apply(q, now, a);
	}
}

void sched_decide(struct sched_queue *q, const struct sched_launch *l, uint64_t now,
		  uint64_t held_ns, uint32_t asked, struct sched_decision *a)
{
	struct policy_reader *reader = policy_read_enter();

	sched_decide_inside(q, l, now, held_ns, asked, a);
	policy_read_leave(reader);
	(void)add_relaxed(&q->s->submit_calls, 1u);
	if (unlikely(a->fault)) {
		sched_decision_report(q, a);
	}
}

void sched_ask(struct sched_queue *q, const struct sched_launch *l, uint64_t now_ns,
	       struct sched_verdict *ret)
{
	struct sched_decision a;

	sched_decide(q, l, now_ns, 0, 0, &a);
	*ret = (struct sched_verdict){ a.version, a.hold_ns, a.verdict,
				       a.fault != SCHED_FAULT_NONE };
}

static const char *fault_text(uint8_t fault)
{
	switch (fault) {
	case SCHED_FAULT_OUTLIVED:
		return "submit outlived three epochs; the launch goes";
	case SCHED_FAULT_HELPER:
		return "a helper failed in submit; the launch goes";
	case SCHED_FAULT_SPLIT:
		return "SPLIT needs the block level, which this launch does not have; it goes "
		       "whole";
	case SCHED_FAULT_GATE:
		return "gate mode out of range; the default applies";
	default:
		return "verdict of submit out of range; the launch goes";
	}
}

void sched_fault_report(struct sched *s, uint64_t version, unsigned hook, bool failed,
			const char *what)
{
	char text[120];

	if (failed) {
		sched_stat_add(s, helper_errors, 1u);
	} else {
		sched_stat_add(s, verdict_errors, 1u);
		policy_count_verdict(&s->policy, version, hook);
	}
	snprintf(text, sizeof(text), "policy version %llu: %s", (unsigned long long)version, what);
	sched_note(s, "policy-error", text);
}

void sched_decision_report(struct sched_queue *q, const struct sched_decision *a)
{
	bool failed = a->fault == SCHED_FAULT_HELPER || a->fault == SCHED_FAULT_OUTLIVED;

	sched_fault_report(q->s, a->version, POLICY_HOOK_submit, failed, fault_text(a->fault));
}

void sched_hook_queue_create(struct sched_queue *q)
{
	struct sched *s = q->s;
	struct gbpf_queue_create_ctx c = { .now_ns = clock_now_ns(),
					   .tenant = s->cfg.tenant,
					   .queue = q->index,
					   .priority = q->priority,
					   .class_id = q->class_id,
					   .lane = load_relaxed(&s->lane),
					   .sm_percent =
						   s->cfg.sm_percent ? s->cfg.sm_percent : 100,
					   .gpu = sched_gpu_number(q),
					   .vgpu = load_relaxed(&s->vgpu) };
	uint32_t share = c.sm_percent;
	struct policy_reader *reader = policy_read_enter();
	bool off = policy_is_off(&s->policy);
	struct policy_result r;

	policy_read_leave(reader);
	q->sm_percent = off ? 100 : share;
	if (!policy_hook_call(&s->policy, q->gpu, POLICY_HOOK_queue_create, &c, &r)) {
		return;
	}
	if (c.class_id > GBPF_CLASS_BATCH || (c.sm_percent != share && c.sm_percent != 100)) {
		policy_count_verdict(&s->policy, r.version, POLICY_HOOK_queue_create);
		sched_stat_add(s, verdict_errors, 1u);
		sched_note(
			s, "policy-error",
			"queue_create: invalid class or share of the multiprocessors; using those "
			"of the tenant");
		return;
	}
	q->class_fixed = c.class_id != q->class_id;
	store_relaxed(&q->class_id, c.class_id);
	q->priority = c.priority;
	q->sm_percent = c.sm_percent;
	if (c.slice_us) {
		store_release(&s->slice_wanted[q->gpu], MIN(c.slice_us, UINT32_MAX - 1) + 1);
		sched_wake_agent(s, SCHED_AGENT_NEAR);
	}
}

void sched_hook_queue_destroy(struct sched_queue *q, uint64_t launches)
{
	struct gbpf_queue_destroy_ctx c = { .now_ns = clock_now_ns(),
					    .tenant = q->s->cfg.tenant,
					    .queue = q->index,
					    .launches = launches,
					    .gpu = sched_gpu_number(q) };
	struct policy_result r;

	(void)policy_hook_call(&q->s->policy, q->gpu, POLICY_HOOK_queue_destroy, &c, &r);
}

uint64_t sched_hook_dispatch(struct sched_queue *q, const struct sched_launch *l, uint64_t now)
{
	struct gbpf_dispatch_ctx c = { .now_ns = now,
				       .held_ns = sched_since_ns(l->begin_ns, now),
				       .est_ns = l->est_ns,
				       .tenant = q->s->cfg.tenant,
				       .queue = q->index,
				       .class_id = load_relaxed(&q->class_id),
				       .priority = q->priority,
				       .vgpu = load_relaxed(&q->s->vgpu),
				       .group = sched_group_number(q->s),
				       .gpu = sched_gpu_number(q) };
	struct policy_result r;
	uint64_t rank;

	if (!policy_hook_call(&q->s->policy, q->gpu, POLICY_HOOK_dispatch, &c, &r)) {
		return 0;
	}
	rank = r.verdict & 0xffffffffu;
	if (rank > MAX_RANK) {
		policy_count_verdict(&q->s->policy, r.version, POLICY_HOOK_dispatch);
	}
	return r.failed || rank > MAX_RANK ? 0 : rank;
}

uint64_t sched_hook_retire(struct sched_queue *q, const struct sched_retired *r, uint64_t now)
{
	struct sched *s = q->s;
	struct gbpf_retire_ctx c = { .now_ns = now,
				     .kernel = r->hash,
				     .duration_ns = r->duration_ns,
				     .overlap_ns = r->overlap_ns,
				     .held_ns = r->held_ns,
				     .submit_version = r->version,
				     .tenant = s->cfg.tenant,
				     .queue = q->index,
				     .class_id = load_relaxed(&q->class_id),
				     .weight = load_relaxed(&s->weight),
				     .uid = load_relaxed(&s->uid),
				     .vgpu = load_relaxed(&s->vgpu),
				     .group = sched_group_number(s),
				     .gpu = sched_gpu_number(q),
				     .count = r->count,
				     .flags = r->flags,
				     .level = r->level,
				     .interrupted = r->interrupted,
				     .linger_ns = SCHED_DEFAULT_CLOSE_DELAY_NS,
				     .gap_ns = load_relaxed(&s->req[q->gpu].gap_ns) };
	struct policy_reader *reader = policy_read_enter();
	struct policy_version *v =
		policy_is_off(&s->policy) ? NULL : policy_current(&s->policy, q->gpu);
	enum policy_failure failed = POLICY_FINE;
	uint64_t charged = r->duration_ns - r->overlap_ns;

	_Static_assert(sizeof(c) <= POLICY_OBSERVED_BYTES, "tools get a copy");
	(void)add_relaxed(&load_acquire(&s->policy.stats)->busy_ns, charged);
	(void)add_relaxed(&load_acquire(&s->policy.stats)->gpu[q->gpu].busy_ns, charged);
	if (unlikely(load_relaxed(&policy_n_observers))) {
		policy_observe_all(POLICY_HOOK_retire, &c, sizeof(c));
	}
	if (v && policy_fills(v, POLICY_HOOK_retire)) {
		POINT("sched.retire.pinned");
		(void)policy_hook_run(v, POLICY_HOOK_retire, &c, &failed);
	}
	policy_read_leave(reader);
	if (unlikely(failed)) {
		sched_stat_add(s, helper_errors, 1u);
		return SCHED_DEFAULT_CLOSE_DELAY_NS;
	}
	return MIN(c.linger_ns, SCHED_MAX_CLOSE_DELAY_NS);
}

bool sched_policy_in_force(struct sched_queue *q)
{
	struct policy_reader *reader = policy_read_enter();
	struct policy *p = &q->s->policy;
	bool yes = !policy_is_off(p) && policy_current(p, q->gpu) != NULL;

	policy_read_leave(reader);
	return yes;
}

/* ---- versions, called by the session ---- */

static void versions_changed(struct sched *s)
{
	store_relaxed(&s->copy_hooks,
		      (uint32_t)policy_any_fills(&s->policy, POLICY_HOOK_copy_enqueue));
	sched_update_active(s);
}

int sched_policy_prepare(struct sched *s, uint64_t version, uint32_t gpus, int image_fd,
			 const int region_fds[EBPF_REGIONS])
{
	int err = s->forked ? -EINVAL
			    : policy_prepare(&s->policy, version, gpus, image_fd, region_fds);

	if (!err) {
		versions_changed(s);
	}
	return err;
}

void sched_policy_drop(struct sched *s, uint64_t version, uint32_t gpus)
{
	policy_drop(&s->policy, version, gpus);
	versions_changed(s);
}

bool sched_policy_is_prepared(const struct sched *s, uint64_t version, uint32_t gpus)
{
	return policy_is_prepared(&s->policy, version, gpus);
}

bool sched_policy_sweep(struct sched *s)
{
	if (s->policy.dir == &s->absent.dir || s->forked || !policy_sweep(&s->policy)) {
		return false;
	}
	versions_changed(s);
	return true;
}
