/* Holds every piece of every copy in pieces, for copy_shares.bats; other copies go. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

SEC("gbpf/copy_enqueue")
int GBPF_PROG(hold_copies, copy_enqueue)
{
	return ctx->cut ? GBPF_COPY_HOLD : GBPF_COPY_GO;
}
