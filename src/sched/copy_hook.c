/* The hook copy_enqueue: whether the next piece of a copy may be issued now. Builds its context,
 * clamps what it writes, and bounds how long it may hold. Never waits: the caller has other work to
 * do meanwhile, such as filling the piece behind. */
#include "sched/sched_int.h"

#include <string.h>

#include "base/clock.h"
#include "policy/hook.h"

#define DEFAULT_HOLD_NS 200000u
#define MAX_HOLD_NS 1000000u
#define LATENCY_ASK_NS 20000u /* while a latency request is open: its end is not reported here */

/* The answer of one call. */
struct answer {
	uint64_t version; /* 0: no version in force has the hook */
	uint64_t hold_ns, ahead_bytes;
	uint32_t piece_bytes, plan, lc_open, why;
	bool hold, failed, out_of_range;
};

static void fill(struct gbpf_copy_enqueue_ctx *x, const struct sched_copy *c, bool forced,
		 uint64_t now)
{
	const struct sched_queue *q = c->q;
	const struct sched *s = q->s;

	x->now_ns = now;
	x->bytes = c->bytes;
	x->left = c->left;
	x->unfinished = c->unfinished;
	x->held_ns = c->came_ns ? sched_since_ns(c->came_ns, now) : 0;
	x->hold_ns = x->ahead_bytes = 0;
	x->why = GBPF_WHY_NONE;
	x->piece_bytes = c->piece_bytes;
	x->plan = c->plan;
	x->cut = c->cut;
	x->direction = c->up ? GBPF_COPY_UP : GBPF_COPY_DOWN;
	x->host = c->pinned ? GBPF_HOST_PINNED : GBPF_HOST_PAGEABLE;
	x->asked = c->asked;
	x->tenant = s->cfg.tenant;
	x->queue = q->index;
	x->class_id = load_relaxed(&q->class_id);
	x->weight = load_relaxed(&s->weight);
	x->priority = q->priority;
	x->gpu = sched_gpu_number(q);
	x->lane = load_relaxed(&s->lane);
	x->uid = load_relaxed(&s->uid);
	x->vgpu = load_relaxed(&s->vgpu);
	x->group = sched_group_number(s);
	x->forced = forced;
}

static uint32_t clamp_piece(const struct sched_copy *c, uint32_t bytes)
{
	uint32_t most = c->pinned ? GBPF_PIECE_MAX : MIN(GBPF_PIECE_MAX, 16 * SCHED_PIECE_UNIT);

	bytes = MIN(MAX(bytes, (uint32_t)GBPF_PIECE_MIN), most);
	return bytes - bytes % SCHED_PIECE_UNIT;
}

/* Calls the hook, and reports what is wrong with its answer. HOLD counts as GO while gbpfd is
 * absent: what its tick publishes has ended. */
static void ask(struct sched_copy *c, bool forced, uint64_t now, struct answer *a)
{
	struct sched *s = c->q->s;
	struct gbpf_copy_enqueue_ctx x;
	struct sched_decision boards = { .word = NULL };
	struct policy_reader *reader = policy_read_enter();
	struct policy_version *v =
		policy_is_off(&s->policy) ? NULL : policy_current(&s->policy, c->q->gpu);
	enum policy_failure failed = POLICY_FINE;
	uint64_t verdict;

	*a = (struct answer){ .piece_bytes = c->piece_bytes, .plan = c->plan };
	if (v && policy_fills(v, POLICY_HOOK_copy_enqueue)) {
		fill(&x, c, forced, now);
		x.lc_open = sched_boards_scan(s, load_relaxed(&s->policy.gpu[c->q->gpu].index), now,
					      &boards, &x.lc_idle_ns, &x.lc_next_ns);
		verdict = policy_hook_run(v, POLICY_HOOK_copy_enqueue, &x, &failed) & 0xffffffffu;
		a->version = v->policy.version;
		a->failed = failed != POLICY_FINE;
		a->out_of_range = !failed && verdict > GBPF_COPY_HOLD;
		a->lc_open = x.lc_open;
		if (!a->failed && !a->out_of_range) {
			a->hold = verdict == GBPF_COPY_HOLD &&
				  load_acquire(&s->policy.dir) != &s->absent.dir;
			a->hold_ns = x.hold_ns ? MIN(x.hold_ns, MAX_HOLD_NS) : DEFAULT_HOLD_NS;
			a->ahead_bytes = x.ahead_bytes;
			a->piece_bytes = x.piece_bytes;
			a->plan = x.plan;
			a->why = x.why;
		}
	}
	policy_read_leave(reader);
	if (a->failed || a->out_of_range) {
		sched_fault_report(s, a->version, POLICY_HOOK_copy_enqueue, a->failed,
				   a->failed
					   ? "a helper failed in copy_enqueue; the copy goes"
					   : "verdict of copy_enqueue out of range; the copy goes");
	}
	c->begun |= a->version != 0;
	c->asked++;
	c->version = a->version;
	c->piece_bytes = clamp_piece(c, a->piece_bytes);
	c->plan = a->plan == GBPF_PLAN_DRIVER ? GBPF_PLAN_DRIVER : c->plan;
}

