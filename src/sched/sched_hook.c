/* The hooks of the scheduler: their contexts and their verdicts. Builds contexts and checks
 * verdicts; running a program is room policy's. A verdict out of range, or of a program in which a
 * helper failed, counts as GO and is reported. */
#include "sched/sched_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/point.h"

#define DEFAULT_HOLD_NS 1000000u /* of a HOLD or DEFER that names no time */
#define SPLIT_TEXT "SPLIT needs the block level, which this launch does not have: it goes whole"

/* What the agent has mapped and touched is in none of this core's translation buffers and caches
 * yet. The program would fetch it piece by piece, each after the one before; loads for which nobody
 * waits fetch it all at the same time (with prefetch instructions it took as long as without). */
static inline void fetch(const struct ebpf_policy *p)
{
	uintptr_t code = (uintptr_t)p->entry[POLICY_HOOK_submit];

	for (uintptr_t at = code;
	     code && at < code + 192 && at < (uintptr_t)p->code + p->code_bytes; at += 64) {
		(void)*(const volatile char *)at;
	}
	(void)load_relaxed(&p->env.helper_errors);
	for (uint32_t i = 0; i < MIN(p->env.n_maps, 8u); i++) {
		const volatile uint8_t *data = p->env.maps[i].data;

		if (data) {
			(void)*data;
		}
	}
}

static struct policy_version *lookup(struct sched *s, uint32_t gpu, uint64_t version)
{
	for (uint32_t i = 0; i < MAX_PREPARED; i++) {
		if (load_acquire(&s->prepared[i].version) == version) {
			fetch(&s->prepared[i].policy);
			store_relaxed(&s->hint[gpu], i);
			store_relaxed(&load_acquire(&s->stats)->version_in_use, version);
			return &s->prepared[i];
		}
	}
	return NULL;
}

/* Another version than at the last call. When it cannot be found because it was dropped since the
 * word was read, the word has changed by then; when it is not prepared here yet, the one in use
 * stays. */
static NOINLINE struct policy_version *find_version(struct sched *s, uint32_t gpu, uint32_t index,
						    uint64_t version)
{
	uint64_t begin = clock_fast_ns();
	struct policy_version *p;

	for (int tries = 0; tries < 4; tries++) {
		uint64_t again;

		p = version ? lookup(s, gpu, version) : NULL;
		if (p) {
			sched_stat_max(&load_acquire(&s->stats)->swap_stall_ns,
				       clock_fast_ns() - begin);
			return p;
		}
		again = load_acquire(&load_acquire(&s->dir)->version[index]);
		if (again == version) {
			break;
		}
		version = again;
	}
	if (!version) {
		store_relaxed(&s->hint[gpu], NO_PREPARED);
		return NULL;
	}
	p = &s->prepared[load_relaxed(&s->hint[gpu])];
	return load_acquire(&p->version) ? p : NULL;
}

/* The policy of the queue's GPU now, or NULL. Inside a pin, and valid until it is left. */
static inline struct policy_version *policy_current(struct sched *s, uint32_t gpu)
{
	uint32_t index = load_relaxed(&s->gpu_index[gpu]);
	struct policy_version *p;
	uint64_t version;

	if (unlikely(index >= PROTO_MAX_GPUS)) {
		return NULL;
	}
	version = load_acquire(&load_acquire(&s->dir)->version[index]);
	p = &s->prepared[load_relaxed(&s->hint[gpu])];
	if (likely(load_acquire(&p->version) == version)) {
		return likely(version) ? p : NULL;
	}
	return find_version(s, gpu, index, version);
}

static inline bool is_off(struct sched *s)
{
	return load_relaxed(&s->off) || load_relaxed(&load_acquire(&s->dir)->off);
}

static inline void count_failure(struct policy_version *p, unsigned hook, enum proto_failure what)
{
	_Static_assert(POLICY_HOOK_retire < POLICY_HOOKS, "every local hook has its counters");
	(void)add_relaxed(&p->failures[hook][what], 1u);
}

/* What it read from epoch arrays is a mix of several epochs. */
static inline bool outlived(const struct policy_version *p)
{
	return unlikely(p->policy.epoch) && ebpf_latch.outlived;
}

/* Runs a hook that is filled; *ret_helper says whether a helper failed meanwhile, or the call took
 * so long that its verdict is worth nothing. */
static inline uint64_t run(struct policy_version *p, unsigned hook, void *ctx, bool *ret_helper)
{
	uint64_t errors = load_relaxed(&p->policy.env.helper_errors);
	uint64_t verdict = ebpf_policy_run(&p->policy, hook, ctx);

	*ret_helper = load_relaxed(&p->policy.env.helper_errors) != errors || outlived(p);
	if (unlikely(*ret_helper)) {
		count_failure(p, hook, outlived(p) ? PROTO_FAILED_EPOCH : PROTO_FAILED_HELPER);
	}
	return verdict;
}

