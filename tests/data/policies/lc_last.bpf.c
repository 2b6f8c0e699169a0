/* lc_last: for tests only. lc_first with its verdicts exchanged: what that holds goes, what that
 * lets go is held. When the latencies of a machine follow this exchange, decisions are the policy's
 * and not the mechanism's. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/submit")
int GBPF_PROG(lc_last_submit, submit)
{
	if (ctx->class_id == GBPF_CLASS_LATENCY && ctx->held_ns < 5000000) {
		ctx->hold_ns = 5000000;
		return GBPF_DEFER;
	}
	return GBPF_GO;
}
