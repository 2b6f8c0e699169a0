/* hang: where warps that run stand. A warp claims a slot when it begins, stores there the last barrier, conditional
 * branch or line that it came to, and the time, and clears it when its last lane leaves. So what is in the slots while a
 * kernel runs are its warps: one that waits at a barrier for others has an old time, one in a loop a new time and an old
 * begin. A slot is found by kernel, block and warp; a warp whose slot belongs to another one is counted as lost. */
#include <gbpf/gbpf.bpf.h>

#define SLOTS 16384
#define PLACES 8192 /* of kernels; `gbpf trace` knows the number */
#define OWNER_BITS 40 /* of the warp's number; the other bits identify kernel and multiprocessor */

enum { BEGUN, ENDED, LOST, FIGURES };
/* Kinds of places. */
enum { BEGIN, BEFORE_BARRIER, BEHIND_BARRIER, BRANCH, LINE };

struct warp {
	u64 owner; /* 0: free */
	u64 block, begin_ns, time_ns;
	u32 warp, lanes; /* lanes that have not left */
	u32 kind, place, sm;
};

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, SLOTS);
	__type(key, u32);
	__type(value, struct warp);
} warps SEC(".maps");

GBPF_KERNEL_PLACES(PLACES);

struct {
	__uint(type, GBPF_MAP_SM_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, FIGURES);
	__type(key, u32);
	__type(value, u64);
} figures SEC(".maps");

static __always_inline void add(u32 k)
{
	u64 *v = bpf_map_lookup_elem(&figures, &k);

	if (v) {
		__sync_fetch_and_add(v, 1);
	}
}

#define THREADS(ctx) ((ctx)->threads_x * (ctx)->threads_y * (ctx)->threads_z)
#define NUMBER(ctx) ((ctx)->block * ((THREADS(ctx) + 31) / 32) + (ctx)->warp)
#define OWNER(ctx)                                                                                 \
	(((ctx)->kernel << 8 | ((ctx)->sm & 255)) << OWNER_BITS |                                  \
	 ((NUMBER(ctx) + 1) & ((1ULL << OWNER_BITS) - 1)))

static __always_inline struct warp *slot_of(u64 kernel, u64 number)
{
	u32 k = (u32)(kernel + number) % SLOTS;

	return bpf_map_lookup_elem(&warps, &k);
}

SEC("gdev/enter")
int GBPF_PROG(begin, gdev_enter)
{
	struct warp *w = slot_of(ctx->kernel, NUMBER(ctx));
	u32 lanes = THREADS(ctx) - 32 * ctx->warp;

	if (!w) {
		return 0;
	}
	add(BEGUN);
	if (__sync_val_compare_and_swap(&w->owner, 0, OWNER(ctx))) {
		add(LOST);
		return 0;
	}
	w->place = ctx->place;
	w->block = ctx->block;
	w->begin_ns = w->time_ns = ctx->time_ns;
	w->warp = ctx->warp;
	w->lanes = lanes < 32 ? lanes : 32;
	w->kind = BEGIN;
	w->sm = ctx->sm;
	return 0;
}

#define COME_TO(ctx, what)                                                                         \
	do {                                                                                       \
		struct warp *w = slot_of((ctx)->kernel, NUMBER(ctx));                              \
                                                                                                   \
		if (w && w->owner == OWNER(ctx)) {                                                 \
			w->time_ns = (ctx)->time_ns;                                               \
			w->kind = (what);                                                          \
			w->place = (ctx)->place;                                                   \
		}                                                                                  \
	} while (0)

SEC("gdev/barrier")
int GBPF_PROG(barrier, gdev_barrier)
{
	if (ctx->kind != GBPF_BARRIER_ARRIVE) {
		COME_TO(ctx, ctx->after ? BEHIND_BARRIER : BEFORE_BARRIER);
	}
	return 0;
}

SEC("gdev/branch")
int GBPF_PROG(branch, gdev_branch)
{
	COME_TO(ctx, BRANCH);
	return 0;
}

SEC("gdev/line")
int GBPF_PROG(line, gdev_line)
{
	COME_TO(ctx, LINE);
	return 0;
}

SEC("gdev/exit")
int GBPF_PROG(leave, gdev_exit)
{
	struct warp *w = slot_of(ctx->kernel, NUMBER(ctx));

	if (!w || w->owner != OWNER(ctx)) {
		return 0;
	}
	if (__sync_fetch_and_sub(&w->lanes, ctx->lanes) > ctx->lanes) {
		return 0;
	}
	w->block = w->begin_ns = w->time_ns = 0;
	w->warp = w->kind = w->place = w->sm = 0;
	__sync_lock_test_and_set(&w->owner, 0);
	add(ENDED);
	return 0;
}

GBPF_LICENSE("MIT");
