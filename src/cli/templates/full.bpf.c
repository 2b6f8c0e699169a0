/* mypolicy: every hook, in the form of a struct of programs. It favours latency tenants and
 *interactive streams, gives the others GPU time by weight, and keeps a log.
 *
 *	gbpf policy build    # compiles this file and checks it
 *	gbpf policy test mypolicy.bpf.o    # runs it without a GPU
 *	gbpf policy swap mypolicy.bpf.o    # makes it the active policy
 *	gbpf map dump accounts    # what each tenant has used
 *	gbpf map watch journal    # what happens, as it happens
 *	gbpf policy rollback    # goes back to the one before
 *
 * Take out what you do not need: a hook that is not filled is free of cost, and gBPF does what it
 *does without a policy. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

/* ---- constants: the verifier knows their values ---- */

const volatile u64 slack_ns = 2000000; /* GPU time that one may be ahead of the others */
const volatile u64 hold_ns = 2000000;  /* how long to hold before asking again */
const volatile u32 max_latency = 8;    /* latency tenants that are admitted */
const volatile u32 max_tenants = 1024;
const volatile u64 preempt_after_ns =
	2000000; /* so long a request waits beside work that stays on the GPU */

/* ---- maps ---- */

/* One for each tenant: its own programs write it, gbpfd sees all. */
struct account {
	u64 used_ns; /* GPU time at weight 100 */
	u64 launches, held;
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

/* The streams of a tenant, by their number. */
struct stream {
	u64 since_ns;
	s32 priority;
	u32 class_id;
};

struct {
	__uint(type, GBPF_MAP_HASH);
	__uint(max_entries, 256);
	__uint(map_flags, GBPF_F_TENANT);
	__type(key, u32);
	__type(value, struct stream);
} streams SEC(".maps");

/* How long launches were held, a bucket for each power of two. */
GBPF_HISTOGRAM(held, 1);

/* Records for `gbpf map watch journal`. */
enum event_kind { ADMITTED, TURNED_AWAY, BEGAN, ENDED };

struct event {
	u64 now_ns;
	enum event_kind kind;
	u32 tenant;
	u64 number;
};

struct {
	__uint(type, GBPF_MAP_RINGBUF);
	__uint(max_entries, 65536); /* bytes */
	__uint(map_flags, GBPF_F_DAEMON);
	__type(value, struct event);
} journal SEC(".maps");

/* ---- global variables: gbpfd's programs write them, those of tenants read them ---- */

u64 floor_ns; /* what the tenant that has used least has used */
u64 ticks;

enum {
	HELD_FOR_LATENCY,
	HELD_FOR_OTHERS
}; /* counters of gbpf_note: `gbpf policy show` prints them */

static __always_inline void note_event(enum event_kind kind, u64 now_ns, u32 tenant, u64 number)
{
	struct event *e = bpf_ringbuf_reserve(&journal, sizeof(*e), 0);

	if (e) {
		e->now_ns = now_ns;
		e->kind = kind;
		e->tenant = tenant;
		e->number = number;
		bpf_ringbuf_submit(e, 0);
	}
}

/* ---- the life of the policy, in gbpfd ---- */

/* Before this version becomes active. A negative errno refuses it, and the version before goes on.
 */
SEC("struct_ops/init")
int GBPF_PROG(mypolicy_init, init)
{
	if (max_tenants == 0) {
		return -22; /* -EINVAL: it would let nobody in */
	}
	note_event(BEGAN, ctx->now_ns, 0, ctx->version);
	return 0;
}

/* After another one has taken its place. */
SEC("struct_ops/exit")
int GBPF_PROG(mypolicy_exit, exit)
{
	note_event(ENDED, ctx->now_ns, 0, ctx->reason);
	return 0;
}

/* A tenant asks to start: GBPF_ADMIT, GBPF_QUEUE (ask again when another has left) or GBPF_REJECT.
 */
SEC("struct_ops/admit")
int GBPF_PROG(mypolicy_admit, admit)
{
	if (ctx->tenants >= max_tenants) {
		note_event(TURNED_AWAY, ctx->now_ns, ctx->tenant, ctx->pid);
		return GBPF_QUEUE;
	}
	if (ctx->class_id == GBPF_CLASS_LATENCY && ctx->latency_tenants >= max_latency) {
		ctx->class_id = GBPF_CLASS_NORMAL; /* it may run, but like everybody else */
	}
	note_event(ADMITTED, ctx->now_ns, ctx->tenant, ctx->pid);
	return GBPF_ADMIT;
}

/* Every millisecond while anybody works. */
SEC("struct_ops/tick")
int GBPF_PROG(mypolicy_tick, tick)
{
	u64 lowest = ~0ull;
	u32 key = 0, t;

	bpf_for(t, 0, 1024)
	{
		struct account *a;

		if (t >= ctx->tenants) {
			break;
		}
		a = gbpf_tenant_lookup(&accounts, t, &key);
		if (a && a->launches && a->used_ns < lowest) {
			lowest = a->used_ns;
		}
	}
	if (lowest != ~0ull && lowest > floor_ns) {
		floor_ns = lowest;
	}
	ticks++;
	return 0;
}

/* ---- launches, in the tenant's process ---- */

/* A stream was created; what is written to priority and class_id is what gBPF goes by. */
SEC("struct_ops/queue_create")
int GBPF_PROG(mypolicy_queue_create, queue_create)
{
	struct stream s = { .since_ns = ctx->now_ns, .priority = ctx->priority };
	u32 queue = ctx->queue;

	if (ctx->priority < 0 && ctx->class_id == GBPF_CLASS_NORMAL) {
		ctx->class_id =
			GBPF_CLASS_LATENCY; /* a stream of high priority is meant to be quick */
	}
	s.class_id = ctx->class_id;
	bpf_map_update_elem(&streams, &queue, &s, BPF_ANY);
	return 0;
}

SEC("struct_ops/queue_destroy")
int GBPF_PROG(mypolicy_queue_destroy, queue_destroy)
{
	u32 queue = ctx->queue;

	bpf_map_delete_elem(&streams, &queue);
	return 0;
}

/* A launch is about to go to the GPU: GBPF_GO, GBPF_HOLD (ask again when something changed),
 * GBPF_DEFER (when the time has passed) or GBPF_SPLIT (in pieces). At level BLOCK it leaves the GPU
 * by itself when a request comes. */
SEC("struct_ops/submit")
int GBPF_PROG(mypolicy_submit, submit)
{
	u32 key = 0;
	struct account *a = bpf_map_lookup_elem(&accounts, &key);

	if (!a || ctx->class_id == GBPF_CLASS_LATENCY) {
		return GBPF_GO;
	}
	if (a->used_ns < floor_ns) {
		a->used_ns = floor_ns; /* who paused has saved nothing up */
	}
	ctx->hold_ns = hold_ns;
	if (ctx->lc_open) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_LATENCY, 1);
		}
		return GBPF_HOLD;
	}
	if (a->used_ns > floor_ns + slack_ns) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_OTHERS, 1);
		}
		return GBPF_DEFER;
	}
	if (ctx->block_ok) {
		ctx->level = GBPF_LEVEL_BLOCK;
	}
	a->launches++;
	return GBPF_GO;
}