static inline void fill_submit(struct gbpf_submit_ctx *c, struct sched_queue *q,
			       const struct sched_launch *l, uint64_t now, uint64_t held_ns)
{
	struct sched *s = q->s;
	uint64_t inflight = sched_tally_sum(&s->inflight);

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
}

void sched_decide_inside(struct sched_queue *q, const struct sched_launch *l, uint64_t now,
			 uint64_t held_ns, uint32_t asked, struct sched_decision *a)
{
	struct gbpf_submit_ctx c;
	struct sched *s = q->s;
	struct policy_version *p;
	uint64_t verdict;
	bool helper;

	a->version = 0;
	a->hold_ns = 0;
	a->word = NULL;
	a->lc_open = 0;
	a->verdict = GBPF_GO;
	a->level = GBPF_LEVEL_HOLD;
	a->pieces = 0;
	a->fault = SCHED_FAULT_NONE;
	p = is_off(s) ? NULL : policy_current(s, q->gpu);
	if (!p) {
		return;
	}
	a->version = p->policy.version;
	c.lc_open = sched_boards_scan(s, load_relaxed(&s->gpu_index[q->gpu]), now, a, &c.lc_idle_ns,
				      &c.lc_next_ns);
	a->lc_open = c.lc_open;
	if (!p->policy.insns[POLICY_HOOK_submit]) {
		return;
	}
	fill_submit(&c, q, l, now, held_ns);
	c.asked = asked;
	POINT("sched.submit.pinned");
	verdict = run(p, POLICY_HOOK_submit, &c, &helper) & 0xffffffffu;
	POINT("sched.submit.ran");
	if (l->block_ok && !helper && (c.level == GBPF_LEVEL_BLOCK || verdict == GBPF_SPLIT)) {
		a->level = GBPF_LEVEL_BLOCK;
		a->pieces = verdict == GBPF_SPLIT ? c.split_blocks : 0;
		verdict = verdict == GBPF_SPLIT ? GBPF_GO : verdict;
	}
	if (unlikely(helper || verdict > GBPF_DEFER)) {
		a->fault = outlived(p)		   ? ASK_OUTLIVED
			   : helper		   ? ASK_HELPER
			   : verdict == GBPF_SPLIT ? ASK_SPLIT
						   : ASK_RANGE;
		if (!helper) {
			count_failure(p, POLICY_HOOK_submit, PROTO_FAILED_VERDICT);
		}
		return;
	}
	a->verdict = (uint8_t)verdict;
	a->hold_ns = c.hold_ns ? c.hold_ns : DEFAULT_HOLD_NS;
}

