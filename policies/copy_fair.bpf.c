/* copy_fair: the shares of copy bandwidth that virtual GPUs were given, separately up and down. vGPUs
 * without a stated share, and programs in none, divide what the others leave, by weight.
 *
 * Use it where copies are promised a share (gbpf run --copy 30) and kernels need no division. vgpu_auto
 * includes it.
 *
 * How: each vGPU has a credit in each direction. Every millisecond gbpfd divides the bytes that were
 * let go in it by share among the vGPUs that copy, and charges each its own. So credits add up to
 * zero: what a vGPU copies while it is alone is not owed later. vGPUs that wait for their share have
 * turns, first the one with the most credit: it has two pieces or more on their way to the device, or
 * is held itself, most of the time. A piece of another one whose credit is used up is held. One whose
 * copies are slow for another reason is not waited for. A turn takes 2 ms or more if the credit allows
 * it: each change between copies of two programs to the device costs a context switch.
 *
 * Latency first: while a request of a latency program is open, pieces of other programs are held, each
 * for 2 ms at most; and while a latency program is present, pieces are of 1 MiB and a copy has at most
 * 2 MiB on their way. So a latency program's copy waits for a piece or two, not for the copies.
 *
 * After: Gdev (Kato and others, USENIX ATC 2012), which accounts copies apart from compute, so that
 * both can be busy at once. */
#include "vgpu/places.h"
#include "vgpu/copies.h"

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/admit")
int GBPF_PROG(copy_fair_admit, admit)
{
	admit_copier(ctx);
	return GBPF_ADMIT;
}

SEC("gbpf/copy_enqueue")
int GBPF_PROG(copy_fair_copy_enqueue, copy_enqueue)
{
	return enqueue_by_share(ctx);
}

SEC("gbpf/tick")
int GBPF_PROG(copy_fair_tick, tick)
{
	u32 t, n = ctx->tenants < 1024 ? ctx->tenants : 1024, latency = 0;

	bpf_for (t, 0, n) {
		latency += gbpf_tenant_class(t) == GBPF_CLASS_LATENCY;
	}
	return divide_copies(ctx, latency);
}
