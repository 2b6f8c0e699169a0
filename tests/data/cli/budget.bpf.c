/* Refused: ends, but its longest path is above the budget of submit. */
#include "gbpf/gbpf.bpf.h"

SEC("gbpf/submit") int GBPF_PROG(too_long, submit)
{
	volatile u32 sum = 0;

	for (u32 i = 0; i < 5000; i++) {
		sum += i;
	}
	return sum == 1 ? GBPF_HOLD : GBPF_GO;
}

GBPF_LICENSE("Apache-2.0");
