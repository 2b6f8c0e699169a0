/* One half of a policy: what it asks lies in the other one. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

extern int too_much(u64 n);

SEC("gbpf/submit")
int GBPF_PROG(rules_submit, submit)
{
	return too_much(ctx->inflight) ? GBPF_HOLD : GBPF_GO;
}
