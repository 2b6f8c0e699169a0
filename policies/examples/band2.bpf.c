/* band2: the shares that virtual GPUs were given, of measured GPU time. Programs in no vGPU, and
 * vGPUs without a stated share, divide what the others leave.
 *
 * Use it where shares are promised (gbpf run --compute 30) and none of the programs is urgent;
 * vgpu_auto lets latency programs go first inside their vGPU.
 *
 * How: each vGPU has a credit. Every millisecond gbpfd divides the GPU time that was used in it by
 * share among the vGPUs that have work, and charges each what it used. So credits add up to zero:
 * time that a vGPU uses while it is alone is not owed later, and a GPU that works less is not a
 * reason to hold any of them. Credits are clamped to one period.
 *
 * Process lane: the hardware's time slices are set in proportion, a vGPU's divided by its programs
 * that have work, long enough that switches cost little and so that whole periods fit into a
 * second; the mean credit corrects them ten times a second. Shared lane, and where slices cannot be
 * set: launches of a vGPU whose credit is used up are deferred while another one with credit wants
 * the GPU. A vGPU of lower priority waits as soon as its credit is below zero.
 *
 * Without --burst a vGPU's share is its most, too, when the others leave the GPU idle: its launches
 * are deferred then.
 *
 * After: Gdev's BAND (Kato and others, USENIX ATC 2012; see band), with device time instead of wall
 * time, clamping instead of zeroing, bounds that follow the period, and no waiting with an idle
 * GPU. */
#include "vgpu/places.h"
#include "vgpu/shares.h"

GBPF_LICENSE("Apache-2.0");

const volatile u64 slice_ns = 20000000;	       /* ns: mean time slice in the process lane: a switch costs 0.15 ms */

SEC("gbpf/admit")
int GBPF_PROG(band2_admit, admit)
{
	return admit_new(ctx);
}

SEC("gbpf/submit")
int GBPF_PROG(band2_submit, submit)
{
	return submit_by_share(ctx);
}

SEC("gbpf/retire")
int GBPF_PROG(band2_retire, retire)
{
	return charge(ctx);
}

SEC("gbpf/tick")
int GBPF_PROG(band2_tick, tick)
{
	return divide(ctx, slice_ns);
}

SEC("gbpf/exit")
int GBPF_PROG(band2_exit, exit)
{
	return give_back(ctx);
}