/* Which of a program's streams goes first: the highest rank. */
SEC("struct_ops/dispatch")
int GBPF_PROG(mypolicy_dispatch, dispatch)
{
	u64 waited_us = ctx->held_ns / 1000;
	u32 rank = waited_us > 99999 ? 99999 : waited_us;

	return ctx->class_id == GBPF_CLASS_LATENCY ? rank + 500000 : rank;
}

/* Launches have finished. */
SEC("struct_ops/retire")
int GBPF_PROG(mypolicy_retire, retire)
{
	u32 key = 0;
	struct account *a = bpf_map_lookup_elem(&accounts, &key);

	if (a && ctx->weight) {
		/* Atomic, because a program may launch from several threads. */
		__sync_fetch_and_add(&a->used_ns, ctx->duration_ns * 100 / ctx->weight);
		if (ctx->held_ns) {
			__sync_fetch_and_add(&a->held, 1);
			gbpf_hist_add(&held, 0, ctx->held_ns);
		}
	}
	return 0;
}

/* A request waits beside a tenant that has work on the GPU: the level at which that is stopped.
 * Runs in gbpfd, each millisecond. */
SEC("struct_ops/preempt")
int GBPF_PROG(mypolicy_preempt, preempt)
{
	if (ctx->class_id == GBPF_CLASS_LATENCY || ctx->waited_ns < preempt_after_ns) {
		return GBPF_LEVEL_NONE;
	}
	return ctx->tried == GBPF_LEVEL_NONE ? GBPF_LEVEL_SLICE : GBPF_LEVEL_OFF;
}

/* The policy: its name, its version, and its programs by the names of the hooks. */
SEC(".struct_ops")
struct gbpf_ops mypolicy = {
	.name = "mypolicy",
	.version = "1.0",
	.init = mypolicy_init,
	.exit = mypolicy_exit,
	.admit = mypolicy_admit,
	.tick = mypolicy_tick,
	.queue_create = mypolicy_queue_create,
	.queue_destroy = mypolicy_queue_destroy,
	.submit = mypolicy_submit,
	.dispatch = mypolicy_dispatch,
	.retire = mypolicy_retire,
	.preempt = mypolicy_preempt,
};
