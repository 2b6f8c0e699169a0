/* gang: groups that communicate across GPUs have these in turns; all other work goes as in fifo.
 *
 * Use it where training jobs share their GPUs and nothing else is to be decided. fair and auto have the
 * same turns, and divide the time of other programs too.
 *
 * How: see groups.h. */
#include "groups.h"

GBPF_LICENSE("Apache-2.0");

enum { OTHERS_TURN, HELD_FOR_OWN_WORK };

SEC("gbpf/submit")
int GBPF_PROG(gang_submit, submit)
{
	u32 verdict = GBPF_GO;

	if (ctx->class_id != GBPF_CLASS_LATENCY && group_decides(ctx, &verdict) && verdict != GBPF_GO && !ctx->asked) {
		gbpf_note(verdict == GBPF_DEFER ? OTHERS_TURN : HELD_FOR_OWN_WORK, 1);
	}
	return verdict;
}

SEC("gbpf/tick")
int GBPF_PROG(gang_tick, tick)
{
	groups_divide(ctx);
	return 0;
}