void sched_decide(struct sched_queue *q, const struct sched_launch *l, uint64_t now,
		  uint64_t held_ns, uint32_t asked, struct sched_decision *a)
{
	struct policy_reader *pin = policy_read_enter();

	sched_decide_inside(q, l, now, held_ns, asked, a);
	policy_read_leave(pin);
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

void sched_decision_report(struct sched_queue *q, const struct sched_decision *a)
{
	char text[120];

	if (a->fault == ASK_HELPER || a->fault == ASK_OUTLIVED) {
		sched_stat_add(q->s, helper_errors, 1u);
	} else {
		sched_stat_add(q->s, verdict_errors, 1u);
	}
	snprintf(text, sizeof(text), "policy version %llu: %s", (unsigned long long)a->version,
		 a->fault == ASK_OUTLIVED ? "submit outlived three epochs; the launch goes"
		 : a->fault == ASK_HELPER ? "a helper failed in submit; the launch goes"
		 : a->fault == ASK_SPLIT  ? SPLIT_TEXT
					  : "verdict of submit out of range; the launch goes");
	note(q->s, "policy-error", text);
}

void sched_hook_queue_create(struct sched_queue *q)
{
	struct gbpf_queue_create_ctx c = { .now_ns = clock_now_ns(),
					   .tenant = q->s->cfg.tenant,
					   .queue = q->index,
					   .priority = q->priority,
					   .class_id = q->class_id,
					   .lane = load_relaxed(&q->s->lane),
					   .sm_percent = q->s->cfg.sm_percent ?: 100,
					   .gpu = q->gpu };
	struct policy_reader *pin = policy_read_enter();
	struct policy_version *p = is_off(q->s) ? NULL : policy_current(q->s, q->gpu);
	struct sched_decision a = { .fault = SCHED_FAULT_NONE };
	uint32_t slice = 0, share = c.sm_percent;
	bool helper;
	q->sm_percent = is_off(q->s) ? 100 : share;
	if (p && p->policy.insns[POLICY_HOOK_queue_create]) {
		a.version = p->policy.version;
		run(p, POLICY_HOOK_queue_create, &c, &helper);
		if (c.class_id > GBPF_CLASS_BATCH ||
		    (c.sm_percent != share && c.sm_percent != 100)) {
			a.fault = ASK_RANGE;
			count_failure(p, POLICY_HOOK_queue_create, PROTO_FAILED_VERDICT);
		} else {
			q->class_fixed = c.class_id != q->class_id;
			store_relaxed(&q->class_id, c.class_id);
			q->priority = c.priority;
			q->sm_percent = c.sm_percent;
			slice = c.slice_us ? MIN(c.slice_us, UINT32_MAX - 1) + 1 : 0;
		}
	}
	policy_read_leave(pin);
	if (slice) {
		store_release(&q->s->slice_wanted[q->gpu], slice);
		wake_agent(q->s, AGENT_NEAR);
	}
	if (a.fault) {
		sched_stat_add(q->s, verdict_errors, 1u);
		note(q->s, "policy-error",
		     "queue_create chose a class or a share of the multiprocessors that cannot be "
		     "had; the tenant's are used");
	}
}

void sched_hook_queue_destroy(struct sched_queue *q, uint64_t launches)
{
	struct gbpf_queue_destroy_ctx c = { .now_ns = clock_now_ns(),
					    .tenant = q->s->cfg.tenant,
					    .queue = q->index,
					    .launches = launches };
	struct policy_reader *pin = policy_read_enter();
	struct policy_version *p = is_off(q->s) ? NULL : policy_current(q->s, q->gpu);
	bool helper;

	if (p && p->policy.insns[POLICY_HOOK_queue_destroy]) {
		run(p, POLICY_HOOK_queue_destroy, &c, &helper);
	}
	policy_read_leave(pin);
}

uint64_t sched_hook_dispatch(struct sched_queue *q, const struct sched_launch *l, uint64_t now)
{
	struct gbpf_dispatch_ctx c = { .now_ns = now,
				       .held_ns = sched_since_ns(l->begin_ns, now),
				       .est_ns = l->est_ns,
				       .tenant = q->s->cfg.tenant,
				       .queue = q->index,
				       .class_id = load_relaxed(&q->class_id),
				       .priority = q->priority };
	struct policy_reader *pin = policy_read_enter();
	struct policy_version *p = is_off(q->s) ? NULL : policy_current(q->s, q->gpu);
	uint64_t rank = 0;
	bool helper;

	if (p && p->policy.insns[POLICY_HOOK_dispatch]) {
		rank = run(p, POLICY_HOOK_dispatch, &c, &helper) & 0xffffffffu;
		if (rank > 1000000) {
			count_failure(p, POLICY_HOOK_dispatch, PROTO_FAILED_VERDICT);
		}
		rank = helper || rank > 1000000 ? 0 : rank;
	}
	policy_read_leave(pin);
	return rank;
}

uint64_t sched_hook_retire(struct sched_queue *q, const struct sched_retired *r, uint64_t now)
{
	struct gbpf_retire_ctx c = { .now_ns = now,
				     .kernel = r->hash,
				     .duration_ns = r->duration_ns,
				     .held_ns = r->held_ns,
				     .submit_version = r->version,
				     .tenant = q->s->cfg.tenant,
				     .queue = q->index,
				     .class_id = load_relaxed(&q->class_id),
				     .weight = load_relaxed(&q->s->weight),
				     .count = r->count,
				     .flags = r->flags,
				     .level = r->level,
				     .interrupted = r->interrupted,
				     .linger_ns = DEFAULT_LINGER_NS,
				     .gap_ns = load_relaxed(&q->s->req[q->gpu].gap_ns) };
	struct policy_reader *pin = policy_read_enter();
	struct policy_version *p = is_off(q->s) ? NULL : policy_current(q->s, q->gpu);
	bool helper = false;

	(void)add_relaxed(&load_acquire(&q->s->stats)->busy_ns, r->duration_ns);
	if (p && p->policy.insns[POLICY_HOOK_retire]) {
		POINT("sched.retire.pinned");
		run(p, POLICY_HOOK_retire, &c, &helper);
	}
	policy_read_leave(pin);
	if (unlikely(helper)) {
		sched_stat_add(q->s, helper_errors, 1u);
		return DEFAULT_LINGER_NS;
	}
	return MIN(c.linger_ns, MAX_LINGER_NS);
}

bool sched_policy_in_force(struct sched_queue *q)
{
	struct policy_reader *pin = policy_read_enter();
	bool yes = !is_off(q->s) && policy_current(q->s, q->gpu) != NULL;

	policy_read_leave(pin);
	return yes;
}

/* ---- versions ---- */

/* Unmaps what is retracted, unless a thread may still be inside; then a later call does. */
static void unmap_retracted(struct sched *s)
{
	bool wanted = false;

	for (uint32_t i = 0; i < MAX_PREPARED; i++) {
		wanted |= !s->prepared[i].version && s->prepared[i].policy.image;
	}
	if (!wanted || !policy_synchronize()) {
		return;
	}
	for (uint32_t i = 0; i < MAX_PREPARED; i++) {
		struct policy_version *p = &s->prepared[i];

		if (!p->version && p->policy.image) {
			ebpf_policy_close(&p->policy);
			memset(&p->policy, 0, sizeof(p->policy));
		}
	}
}

static int free_entry(struct sched *s)
{
	unmap_retracted(s);
	for (int i = 0; i < (int)MAX_PREPARED; i++) {
		if (!s->prepared[i].version && !s->prepared[i].policy.image) {
			return i;
		}
	}
	return -ENOSPC;
}

static void retract(struct sched *s, uint32_t i)
{
	struct policy_version *p = &s->prepared[i];

	store_release(&p->version, (uint64_t)0);
	POINT("sched.drop.retracted");
	for (unsigned g = 0; g < PROTO_MAX_GPUS; g++) {
		uint32_t expected = i;

		cas_acqrel(&s->hint[g], &expected, NO_PREPARED);
	}
	unmap_retracted(s);
	POINT("sched.drop.unused");
}

/* ---- versions, called by the session ---- */

int sched_policy_prepare(struct sched *s, uint64_t version, int image_fd, const int region_fds[3])
{
	int i = free_entry(s), err;
	uint32_t old = NO_PREPARED;

	if (!version || s->forked) {
		return -EINVAL;
	}
	if (i < 0) {
		return i;
	}
	for (uint32_t k = 0; k < MAX_PREPARED; k++) {
		old = s->prepared[k].version == version ? k : old;
	}
	err = ebpf_policy_open(&s->prepared[i].policy, image_fd, region_fds, 0);

	if (err) {
		memset(&s->prepared[i].policy, 0, sizeof(s->prepared[i].policy));
		return err;
	}
	if (s->prepared[i].policy.version != version) {
		ebpf_policy_close(&s->prepared[i].policy);
		memset(&s->prepared[i].policy, 0, sizeof(s->prepared[i].policy));
		return -EINVAL;
	}
	memset(s->prepared[i].failures, 0, sizeof(s->prepared[i].failures));
	s->prepared[i].life = s->life;
	POINT("sched.prepare.mapped");
	store_release(&s->prepared[i].version, version);
	POINT("sched.prepare.published");
	if (old != NO_PREPARED) { /* a gbpfd that came back gives its regions anew */
		retract(s, old);
	}
	sched_update_active(s);
	return 0;
}

void sched_policy_drop(struct sched *s, uint64_t version)
{
	for (uint32_t i = 0; version && i < MAX_PREPARED; i++) {
		if (s->prepared[i].version == version) {
			retract(s, i);
		}
	}
	sched_update_active(s);
}

bool sched_policy_is_prepared(const struct sched *s, uint64_t version)
{
	for (uint32_t i = 0; version && i < MAX_PREPARED; i++) {
		if (load_relaxed(&s->prepared[i].version) == version) {
			return true;
		}
	}
	return false;
}

/* What this GPU is to run has come from the gbpfd that is there now. */
static bool has_come(const struct sched *s, uint32_t index)
{
	uint64_t version = load_acquire(&s->dir->version[index]);

	for (uint32_t i = 0; version && i < MAX_PREPARED; i++) {
		if (s->prepared[i].version == version && s->prepared[i].life == s->life) {
			return true;
		}
	}
	return !version;
}

bool sched_policy_sweep(struct sched *s)
{
	if (s->dir == &s->private_dir || s->forked) {
		return false;
	}
	for (unsigned g = 0; g < PROTO_MAX_GPUS; g++) {
		uint32_t index = load_relaxed(&s->gpu_index[g]);

		if (index < PROTO_MAX_GPUS && !has_come(s, index)) {
			return false;
		}
	}
	for (uint32_t i = 0; i < MAX_PREPARED; i++) {
		if (s->prepared[i].version && s->prepared[i].life != s->life) {
			retract(s, i);
		}
	}
	sched_update_active(s);
	return true;
}