/* Returns whether the answer of a HOLD still counts: gbpfd is there, and the version that gave it
 * is in force. */
static bool is_held(const struct sched_copy *c)
{
	const struct sched *s = c->q->s;
	bool off;
	uint64_t version = sched_version_word(c->q, &off);

	return version == c->version && !off && load_acquire(&s->policy.dir) != &s->absent.dir;
}

/* The piece goes: accounts how long it was held, and begins with the next. */
static bool let_go(struct sched_copy *c, uint64_t now, uint32_t why)
{
	static const struct sched_launch copy = { .kind = GBPF_KIND_COPY };

	if (c->held) {
		sched_hold_account(c->q, &copy, why, sched_since_ns(c->came_ns, now));
	}
	c->came_ns = c->ask_ns = 0;
	c->asked = 0;
	c->held = false;
	return true;
}

/* The hold limit is reached. If nothing of the copy has finished meanwhile, its stream does not get
 * on, perhaps because it waits for what the caller does next: the rest must not block it. */
static bool force(struct sched_copy *c, uint64_t now)
{
	struct answer a;

	ask(c, true, now, &a);
	c->passes = c->unfinished && c->unfinished == c->unfinished_then;
	if (c->held) {
		sched_stat_add(c->q->s, limit_hits, 1u);
		sched_note(c->q->s, "hold-limit",
			   "hold limit reached: a copy goes although the policy holds it");
	}
	return let_go(c, now, PROTO_WHY_LIMIT);
}

bool sched_copy_may_go(struct sched_copy *c)
{
	struct sched *s = c->q->s;
	uint64_t now;
	struct answer a;

	if (c->passes || !sched_copies_decided(s)) {
		return true;
	}
	now = clock_now_ns();
	if (!c->came_ns) {
		c->came_ns = now;
		c->unfinished_then = c->unfinished;
	} else if (sched_since_ns(c->came_ns, now) >= load_relaxed(&s->limit_ns)) {
		return force(c, now);
	} else if (now < c->ask_ns && is_held(c)) {
		return false;
	}
	ask(c, false, now, &a);
	if (a.hold) {
		c->held = true;
		c->why = sched_hold_reason(a.why);
		c->ask_ns = now + (a.lc_open ? MIN(a.hold_ns, LATENCY_ASK_NS) : a.hold_ns);
		return false;
	}
	if (c->cut && a.ahead_bytes && c->unfinished &&
	    c->unfinished + MIN(c->left, c->piece_bytes) > a.ahead_bytes) {
		c->ask_ns = 0; /* a piece may finish at any time */
		return false;
	}
	return let_go(c, now, c->why);
}

void sched_copy_end(struct sched_copy *c)
{
	struct answer a;

	if (c->begun && c->cut && sched_copies_decided(c->q->s)) {
		c->left = 0;
		c->came_ns = 0;
		c->asked = 0;
		ask(c, false, clock_now_ns(), &a);
	}
}
