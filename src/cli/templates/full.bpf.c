/* mypolicy: every hook, in the form of a struct of programs. It favours latency tenants and
 * interactive streams, gives the others GPU time by weight, and keeps a log.
 *
 *	gbpf policy build    # compiles this file and checks it
 *	gbpf policy test mypolicy.bpf.o    # runs it without a GPU
 *	gbpf policy swap mypolicy.bpf.o    # makes it the active policy
 *	gbpf map dump accounts    # shows the usage of each tenant
 *	gbpf map watch journal    # prints events as they happen
 *	gbpf policy rollback    # returns to the previous policy
 *
 * Remove the hooks that are not needed: an empty hook costs nothing and keeps gBPF's built-in
 * behaviour. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

/* ---- constants: known to the verifier ---- */

const volatile u64 slack_ns = 2000000; /* how far a tenant may be ahead of the others */
const volatile u64 hold_ns = 2000000; /* wait before a held launch is asked about again */
const volatile u32 max_latency = 8; /* maximum number of admitted latency tenants */
const volatile u32 max_tenants = 1024;
const volatile u64 preempt_after_ns = 2000000; /* wait before a request preempts */

/* ---- maps ---- */

/* One for each tenant: its own programs write it, gbpfd can read all. */
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

/* Durations of holds, with a bucket for each power of two. */
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

u64 floor_ns; /* usage of the tenant that has used least */
u64 ticks;

enum { HELD_FOR_LATENCY, HELD_FOR_OTHERS }; /* counters of gbpf_note: `gbpf policy show` prints them */

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

/* Runs before this version becomes active. A negative errno prevents that, and the previous version
 * stays active. */
SEC("struct_ops/init")
int GBPF_PROG(mypolicy_init, init)
{
	if (max_tenants == 0) {
		return -22; /* -EINVAL: no tenant could start */
	}
	note_event(BEGAN, ctx->now_ns, 0, ctx->version);
	return 0;
}

/* Runs after another version has replaced this one. */
SEC("struct_ops/exit")
int GBPF_PROG(mypolicy_exit, exit)
{
	note_event(ENDED, ctx->now_ns, 0, ctx->reason);
	return 0;
}

/* A tenant asks to start: GBPF_ADMIT, GBPF_QUEUE (ask again when another has left) or GBPF_REJECT. */
SEC("struct_ops/admit")
int GBPF_PROG(mypolicy_admit, admit)
{
	if (ctx->tenants >= max_tenants) {
		note_event(TURNED_AWAY, ctx->now_ns, ctx->tenant, ctx->pid);
		return GBPF_QUEUE;
	}
	if (ctx->class_id == GBPF_CLASS_LATENCY && ctx->latency_tenants >= max_latency) {
		ctx->class_id = GBPF_CLASS_NORMAL; /* it may run, but without precedence */
	}
	note_event(ADMITTED, ctx->now_ns, ctx->tenant, ctx->pid);
	return GBPF_ADMIT;
}

