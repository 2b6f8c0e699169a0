/* vgpu_auto: the recommended policy for virtual GPUs. Each vGPU has its share of measured GPU time, as
 * under examples/band2; inside a vGPU requests of class latency go first.
 *
 * Use it where several parties share a GPU, whether or not each runs services next to batch work.
 * Use auto where there are no vGPUs.
 *
 * How: shares, priorities and the most that a vGPU may have are band2's. While a request of a latency
 * program is open, or announced for soon, the other programs of its vGPU hold their launches, and
 * those that can be stopped between blocks run at block level, so that the request stops them.
 * Programs of other vGPUs go on: a request neither waits for their shares nor takes from them,
 * except for blocks of a vGPU that has latency programs of its own, which any open request stops.
 * While there are latency programs time slices are shorter, since a vGPU's turn in the process lane
 * comes once in a period; in the shared lane there are no turns.
 *
 * Copies of host memory are divided apart from GPU time, by copy shares, as under copy_fair.
 *
 * Reserved memory is kept by gbpfd under any policy. */
#include "vgpu/places.h"
#include "vgpu/copies.h"
#include "vgpu/shares.h"

GBPF_LICENSE("Apache-2.0");

const volatile u64 slice_ns = 20000000;		/* ns: mean time slice in the process lane: a switch costs 0.15 ms */
const volatile u64 latency_slice_ns = 4000000;	/* ns: the same while there are latency programs */
const volatile u64 ahead_ns = 200000;		/* ns: nothing is submitted from this time before an announced request on */
const volatile u32 block_level = 1;		/* 0: launches on the device finish */

enum { HELD_FOR_REQUEST = SLICES_SET + 1 };

/* Published by gbpfd. */
u32 latency_programs;	/* in all vGPUs */
u32 latency_in[GROUPS]; /* by vGPU */
u32 open_in[GROUPS];	/* open requests, as of the last tick */

/* Returns whether a request of the program's own vGPU is open. The number of open requests is of this
 * moment, but of all vGPUs; where several have latency programs it is the last tick's that counts. */
static __always_inline int is_open(struct gbpf_submit_ctx *ctx)
{
	u32 own = latency_in[ctx->vgpu];

	return own && ctx->lc_open && (own == latency_programs || open_in[ctx->vgpu]);
}

SEC("gbpf/admit")
int GBPF_PROG(vgpu_auto_admit, admit)
{
	admit_copier(ctx);
	return admit_new(ctx);
}

SEC("gbpf/submit")
int GBPF_PROG(vgpu_auto_submit, submit)
{
	u32 own = latency_in[ctx->vgpu];

	if (ctx->class_id != GBPF_CLASS_LATENCY && own && ctx->kind < GBPF_KIND_HOST) {
		if (is_open(ctx) || (own == latency_programs && ctx->lc_next_ns < ahead_ns)) {
			if (!ctx->asked) {
				gbpf_note(HELD_FOR_REQUEST, 1);
			}
			ctx->why = is_open(ctx) ? GBPF_WHY_LATENCY : GBPF_WHY_ANNOUNCED;
			ctx->hold_ns = 5000000;
			return GBPF_HOLD;
		}
		if (block_level && ctx->block_ok) {
			ctx->level = GBPF_LEVEL_BLOCK;
		}
	}
	if (ctx->kind == GBPF_KIND_COPY) {
		return GBPF_GO; /* copy_enqueue divides copies, by bytes */
	}
	return submit_by_share(ctx);
}

SEC("gbpf/copy_enqueue")
int GBPF_PROG(vgpu_auto_copy_enqueue, copy_enqueue)
{
	return enqueue_by_share(ctx);
}

SEC("gbpf/retire")
int GBPF_PROG(vgpu_auto_retire, retire)
{
	return charge(ctx);
}

SEC("gbpf/tick")
int GBPF_PROG(vgpu_auto_tick, tick)
{
	u32 t, p, n = ctx->tenants < 1024 ? ctx->tenants : 1024;

	latency_programs = 0;
	bpf_for (p, 0, GROUPS) {
		latency_in[p] = open_in[p] = 0;
	}
	bpf_for (t, 0, n) {
		if (gbpf_tenant_class(t) == GBPF_CLASS_LATENCY) {
			p = group_of(t);
			latency_programs++;
			latency_in[p]++;
			open_in[p] += gbpf_tenant_stat(t, GBPF_STAT_OPEN) != 0;
		}
	}
	divide_copies(ctx, latency_programs);
	return divide(ctx, latency_programs ? latency_slice_ns : slice_ns);
}

SEC("gbpf/exit")
int GBPF_PROG(vgpu_auto_exit, exit)
{
	return give_back(ctx);
}
