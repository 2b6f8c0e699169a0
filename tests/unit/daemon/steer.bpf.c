/* The preemption of a tenant depends on its weight: 11 it is ended, 12 switched off, 13 an
 * invalid level, 16 the shortest slice, 17 none, but the hook asks to run when a request opens, 18
 * none, but it asks to run again after 10 us, which are 100.
 * tick sets a slice of 400 us for weight 14, and switches 15 off. A batch tenant has a slice of
 * 300 us from its start. Notes: 0 calls of preempt, 1 levels available, 2 and 3 results of the
 * helpers, 4 calls for a request that has been open for less than a millisecond, 5 for more than
 * a minute, 6 calls between two ticks. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/admit")
int GBPF_PROG(steer_admit, admit)
{
	if (ctx->class_id == GBPF_CLASS_BATCH) {
		ctx->slice_us = 300;
	}
	return GBPF_ADMIT;
}

u64 ticks, asked_after; /* ticks so far, and at the last call of preempt */

SEC("gbpf/tick")
int GBPF_PROG(steer_tick, tick)
{
	u32 i;

	ticks++;
	for (i = 0; i < 4 && i < ctx->tenants; i++) {
		long weight = gbpf_tenant_weight(i);

		if (weight == 14 && gbpf_slice_set(i, 400) == 0) {
			gbpf_note(2, 1);
		}
		if (weight == 15 && gbpf_preempt_now(i, GBPF_LEVEL_OFF) == 0) {
			gbpf_note(3, 1);
		}
	}
	return 0;
}

SEC("gbpf/preempt")
int GBPF_PROG(steer_preempt, preempt)
{
	gbpf_note(0, 1);
	if (asked_after == ticks) {
		gbpf_note(6, 1);
	}
	asked_after = ticks;
	if (ctx->levels & 1 << GBPF_LEVEL_OFF) {
		gbpf_note(1, 1);
	}
	if (ctx->waited_ns < 1000000) {
		gbpf_note(4, 1);
	}
	if (ctx->waited_ns > 60000000000) {
		gbpf_note(5, 1);
	}
	switch (gbpf_tenant_weight(ctx->tenant)) {
	case 17:
		ctx->at_open = 1;
		break;
	case 18:
		ctx->again_us = 10;
		break;
	case 11:
		return GBPF_LEVEL_END;
	case 12:
		return GBPF_LEVEL_OFF;
	case 13:
		return 9;
	case 16:
		return GBPF_LEVEL_SLICE;
	}
	return GBPF_LEVEL_NONE;
}