/* Runs every millisecond while a tenant is active. */
SEC("struct_ops/tick")
int GBPF_PROG(mypolicy_tick, tick)
{
	u64 lowest = ~0ull;
	u32 key = 0, t;

	bpf_for (t, 0, 1024) {
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

/* A stream was created; gBPF uses the values that the program writes to priority and class_id. */
SEC("struct_ops/queue_create")
int GBPF_PROG(mypolicy_queue_create, queue_create)
{
	struct stream s = { .since_ns = ctx->now_ns, .priority = ctx->priority };
	u32 queue = ctx->queue;

	if (ctx->priority < 0 && ctx->class_id == GBPF_CLASS_NORMAL) {
		ctx->class_id = GBPF_CLASS_LATENCY; /* a stream of high priority is treated as latency-critical */
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

/* A launch is about to go to the GPU: GBPF_GO, GBPF_HOLD (ask again when the state changes),
 * GBPF_DEFER (when the time has passed) or GBPF_SPLIT (in pieces). At level BLOCK it can be stopped
 * between blocks when a request arrives. */
SEC("struct_ops/submit")
int GBPF_PROG(mypolicy_submit, submit)
{
	u32 key = 0;
	struct account *a = bpf_map_lookup_elem(&accounts, &key);

	if (!a || ctx->class_id == GBPF_CLASS_LATENCY) {
		return GBPF_GO;
	}
	if (a->used_ns < floor_ns) {
		a->used_ns = floor_ns; /* a tenant that paused has no credit */
	}
	ctx->hold_ns = hold_ns;
	if (ctx->lc_open) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_LATENCY, 1);
		}
		ctx->why = GBPF_WHY_LATENCY; /* for `gbpf ps --why` */
		return GBPF_HOLD;
	}
	if (a->used_ns > floor_ns + slack_ns) {
		if (!ctx->asked) {
			gbpf_note(HELD_FOR_OTHERS, 1);
		}
		ctx->why = GBPF_WHY_SHARE;
		return GBPF_DEFER;
	}
	if (ctx->block_ok) {
		ctx->level = GBPF_LEVEL_BLOCK;
	}
	a->launches++;
	return GBPF_GO;
}

/* Ranks the streams of a program: the highest rank goes first. */
SEC("struct_ops/dispatch")
int GBPF_PROG(mypolicy_dispatch, dispatch)
{
	u64 waited_us = ctx->held_ns / 1000;
	u32 rank = waited_us > 99999 ? 99999 : waited_us;

	return ctx->class_id == GBPF_CLASS_LATENCY ? rank + 500000 : rank;
}

/* A copy between host memory and the device, or the next piece of one: no piece is issued while a
 * latency request is open, for 2 ms at most. */
SEC("struct_ops/copy_enqueue")
int GBPF_PROG(mypolicy_copy_enqueue, copy_enqueue)
{
	if (ctx->cut && !ctx->left) {
		return GBPF_COPY_GO; /* all of it is issued */
	}
	ctx->piece_bytes = 1 << 20;
	ctx->why = GBPF_WHY_LATENCY; /* of a HOLD */
	return ctx->class_id != GBPF_CLASS_LATENCY && ctx->lc_open && ctx->held_ns < 2000000 ? GBPF_COPY_HOLD
											      : GBPF_COPY_GO;
}

/* A kernel that communicates with those on other GPUs begins. When another process of the group has
 * waited for this one for long, this one's launches go unasked until the collective has ended. */
SEC("struct_ops/collective_phase")
int GBPF_PROG(mypolicy_collective_phase, collective_phase)
{
	return ctx->phase == GBPF_PHASE_BEGIN && ctx->waited_ns > 1000000 ? GBPF_COLLECTIVE_BOOST
									  : GBPF_COLLECTIVE_GO;
}

/* A launch names memory that has left the device (gbpf run --swap). It comes back if the launch is
 * known to take longer without it. */
SEC("struct_ops/mem_fault")
int GBPF_PROG(mypolicy_mem_fault, mem_fault)
{
	return ctx->missing <= ctx->room || ctx->in_place_ns > ctx->move_ns ? GBPF_MEM_FETCH : GBPF_MEM_IN_PLACE;
}

/* Launches have finished. */
SEC("struct_ops/retire")
int GBPF_PROG(mypolicy_retire, retire)
{
	u32 key = 0;
	struct account *a = bpf_map_lookup_elem(&accounts, &key);

	if (a && ctx->weight) {
		/* Atomic, because a program may launch from several threads. */
		__sync_fetch_and_add(&a->used_ns, gbpf_used_ns(ctx) * 100 / ctx->weight);
		if (ctx->held_ns) {
			__sync_fetch_and_add(&a->held, 1);
			gbpf_hist_add(&held, 0, ctx->held_ns);
		}
	}
	return 0;
}

/* A request waits while another tenant has work on the GPU: returns the level at which that tenant
 * is stopped. Runs in gbpfd, each millisecond. */
SEC("struct_ops/preempt")
int GBPF_PROG(mypolicy_preempt, preempt)
{
	if (ctx->class_id == GBPF_CLASS_LATENCY || ctx->waited_ns < preempt_after_ns) {
		return GBPF_LEVEL_NONE;
	}
	return ctx->tried == GBPF_LEVEL_NONE ? GBPF_LEVEL_SLICE : GBPF_LEVEL_OFF;
}

/* Another vGPU has no room on the GPU: returns how much of this one's memory may move to the host for
 * it, MiB. A more important vGPU gives nothing, any other one half of what it has beyond its
 * reservation. Runs in gbpfd. */
SEC("struct_ops/reclaim")
int GBPF_PROG(mypolicy_reclaim, reclaim)
{
	return ctx->prio > ctx->for_prio ? 0 : (int)(ctx->above >> 21 & 0x7ffff);
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
	.copy_enqueue = mypolicy_copy_enqueue,
	.collective_phase = mypolicy_collective_phase,
	.mem_fault = mypolicy_mem_fault,
	.reclaim = mypolicy_reclaim,
};
