/* Refused: a loop whose end cannot be proved. */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(endless, submit)
{
	volatile u64 x = ctx->est_ns;

	while (x != 1) {
		x = x & 1 ? 3 * x + 1 : x / 2;
	}
	return GBPF_GO;
}

GBPF_LICENSE("Apache-2.0");
